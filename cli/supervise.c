#include "cli/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/mem.h"

#define LAUNCH_NS (30 * KML_SECOND) /* PS-0 has so long to say where it listens */
#define ASK_NS (200 * KML_MILLISECOND)
#define METRICS_NS (5 * KML_SECOND)
#define PROGRESS_NS (2 * KML_SECOND)    /* between plain progress lines */
#define ORPHAN_NS (KML_SECOND / 2)      /* from the end of PS-0 to TERM for who is left */
#define KILL_NS (5 * KML_SECOND)        /* from TERM to KILL */
#define ANSWER_NS (5 * KML_MILLISECOND) /* how long a pass may wait for an answer of the conductor */
#define STATUS_MOST ((size_t)1 << 20)
#define LINE_MOST ((size_t)1 << 20)
#define FINISHED "{\"event\":\"finished\","

static bool anybody_runs(const struct kml_supervisor *s)
{
    for (uint32_t i = 0; i < kml_crew_size(s->crew); i++) {
        if (s->crew->child[i].pid != 0) {
            return true;
        }
    }
    return false;
}

static void signal_all(struct kml_supervisor *s, int signal)
{
    for (uint32_t i = 0; i < kml_crew_size(s->crew); i++) {
        kml_child_signal(&s->crew->child[i], signal);
    }
}

/* ---- Starting ---- */

static void start(struct kml_supervisor *s, uint32_t i, uint64_t now)
{
    struct kml_err err;
    s->process[i] = (struct kml_supervised){.judged = true};
    if (kml_crew_start(s->crew, i, &err) < 0) {
        kml_outcome_set(s->outcome, KML_OUTCOME_FAILED, kml_code_exit(err.code), "LaunchFailed", "%s",
                        err.text);
        kml_supervisor_close(s, 0, now);
        return;
    }
    s->process[i].judged = false;
    kml_procstat_read(s->crew->child[i].pid, now, &s->process[i].before);
}

static void connect_driver(struct kml_supervisor *s, struct kml_err *err)
{
    kml_auto_free char *tls = s->crew->tls ? kml_run_folder_tls_of(s->crew->folder, "driver", 0) : NULL;
    if (kml_driver_open(&s->driver, s->loop, s->crew->conductor, tls, s->crew->uid, err) < 0) {
        kml_outcome_set(s->outcome, KML_OUTCOME_FAILED, kml_code_exit(err->code), "LaunchFailed", "%s",
                        err->text);
    }
}

/* PS-0 listens: now everybody else can find it. */
static void launch_others(struct kml_supervisor *s, uint64_t now)
{
    struct kml_err err;
    s->stage = KML_STAGE_RUNNING;
    s->next_ask = now;
    s->next_metrics = now + METRICS_NS;
    connect_driver(s, &err);
    for (uint32_t i = 1; i < kml_crew_size(s->crew) && s->outcome->kind == KML_OUTCOME_NONE; i++) {
        start(s, i, now);
    }
    if (s->outcome->kind != KML_OUTCOME_NONE) {
        kml_supervisor_close(s, 0, now);
    }
}

static void restart_due(struct kml_supervisor *s, uint64_t now)
{
    for (uint32_t i = 0; i < kml_crew_size(s->crew) && s->stage == KML_STAGE_RUNNING; i++) {
        if (s->process[i].restart_at != 0 && s->process[i].restart_at <= now) {
            start(s, i, now);
        }
    }
}

/* ---- PS-0's stdout: kept in metrics.jsonl, and read for the one line that we wait for ---- */

static void keep(struct kml_supervisor *s, const uint8_t *data, size_t size)
{
    while (size > 0 && s->metrics >= 0) {
        ssize_t done = write(s->metrics, data, size);
        if (done < 0 && errno != EINTR) {
            kml_supervisor_say(s, "warning: cannot write metrics.jsonl: %s", strerror(errno));
            (void)close(s->metrics);
            s->metrics = -1;
        } else if (done > 0) {
            data += done;
            size -= (size_t)done;
        }
    }
}

static void take_line(struct kml_supervisor *s, uint64_t now)
{
    char *address = s->stage == KML_STAGE_LAUNCHING ? kml_crew_listening(kml_buf_text(&s->line)) : NULL;
    if (strncmp(kml_buf_text(&s->line), FINISHED, strlen(FINISHED)) == 0) {
        kml_free(s->finished);
        s->finished = kml_strdup(kml_buf_text(&s->line));
    }
    kml_buf_clear(&s->line);
    if (address != NULL) {
        s->crew->conductor = address;
        launch_others(s, now);
    }
}

