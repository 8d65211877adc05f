#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/mem.h"
#include "tests/sim/inside.h"

#define HEARTBEAT_NS (2 * KML_SECOND)
#define BACKOFF_NS (200 * KML_MILLISECOND)

/* A promise to itself, void when the worker starts anew or drops the step. */
struct later {
    struct sim_worker *worker;
    uint32_t life;
    uint64_t run;
};

static void work(struct sim_worker *w);

static void later(struct sim_worker *w, uint64_t at, void (*run)(void *self, void *arg), uint64_t number)
{
    struct later *l = KML_NEW(struct later);
    *l = (struct later){w, w->life, number};
    sim_heap_post(&w->sim->heap, at, run, w->sim, l, kml_free);
}

/* True: it still means something, now. A worker that is paused does it afterwards. */
static bool is_due(void *arg, void (*run)(void *self, void *arg))
{
    struct later *l = arg;
    struct sim_worker *w = l->worker;
    if (l->life != w->life) {
        kml_free(l);
        return false;
    }
    if (w->sim->now < w->paused_until) {
        sim_heap_post(&w->sim->heap, w->paused_until, run, w->sim, l, kml_free);
        return false;
    }
    return true;
}

/* ---- Joining ---- */

static void beat(void *self, void *arg)
{
    (void)self;
    if (!is_due(arg, beat)) {
        return;
    }
    struct later *l = arg;
    struct sim_worker *w = l->worker;
    sim_net_say_up(w->control, &(struct sim_message){.word = SIM_HEARTBEAT});
    sim_heap_post(&w->sim->heap, w->sim->now + HEARTBEAT_NS, beat, w->sim, l, kml_free);
}

static void begin_life(void *self, void *arg)
{
    (void)self;
    if (!is_due(arg, begin_life)) {
        return;
    }
    struct sim_worker *w = ((struct later *)arg)->worker;
    kml_free(arg);
    w->state = SIM_JOINING;
    w->incarnation = kml_rng_next(&w->sim->worker_rng) | 1;
    w->control = sim_net_open(w->sim, w->index, w->incarnation, w->life, true, 0);
    sim_net_say_up(w->control, &(struct sim_message){.word = SIM_JOIN});
}

static void forget(struct sim_worker *w)
{
    w->life++;
    w->tasks = 0;
    w->computing = false;
    w->control = NULL;
    for (uint32_t s = 0; s < w->sim->shards; s++) {
        w->data[s] = NULL;
    }
    for (int i = 0; i < 2; i++) {
        w->slot[i].used = false;
        kml_coverage_clear(&w->slot[i].covered);
    }
}

void sim_worker_start(struct sim_worker *w)
{
    w->state = SIM_DOWN;
    later(w, w->sim->now, begin_life, 0);
}

static void leave(struct sim_worker *w)
{
    for (uint32_t s = 0; s < w->sim->shards; s++) {
        if (w->data[s] != NULL && w->data[s]->down) {
            sim_net_leave(w->data[s]);
        }
    }
    if (w->control != NULL && w->control->down) {
        sim_net_leave(w->control);
    }
    forget(w);
}

static bool is_hopeless(enum kml_code code)
{
    return code == KML_INVALID || code == KML_PROTOCOL || code == KML_DENIED || code == KML_CONFLICT;
}

void sim_worker_lost(struct sim_worker *w, const struct kml_err *why)
{
    if (w->state != SIM_JOINING && w->state != SIM_JOINED) {
        return;
    }
    leave(w);
    if (is_hopeless(why->code)) {
        w->state = SIM_GONE;
        w->sim->report.gone++;
        return;
    }
    w->state = SIM_DOWN;
    later(w, w->sim->now + BACKOFF_NS / 4 + kml_rng_below(&w->sim->worker_rng, BACKOFF_NS), begin_life, 0);
}

void sim_worker_die(struct sim_worker *w, bool noticed)
{
    struct kml_stream *control = w->control;
    for (uint32_t s = 0; s < w->sim->shards; s++) {
        if (w->data[s] != NULL) {
            w->data[s]->down = false;
            sim_net_cut(w->data[s], noticed);
        }
    }
    if (control != NULL) {
        control->down = false;
        sim_net_cut(control, noticed);
    }
    forget(w);
    w->state = SIM_DOWN;
    w->paused_until = 0;
}

