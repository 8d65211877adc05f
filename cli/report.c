#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/statusfile.h"
#include "cli/supervise.h"

void kml_supervisor_say(struct kml_supervisor *s, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    kml_progress_line_clear(&s->progress);
    (void)vfprintf(stderr, format, arguments);
    (void)fputc('\n', stderr);
    va_end(arguments);
}

static uint32_t show_workers(struct kml_supervisor *s, const Kunal__V1__JobStatus *status)
{
    uint32_t count = 0;
    for (size_t i = 0; i < status->n_workers && count < s->crew->workers; i++) {
        const Kunal__V1__WorkerStatus *w = status->workers[i];
        if (w->present) {
            s->shown[count++] = (struct kml_progress_worker){w->index, w->share, w->staleness};
        }
    }
    return count;
}

static double known(bool has, double value)
{
    return has ? value : (double)NAN;
}

void kml_supervisor_progress(struct kml_supervisor *s, uint64_t now)
{
    const Kunal__V1__JobStatus *status = s->driver.status;
    for (; s->warnings < status->n_warnings; s->warnings++) {
        kml_supervisor_say(s, "warning: %s", status->warnings[s->warnings]);
    }
    if (s->options->quiet || status->phase == KUNAL__V1__PHASE__STARTING || status->epochs == 0) {
        return;
    }
    uint64_t epoch = status->epoch < status->epochs ? status->epoch + 1 : status->epochs;
    const struct kml_progress p = {
        .epoch = (uint32_t)epoch,
        .epochs = (uint32_t)status->epochs,
        .fraction = ((double)status->epoch + status->epoch_fraction) / (double)status->epochs,
        .loss = known(status->samples > 0, status->has_evaluation ? status->loss : status->train_loss),
        .accuracy = known(status->has_accuracy, status->accuracy),
        .samples_per_second = known(status->samples_per_second > 0, status->samples_per_second),
        .seconds_left = known(status->remaining_seconds > 0, status->remaining_seconds),
        .worker = s->shown,
        .workers = show_workers(s, status),
    };
    kml_progress_line_show(&s->progress, &p, now);
}

/* ---- --status-file ---- */

static const char *phase_name(const struct kml_supervisor *s)
{
    static const char *const ends[] = {"", "Succeeded", "Failed", "Stopped"};
    if (s->outcome->kind != KML_OUTCOME_NONE) {
        return ends[s->outcome->kind];
    }
    for (uint32_t i = 0; i < kml_crew_size(s->crew); i++) {
        if (s->process[i].restart_at != 0) {
            return "Restarting";
        }
    }
    return s->trained ? "Running" : "Created";
}

static struct kml_status_role role_of(const struct kml_supervisor *s, uint32_t from, uint32_t count,
                                      uint32_t ready)
{
    struct kml_status_role r = {.desired = count, .ready = ready};
    for (uint32_t i = from; i < from + count; i++) {
        const struct kml_child *child = &s->crew->child[i];
        bool ended = child->pid == 0 && child->ended_ns > 0 && s->process[i].restart_at == 0;
        r.active += child->pid != 0;
        r.succeeded += ended && child->code == 0;
        r.failed += ended && child->code != 0;
    }
    r.ready = r.ready < r.active ? r.ready : r.active;
    return r;
}

static struct kml_status_view view_of(const struct kml_supervisor *s)
{
    const Kunal__V1__JobStatus *status = s->driver.status;
    bool over = s->outcome->kind != KML_OUTCOME_NONE;
    uint32_t present = 0;
    for (size_t i = 0; status != NULL && i < status->n_workers; i++) {
        present += status->workers[i]->present != 0;
    }
    struct kml_status_view v = {
        .phase = phase_name(s),
        .reason = over && s->outcome->reason[0] != '\0' ? s->outcome->reason : NULL,
        .message = over ? s->outcome->message : NULL,
        .start_ns = s->wall_start,
        .running_ns = s->wall_running,
        .completion_ns = over ? s->wall_end : 0,
        .ps = role_of(s, 0, s->crew->shards, status == NULL ? 0 : status->shards_present),
        .worker = role_of(s, s->crew->shards, s->crew->workers, present),
        .model = s->outcome->model,
        .training = status,
    };
    v.worker.restarts = s->restart.restarts;
    return v;
}