static void take_output(struct kml_supervisor *s, const uint8_t *data, size_t size, uint64_t now)
{
    keep(s, data, size);
    while (size > 0) {
        const uint8_t *stop = memchr(data, '\n', size);
        size_t length = stop == NULL ? size : (size_t)(stop - data);
        if (kml_buf_append(&s->line, data, length, NULL) < 0) {
            kml_buf_clear(&s->line); /* no line of ours is so long */
        }
        if (stop != NULL) {
            take_line(s, now);
            length++;
        }
        data += length;
        size -= length;
    }
}

static void read_output(struct kml_supervisor *s, uint64_t now)
{
    uint8_t some[16384];
    struct kml_child *ps = &s->crew->child[0];
    while (ps->out >= 0) {
        ssize_t got = read(ps->out, some, sizeof some);
        if (got > 0) {
            take_output(s, some, (size_t)got, now);
        } else if (got == 0) {
            (void)close(ps->out);
            ps->out = -1;
        } else if (errno != EINTR) {
            return; /* nothing more for now */
        }
    }
}

/* ---- Signals and ends ---- */

static void take_signal(struct kml_supervisor *s, int signal, uint64_t now)
{
    if (s->signal == 0 && s->stage != KML_STAGE_CLOSING && s->stage != KML_STAGE_SAVING) {
        s->signal = signal;
        kml_supervisor_stop(s, KML_STOP_SIGNAL, now);
        return;
    }
    /* Again, or while a stop is under way: enough waited. */
    s->signal = s->signal == 0 ? signal : s->signal;
    kml_outcome_set(s->outcome, KML_OUTCOME_STOPPED, 128 + s->signal, KML_STOP_SIGNAL,
                    "killed by a second signal; nothing was saved");
    kml_supervisor_close(s, 0, now);
    signal_all(s, SIGKILL);
}

static void read_signals(struct kml_supervisor *s, uint64_t now)
{
    struct signalfd_siginfo info;
    while (read(s->options->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo != SIGCHLD) {
            take_signal(s, (int)info.ssi_signo, now);
        }
    }
}

static void reap(struct kml_supervisor *s, uint64_t now)
{
    for (uint32_t i = 0; i < kml_crew_size(s->crew); i++) {
        if (kml_child_reap(&s->crew->child[i], now)) {
            s->next_ask = now; /* the conductor may know why */
        }
    }
    if (s->crew->child[0].pid == 0) {
        read_output(s, now);
    }
}

/* ---- Time ---- */

static void check_deadlines(struct kml_supervisor *s, uint64_t now)
{
    uint64_t active = s->crew->job->run_policy.active_deadline_seconds;
    uint64_t before = s->crew->job->run_policy.pre_running_deadline_seconds;
    uint64_t since = (now - s->started_ns) / KML_SECOND;
    if (active != 0 && since >= active) {
        kml_supervisor_stop(s, KML_STOP_DEADLINE, now);
    } else if (before != 0 && since >= before && !s->trained) {
        kml_outcome_set(s->outcome, KML_OUTCOME_FAILED, kml_code_exit(KML_TIMEOUT),
                        "PreRunningDeadlineExceeded",
                        "training did not begin within runPolicy.preRunningDeadlineSeconds, %llu s",
                        (unsigned long long)before);
        kml_supervisor_close(s, 0, now);
    }
}

static void close_down(struct kml_supervisor *s, uint64_t now)
{
    if (!s->terminated && s->crew->child[0].pid == 0 &&
        s->stage_until > s->crew->child[0].ended_ns + ORPHAN_NS) {
        s->stage_until =
            s->crew->child[0].ended_ns + ORPHAN_NS; /* nobody will tell the others anything any more */
    }
    if (!s->terminated && now >= s->stage_until) {
        signal_all(s, SIGTERM);
        s->terminated = true;
        s->stage_until = now + KILL_NS;
    } else if (s->terminated && now >= s->stage_until) {
        signal_all(s, SIGKILL);
        s->stage_until = now + KILL_NS;
    }
}

static void ask(struct kml_supervisor *s, uint64_t now)
{
    if (now >= s->next_ask && !s->driver.asking) {
        kml_driver_ask(&s->driver, now);
        s->next_ask = now + ASK_NS;
    }
    if (now >= s->next_metrics) {
        kml_supervisor_metrics(s, now);
        s->next_metrics = now + METRICS_NS;
    }
}

static void tick(struct kml_supervisor *s, uint64_t now)
{
    switch (s->stage) {
    case KML_STAGE_LAUNCHING:
        if (now >= s->stage_until) {
            kml_outcome_set(s->outcome, KML_OUTCOME_FAILED, kml_code_exit(KML_TIMEOUT), "LaunchFailed",
                            "kunal-ps-0 did not say within 30 s where it listens; see %s",
                            s->crew->child[0].log);
            kml_supervisor_close(s, 0, now);
        }
        check_deadlines(s, now);
        break;
    case KML_STAGE_RUNNING:
        ask(s, now);
        restart_due(s, now);
        if (s->stage == KML_STAGE_RUNNING) {
            check_deadlines(s, now);
        }
        break;
    case KML_STAGE_SAVING:
        ask(s, now);
        if (now >= s->stage_until) {
            kml_supervisor_stopped(s, "the conductor did not save within 10 s", now);
        }
        break;
    case KML_STAGE_CLOSING:
        close_down(s, now);
        break;
    }
}

