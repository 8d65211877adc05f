#include "ps/decide.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

/* Weight of the newest value in the smoothed speeds and step times. */
#define SMOOTHING 0.1
#define LONGEST_STEP_NS (3600 * KML_SECOND)

struct kml_opening kml_conductor_opening(struct kml_conductor *c)
{
    return (struct kml_opening){
        .worker = c->o_worker, .staleness = c->o_staleness, .released = c->o_released};
}

void kml_conductor_join_training(struct kml_conductor *c, uint32_t worker)
{
    struct kml_err err;
    /* The worker was away: conductor.c lets an old process leave before a new one joins. */
    KML_BUG_ON(kml_barrier_join(&c->barrier, worker, &err) < 0);
}

/* ---- Commits ---- */

static void smooth(double *mean, double value)
{
    *mean = *mean == 0 ? value : *mean + SMOOTHING * (value - *mean);
}

static void account_speed(struct kml_conductor *c, uint32_t worker, uint64_t now)
{
    const struct kml_step_report *r = &c->worker[worker].report;
    double throttled = r->compute_ns > 0 ? (double)r->throttled_ns / (double)r->compute_ns : 0;
    kml_balance_step(&c->balance, worker, kml_conductor_present(c), r->samples, r->compute_ns);
    kml_balance_throttled(&c->balance, worker,
                          (struct kml_balance_reading){.known = r->throttled_known && r->compute_ns > 0,
                                                       .value = throttled < 1 ? throttled : 1,
                                                       .at_ns = now});
}

static void account_step(struct kml_conductor *c, uint32_t worker, uint32_t epoch, uint64_t staleness)
{
    struct kml_conductor_worker *k = &c->worker[worker];
    const struct kml_step_report *r = &k->report;
    k->steps++;
    k->samples += r->samples;
    k->epoch_samples += r->samples;
    k->staleness = staleness;
    k->compute_ns += r->compute_ns;
    k->wait_ns += r->wait_ns;
    if (r->compute_ns > 0) {
        /* A clock that jumped must not stretch the grace window for ever. */
        double ns = (double)(r->compute_ns < LONGEST_STEP_NS ? r->compute_ns : LONGEST_STEP_NS);
        smooth(&k->speed, (double)r->samples * 1e9 / ns);
        smooth(&c->step_ns, ns);
        c->barrier.rule.grace = (uint64_t)(c->job->sync.grace_window * c->step_ns);
    }
    c->samples += r->samples;
    c->epoch_loss[epoch % 2] += r->loss_sum;
    c->epoch_count[epoch % 2] += r->samples;
}

static void fill_members(struct kml_conductor *c, const struct kml_opening *o)
{
    for (uint32_t i = 0; i < o->count; i++) {
        uint32_t w = o->worker[i];
        double square_sum = 0;
        for (uint32_t s = 0; s < c->shards; s++) {
            square_sum += c->square_sum[(size_t)w * c->shards + s];
        }
        c->member[i] = (struct kml_member){.worker = w,
                                           .step = c->worker[w].step,
                                           .samples = c->worker[w].report.samples,
                                           .square_sum = square_sum,
                                           .non_finite = c->non_finite[w]};
    }
}

static void close_members(struct kml_conductor *c, const struct kml_opening *o, uint64_t now)
{
    for (uint32_t i = 0; i < o->count; i++) {
        uint32_t w = o->worker[i];
        struct kml_conductor_worker *k = &c->worker[w];
        c->commit_member[i] =
            (struct kml_commit_member){w, k->incarnation, k->step, c->member[i].coefficient};
        account_step(c, w, c->lease[w].epoch, o->staleness[i]);
        account_speed(c, w, now);
        k->refused += c->member[i].refused;
        (void)kml_ledger_done(&c->ledger, w, k->step);
        kml_conductor_set_state(c, w, KML_MEMBER_IDLE);
    }
}

