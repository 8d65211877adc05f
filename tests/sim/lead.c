#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tests/sim/inside.h"

/* An order on its way to a shard that is not in PS-0. */
enum order_kind {
    ORDER_SETUP,
    ORDER_ADMIT,
    ORDER_DISMISS,
    ORDER_COMMIT,
    ORDER_RELEASE,
    ORDER_PIN,
    ORDER_UNPIN,
    ORDER_GATHER
};

struct order {
    enum order_kind kind;
    struct sim_shard *shard;
    struct kml_shardmap map;
    uint32_t worker;
    uint64_t incarnation;
    struct kml_shard_commit commit;
    struct kml_shard_member *member;
    uint64_t version;
    uint32_t *release;
    uint32_t releases;
};

/* What a shard says back. */
struct answer {
    struct sim_shard *shard;
    bool part; /* of the model */
    uint32_t worker;
    uint64_t incarnation, step;
    double square_sum;
    bool non_finite;
};

/* ---- The end: parts of the model come together ---- */

static void take_part(struct sim *s)
{
    if (++s->parts == s->shards) {
        sim_shadow_saved(s, s->saved_version, s->saved);
        s->report.params = s->saved;
        s->report.saved_version = s->saved_version;
        kml_conductor_saved(&s->conductor, s->now);
    }
}

static void read_part(struct sim_shard *sh, uint64_t version)
{
    struct kml_shard *shard = kml_host_shard(sh->host);
    for (uint32_t c = 0; c < kml_shard_chunks(shard); c++) {
        struct kml_span span = kml_shard_span(shard, c);
        struct kml_block *block = kml_shard_block(shard, version, c);
        if (block == NULL) {
            sim_wrong(sh->sim, "shard %u has not got version %llu to be saved", sh->index,
                      (unsigned long long)version);
            return;
        }
        memcpy(sh->sim->saved + span.begin, kml_block_data(block), (span.end - span.begin) * sizeof(float));
        kml_block_drop(block);
    }
}

/* ---- From the shards ---- */

static void answer_comes(void *self, void *arg)
{
    struct sim *s = self;
    struct answer a = *(struct answer *)arg;
    kml_free(arg);
    if (!a.shard->here) {
        return;
    }
    if (a.part) {
        take_part(s);
        return;
    }
    kml_conductor_staged(&s->conductor, a.shard->index, a.worker, a.incarnation, a.step, a.square_sum,
                         a.non_finite, s->now);
}

static void post_answer(struct sim_shard *sh, const struct answer *a)
{
    struct sim *s = sh->sim;
    struct answer *copy = KML_NEW(struct answer);
    *copy = *a;
    uint64_t at = s->now + sim_net_delay(s);
    at = at > sh->last_answer ? at : sh->last_answer + 1;
    sh->last_answer = at;
    sim_heap_post(&s->heap, at, answer_comes, s, copy, kml_free);
}

static void shard_staged(void *self, uint32_t worker, uint64_t incarnation, uint64_t step, double square_sum,
                         bool non_finite)
{
    struct sim_shard *sh = self;
    struct sim *s = sh->sim;
    struct answer a = {sh, false, worker, incarnation, step, square_sum, non_finite};
    if (sh->index == 0) {
        kml_conductor_staged(&s->conductor, 0, worker, incarnation, step, square_sum, non_finite, s->now);
        return;
    }
    post_answer(sh, &a);
    if (sim_chance(s, s->config.faults.twice)) {
        s->report.twice++;
        post_answer(sh, &a);
    }
}

static void shard_failed(void *self, const struct kml_err *err)
{
    struct sim_shard *sh = self;
    sim_wrong(sh->sim, "shard %u cannot carry out an order: %s", sh->index, err->text);
    kml_conductor_fail(&sh->sim->conductor, "ParameterServerFailed", err->text, 70, sh->sim->now);
}

/* ---- To the shards ---- */

static void order_drop(void *arg)
{
    struct order *o = arg;
    kml_free(o->member);
    kml_free(o->release);
    kml_free(o);
}

