#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tests/sim/inside.h"

#define DAY_NS (86400 * KML_SECOND)

void sim_wrong(struct sim *s, const char *format, ...)
{
    if (s->report.wrong[0] != '\0') {
        return; /* what follows may be its consequence */
    }
    va_list args;
    va_start(args, format);
    int used = snprintf(s->report.wrong, sizeof s->report.wrong,
                        "seed %llu at %.6f s: ", (unsigned long long)s->config.seed, (double)s->now / 1e9);
    (void)vsnprintf(s->report.wrong + used, sizeof s->report.wrong - (size_t)used, format, args);
    va_end(args);
}

struct kml_conductor *sim_conductor(struct sim *s)
{
    return &s->conductor;
}

uint64_t sim_now(const struct sim *s)
{
    return s->now;
}

/* ---- Life ---- */

struct sim *sim_create(const struct sim_config *config)
{
    struct sim *s = KML_NEW(struct sim);
    s->config = *config;
    s->job = *config->job;
    s->workers = s->job.worker.replicas;
    s->shards = s->job.ps.replicas;
    s->floats = config->problem->floats;
    s->tick_at = UINT64_MAX;
    sim_problem_layout(config->problem, &s->layout);
    kml_rng_init2(&s->net_rng, config->seed, 1);
    kml_rng_init2(&s->worker_rng, config->seed, 2);
    s->session = KML_NEW_ARRAY(s->workers, struct kml_stream *);
    s->worker = KML_NEW_ARRAY(s->workers, struct sim_worker);
    s->shard = KML_NEW_ARRAY(s->shards, struct sim_shard);
    s->member = KML_NEW_ARRAY(s->workers, struct kml_shard_member);
    s->saved = KML_NEW_ARRAY(s->floats, float);
    s->worker_samples = KML_NEW_ARRAY(s->workers, uint64_t);
    for (uint32_t w = 0; w < s->workers; w++) {
        sim_worker_init(&s->worker[w], s, w);
    }
    sim_shadow_init(s);
    sim_lead_init(s);
    return s;
}

void sim_destroy(struct sim *s)
{
    if (s == NULL) {
        return;
    }
    sim_heap_finish(&s->heap); /* gives back the blocks that were being sent */
    sim_net_finish(s);
    for (uint32_t k = 0; k < s->shards; k++) {
        kml_host_destroy(s->shard[k].host);
    }
    for (uint32_t w = 0; w < s->workers; w++) {
        sim_worker_finish(&s->worker[w]);
    }
    kml_conductor_finish(&s->conductor);
    sim_shadow_finish(s);
    kml_layout_finish(&s->layout);
    void *const owned[] = {s->session, s->worker,         s->shard,     s->member,
                           s->saved,   s->worker_samples, s->evaluation};
    for (size_t i = 0; i < KML_COUNT(owned); i++) {
        kml_free(owned[i]);
    }
    kml_free(s);
}

/* ---- Faults ---- */

enum fault_kind { FAULT_START, FAULT_KILL, FAULT_PAUSE, FAULT_LOSE_SHARD, FAULT_STOP, FAULT_CALL };

struct fault {
    enum fault_kind kind;
    uint32_t index;
    uint64_t length;
    bool noticed;
    const char *reason;
    void (*call)(void *self, void *sim);
    void *self;
};

static void post(struct sim *s, uint64_t at, const struct fault *f);

static void kill_worker(struct sim *s, const struct fault *f)
{
    struct sim_worker *w = &s->worker[f->index];
    sim_worker_die(w, f->noticed);
    if (f->length != SIM_NEVER) {
        post(s, s->now + f->length, &(struct fault){.kind = FAULT_START, .index = f->index});
    }
}