static void record_refused(struct kml_conductor *c, const struct kml_opening *o)
{
    for (uint32_t i = 0; i < o->count; i++) {
        if (c->member[i].refused) {
            char text[128];
            (void)snprintf(text, sizeof text, "worker %u step %llu: gradient with NaN or Inf refused",
                           c->member[i].worker, (unsigned long long)c->member[i].step);
            kml_conductor_warn(c, text);
        }
    }
}

static void close_epochs(struct kml_conductor *c)
{
    bool closed = false;
    while (c->recorded_epochs < c->ledger.closed) {
        uint64_t e = c->recorded_epochs++;
        c->train_loss = c->epoch_count[e % 2] == 0 ? 0 : c->epoch_loss[e % 2] / (double)c->epoch_count[e % 2];
        c->epoch_loss[e % 2] = 0;
        c->epoch_count[e % 2] = 0;
        kml_conductor_say(c, &(struct kml_record){.kind = KML_RECORD_EPOCH,
                                                  .epoch = c->recorded_epochs,
                                                  .version = c->barrier.version,
                                                  .train_loss = c->train_loss});
        closed = true;
    }
    if (closed) {
        for (uint32_t w = 0; w < c->workers; w++) {
            c->worker[w].epoch_samples = 0;
        }
        kml_evaluation_consider(c);
    }
}

/* The numbers of the commit, all but whom it releases. False: the job has failed. */
static bool plan_commit(struct kml_conductor *c, const struct kml_opening *o, struct kml_commit *commit,
                        uint64_t now)
{
    struct kml_err err;
    struct kml_step_plan plan;
    fill_members(c, o);
    if (kml_steps_plan(&c->steps, c->member, o->count, 1, &plan, &err) < 0) {
        kml_conductor_fail(c, "NonFiniteGradient", err.text, (uint32_t)kml_code_exit(KML_INVALID), now);
        return false;
    }
    record_refused(c, o);
    close_members(c, o, now);
    double epoch = kml_ledger_progress(&c->ledger) * c->job->training.epochs;
    *commit = (struct kml_commit){.version = o->version,
                                  .member = c->commit_member,
                                  .count = o->count,
                                  .learning_rate = c->job->training.optimizer.learning_rate *
                                                   kml_schedule_factor(&c->schedule, epoch),
                                  .step_scale = plan.scale};
    close_epochs(c);
    return true;
}

/* ---- Shares ---- */

/* After a commit: the leases that it sets free are the first of new shares. */
static void look_at_shares(struct kml_conductor *c, uint64_t now)
{
    for (uint32_t w = 0; w < c->workers; w++) {
        c->present[w] = c->worker[w].state != KML_MEMBER_AWAY;
    }
    struct kml_share_decision decision;
    if (kml_balance_look(&c->balance, now, c->present, &decision)) {
        kml_conductor_say(c, &(struct kml_record){.kind = KML_RECORD_BALANCE, .decision = &decision});
    }
}

/* ---- Dealing ---- */

static bool may_train(const struct kml_conductor *c)
{
    return !c->stopping && !(c->ledger.lockstep && c->evaluation.running);
}

static bool lease_training(struct kml_conductor *c, uint32_t worker)
{
    struct kml_conductor_worker *k = &c->worker[worker];
    if (!may_train(c) || !kml_ledger_has_work(&c->ledger, worker) ||
        kml_ledger_lease(&c->ledger, worker, k->step + 1, kml_balance_want(&c->balance, worker),
                         &c->lease[worker]) != KML_LEASE_GIVEN) {
        return false;
    }
    k->step++;
    k->reported = false;
    k->staged = 0;
    c->non_finite[worker] = false;
    memset(c->shard_staged + (size_t)worker * c->shards, 0, c->shards * sizeof *c->shard_staged);
    kml_barrier_readmit(&c->barrier, worker);
    kml_conductor_set_state(c, worker, KML_MEMBER_TRAINING);
    return true;
}