/* ---- The loop ---- */

static void report(struct kml_supervisor *s, uint64_t now)
{
    struct kml_err err;
    if (kml_supervisor_write_status(s, now, &err) < 0) {
        kml_supervisor_say(s, "warning: --status-file: %s", err.text);
    }
}

static void take_status(struct kml_supervisor *s, uint64_t now)
{
    if (s->driver.answered_ns == s->heard_ns) {
        return;
    }
    s->heard_ns = s->driver.answered_ns;
    if (s->stage != KML_STAGE_CLOSING) {
        kml_supervisor_progress(s, now);
        kml_supervisor_status(s, now);
    }
    report(s, now);
}

static int sleep_ms(const struct kml_supervisor *s, uint64_t now)
{
    if (s->driver.calls > 0) {
        return 0; /* gRPC does the waiting */
    }
    uint64_t until = now + ASK_NS / 4;
    until = s->stage == KML_STAGE_RUNNING && s->next_ask < until ? s->next_ask : until;
    return until <= now ? 0 : (int)((until - now) / KML_MILLISECOND) + 1;
}

static void pass(struct kml_supervisor *s)
{
    uint64_t now = kml_now(&s->clock);
    struct pollfd fds[] = {{.fd = s->options->signals, .events = POLLIN},
                           {.fd = s->crew->child[0].out, .events = POLLIN}};
    (void)poll(fds, KML_COUNT(fds), sleep_ms(s, now));
    (void)kml_loop_run(s->loop, s->driver.calls > 0 ? now + ANSWER_NS : 0, true);
    now = kml_now(&s->clock);
    read_signals(s, now);
    read_output(s, now);
    reap(s, now);
    take_status(s, now);
    kml_supervisor_judge(s, now);
    tick(s, now);
}

static int begin(struct kml_supervisor *s, struct kml_err *err)
{
    uint32_t size = kml_crew_size(s->crew);
    kml_auto_free char *metrics = kml_run_folder_file(s->crew->folder, "metrics.jsonl");
    s->metrics = open(metrics, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (s->metrics < 0) {
        return kml_fail_errno(err, errno, "cannot write %s", metrics);
    }
    s->process = KML_NEW_ARRAY(size, struct kml_supervised);
    s->seat = KML_NEW_ARRAY(s->crew->workers, struct kml_restart_seat);
    s->shown = KML_NEW_ARRAY(s->crew->workers, struct kml_progress_worker);
    kml_restart_init(&s->restart, s->crew->job->worker.restart_policy, s->crew->job->run_policy.backoff_limit,
                     s->seat, s->crew->workers);
    for (uint32_t i = 0; i < size; i++) {
        s->process[i].judged = true; /* nobody has started */
    }
    kml_buf_init(&s->line, LINE_MOST);
    kml_buf_init(&s->written, STATUS_MOST);
    kml_progress_line_init(&s->progress, STDERR_FILENO, PROGRESS_NS);
    s->loop = kml_loop_create();
    s->started_ns = kml_now(&s->clock);
    s->stage_until = s->started_ns + LAUNCH_NS;
    s->wall_start = kml_wall_ns();
    return kml_supervisor_write_status(s, s->started_ns, err);
}

static void finish(struct kml_supervisor *s)
{
    if (s->metrics >= 0) {
        (void)close(s->metrics);
    }
    if (s->loop != NULL) {
        kml_progress_line_end(&s->progress);
        if (s->driver.loop != NULL) {
            kml_driver_close(&s->driver);
        }
        kml_loop_destroy(s->loop);
        kml_buf_finish(&s->line);
        kml_buf_finish(&s->written);
    }
    kml_free(s->finished);
    kml_free(s->process);
    kml_free(s->seat);
    kml_free(s->shown);
}

int kml_supervise(struct kml_crew *crew, const struct kml_supervise_options *options, struct kml_outcome *out,
                  struct kml_err *err)
{
    struct kml_supervisor s = {
        .crew = crew, .options = options, .outcome = out, .clock = kml_clock_monotonic(), .metrics = -1};
    int result = begin(&s, err);
    if (result == 0) {
        start(&s, 0, s.started_ns);
        while (anybody_runs(&s) || s.stage != KML_STAGE_CLOSING) {
            pass(&s);
        }
        report(&s, kml_now(&s.clock));
    }
    finish(&s);
    return result;
}
