#include "ps/journal.h"

#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "base/clock.h"
#include "doc/json.h"

#define LINE_MAX_BYTES ((size_t)16 << 20)

void kml_journal_init(struct kml_journal *m)
{
    *m = (struct kml_journal){.rate = 0};
    kml_buf_init(&m->line, LINE_MAX_BYTES);
}

void kml_journal_finish(struct kml_journal *m)
{
    kml_buf_finish(&m->line);
}

static void begin(struct kml_journal *m, struct kml_json *w, const char *event)
{
    char time[32];
    kml_format_time(kml_wall_ns(), time);
    kml_buf_clear(&m->line);
    kml_json_begin(w, &m->line);
    kml_json_text(w, "event", event);
    kml_json_text(w, "time", time);
}

/* Whoever reads the metrics may be gone: training goes on without. */
static void end(struct kml_journal *m, struct kml_json *w)
{
    struct kml_err ignored;
    if (kml_json_end(w, &ignored) < 0) {
        return;
    }
    const uint8_t *at = m->line.data;
    size_t left = m->line.size;
    while (left > 0) {
        ssize_t n = write(STDOUT_FILENO, at, left);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return;
        }
        at += n;
        left -= (size_t)n;
    }
}

static double seconds(double ns)
{
    return ns / 1e9;
}

double kml_journal_rate(const struct kml_journal *m, const struct kml_conductor *c)
{
    if (kml_conductor_over(c) || m->rate == 0) {
        return c->training_ns > 0 ? (double)c->samples / seconds(c->training_ns) : 0;
    }
    return m->rate;
}

double kml_journal_remaining(const struct kml_conductor *c)
{
    double fraction = kml_conductor_fraction(c);
    if (c->phase != KML_PHASE_TRAINING || fraction < 0.001) {
        return 0;
    }
    return seconds(c->training_ns + c->evaluation_ns) / fraction * (1 - fraction);
}

void kml_journal_listening(struct kml_journal *m, const char *address)
{
    struct kml_json w;
    begin(m, &w, "listening");
    kml_json_text(&w, "address", address);
    end(m, &w);
}

static void put_time(struct kml_json *w, const struct kml_conductor *c)
{
    kml_json_real(w, "training_seconds", seconds(c->training_ns));
    kml_json_real(w, "evaluation_seconds", seconds(c->evaluation_ns));
}

static void put_accuracy(struct kml_json *w, double accuracy)
{
    if (!isnan(accuracy)) {
        kml_json_real(w, "accuracy", accuracy);
    }
}

static void put_share(struct kml_json *w, const struct kml_balance *b, uint32_t worker,
                      const struct kml_share_line *line)
{
    double measured = kml_balance_measured(b, worker);
    double predicted = kml_balance_predicted(b, worker);
    kml_json_map(w, NULL);
    kml_json_uint(w, "worker", worker);
    kml_json_uint(w, "before", line->before);
    kml_json_uint(w, "after", line->after);
    if (measured > 0) {
        kml_json_real(w, "speed", measured);
    }
    if (predicted > 0) {
        kml_json_real(w, "predicted", predicted);
        kml_json_text(w, "expert", kml_expert_name((enum kml_expert)line->expert));
    }
    kml_json_close(w);
}

static void put_decision(struct kml_json *w, const struct kml_conductor *c,
                         const struct kml_share_decision *d)
{
    kml_json_text(w, "kind", kml_share_kind_name(d->kind));
    kml_json_text(w, "reason", kml_share_reason_name(d->reason));
    kml_json_bool(w, "applied", d->applied);
    kml_json_uint(w, "version", c->barrier.version);
    kml_json_uint(w, "total", d->total);
    kml_json_real(w, "imbalance", d->imbalance);
    kml_json_real(w, "expected_gain", d->expected_gain);
    if (!isnan(d->realised_gain)) {
        kml_json_real(w, "realised_gain", d->realised_gain); /* of the change before this one */
    }
    kml_json_list(w, "shares");
    for (uint32_t i = 0; i < d->lines; i++) {
        if (d->line[i].present) {
            put_share(w, &c->balance, i, &d->line[i]);
        }
    }
    kml_json_close(w);
}

