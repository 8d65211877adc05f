#include "worker/step.h"

#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "math/vec.h"

/* The loop's timer counts in milliseconds; the rest of a pace is slept off. */
#define FINE_NS (2 * KML_MILLISECOND)

static uint64_t now(void)
{
    struct kml_clock clock = kml_clock_monotonic();
    return kml_now(&clock);
}

static struct kml_model_batch gather(struct kml_train *t, const struct kml_split *split, uint32_t n)
{
    kml_dataset_gather(t->config.data, split, t->index, n, &t->batch);
    return (struct kml_model_batch){
        .x = t->batch.x, .label = t->batch.label, .target = t->batch.target, .n = n};
}

/* ---- The gradient ---- */

/* Where a step stands while its batches are computed. */
struct progress {
    struct kml_train *t;
    uint32_t n;    /* samples of the running micro-batch */
    uint64_t done; /* samples before it */
    uint64_t total;
};

static void send_from(struct kml_train *t, uint64_t low)
{
    struct kml_err err;
    if (t->live && kml_pipe_ready(&t->pipe, low, &err) < 0) {
        t->live = false; /* the pipe has said so to the session */
    }
}

static bool streams(const struct kml_train *t)
{
    return !kml_pace_on(t->config.pace);
}

/* A lease of one batch: the gradient is written where it is sent from. */
static void single_ready(void *self, size_t offset, size_t size)
{
    struct progress *p = self;
    (void)size;
    if (streams(p->t)) {
        send_from(p->t, offset);
    }
}

/* Adds a final range of a micro-batch, weighted by its samples; after the last micro-batch the range is the
 * mean. */
static void part_ready(void *self, size_t offset, size_t size)
{
    struct progress *p = self;
    float *sum = p->t->gradient + offset;
    const float *part = p->t->part + offset;
    float weight = (float)p->n;
    if (p->done == 0) {
        kml_vec_weighted_sum(sum, &part, &weight, 1, size);
    } else {
        kml_vec_axpy(sum, part, weight, size);
    }
    if (p->done + p->n == p->total) {
        kml_vec_scale(sum, 1.0f / (float)p->total, size);
        if (streams(p->t)) {
            send_from(p->t, offset);
        }
    }
}

static bool make_part(struct kml_train *t)
{
    if (t->part == NULL) {
        t->part = kml_try_alloc(t->params.floats * sizeof(float));
    }
    if (t->part == NULL) {
        struct kml_err err;
        (void)kml_fail(&err, KML_NO_MEMORY,
                       "no memory for a second gradient of %zu floats; a batchSize up to %u needs none",
                       t->params.floats, KML_MICRO_BATCH);
        kml_session_fail(&t->session, &err);
        t->live = false;
    }
    return t->live;
}

static bool compute(struct kml_train *t, struct kml_task *task, const float *params, struct kml_score *score)
{
    struct kml_work *work = &task->work;
    const uint32_t *order = kml_orders_get(&t->orders, work->epoch);
    struct progress p = {.t = t, .total = work->samples};
    bool single = work->samples <= KML_MICRO_BATCH;
    if (!single && !make_part(t)) {
        return false;
    }
    while (t->live && (p.n = kml_work_take(work, order, t->index, KML_MICRO_BATCH)) > 0) {
        struct kml_model_batch batch = gather(t, &t->config.data->train, p.n);
        kml_model_gradient(t->config.model, t->workspace, params, &batch, single ? t->gradient : t->part,
                           single ? single_ready : part_ready, &p, score);
        p.done += p.n;
        if (p.done < p.total) {
            kml_train_look(t);
        }
    }
    return t->live;
}

/* ---- Pace ---- */

static void keep_pace(struct kml_train *t, uint64_t begin, uint64_t samples)
{
    uint64_t end = t->began_at + kml_pace_end(t->config.pace, begin - t->began_at, samples);
    uint64_t at = now();
    if (at + FINE_NS < end) {
        kml_train_wait(t, end - FINE_NS);
        at = now();
    }
    if (t->live && at < end) {
        struct timespec rest = {.tv_sec = 0, .tv_nsec = (long)(end - at < KML_SECOND ? end - at : 0)};
        (void)nanosleep(&rest, NULL);
    }
}

/* ---- A step ---- */

static void report(struct kml_train *t, const struct kml_task *task, const struct kml_score *score,
                   uint64_t begin, uint64_t end)
{
    uint64_t cpu = kml_process_cpu_ns();
    Kunal__V1__StepReport m = KUNAL__V1__STEP_REPORT__INIT;
    m.step = task->work.step;
    m.samples = score->samples;
    m.loss_sum = score->loss_sum;
    m.correct = score->correct;
    m.compute_ns = end - begin;
    m.wait_ns = begin - t->pushed_at;
    m.cpu_ns = cpu - t->cpu_at;
    m.throttled_known = kml_throttle_since(&t->throttle, end, &t->throttled_ns);
    m.throttled_ns = t->throttled_ns;
    kml_session_report(&t->session, &m);
    t->cpu_at = cpu;
    t->throttled_ns = 0;
    t->pushed_at = end;
    t->steps++;
    t->samples += score->samples;
}

void kml_step_run(struct kml_train *t, struct kml_task *task, const float *params)
{
    uint64_t begin = now();
    struct kml_score score = {0};
    if (t->began_at == 0) {
        t->began_at = begin;
        kml_info("first step", kv_u("step", task->work.step), kv_u("samples", task->work.samples),
                 kv_u("version", task->work.version));
    }
    t->live = true;
    t->running = task->work.step;
    kml_pipe_begin(&t->pipe, t->gradient, KML_PAYLOAD_GRADIENT, task->work.step);
    if (compute(t, task, params, &score) && kml_pace_on(t->config.pace)) {
        keep_pace(t, begin, task->work.samples);
    }
    uint64_t end = now();
    send_from(t, 0);
    if (t->live) {
        report(t, task, &score, begin, end);
    } else {
        t->pushed_at = end;
        kml_debug("step not sent", kv_u("step", task->work.step));
    }
    t->live = false;
    t->running = UINT64_MAX;
}

/* ---- An evaluation ---- */

static uint32_t next_samples(struct kml_train *t, const struct kml_task *task, uint64_t done)
{
    uint64_t left = task->end - task->begin - done;
    uint32_t n = left < KML_MICRO_BATCH ? (uint32_t)left : KML_MICRO_BATCH;
    for (uint32_t i = 0; i < n; i++) {
        t->index[i] = task->begin + (uint32_t)done + i;
    }
    return n;
}

void kml_step_evaluate(struct kml_train *t, struct kml_task *task, const float *params)
{
    struct kml_score score = {0};
    uint32_t n;
    t->live = true;
    t->running = UINT64_MAX;
    while (t->live && (n = next_samples(t, task, score.samples)) > 0) {
        struct kml_model_batch batch = gather(t, task->split, n);
        kml_model_evaluate(t->config.model, t->workspace, params, &batch, &score);
        kml_train_look(t);
    }
    if (t->live) {
        Kunal__V1__EvaluationResult m = KUNAL__V1__EVALUATION_RESULT__INIT;
        m.lease = task->lease;
        m.samples = score.samples;
        m.loss_sum = score.loss_sum;
        m.correct = score.correct;
        m.has_accuracy = t->config.model->spec.kind != KML_MODEL_LINEAR;
        kml_session_evaluated(&t->session, &m);
    }
    t->live = false;
    t->pushed_at = now();
}