static void happen(void *self, void *arg)
{
    struct sim *s = self;
    struct fault f = *(struct fault *)arg;
    kml_free(arg);
    switch (f.kind) {
    case FAULT_START:
        if (s->worker[f.index].state == SIM_DOWN) {
            sim_worker_die(&s->worker[f.index], true); /* a try of its own to come back is over */
            sim_worker_start(&s->worker[f.index]);
        }
        break;
    case FAULT_KILL:
        kill_worker(s, &f);
        break;
    case FAULT_PAUSE:
        s->worker[f.index].paused_until = s->now + f.length;
        break;
    case FAULT_LOSE_SHARD:
        s->shard[f.index].here = false;
        kml_conductor_shard_left(&s->conductor, f.index, "its session ended", s->now);
        break;
    case FAULT_STOP:
        kml_conductor_stop(&s->conductor, f.reason, s->now);
        break;
    case FAULT_CALL:
        f.call(f.self, s);
        break;
    }
}

static void post(struct sim *s, uint64_t at, const struct fault *f)
{
    struct fault *copy = KML_NEW(struct fault);
    *copy = *f;
    sim_heap_post(&s->heap, at, happen, s, copy, kml_free);
}

void sim_start(struct sim *s, uint32_t worker, uint64_t at)
{
    s->worker[worker].start_at = at;
}

void sim_kill(struct sim *s, uint32_t worker, uint64_t at, uint64_t back, bool noticed)
{
    post(s, at, &(struct fault){.kind = FAULT_KILL, .index = worker, .length = back, .noticed = noticed});
}

void sim_pause(struct sim *s, uint32_t worker, uint64_t at, uint64_t length)
{
    post(s, at, &(struct fault){.kind = FAULT_PAUSE, .index = worker, .length = length});
}

void sim_lose_shard(struct sim *s, uint32_t shard, uint64_t at)
{
    post(s, at, &(struct fault){.kind = FAULT_LOSE_SHARD, .index = shard});
}

void sim_stop(struct sim *s, uint64_t at, const char *reason)
{
    post(s, at, &(struct fault){.kind = FAULT_STOP, .reason = reason});
}

void sim_at(struct sim *s, uint64_t at, void (*call)(void *self, void *sim), void *self)
{
    post(s, at, &(struct fault){.kind = FAULT_CALL, .call = call, .self = self});
}

/* ---- The run ---- */

static void report(struct sim *s)
{
    const struct kml_conductor *c = &s->conductor;
    struct sim_report *r = &s->report;
    for (uint32_t w = 0; w < s->workers; w++) {
        s->worker_samples[w] = c->worker[w].samples;
    }
    r->phase = c->phase;
    r->reason = c->reason;
    r->message = c->message;
    r->exit_code = c->exit_code;
    r->elapsed_ns = s->ended_ns - s->started_ns;
    r->training_ns = c->training_ns;
    r->evaluation_ns = c->evaluation_ns;
    r->samples = c->samples;
    r->samples_per_second = c->training_ns > 0 ? (double)c->samples * 1e9 / c->training_ns : 0;
    r->worker_samples = s->worker_samples;
    r->identities = s->shadow.identities;
    r->versions = s->shadow.version;
    r->evaluation = s->evaluation;
    r->epochs = c->ledger.closed;
}

static bool step(struct sim *s)
{
    struct sim_event e;
    uint64_t limit = s->config.limit_ns == 0 ? DAY_NS : s->config.limit_ns;
    if (!sim_heap_next(&s->heap, &e)) {
        sim_wrong(s, "nothing can happen any more, in phase %s", kml_phase_name(s->conductor.phase));
        return false;
    }
    s->now = e.at;
    s->report.events++;
    e.run(e.self, e.arg);
    if (s->now > limit) {
        sim_wrong(s, "stuck in phase %s after %.0f s", kml_phase_name(s->conductor.phase),
                  (double)limit / 1e9);
        return false;
    }
    sim_lead_tick_soon(s);
    if (s->config.check_every == 0 || s->report.events % s->config.check_every == 0) {
        sim_check(s);
    }
    return !s->over && s->report.wrong[0] == '\0';
}

const struct sim_report *sim_run(struct sim *s)
{
    for (uint32_t w = 0; w < s->workers; w++) {
        if (s->worker[w].start_at != SIM_NEVER) {
            post(s, s->worker[w].start_at, &(struct fault){.kind = FAULT_START, .index = w});
        }
    }
    while (step(s)) {
    }
    if (s->report.wrong[0] == '\0') {
        sim_check_end(s);
    }
    report(s);
    return &s->report;
}
