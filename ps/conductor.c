#include "ps/conductor.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ps/decide.h"

const char *kml_phase_name(enum kml_phase p)
{
    static const char *const names[] = {"Starting", "Training", "Saving", "Succeeded", "Failed", "Stopped"};
    return (unsigned)p < KML_COUNT(names) ? names[p] : "Unknown";
}

bool kml_conductor_over(const struct kml_conductor *c)
{
    return c->phase >= KML_PHASE_SUCCEEDED;
}

uint32_t kml_conductor_present(const struct kml_conductor *c)
{
    return c->workers - c->members[KML_MEMBER_AWAY];
}

double kml_conductor_fraction(const struct kml_conductor *c)
{
    return c->phase == KML_PHASE_STARTING || c->ledger.positions == 0 ? 0 : kml_ledger_progress(&c->ledger);
}

void kml_conductor_say(struct kml_conductor *c, const struct kml_record *r)
{
    c->sink.record(c->sink.self, r);
}

void kml_conductor_warn(struct kml_conductor *c, const char *text)
{
    if (c->warnings < KML_WARNINGS_MAX) {
        c->warning[c->warnings++] = kml_strdup(text);
    }
    kml_conductor_say(c, &(struct kml_record){.kind = KML_RECORD_WARNING, .text = text});
}

void kml_conductor_set_state(struct kml_conductor *c, uint32_t worker, enum kml_member_state state)
{
    c->members[c->worker[worker].state]--;
    c->worker[worker].state = state;
    c->members[state]++;
}

void kml_conductor_enter(struct kml_conductor *c, enum kml_phase phase)
{
    c->phase = phase;
    kml_conductor_say(c, &(struct kml_record){.kind = KML_RECORD_PHASE, .text = kml_phase_name(phase)});
}

/* ---- Life ---- */

/* SSP without staleness waits for everybody at every step. Then all may as well commit together: the same
 * bytes as BSP. */
bool kml_conductor_is_bsp(const struct kml_job *job)
{
    return job->sync.mode == KML_JOB_SYNC_BSP ||
           (job->sync.mode == KML_JOB_SYNC_SSP && job->sync.staleness == 0);
}

static struct kml_barrier_rule rule_of(const struct kml_job *job)
{
    switch (job->sync.mode) {
    case KML_JOB_SYNC_ASP:
        return kml_barrier_asp();
    case KML_JOB_SYNC_SSP:
        return kml_conductor_is_bsp(job) ? kml_barrier_bsp() : kml_barrier_ssp(job->sync.staleness);
    case KML_JOB_SYNC_LSP:
        return kml_barrier_lsp(kml_job_limit(job, job->worker.replicas), 0);
    case KML_JOB_SYNC_BSP:
    case KML_JOB_SYNC_HYBRID:
    case KML_JOB_SYNC_COUNT:
        break;
    }
    return kml_barrier_bsp();
}

static struct kml_schedule schedule_of(const struct kml_job *job)
{
    static const enum kml_schedule_kind kinds[] = {
        [KML_JOB_SCHEDULE_CONSTANT] = KML_SCHEDULE_CONSTANT,
        [KML_JOB_SCHEDULE_STEP] = KML_SCHEDULE_STEP,
        [KML_JOB_SCHEDULE_COSINE] = KML_SCHEDULE_COSINE,
    };
    return (struct kml_schedule){
        .kind = kinds[job->training.schedule.kind],
        .warmup_epochs = job->training.schedule.warmup_epochs,
        .step_epochs = job->training.schedule.step_epochs,
        .factor = job->training.schedule.factor,
        .epochs = job->training.epochs,
    };
}

