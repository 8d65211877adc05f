#include "worker/train.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/signals.h"
#include "worker/initial.h"
#include "worker/step.h"

static uint64_t now(void)
{
    struct kml_clock clock = kml_clock_monotonic();
    return kml_now(&clock);
}

/* ---- The queue of work ---- */

static void want_head(struct kml_train *t)
{
    t->params.waiting = t->tasks > 0;
    t->params.waited = t->tasks > 0 ? t->task[t->first].work.version : 0;
}

static struct kml_task *push_task(struct kml_train *t, enum kml_task_kind kind, uint64_t version,
                                  struct kml_err *err)
{
    if (t->tasks == KML_TRAIN_TASKS) {
        (void)kml_fail(err, KML_PROTOCOL, "more than %u pieces of work at once", KML_TRAIN_TASKS);
        return NULL;
    }
    struct kml_task *task = &t->task[(t->first + t->tasks) % KML_COUNT(t->task)];
    kml_work_clear(&task->work);
    task->kind = kind;
    task->work.version = version;
    return task;
}

static void pushed(struct kml_train *t)
{
    t->tasks++;
    want_head(t);
}

static void drop_tasks(struct kml_train *t)
{
    t->tasks = 0;
    t->live = false;
    t->upload_due = false;
    want_head(t);
}

/* ---- From the session ---- */

static int on_joined(void *self, const Kunal__V1__JoinReply *m, struct kml_err *err)
{
    struct kml_train *t = self;
    kml_orders_cut(&t->orders, m->workers);
    t->pipe.config.incarnation = t->session.incarnation;
    if (kml_pipe_open(&t->pipe, m->shards, m->generation, err) < 0) {
        if (kml_pipe_hopeless(err->code)) {
            return -1;
        }
        kml_session_drop(&t->session, err);
        return 0;
    }
    t->pushed_at = now();
    t->cpu_at = kml_process_cpu_ns();
    kml_info("joined", kv_s("conductor", t->config.conductor), kv_u("shards", m->shards->n_shards),
             kv_u("workers", m->workers), kv_u("version", m->version), kv_u("generation", m->generation),
             kv_u("last_step", m->last_step));
    return 0;
}

static int on_assign(void *self, const Kunal__V1__Assign *m, struct kml_err *err)
{
    struct kml_train *t = self;
    struct kml_task *task = push_task(t, KML_TASK_STEP, m->version, err);
    if (task == NULL) {
        return -1;
    }
    if (m->n_ranges == 0 || m->epoch > UINT32_MAX) {
        return kml_fail(err, KML_PROTOCOL, "step %" PRIu64 " of epoch %" PRIu64 " has no samples", m->step,
                        m->epoch);
    }
    task->work.step = m->step;
    task->work.epoch = (uint32_t)m->epoch;
    for (size_t i = 0; i < m->n_ranges; i++) {
        if (kml_work_add(&task->work, m->ranges[i]->begin, m->ranges[i]->end, t->orders.samples, err) < 0) {
            return -1;
        }
    }
    pushed(t);
    return 0;
}

static const struct kml_split *split_of(const struct kml_dataset *d, Kunal__V1__Split split)
{
    switch (split) {
    case KUNAL__V1__SPLIT__TRAIN:
        return &d->train;
    case KUNAL__V1__SPLIT__VALIDATION:
        return &d->validation;
    case KUNAL__V1__SPLIT__TEST:
        return &d->test;
    default:
        return NULL;
    }
}

static int on_evaluate(void *self, const Kunal__V1__Evaluate *m, struct kml_err *err)
{
    struct kml_train *t = self;
    struct kml_task *task = push_task(t, KML_TASK_EVALUATE, m->version, err);
    if (task == NULL) {
        return -1;
    }
    task->split = split_of(t->config.data, m->split);
    if (task->split == NULL || m->begin >= m->end || m->end > task->split->count) {
        return kml_fail(err, KML_PROTOCOL,
                        "evaluation of samples [%" PRIu64 ", %" PRIu64 ") of split %d, which has %u",
                        m->begin, m->end, (int)m->split, task->split == NULL ? 0 : task->split->count);
    }
    task->lease = m->lease;
    task->begin = (uint32_t)m->begin;
    task->end = (uint32_t)m->end;
    pushed(t);
    return 0;
}

static bool same_table(const struct kml_pipe *p, const Kunal__V1__ShardTable *m)
{
    if (p->state != KML_PIPE_OPEN || m->n_shards != p->lanes) {
        return false;
    }
    for (size_t i = 0; i < m->n_shards; i++) {
        const Kunal__V1__ShardEntry *e = m->shards[i];
        const uint64_t *cut = p->config.params->cut;
        if (e->shard >= p->lanes || strcmp(e->address, p->lane[e->shard].address) != 0 ||
            e->begin != cut[e->shard] || e->end != cut[e->shard + 1]) {
            return false;
        }
    }
    return true;
}