static void carry_out(struct order *o)
{
    struct kml_host *h = o->shard->host;
    switch (o->kind) {
    case ORDER_SETUP:
        kml_host_setup(h, &o->map, o->shard->index, SIM_GENERATION);
        break;
    case ORDER_ADMIT:
        kml_host_admit(h, o->worker, o->incarnation);
        break;
    case ORDER_DISMISS:
        kml_host_dismiss(h, o->worker, o->incarnation);
        break;
    case ORDER_COMMIT:
        kml_host_commit(h, &o->commit, o->release, o->releases);
        break;
    case ORDER_RELEASE:
        kml_host_release(h, o->version, o->release, o->releases);
        break;
    case ORDER_PIN:
        kml_host_pin(h, o->version);
        break;
    case ORDER_UNPIN:
        kml_host_unpin(h, o->version);
        break;
    case ORDER_GATHER:
        read_part(o->shard, o->version);
        if (o->shard->index == 0) {
            take_part(o->shard->sim);
        } else {
            post_answer(o->shard, &(struct answer){.shard = o->shard, .part = true});
        }
        break;
    }
}

static void order_comes(void *self, void *arg)
{
    (void)self;
    struct order *o = arg;
    if (o->shard->here) {
        carry_out(o);
    }
    order_drop(o);
}

static struct order *order_copy(const struct order *o)
{
    struct order *copy = KML_NEW(struct order);
    *copy = *o;
    copy->release = KML_NEW_ARRAY(o->releases + 1, uint32_t);
    copy->member = KML_NEW_ARRAY(o->commit.count + 1, struct kml_shard_member);
    if (o->releases > 0) {
        memcpy(copy->release, o->release, o->releases * sizeof *o->release);
    }
    if (o->commit.count > 0) {
        memcpy(copy->member, o->commit.member, o->commit.count * sizeof *copy->member);
    }
    copy->commit.member = copy->member;
    return copy;
}

/* Messages to the others first, then the call to our own shard, as PS-0 does it. */
static void order(struct sim *s, struct order *o)
{
    for (uint32_t k = 1; k < s->shards; k++) {
        struct sim_shard *sh = &s->shard[k];
        bool twice =
            o->kind != ORDER_SETUP && o->kind != ORDER_GATHER && sim_chance(s, s->config.faults.twice);
        s->report.twice += twice;
        o->shard = sh;
        uint64_t at = s->now + sim_net_delay(s);
        at = at > sh->last_order ? at : sh->last_order + 1;
        sh->last_order = at;
        for (int i = 0; i <= twice; i++) {
            sim_heap_post(&s->heap, at, order_comes, s, order_copy(o), order_drop);
        }
    }
    o->shard = &s->shard[0];
    carry_out(o);
}

static void sink_setup(void *self, const struct kml_shardmap *map, uint64_t generation)
{
    (void)generation;
    order(self, &(struct order){.kind = ORDER_SETUP, .map = *map});
}

static void sink_admit(void *self, uint32_t worker, uint64_t incarnation)
{
    order(self, &(struct order){.kind = ORDER_ADMIT, .worker = worker, .incarnation = incarnation});
}

static void sink_dismiss(void *self, uint32_t worker, uint64_t incarnation)
{
    order(self, &(struct order){.kind = ORDER_DISMISS, .worker = worker, .incarnation = incarnation});
}

static void sink_commit(void *self, const struct kml_commit *c)
{
    struct sim *s = self;
    sim_shadow_commit(s, c);
    for (uint32_t i = 0; i < c->count; i++) {
        s->member[i] = (struct kml_shard_member){c->member[i].worker, c->member[i].incarnation,
                                                 c->member[i].step, c->member[i].coefficient};
    }
    struct order o = {.kind = ORDER_COMMIT, .releases = c->releases};
    o.commit = (struct kml_shard_commit){.version = c->version,
                                         .member = s->member,
                                         .count = c->count,
                                         .learning_rate = c->learning_rate * c->step_scale};
    o.release = KML_NEW_ARRAY(c->releases + 1, uint32_t);
    memcpy(o.release, c->release, c->releases * sizeof *o.release);
    order(s, &o);
    kml_free(o.release);
}

static void sink_release(void *self, uint64_t version, const uint32_t *workers, uint32_t count)
{
    struct order o = {.kind = ORDER_RELEASE, .version = version, .releases = count};
    o.release = KML_NEW_ARRAY(count + 1, uint32_t);
    memcpy(o.release, workers, count * sizeof *o.release);
    order(self, &o);
    kml_free(o.release);
}