static void allocate(struct kml_conductor *c)
{
    size_t m = c->workers;
    c->worker = KML_NEW_ARRAY(m, struct kml_conductor_worker);
    c->square_sum = KML_NEW_ARRAY(m * c->shards, double);
    c->shard_staged = KML_NEW_ARRAY(m * c->shards, bool);
    c->non_finite = KML_NEW_ARRAY(m, bool);
    c->shard_present = KML_NEW_ARRAY(c->shards, bool);
    c->shard_ready = KML_NEW_ARRAY(c->shards, bool);
    c->seat = KML_NEW_ARRAY(m, struct kml_barrier_seat);
    c->o_worker = KML_NEW_ARRAY(m, uint32_t);
    c->o_staleness = KML_NEW_ARRAY(m, uint32_t);
    c->o_released = KML_NEW_ARRAY(m, uint32_t);
    c->evaluation_list = KML_NEW_ARRAY(m, uint32_t);
    c->evaluation_lease = KML_NEW_ARRAY(m, struct kml_evaluation_lease);
    c->members[KML_MEMBER_AWAY] = c->workers;
    c->train_list = KML_NEW_ARRAY(m, uint32_t);
    c->member = KML_NEW_ARRAY(m, struct kml_member);
    c->commit_member = KML_NEW_ARRAY(m, struct kml_commit_member);
    c->lease = KML_NEW_ARRAY(m, struct kml_lease);
    c->present = KML_NEW_ARRAY(m, bool);
}

void kml_conductor_init(struct kml_conductor *c, const struct kml_job *job,
                        const struct kml_conductor_sink *sink, uint64_t generation, uint64_t now)
{
    *c = (struct kml_conductor){.job = job,
                                .sink = *sink,
                                .generation = generation,
                                .workers = job->worker.replicas,
                                .shards = job->ps.replicas,
                                .last_ns = now,
                                .best = job->training.target.metric == KML_JOB_METRIC_LOSS ? INFINITY
                                                                                           : -INFINITY};
    allocate(c);
    kml_layout_init(&c->layout);
    kml_barrier_init(&c->barrier, 0, rule_of(job), c->seat, c->workers);
    kml_steps_init(&c->steps, c->workers, job->training.batch_size, job->training.clip_norm,
                   job->training.nonfinite == KML_JOB_NONFINITE_FAIL);
    c->schedule = schedule_of(job);
    struct kml_err err;
    KML_BUG_ON(kml_balance_init(&c->balance, job, &err) < 0); /* the manifest's ranges allow no such rule */
}

void kml_conductor_finish(struct kml_conductor *c)
{
    kml_layout_finish(&c->layout);
    kml_ledger_finish(&c->ledger);
    kml_ledger_finish(&c->evaluation.ledger);
    kml_balance_finish(&c->balance);
    void *const owned[] = {c->worker,     c->square_sum,      c->shard_staged,
                           c->non_finite, c->shard_present,   c->shard_ready,
                           c->seat,       c->o_worker,        c->o_staleness,
                           c->o_released, c->evaluation_list, c->evaluation_lease,
                           c->train_list, c->member,          c->commit_member,
                           c->lease,      c->present};
    for (size_t i = 0; i < KML_COUNT(owned); i++) {
        kml_free(owned[i]);
    }
    for (uint32_t i = 0; i < c->warnings; i++) {
        kml_free(c->warning[i]);
    }
    *c = (struct kml_conductor){.workers = 0};
}

/* ---- Time ---- */

/* Training and evaluation share the time in the measure in which the workers present do one or the other. */
void kml_conductor_account(struct kml_conductor *c, uint64_t now)
{
    uint64_t passed = now > c->last_ns ? now - c->last_ns : 0;
    c->last_ns = now > c->last_ns ? now : c->last_ns;
    if (c->phase != KML_PHASE_TRAINING || passed == 0) {
        return;
    }
    uint32_t present = kml_conductor_present(c);
    uint32_t evaluating = c->members[KML_MEMBER_EVALUATING];
    evaluating += c->evaluation.running ? c->members[KML_MEMBER_IDLE] : 0; /* they wait for its end */
    double part = present == 0 ? 0 : (double)evaluating / present;
    c->evaluation_ns += part * (double)passed;
    c->training_ns += (1 - part) * (double)passed;
}