static void open_data(struct sim_worker *w, uint32_t shard)
{
    struct kml_chunk c = {.shard = shard, .has_open = true};
    c.open = (struct kml_open){.protocol = KML_PROTOCOL_VERSION,
                               .role = KML_ROLE_WORKER,
                               .index = w->index,
                               .incarnation = w->incarnation,
                               .generation = SIM_GENERATION,
                               .checksum = kml_rng_below(&w->sim->worker_rng, 2) == 0};
    (void)snprintf(c.open.job_uid, sizeof c.open.job_uid, "simulated");
    uint8_t header[KML_CHUNK_HEADER_MAX];
    size_t size;
    struct kml_err err;
    KML_BUG_ON(kml_chunk_header(&c, header, &size, &err) < 0);
    w->data[shard] = sim_net_open(w->sim, w->index, w->incarnation, w->life, false, shard);
    sim_net_send_up(w->data[shard], header, size, NULL, 0, false);
}

/* ---- Sending a vector in pieces: cut anywhere, partly twice, in any order ---- */

static void send_piece(struct sim_worker *w, uint32_t shard, struct kml_chunk *c, const float *vector,
                       struct kml_span span)
{
    uint8_t header[KML_CHUNK_HEADER_MAX];
    size_t size;
    struct kml_err err;
    c->shard = shard;
    c->offset = span.begin;
    c->elements = span.end - span.begin;
    c->has_crc = kml_rng_below(&w->sim->worker_rng, 2) == 0;
    c->crc32c = c->has_crc ? kml_crc32c(0, vector + span.begin, c->elements * sizeof *vector) : 0;
    KML_BUG_ON(kml_chunk_header(c, header, &size, &err) < 0);
    sim_net_send_up(w->data[shard], header, size, vector + span.begin, c->elements, true);
}

#define PIECES 16u

static uint32_t cut(struct sim_worker *w, struct kml_span whole, struct kml_span *piece)
{
    struct kml_rng *rng = &w->sim->worker_rng;
    uint64_t most = w->sim->config.pieces == 0 ? 1 : w->sim->config.pieces;
    most = most > PIECES ? PIECES : most;
    uint32_t count = 1 + (uint32_t)kml_rng_below(rng, most);
    uint64_t at = whole.begin;
    uint32_t made = 0;
    while (at < whole.end) {
        uint64_t end = made + 1 == count ? whole.end : at + 1 + kml_rng_below(rng, whole.end - at);
        uint64_t back = kml_rng_below(rng, 4) == 0 ? kml_rng_below(rng, at - whole.begin + 1) : 0;
        piece[made++] = (struct kml_span){at - back, end};
        at = end;
    }
    for (uint32_t i = made; i > 1; i--) {
        uint32_t j = (uint32_t)kml_rng_below(rng, i);
        struct kml_span t = piece[i - 1];
        piece[i - 1] = piece[j];
        piece[j] = t;
    }
    return made;
}

static void send_vector(struct sim_worker *w, struct kml_chunk c, const float *vector)
{
    uint32_t life = w->life;
    for (uint32_t s = 0; s < w->sim->shards; s++) {
        struct kml_span piece[PIECES];
        uint32_t count = cut(w, kml_shardmap_shard(&w->sim->conductor.map, s), piece);
        for (uint32_t i = 0; i < count && w->life == life; i++) {
            send_piece(w, s, &c, vector, piece[i]);
        }
    }
}

static void upload(struct sim_worker *w)
{
    float *start = KML_NEW_ARRAY(w->sim->floats, float);
    sim_problem_start(w->sim->config.problem, start);
    send_vector(w, (struct kml_chunk){.payload = KML_PAYLOAD_PARAMETERS}, start);
    kml_free(start);
}

/* ---- Parameters: two slots, as worker/params.h has them ---- */

static bool is_wanted(const struct sim_worker *w, const struct sim_slot *slot)
{
    return slot->used && w->tasks > 0 && slot->version == w->task[w->first].version;
}