/* What was under way to the old shards is void, as after a break: so the same way back, by joining anew. */
static int on_shards(void *self, const Kunal__V1__ShardTable *m, struct kml_err *err)
{
    struct kml_train *t = self;
    (void)err;
    if (!same_table(&t->pipe, m)) {
        struct kml_err why;
        (void)kml_fail(&why, KML_AGAIN, "the shard table changed");
        kml_session_drop(&t->session, &why);
    }
    return 0;
}

static void on_upload(void *self)
{
    struct kml_train *t = self;
    t->upload_due = true;
}

static void on_abandon(void *self, uint64_t step)
{
    struct kml_train *t = self;
    if (t->live && t->running == step) {
        t->live = false;
    }
    /* A step that has not begun can only be the newest that waits, as the conductor gives one at a time. */
    while (t->tasks > 0) {
        const struct kml_task *last = &t->task[(t->first + t->tasks - 1) % KML_COUNT(t->task)];
        if (last->kind != KML_TASK_STEP || last->work.step != step) {
            break;
        }
        t->tasks--;
    }
    want_head(t);
}

static void on_lost(void *self, const struct kml_err *why)
{
    struct kml_train *t = self;
    drop_tasks(t);
    kml_pipe_close(&t->pipe);
    /* Once for an outage, not once for a try. */
    KML_LOG(t->session.backoff.failures <= 1 ? KML_WARN : KML_DEBUG, "no connection, trying to join again",
            kv_s("conductor", t->config.conductor), kv_err(why));
}

static const struct kml_session_ops session_ops = {
    .joined = on_joined,
    .assign = on_assign,
    .evaluate = on_evaluate,
    .shards = on_shards,
    .upload = on_upload,
    .abandon = on_abandon,
    .lost = on_lost,
};

/* ---- From the pipe ---- */

static void on_pipe_lost(void *self, const struct kml_err *why)
{
    struct kml_train *t = self;
    kml_session_drop(&t->session, why);
}

/* ---- Time ---- */

int kml_train_exit_of(int taken)
{
    return taken == KML_SIGNALS_PARENT ? kml_code_exit(KML_CANCELLED) : 128 + taken;
}

/* Does what is due, reading no events. Returns until when the loop may run. */
static uint64_t tick(struct kml_train *t)
{
    uint64_t at = now();
    int taken = t->config.stop_asked == NULL ? 0 : t->config.stop_asked();
    if (taken != 0) {
        kml_session_leave(&t->session,
                          taken == KML_SIGNALS_PARENT ? "its parent process is gone"
                                                      : "told to end by a signal",
                          kml_train_exit_of(taken));
        t->live = false;
    }
    uint64_t pipe = kml_pipe_tick(&t->pipe, at);
    uint64_t session = kml_session_tick(&t->session, at, t->pipe.state == KML_PIPE_DOWN);
    if (t->session.state == KML_SESSION_OVER) {
        t->live = false;
    }
    return pipe < session ? pipe : session;
}

void kml_train_look(struct kml_train *t)
{
    (void)kml_loop_run(t->config.loop, 0, false);
    (void)tick(t);
}

void kml_train_wait(struct kml_train *t, uint64_t until_ns)
{
    while (t->live && now() < until_ns) {
        uint64_t next = tick(t);
        if (t->live) {
            (void)kml_loop_run(t->config.loop, next < until_ns ? next : until_ns, true);
        }
    }
}

/* ---- Working ---- */

static void upload(struct kml_train *t)
{
    struct kml_err err;
    t->upload_due = false;
    if (kml_initial_fill(t->config.model, t->config.initial, t->config.seed, t->gradient, &err) < 0) {
        kml_session_fail(&t->session, &err);
        return;
    }
    kml_pipe_begin(&t->pipe, t->gradient, KML_PAYLOAD_PARAMETERS, 0);
    if (kml_pipe_ready(&t->pipe, 0, &err) == 0) {
        kml_info("initial parameters sent", kv_u("parameters", t->params.floats),
                 kv_s("from", t->config.initial == NULL ? "seed" : t->config.initial));
    }
}