/* A worker that can take work now: idle, and the barrier does not hold it. */
static bool free_to_work(const struct kml_conductor *c, uint32_t worker)
{
    enum kml_seat_state seat = c->seat[worker].state;
    return c->worker[worker].state == KML_MEMBER_IDLE &&
           (seat == KML_SEAT_COMPUTING || seat == KML_SEAT_EXCUSED);
}

static void send_training(struct kml_conductor *c, struct kml_commit *commit, uint32_t count)
{
    if (commit != NULL) {
        commit->release = c->train_list;
        commit->releases = count;
        c->sink.commit(c->sink.self, commit);
        if (c->phase != KML_PHASE_TRAINING) {
            return; /* our own shard could not obey: the job has failed */
        }
    } else if (count > 0) {
        c->sink.release(c->sink.self, c->barrier.version, c->train_list, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t w = c->train_list[i];
        struct kml_assignment a = {
            .step = c->worker[w].step, .version = c->barrier.version, .lease = &c->lease[w]};
        c->sink.assign(c->sink.self, w, &a);
    }
}

static void send_evaluation(struct kml_conductor *c, uint32_t count)
{
    if (c->phase != KML_PHASE_TRAINING) {
        return; /* the commit before it failed */
    }
    if (c->evaluation.to_pin) {
        c->evaluation.to_pin = false;
        c->sink.pin(c->sink.self, c->evaluation.version);
    }
    if (count > 0) {
        c->sink.release(c->sink.self, c->evaluation.version, c->evaluation_list, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        c->sink.evaluate(c->sink.self, c->evaluation_list[i], &c->evaluation_lease[i]);
    }
}

/*
 * Work for everybody who is free, ascending. Evaluation goes first: the others train on meanwhile. The commit
 * leaves with the list of those it releases, so that a shard sends each of them new parameters the moment it
 * has them.
 */
static void deal(struct kml_conductor *c, struct kml_commit *commit)
{
    uint32_t training = 0;
    uint32_t evaluating = 0;
    for (uint32_t w = 0; w < c->workers; w++) {
        if (!free_to_work(c, w)) {
            continue;
        }
        if (kml_evaluation_lease(c, w, &c->evaluation_lease[evaluating])) {
            kml_conductor_set_state(c, w, KML_MEMBER_EVALUATING);
            c->evaluation_list[evaluating++] = w;
        } else if (lease_training(c, w)) {
            c->train_list[training++] = w;
        }
    }
    send_training(c, commit, training);
    send_evaluation(c, evaluating);
}

/* Who got no training step must not hold up the barrier. True: that opened it or set somebody free. */
static bool excuse_rest(struct kml_conductor *c, struct kml_opening *opening, uint64_t now)
{
    for (uint32_t w = 0; w < c->workers; w++) {
        enum kml_member_state state = c->worker[w].state;
        if (c->seat[w].state == KML_SEAT_COMPUTING &&
            (state == KML_MEMBER_IDLE || state == KML_MEMBER_EVALUATING)) {
            kml_barrier_excuse(&c->barrier, w, now, opening);
            if (opening->count > 0 || opening->releases > 0) {
                return true;
            }
        }
    }
    return false;
}

static void wind_up_if_over(struct kml_conductor *c, uint64_t now)
{
    bool over = kml_ledger_over(&c->ledger) && !c->evaluation.running;
    if (c->phase == KML_PHASE_TRAINING && (over || c->stopping)) {
        kml_conductor_wind_up(c, now);
    }
}

void kml_conductor_settle(struct kml_conductor *c, struct kml_opening *opening, uint64_t now)
{
    if (c->phase != KML_PHASE_TRAINING) {
        return;
    }
    do {
        struct kml_commit commit;
        bool commits = opening->count > 0;
        if (commits && !plan_commit(c, opening, &commit, now)) {
            return;
        }
        if (commits && c->balance.on) {
            look_at_shares(c, now);
        }
        deal(c, commits ? &commit : NULL);
    } while (c->phase == KML_PHASE_TRAINING && excuse_rest(c, opening, now));
    wind_up_if_over(c, now);
}