void kml_journal_record(struct kml_journal *m, const struct kml_conductor *c, const struct kml_record *r)
{
    static const char *const names[] = {
        [KML_RECORD_PHASE] = "phase",
        [KML_RECORD_WORKER_JOINED] = "worker_joined",
        [KML_RECORD_WORKER_LEFT] = "worker_left",
        [KML_RECORD_EPOCH] = "epoch",
        [KML_RECORD_EVALUATION] = "evaluation",
        [KML_RECORD_WARNING] = "warning",
        [KML_RECORD_BALANCE] = "decision",
    };
    struct kml_json w;
    begin(m, &w, names[r->kind]);
    switch (r->kind) {
    case KML_RECORD_PHASE:
        kml_json_text(&w, "phase", r->text);
        break;
    case KML_RECORD_WORKER_JOINED:
    case KML_RECORD_WORKER_LEFT:
        kml_json_uint(&w, "worker", r->worker);
        kml_json_uint(&w, "incarnation", r->incarnation);
        if (r->text != NULL) {
            kml_json_text(&w, "why", r->text);
        }
        break;
    case KML_RECORD_EVALUATION:
        kml_json_text(&w, "set", r->test ? "test" : "validation");
        kml_json_real(&w, "loss", r->loss);
        put_accuracy(&w, r->accuracy);
        kml_json_uint(&w, "epoch", r->epoch);
        kml_json_uint(&w, "version", r->version);
        break;
    case KML_RECORD_EPOCH:
        kml_json_uint(&w, "epoch", r->epoch);
        kml_json_uint(&w, "version", r->version);
        kml_json_real(&w, "train_loss", r->train_loss);
        break;
    case KML_RECORD_WARNING:
        kml_json_text(&w, "text", r->text);
        break;
    case KML_RECORD_BALANCE:
        put_decision(&w, c, r->decision);
        break;
    }
    put_time(&w, c);
    end(m, &w);
}

static void put_worker(struct kml_json *w, const struct kml_conductor *c, uint32_t index)
{
    static const char *const states[] = {"away", "idle", "training", "evaluating"};
    const struct kml_conductor_worker *k = &c->worker[index];
    kml_json_map(w, NULL);
    kml_json_uint(w, "worker", index);
    kml_json_text(w, "state", states[k->state]);
    kml_json_uint(w, "samples", k->samples);
    kml_json_uint(w, "steps", k->steps);
    kml_json_real(w, "share", c->samples > 0 ? (double)k->samples / (double)c->samples : 0);
    kml_json_real(w, "speed", k->speed);
    kml_json_uint(w, "staleness", k->staleness);
    kml_json_real(w, "compute_seconds", seconds((double)k->compute_ns));
    kml_json_real(w, "wait_seconds", seconds((double)k->wait_ns));
    if (k->cpu_known) {
        kml_json_real(w, "cpu_cores", k->cpu_cores);
    }
    kml_json_close(w);
}

static void put_progress(struct kml_journal *m, const struct kml_conductor *c, const char *event,
                         const char *model, uint64_t bytes)
{
    struct kml_json w;
    begin(m, &w, event);
    if (kml_conductor_over(c)) {
        kml_json_text(&w, "phase", kml_phase_name(c->phase));
        kml_json_text(&w, "reason", c->reason);
        kml_json_text(&w, "message", c->message);
        kml_json_text(&w, "model", model);
        kml_json_uint(&w, "model_bytes", bytes);
    }
    kml_json_uint(&w, "epoch", c->ledger.closed);
    kml_json_real(&w, "fraction", kml_conductor_fraction(c));
    kml_json_uint(&w, "version", c->barrier.version);
    kml_json_uint(&w, "samples", c->samples);
    kml_json_real(&w, "samples_per_second", kml_journal_rate(m, c));
    kml_json_real(&w, "train_loss", c->train_loss);
    if (c->has_evaluation) {
        kml_json_real(&w, "loss", c->loss);
        put_accuracy(&w, c->accuracy);
    }
    put_time(&w, c);
    kml_json_uint(&w, "refused_gradients", c->steps.refused);
    kml_json_list(&w, "workers");
    for (uint32_t i = 0; i < c->workers; i++) {
        put_worker(&w, c, i);
    }
    kml_json_close(&w);
    end(m, &w);
}

void kml_journal_progress(struct kml_journal *m, const struct kml_conductor *c, uint64_t now)
{
    if (now < m->next_ns || c->phase != KML_PHASE_TRAINING) {
        return;
    }
    m->next_ns = now + KML_PROGRESS_NS;
    double trained = seconds(c->training_ns);
    if (trained > m->last_seconds) {
        m->rate = (double)(c->samples - m->last_samples) / (trained - m->last_seconds);
    }
    m->last_seconds = trained;
    m->last_samples = c->samples;
    put_progress(m, c, "progress", NULL, 0);
}

void kml_journal_over(struct kml_journal *m, const struct kml_conductor *c, const char *model, uint64_t bytes)
{
    put_progress(m, c, "finished", model, bytes);
}