/* Does the next piece of work if everything for it is here. */
static bool work(struct kml_train *t)
{
    if (t->session.state != KML_SESSION_JOINED || t->pipe.state != KML_PIPE_OPEN) {
        return false;
    }
    if (t->upload_due && kml_pipe_free_to_write(&t->pipe)) {
        upload(t);
        return true;
    }
    const float *params = t->tasks == 0 ? NULL : kml_params_get(&t->params, t->task[t->first].work.version);
    if (params == NULL) {
        return false;
    }
    struct kml_task *task = &t->task[t->first];
    if (task->kind == KML_TASK_STEP && !kml_pipe_free_to_write(&t->pipe)) {
        return false;
    }
    t->first = (t->first + 1) % KML_COUNT(t->task);
    t->tasks--;
    want_head(t);
    t->params.computing = true;
    t->params.computed = task->work.version;
    kml_session_serves(&t->session);
    if (task->kind == KML_TASK_STEP) {
        kml_step_run(t, task, params);
    } else {
        kml_step_evaluate(t, task, params);
    }
    t->params.computing = false;
    return true;
}

int kml_train_run(struct kml_train *t, struct kml_err *why)
{
    while (t->session.state != KML_SESSION_OVER) {
        uint64_t next = tick(t);
        if (t->session.state == KML_SESSION_OVER || work(t)) {
            continue;
        }
        /* Bytes that the transport still reads are given back without an event. */
        bool held = (t->tasks > 0 || t->upload_due) && !kml_pipe_free_to_write(&t->pipe);
        uint64_t soon = now() + KML_MILLISECOND / 10;
        (void)kml_loop_run(t->config.loop, held && soon < next ? soon : next, true);
    }
    *why = t->session.why;
    return t->session.exit_code;
}

/* ---- Life ---- */

static float *floats(size_t rows, size_t columns)
{
    return kml_try_alloc(rows * columns * sizeof(float));
}

static int make_buffers(struct kml_train *t, struct kml_err *err)
{
    const struct kml_dataset *d = t->config.data;
    size_t size = t->config.model->size;
    if (t->config.shared && kml_shared_make(&t->memory, KML_AREAS * kml_area_bytes(size), err) < 0) {
        return -1;
    }
    if (kml_params_init(&t->params, size, t->memory.at, err) < 0) {
        return -1;
    }
    t->index = KML_NEW_ARRAY(KML_MICRO_BATCH, uint32_t);
    t->batch.label = KML_NEW_ARRAY(KML_MICRO_BATCH, uint32_t);
    t->batch.target = KML_NEW_ARRAY(KML_MICRO_BATCH, float);
    t->batch.x = floats(KML_MICRO_BATCH, d->features);
    t->gradient = t->config.shared ? kml_area_gradient(t->memory.at) : floats(1, size);
    if (t->batch.x == NULL || t->gradient == NULL) {
        return kml_fail(err, KML_NO_MEMORY, "no memory for a model of %zu parameters and %u features",
                        t->config.model->size, d->features);
    }
    t->workspace = kml_workspace_create(t->config.model, KML_MICRO_BATCH, err);
    return t->workspace == NULL ? -1 : 0;
}

static void free_buffers(struct kml_train *t)
{
    kml_workspace_destroy(t->workspace);
    if (!t->config.shared) {
        kml_free(t->gradient);
    }
    kml_free(t->part);
    kml_free(t->index);
    kml_free(t->batch.x);
    kml_free(t->batch.label);
    kml_free(t->batch.target);
    for (size_t i = 0; i < KML_COUNT(t->task); i++) {
        kml_work_finish(&t->task[i].work);
    }
    kml_params_finish(&t->params);
    kml_shared_finish(&t->memory);
}

int kml_train_init(struct kml_train *t, const struct kml_train_config *config, struct kml_err *err)
{
    *t = (struct kml_train){.config = *config, .running = UINT64_MAX};
    if (make_buffers(t, err) < 0) {
        free_buffers(t);
        return -1;
    }
    kml_orders_init(&t->orders, config->data->train.count, config->shuffle, config->seed);
    kml_throttle_init(&t->throttle, config->root, now());
    struct kml_pipe_config pipe = {.loop = config->loop,
                                   .creds = config->creds,
                                   .params = &t->params,
                                   .uid = config->uid,
                                   .index = config->join->index,
                                   .shared = config->shared ? &t->memory : NULL,
                                   .mtls = config->mtls,
                                   .lost = on_pipe_lost,
                                   .self = t};
    kml_pipe_init(&t->pipe, &pipe);
    struct kml_session_config session = {.loop = config->loop,
                                         .creds = config->creds,
                                         .address = config->conductor,
                                         .join = config->join,
                                         .patience_ns = config->patience_ns,
                                         .ops = &session_ops,
                                         .self = t};
    kml_session_init(&t->session, &session, now());
    return 0;
}

void kml_train_finish(struct kml_train *t)
{
    kml_session_finish(&t->session);
    kml_pipe_finish(&t->pipe);
    kml_throttle_finish(&t->throttle);
    kml_orders_finish(&t->orders);
    free_buffers(t);
}