uint64_t kml_conductor_deadline(const struct kml_conductor *c)
{
    if (kml_conductor_over(c)) {
        return UINT64_MAX;
    }
    uint64_t soonest = c->barrier.deadline;
    for (uint32_t w = 0; w < c->workers; w++) {
        const struct kml_conductor_worker *k = &c->worker[w];
        uint64_t due = UINT64_MAX;
        if (k->state != KML_MEMBER_AWAY) {
            due = k->heard_ns + KML_SILENCE_NS;
        } else if (k->joins > 0 && !k->forfeited) {
            due = k->left_ns + KML_RETURN_NS;
        }
        soonest = due < soonest ? due : soonest;
    }
    /* Without workers or parameters the end of patience starts nothing: what comes in later does. */
    if (c->phase == KML_PHASE_STARTING && c->parameters && kml_conductor_present(c) > 0) {
        uint64_t due = c->first_join_ns + KML_PATIENCE_NS;
        soonest = due < soonest ? due : soonest;
    }
    return soonest;
}

/* ---- The end ---- */

static void end(struct kml_conductor *c, enum kml_phase phase, const char *reason, uint32_t exit_code)
{
    if (reason != c->reason) {
        (void)snprintf(c->reason, sizeof c->reason, "%s", reason);
    }
    c->exit_code = exit_code;
    kml_conductor_enter(c, phase);
    c->sink.over(c->sink.self, phase, c->reason, exit_code);
}

void kml_conductor_fail(struct kml_conductor *c, const char *reason, const char *message, uint32_t exit_code,
                        uint64_t now)
{
    if (kml_conductor_over(c)) {
        return;
    }
    kml_conductor_account(c, now);
    (void)snprintf(c->message, sizeof c->message, "%s", message);
    end(c, KML_PHASE_FAILED, reason, exit_code);
}

void kml_conductor_wind_up(struct kml_conductor *c, uint64_t now)
{
    kml_conductor_account(c, now);
    for (uint32_t w = 0; w < c->workers; w++) {
        if (c->worker[w].state == KML_MEMBER_TRAINING) {
            c->sink.abandon(c->sink.self, w, c->worker[w].step);
        }
    }
    kml_conductor_enter(c, KML_PHASE_SAVING);
    c->sink.save(c->sink.self, c->save_evaluated ? c->evaluation.version : c->barrier.version);
}

void kml_conductor_saved(struct kml_conductor *c, uint64_t now)
{
    (void)now;
    if (c->phase != KML_PHASE_SAVING) {
        return;
    }
    if (c->reason[0] != '\0') {
        end(c, KML_PHASE_STOPPED, c->reason, 0);
    } else {
        end(c, KML_PHASE_SUCCEEDED, "", 0);
    }
}

void kml_conductor_stop(struct kml_conductor *c, const char *reason, uint64_t now)
{
    if (kml_conductor_over(c) || c->phase == KML_PHASE_SAVING) {
        return;
    }
    (void)snprintf(c->reason, sizeof c->reason, "%s", reason[0] != '\0' ? reason : "Stopped");
    if (!c->parameters) {
        kml_conductor_account(c, now);
        end(c, KML_PHASE_STOPPED, c->reason, 0);
        return;
    }
    c->stopping = true;
    kml_conductor_wind_up(c, now);
}

/* ---- Time passes ---- */

static void drop_silent(struct kml_conductor *c, uint64_t now)
{
    for (uint32_t w = 0; w < c->workers; w++) {
        struct kml_conductor_worker *k = &c->worker[w];
        if (k->state != KML_MEMBER_AWAY && now >= k->heard_ns + KML_SILENCE_NS) {
            c->sink.expel(c->sink.self, w, k->incarnation, KML_AGAIN, "silent for too long");
            kml_conductor_worker_left(c, w, k->incarnation, "silent for too long", now);
        }
    }
}

static void forfeit_lost(struct kml_conductor *c, uint64_t now)
{
    for (uint32_t w = 0; w < c->workers; w++) {
        struct kml_conductor_worker *k = &c->worker[w];
        if (k->state == KML_MEMBER_AWAY && k->joins > 0 && !k->forfeited &&
            now >= k->left_ns + KML_RETURN_NS) {
            k->forfeited = true;
            if (c->phase == KML_PHASE_TRAINING) {
                (void)kml_ledger_forfeit(&c->ledger, w);
            }
        }
    }
}