static void sink_pin(void *self, uint64_t version)
{
    sim_shadow_pin(self, version);
    order(self, &(struct order){.kind = ORDER_PIN, .version = version});
}

static void sink_unpin(void *self, uint64_t version)
{
    order(self, &(struct order){.kind = ORDER_UNPIN, .version = version});
}

/* ---- To workers ---- */

static void to_worker(struct sim *s, uint32_t worker, const struct sim_message *m)
{
    if (s->session[worker] != NULL) {
        sim_net_say_down(s->session[worker], m);
    }
}

static void sink_welcome(void *self, uint32_t worker, uint64_t last_step)
{
    to_worker(self, worker, &(struct sim_message){.word = SIM_WELCOME, .step = last_step});
}

static void sink_upload(void *self, uint32_t worker)
{
    to_worker(self, worker, &(struct sim_message){.word = SIM_UPLOAD});
}

static void sink_assign(void *self, uint32_t worker, const struct kml_assignment *a)
{
    sim_shadow_assigned(self, worker, a);
    to_worker(self, worker,
              &(struct sim_message){
                  .word = SIM_ASSIGN, .step = a->step, .version = a->version, .lease = *a->lease});
}

static void sink_evaluate(void *self, uint32_t worker, const struct kml_evaluation_lease *e)
{
    to_worker(self, worker, &(struct sim_message){.word = SIM_EVALUATE, .evaluation = *e});
}

static void sink_abandon(void *self, uint32_t worker, uint64_t step)
{
    to_worker(self, worker, &(struct sim_message){.word = SIM_ABANDON, .step = step});
}

static void sink_expel(void *self, uint32_t worker, uint64_t incarnation, enum kml_code code, const char *why)
{
    struct sim *s = self;
    s->report.expelled++;
    for (struct kml_stream *t = s->streams; t != NULL; t = t->next) {
        if (t->control && t->joined && !t->ended && t->worker == worker && t->incarnation == incarnation) {
            struct kml_err err;
            (void)kml_fail(&err, code, "worker %u: %s", worker, why);
            kml_stream_close(t, &err);
        }
    }
}

static void sink_save(void *self, uint64_t version)
{
    struct sim *s = self;
    s->saved_version = version;
    s->parts = 0;
    order(s, &(struct order){.kind = ORDER_GATHER, .version = version});
}

static void sink_over(void *self, enum kml_phase phase, const char *reason, uint32_t exit_code)
{
    struct sim *s = self;
    (void)phase;
    (void)reason;
    (void)exit_code;
    if (s->over) {
        sim_wrong(s, "the job ended twice");
    }
    s->over = true;
    for (struct kml_stream *t = s->streams; t != NULL; t = t->next) {
        if (t->control && t->joined && t->up) {
            sim_net_say_down(t, &(struct sim_message){.word = SIM_OVER});
        }
    }
}

static void sink_record(void *self, const struct kml_record *r)
{
    struct sim *s = self;
    if (r->kind == KML_RECORD_EVALUATION) {
        sim_shadow_evaluated(s, r);
    } else if (r->kind == KML_RECORD_WORKER_LEFT) {
        s->shadow.steady = false;
    } else if (r->kind == KML_RECORD_PHASE) {
        s->started_ns = s->conductor.phase == KML_PHASE_TRAINING ? s->now : s->started_ns;
        s->ended_ns = s->seen_phase == KML_PHASE_TRAINING ? s->now : s->ended_ns;
        s->seen_phase = s->conductor.phase;
    }
    if (s->config.record != NULL) {
        s->config.record(s->config.record_self, r);
    }
}

/* ---- Sessions: what ps/session.c does with a worker's stream ---- */

static void take_join(struct kml_stream *t)
{
    struct sim *s = t->sim;
    const struct sim_problem *p = s->config.problem;
    struct kml_err err;
    struct kml_worker_join join = {.index = t->worker,
                                   .incarnation = t->incarnation,
                                   .layout = s->layout,
                                   .train_samples = p->count[SIM_TRAIN],
                                   .validation_samples = p->count[SIM_VALIDATION],
                                   .test_samples = p->count[SIM_TEST]};
    struct kml_stream *former = s->session[t->worker];
    t->joined = true;
    s->session[t->worker] = t; /* the welcome is sent from inside the call */
    if (kml_conductor_worker_join(&s->conductor, &join, s->now, &err) == 0) {
        s->report.joins++;
        return;
    }
    s->report.refused++;
    (void)snprintf(s->report.refusal, sizeof s->report.refusal, "%.250s", err.text);
    t->joined = false;
    s->session[t->worker] = former;
    kml_stream_close(t, &err);
}