static int write_status(struct kml_supervisor *s, struct kml_status_view *v, struct kml_err *err)
{
    struct kml_buf text;
    kml_buf_init(&text, s->written.max);
    v->updated_ns = kml_wall_ns();
    int result = kml_status_json(v, &text, err);
    if (result == 0) {
        const struct kml_view part = kml_buf_view(&text);
        result = kml_file_write(s->options->status_file, &part, 1, 0644, err);
    }
    kml_buf_finish(&text);
    return result;
}

int kml_supervisor_write_status(struct kml_supervisor *s, uint64_t now, struct kml_err *err)
{
    bool over = s->outcome->kind != KML_OUTCOME_NONE;
    if (s->options->status_file == NULL ||
        (!over && s->written_ns != 0 && now - s->written_ns < KML_SECOND)) {
        return 0;
    }
    if (over && s->wall_end == 0) {
        s->wall_end = kml_wall_ns();
    }
    struct kml_status_view v = view_of(s);
    struct kml_buf fresh;
    kml_buf_init(&fresh, s->written.max);
    int result = kml_status_json(&v, &fresh, err);
    bool same = result == 0 && fresh.size == s->written.size &&
                memcmp(kml_buf_text(&fresh), kml_buf_text(&s->written), fresh.size) == 0;
    if (result == 0 && !same) {
        struct kml_buf old = s->written;
        s->written = fresh;
        fresh = old;
        s->written_ns = now;
        result = write_status(s, &v, err);
    }
    kml_buf_finish(&fresh);
    return result;
}

/* ---- Node metrics: here /proc takes the place of metrics.k8s.io. ---- */

static void measure(struct kml_supervisor *s, uint32_t i, uint64_t now, Kunal__V1__NodeMetric *m)
{
    const struct kml_child *child = &s->crew->child[i];
    struct kml_procstat *before = &s->process[i].before;
    struct kml_procstat reading;
    double cores = 0;
    bool ps = i < s->crew->shards;
    kml_procstat_read(child->pid, now, &reading);
    kunal__v1__node_metric__init(m);
    m->role = ps ? KUNAL__V1__ROLE__PS : KUNAL__V1__ROLE__WORKER;
    m->index = ps ? i : i - s->crew->shards;
    m->cpu_known = kml_procstat_cores(before, &reading, (double)sysconf(_SC_CLK_TCK), &cores);
    m->cpu_cores = cores;
    m->memory_known = reading.known;
    m->memory_bytes = reading.known ? reading.resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
    m->window_ns = m->cpu_known ? reading.at_ns - before->at_ns : 0;
    *before = reading;
}

void kml_supervisor_metrics(struct kml_supervisor *s, uint64_t now)
{
    static char source[] = "proc";
    uint32_t size = kml_crew_size(s->crew);
    kml_auto_free Kunal__V1__NodeMetric *metric = KML_NEW_ARRAY(size, Kunal__V1__NodeMetric);
    kml_auto_free Kunal__V1__NodeMetric **list = KML_NEW_ARRAY(size, Kunal__V1__NodeMetric *);
    Kunal__V1__NodeMetrics all;
    kunal__v1__node_metrics__init(&all);
    for (uint32_t i = 0; i < size; i++) {
        if (s->crew->child[i].pid != 0) {
            measure(s, i, now, &metric[all.n_nodes]);
            list[all.n_nodes] = &metric[all.n_nodes];
            all.n_nodes++;
        }
    }
    all.job_uid = s->driver.uid;
    all.nodes = list;
    all.source = source;
    kml_driver_report(&s->driver, &all);
}