void kml_conductor_tick(struct kml_conductor *c, uint64_t now)
{
    if (kml_conductor_over(c)) {
        return;
    }
    kml_conductor_account(c, now);
    drop_silent(c, now);
    forfeit_lost(c, now);
    kml_conductor_maybe_start(c, now);
    if (c->phase == KML_PHASE_TRAINING) {
        struct kml_opening opening = kml_conductor_opening(c);
        kml_barrier_tick(&c->barrier, now, &opening);
        kml_conductor_settle(c, &opening, now);
    }
}

/* ---- Steps; they go on in decide.c ---- */

static bool in_flight(const struct kml_conductor *c, uint32_t worker, uint64_t incarnation, uint64_t step)
{
    const struct kml_conductor_worker *k = &c->worker[worker];
    return c->phase == KML_PHASE_TRAINING && k->state == KML_MEMBER_TRAINING &&
           k->incarnation == incarnation && k->step == step;
}

static void maybe_staged(struct kml_conductor *c, uint32_t worker, uint64_t now)
{
    const struct kml_conductor_worker *k = &c->worker[worker];
    if (!k->reported || k->staged < c->shards) {
        return;
    }
    kml_conductor_account(c, now);
    struct kml_opening opening = kml_conductor_opening(c);
    kml_barrier_staged(&c->barrier, worker, now, &opening);
    kml_conductor_settle(c, &opening, now);
}

void kml_conductor_staged(struct kml_conductor *c, uint32_t shard, uint32_t worker, uint64_t incarnation,
                          uint64_t step, double square_sum, bool non_finite, uint64_t now)
{
    if (shard >= c->shards || worker >= c->workers || kml_conductor_over(c)) {
        return;
    }
    if (step == 0) {
        kml_conductor_initial_staged(c, shard, worker, incarnation, non_finite, now);
        return;
    }
    size_t at = (size_t)worker * c->shards + shard;
    if (!in_flight(c, worker, incarnation, step) || c->shard_staged[at]) {
        return;
    }
    c->shard_staged[at] = true;
    c->square_sum[at] = square_sum;
    c->non_finite[worker] |= non_finite;
    c->worker[worker].staged++;
    maybe_staged(c, worker, now);
}

void kml_conductor_report(struct kml_conductor *c, uint32_t worker, uint64_t incarnation,
                          const struct kml_step_report *r, uint64_t now)
{
    if (worker >= c->workers || !in_flight(c, worker, incarnation, r->step) || c->worker[worker].reported) {
        return;
    }
    if (r->samples != kml_ledger_leased(&c->ledger, worker, r->step)) {
        char text[160];
        (void)snprintf(text, sizeof text, "worker %u says step %llu has %llu samples, it was given %llu",
                       worker, (unsigned long long)r->step, (unsigned long long)r->samples,
                       (unsigned long long)kml_ledger_leased(&c->ledger, worker, r->step));
        kml_conductor_fail(c, "WorkerFailed", text, (uint32_t)kml_code_exit(KML_PROTOCOL), now);
        return;
    }
    c->worker[worker].reported = true;
    c->worker[worker].report = *r;
    maybe_staged(c, worker, now);
}

/* ---- The workers' machines ---- */

#define READING_OLD_NS ((uint64_t)(KML_READING_OLDEST * (double)KML_SECOND))

void kml_conductor_cpu(struct kml_conductor *c, uint32_t worker, bool known, double cores, uint64_t age_ns,
                       uint64_t now)
{
    if (worker >= c->workers) {
        return;
    }
    struct kml_conductor_worker *k = &c->worker[worker];
    /* A reading that is missing, stale or absurd is no reading: it is masked, never zero. */
    k->cpu_known = known && isfinite(cores) && cores >= 0 && age_ns <= READING_OLD_NS;
    k->cpu_cores = k->cpu_known ? cores : 0;
    kml_balance_cpu(&c->balance, worker,
                    (struct kml_balance_reading){.known = k->cpu_known,
                                                 .value = k->cpu_cores,
                                                 .at_ns = now > age_ns ? now - age_ns : 0});
}