static struct sim_slot *slot_for(struct sim_worker *w, uint64_t version)
{
    struct sim_slot *a = &w->slot[0];
    struct sim_slot *b = &w->slot[1];
    if (a->used && a->version == version) {
        return a;
    }
    if (b->used && b->version == version) {
        return b;
    }
    struct sim_slot *older = !a->used || (b->used && a->version < b->version) ? a : b;
    if (is_wanted(w, older)) {
        older = older == a ? b : a;
    }
    older->used = true;
    older->version = version;
    kml_coverage_clear(&older->covered);
    if (older->value == NULL) {
        older->value = KML_NEW_ARRAY(w->sim->floats, float);
    }
    return older;
}

static const float *complete(const struct sim_worker *w, uint64_t version)
{
    for (int i = 0; i < 2; i++) {
        if (w->slot[i].used && w->slot[i].version == version &&
            kml_coverage_is(&w->slot[i].covered, 0, w->sim->floats)) {
            return w->slot[i].value;
        }
    }
    return NULL;
}

void sim_worker_piece(struct sim_worker *w, uint32_t shard, const struct kml_slices *bytes)
{
    struct kml_chunk c;
    struct kml_err err;
    if (kml_chunk_parse(bytes, &c, &err) < 0) {
        sim_wrong(w->sim, "worker %u cannot read a piece of shard %u: %s", w->index, shard, err.text);
        return;
    }
    struct sim_slot *slot = slot_for(w, c.version);
    if (kml_coverage_is(&slot->covered, 0, w->sim->floats)) {
        return; /* it is here already, and may be in use */
    }
    if (c.offset + c.elements > w->sim->floats || kml_chunk_copy(&c, slot->value + c.offset, &err) < 0 ||
        kml_coverage_add(&slot->covered, c.offset, c.offset + c.elements, &err) < 0) {
        sim_wrong(w->sim, "worker %u cannot take a piece of shard %u", w->index, shard);
        return;
    }
    work(w);
}

/* ---- Work ---- */

static uint32_t samples_of(const struct sim_worker *w, const struct kml_lease *lease, uint32_t *sample)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < lease->count; r++) {
        for (uint64_t p = lease->range[r].begin; p < lease->range[r].end; p++) {
            sample[count++] = sim_problem_sample(w->sim->config.problem, lease->epoch, p);
        }
    }
    return count;
}

static void report_step(struct sim_worker *w, const struct sim_task *t, const float *params)
{
    struct sim *s = w->sim;
    struct sim_score score = {.samples = 0};
    uint32_t *sample = KML_NEW_ARRAY(t->lease.samples, uint32_t);
    uint32_t count = samples_of(w, &t->lease, sample);
    sim_problem_gradient(s->config.problem, params, sample, count, w->gradient, &score);
    kml_free(sample);
    if (s->config.poison != NULL && s->config.poison(s->config.poison_self, w->index, t->step)) {
        w->gradient[t->step % s->floats] = t->step % 2 == 0 ? NAN : INFINITY;
    }
    sim_shadow_computed(s, w->index, w->incarnation, t, params, w->gradient);
    struct sim_message m = {.word = SIM_REPORT};
    m.report = (struct kml_step_report){.step = t->step,
                                        .samples = score.samples,
                                        .loss_sum = score.loss_sum,
                                        .correct = score.correct,
                                        .compute_ns = s->now - w->begun_at};
    uint32_t life = w->life;
    bool report_first = kml_rng_below(&s->worker_rng, 2) == 0;
    if (report_first) {
        sim_net_say_up(w->control, &m);
    }
    send_vector(w,
                (struct kml_chunk){.step = t->step, .version = t->version, .payload = KML_PAYLOAD_GRADIENT},
                w->gradient);
    if (!report_first && w->life == life) {
        sim_net_say_up(w->control, &m);
    }
}

static void report_evaluation(struct sim_worker *w, const struct sim_task *t, const float *params)
{
    struct sim_score score = {.samples = 0};
    sim_problem_evaluate(w->sim->config.problem, params, t->evaluation.test ? SIM_TEST : SIM_VALIDATION,
                         t->evaluation.range.begin, t->evaluation.range.end, &score);
    struct sim_message m = {.word = SIM_EVALUATED};
    m.result = (struct kml_evaluation_result){.lease = t->evaluation.lease,
                                              .samples = score.samples,
                                              .loss_sum = score.loss_sum,
                                              .correct = score.correct,
                                              .has_accuracy = true};
    sim_net_say_up(w->control, &m);
}

