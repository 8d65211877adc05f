#include <math.h>

#include "base/mem.h"
#include "tests/sim/inside.h"

/*
 * What must hold between any two events: the invariants of ps/conductor.h, sync/barrier.h and sync/ledger.h,
 * and of the shards. Those over commits are in shadow.c, where a commit is seen.
 */

static void check_members(struct sim *s)
{
    const struct kml_conductor *c = &s->conductor;
    uint32_t count[4] = {0};
    for (uint32_t w = 0; w < s->workers; w++) {
        count[c->worker[w].state]++;
    }
    for (int i = 0; i < 4; i++) {
        if (count[i] != c->members[i]) {
            sim_wrong(s, "%u workers are in state %d, the conductor counts %u", count[i], i, c->members[i]);
        }
    }
}

static bool seat_fits(enum kml_member_state member, enum kml_seat_state seat)
{
    switch (member) {
    case KML_MEMBER_AWAY:
        return seat == KML_SEAT_AWAY;
    case KML_MEMBER_IDLE:
        return seat == KML_SEAT_EXCUSED || seat == KML_SEAT_HELD;
    case KML_MEMBER_TRAINING:
        return seat == KML_SEAT_COMPUTING || seat == KML_SEAT_STAGED;
    case KML_MEMBER_EVALUATING:
        return seat == KML_SEAT_EXCUSED;
    }
    return false;
}

static void check_seats(struct sim *s)
{
    const struct kml_conductor *c = &s->conductor;
    const struct kml_barrier *b = &c->barrier;
    uint32_t evaluating = c->members[KML_MEMBER_EVALUATING];
    for (uint32_t w = 0; w < s->workers; w++) {
        if (!seat_fits(c->worker[w].state, c->seat[w].state)) {
            sim_wrong(s, "worker %u is in state %d, its seat is %s", w, (int)c->worker[w].state,
                      kml_seat_name(c->seat[w].state));
        }
        bool trains = c->worker[w].state == KML_MEMBER_TRAINING;
        uint64_t leased = kml_ledger_leased(&c->ledger, w, c->worker[w].step);
        if (trains != (leased > 0)) {
            sim_wrong(s, "worker %u in state %d holds %llu samples", w, (int)c->worker[w].state,
                      (unsigned long long)leased);
        }
    }
    if (b->staged > 0 && b->staged >= kml_barrier_limit(b) && b->deadline == KML_BARRIER_NEVER) {
        sim_wrong(s, "%u of %u staged and the barrier is shut", b->staged, kml_barrier_limit(b));
    }
    if (c->ledger.lockstep && evaluating > 0 && c->members[KML_MEMBER_TRAINING] > 0) {
        sim_wrong(s, "in lockstep somebody trains while an evaluation runs");
    }
}

static void check_ledger(struct sim *s)
{
    const struct kml_conductor *c = &s->conductor;
    if (!kml_ledger_sound(&c->ledger) ||
        (c->evaluation.running && !kml_ledger_sound(&c->evaluation.ledger))) {
        sim_wrong(s, "a ledger is not sound");
    }
    uint64_t dealt = 0;
    for (uint32_t w = 0; w < s->workers; w++) {
        dealt += c->worker[w].samples;
    }
    if (dealt != c->samples) {
        sim_wrong(s, "workers have %llu samples, the job %llu", (unsigned long long)dealt,
                  (unsigned long long)c->samples);
    }
}

static void check_shards(struct sim *s)
{
    if (s->shadow.version != s->conductor.barrier.version) {
        sim_wrong(s, "%llu openings, %llu commits", (unsigned long long)s->conductor.barrier.version,
                  (unsigned long long)s->shadow.version);
    }
    for (uint32_t k = 0; k < s->shards; k++) {
        struct kml_shard *shard = kml_host_shard(s->shard[k].host);
        if (shard == NULL) {
            continue;
        }
        uint64_t version = kml_shard_version(shard);
        if (version < s->shard[k].version || version > s->shadow.version ||
            (k == 0 && version != s->shadow.version)) {
            sim_wrong(s, "shard %u went from version %llu to %llu, the conductor is at %llu", k,
                      (unsigned long long)s->shard[k].version, (unsigned long long)version,
                      (unsigned long long)s->shadow.version);
        }
        s->shard[k].version = version;
    }
}

void sim_check(struct sim *s)
{
    check_members(s);
    if (s->conductor.phase == KML_PHASE_TRAINING) {
        check_seats(s);
        check_ledger(s);
        check_shards(s);
    }
}

static void check_time(struct sim *s)
{
    const struct kml_conductor *c = &s->conductor;
    double counted = c->training_ns + c->evaluation_ns;
    double elapsed = (double)(s->ended_ns - s->started_ns);
    if (fabs(counted - elapsed) > 1 + 1e-9 * elapsed) {
        sim_wrong(s, "training and evaluation add up to %.0f ns of %.0f", counted, elapsed);
    }
}

static void check_samples(struct sim *s)
{
    const struct kml_conductor *c = &s->conductor;
    uint64_t positions = s->config.problem->count[SIM_TRAIN];
    for (uint64_t i = 0; i < (uint64_t)c->ledger.closed * positions; i++) {
        if (s->shadow.seen[i] != 1) {
            sim_wrong(s, "sample %llu of epoch %llu was committed %u times",
                      (unsigned long long)(i % positions), (unsigned long long)(i / positions),
                      s->shadow.seen[i]);
            return;
        }
    }
}

void sim_check_end(struct sim *s)
{
    const struct kml_conductor *c = &s->conductor;
    check_members(s);
    check_time(s);
    check_samples(s);
    if (c->phase != KML_PHASE_SUCCEEDED) {
        return;
    }
    if (!c->stopping && c->ledger.closed != s->job.training.epochs) {
        sim_wrong(s, "the job succeeded after %u of %u epochs", c->ledger.closed, s->job.training.epochs);
    }
    for (uint32_t k = 0; k < s->shards; k++) {
        if (kml_shard_version(kml_host_shard(s->shard[k].host)) != s->shadow.version) {
            sim_wrong(s, "shard %u ends at another version than the conductor", k);
        }
    }
}