void sim_lead_message(struct kml_stream *t, const struct sim_message *m)
{
    struct sim *s = t->sim;
    if (m->word == SIM_JOIN) {
        take_join(t);
        return;
    }
    if (!t->joined) {
        return;
    }
    kml_conductor_heard(&s->conductor, t->worker, t->incarnation, s->now);
    if (m->word == SIM_REPORT) {
        kml_conductor_report(&s->conductor, t->worker, t->incarnation, &m->report, s->now);
    } else if (m->word == SIM_EVALUATED) {
        kml_conductor_evaluated(&s->conductor, t->worker, t->incarnation, &m->result, s->now);
    }
}

void sim_lead_ended(struct kml_stream *t, const char *why)
{
    struct sim *s = t->sim;
    if (t->joined && s->session[t->worker] == t) {
        s->session[t->worker] = NULL;
        kml_conductor_worker_left(&s->conductor, t->worker, t->incarnation,
                                  why[0] != '\0' ? why : "its session ended", s->now);
    }
}

/* ---- Time ---- */

static void tick(void *self, void *arg)
{
    struct sim *s = self;
    (void)arg;
    if (s->now != s->tick_at) {
        return; /* an earlier one was asked for meanwhile */
    }
    s->tick_at = UINT64_MAX;
    s->away = UINT32_MAX;
    kml_conductor_tick(&s->conductor, s->now);
    if (kml_conductor_deadline(&s->conductor) <= s->now) {
        sim_wrong(s, "after a tick the deadline has passed already: the loop would spin");
    }
}

/* In a large crew the deadline is looked for only when it can have come nearer. */
void sim_lead_tick_soon(struct sim *s)
{
    struct kml_conductor *c = &s->conductor;
    bool same = c->members[KML_MEMBER_AWAY] == s->away && c->barrier.deadline == s->barrier_deadline;
    if (s->workers > 64 && same && s->tick_at != UINT64_MAX) {
        return;
    }
    s->away = c->members[KML_MEMBER_AWAY];
    s->barrier_deadline = c->barrier.deadline;
    uint64_t due = kml_conductor_deadline(c);
    if (due != UINT64_MAX && due < s->tick_at) {
        s->tick_at = due > s->now ? due : s->now + 1;
        sim_heap_post(&s->heap, s->tick_at, tick, s, NULL, NULL);
    }
}

static void shard_comes(void *self, void *arg)
{
    struct sim *s = self;
    struct sim_shard *sh = arg;
    struct kml_err err;
    if (kml_conductor_shard_join(&s->conductor, sh->index, s->now, &err) < 0) {
        sim_wrong(s, "shard %u was refused: %s", sh->index, err.text);
    }
}

void sim_lead_init(struct sim *s)
{
    struct kml_conductor_sink sink = {
        .self = s,
        .setup = sink_setup,
        .admit = sink_admit,
        .dismiss = sink_dismiss,
        .commit = sink_commit,
        .release = sink_release,
        .pin = sink_pin,
        .unpin = sink_unpin,
        .welcome = sink_welcome,
        .upload = sink_upload,
        .assign = sink_assign,
        .evaluate = sink_evaluate,
        .abandon = sink_abandon,
        .expel = sink_expel,
        .save = sink_save,
        .over = sink_over,
        .record = sink_record,
    };
    kml_conductor_init(&s->conductor, &s->job, &sink, SIM_GENERATION, s->now);
    for (uint32_t k = 0; k < s->shards; k++) {
        struct sim_shard *sh = &s->shard[k];
        struct kml_host_events events = {.self = sh, .staged = shard_staged, .failed = shard_failed};
        *sh = (struct sim_shard){.sim = s, .index = k, .here = true};
        static const struct kml_start start = {.uid = "simulated"};
        sh->host = kml_host_create(&s->job, &start, &events);
        sim_heap_post(&s->heap, k == 0 ? 0 : sim_net_delay(s), shard_comes, s, sh, NULL);
    }
}