static void done(void *self, void *arg)
{
    (void)self;
    if (!is_due(arg, done)) {
        return;
    }
    struct later *l = arg;
    struct sim_worker *w = l->worker;
    struct sim_task t = w->task[w->first];
    bool current = w->computing && w->tasks > 0 && l->run == w->run;
    kml_free(l);
    if (!current) {
        return; /* it was abandoned */
    }
    const float *params = complete(w, t.version);
    KML_BUG_ON(params == NULL);
    t.evaluate ? report_evaluation(w, &t, params) : report_step(w, &t, params);
    w->computing = false;
    w->first = (w->first + 1) % SIM_TASKS;
    w->tasks -= w->tasks > 0;
    work(w);
}

static void work(struct sim_worker *w)
{
    struct sim *s = w->sim;
    const struct sim_task *t = &w->task[w->first];
    if (w->state != SIM_JOINED || w->computing || w->tasks == 0) {
        return;
    }
    const float *params = complete(w, t->version);
    if (params == NULL) {
        return;
    }
    w->computing = true;
    w->begun_at = s->now;
    sim_shadow_got(s, w->index, t->version, params);
    uint64_t sample_ns = s->config.sample_ns == 0 ? KML_MILLISECOND : s->config.sample_ns;
    uint64_t samples = t->evaluate ? t->evaluation.range.end - t->evaluation.range.begin : t->lease.samples;
    uint64_t nominal =
        t->evaluate ? samples * sample_ns / 3 : samples * sample_ns; /* forward is a third of a step */
    uint64_t takes =
        s->config.pace == NULL ? nominal : sim_pace_duration(s->config.pace, w->index, s->now, nominal);
    later(w, s->now + takes, done, ++w->run);
}

static void push(struct sim_worker *w, const struct sim_task *t)
{
    if (w->tasks == SIM_TASKS) {
        sim_wrong(w->sim, "worker %u was given more than %u pieces of work at once", w->index, SIM_TASKS);
        return;
    }
    w->task[(w->first + w->tasks) % SIM_TASKS] = *t;
    w->tasks++;
    work(w);
}

static void abandon(struct sim_worker *w, uint64_t step)
{
    w->sim->report.abandoned++;
    for (uint32_t i = 0; i < w->tasks; i++) {
        struct sim_task *t = &w->task[(w->first + i) % SIM_TASKS];
        if (!t->evaluate && t->step == step) {
            w->computing = i == 0 ? false : w->computing;
            w->tasks = i; /* only the newest waits */
            return;
        }
    }
}

void sim_worker_told(struct sim_worker *w, const struct sim_message *m)
{
    switch (m->word) {
    case SIM_WELCOME:
        w->state = SIM_JOINED;
        for (uint32_t s = 0; s < w->sim->shards; s++) {
            open_data(w, s);
        }
        later(w, w->sim->now + HEARTBEAT_NS, beat, 0);
        break;
    case SIM_UPLOAD:
        upload(w);
        break;
    case SIM_ASSIGN:
        push(w, &(struct sim_task){.step = m->step, .version = m->version, .lease = m->lease});
        break;
    case SIM_EVALUATE:
        push(w, &(struct sim_task){
                    .evaluate = true, .version = m->evaluation.version, .evaluation = m->evaluation});
        break;
    case SIM_ABANDON:
        abandon(w, m->step);
        break;
    case SIM_OVER:
        leave(w);
        w->state = SIM_GONE;
        break;
    case SIM_JOIN:
    case SIM_HEARTBEAT:
    case SIM_REPORT:
    case SIM_EVALUATED:
        break;
    }
}

/* ---- Life ---- */

void sim_worker_init(struct sim_worker *w, struct sim *s, uint32_t index)
{
    *w = (struct sim_worker){.sim = s, .index = index};
    w->data = KML_NEW_ARRAY(s->shards, struct kml_stream *);
    w->gradient = KML_NEW_ARRAY(s->floats, float);
}

void sim_worker_finish(struct sim_worker *w)
{
    for (int i = 0; i < 2; i++) {
        kml_free(w->slot[i].value);
        kml_coverage_finish(&w->slot[i].covered);
    }
    kml_free(w->data);
    kml_free(w->gradient);
}
