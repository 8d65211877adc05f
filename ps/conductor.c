#include "ps/conductor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

static void enter(struct kml_conductor *c, enum kml_phase phase)
{
    c->phase = phase;
    kml_conductor_say(c, &(struct kml_record){.kind = KML_RECORD_PHASE, .text = kml_phase_name(phase)});
}

/* ---- Life ---- */

/* SSP without staleness waits for everybody at every step. Then all may as well commit together: the same
 * bytes as BSP. */
static bool is_bsp(const struct kml_job *job)
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
        return is_bsp(job) ? kml_barrier_bsp() : kml_barrier_ssp(job->sync.staleness);
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
}

void kml_conductor_finish(struct kml_conductor *c)
{
    kml_layout_finish(&c->layout);
    kml_ledger_finish(&c->ledger);
    kml_ledger_finish(&c->evaluation.ledger);
    void *const owned[] = {c->worker,     c->square_sum,      c->shard_staged,
                           c->non_finite, c->shard_present,   c->shard_ready,
                           c->seat,       c->o_worker,        c->o_staleness,
                           c->o_released, c->evaluation_list, c->evaluation_lease,
                           c->train_list, c->member,          c->commit_member,
                           c->lease};
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
    enter(c, phase);
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
    enter(c, KML_PHASE_SAVING);
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

/* ---- Starting ---- */

static bool shards_present(const struct kml_conductor *c)
{
    for (uint32_t s = 0; s < c->shards; s++) {
        if (!c->shard_present[s]) {
            return false;
        }
    }
    return true;
}

/* Ranges are known once there is a layout; a worker can be welcomed once every shard is there to be named to
 * it. */
static void set_up(struct kml_conductor *c)
{
    if (!c->have_layout || !shards_present(c)) {
        return;
    }
    if (!c->set_up) {
        c->set_up = true;
        c->sink.setup(c->sink.self, &c->map, c->generation);
        for (uint32_t w = 0; w < c->workers; w++) {
            if (c->worker[w].state != KML_MEMBER_AWAY) {
                c->sink.admit(c->sink.self, w, c->worker[w].incarnation);
            }
        }
    }
    for (uint32_t w = 0; w < c->workers; w++) {
        if (c->worker[w].state != KML_MEMBER_AWAY && !c->worker[w].welcomed) {
            c->worker[w].welcomed = true;
            c->sink.welcome(c->sink.self, w, c->worker[w].step);
        }
    }
}

static void ask_upload(struct kml_conductor *c)
{
    if (!c->set_up || c->parameters || c->uploading) {
        return;
    }
    for (uint32_t w = 0; w < c->workers; w++) {
        if (c->worker[w].welcomed) {
            c->uploading = true;
            c->uploader = w;
            c->sink.upload(c->sink.self, w);
            return;
        }
    }
}

static int open_ledger(struct kml_conductor *c, struct kml_err *err)
{
    bool is_static = c->job->balancing.strategy == KML_JOB_STRATEGY_STATIC;
    return kml_ledger_init(&c->ledger, is_static ? KML_LEDGER_STATIC : KML_LEDGER_LEASED, is_bsp(c->job),
                           c->train_samples, c->job->training.epochs, c->workers, c->workers, err);
}

static void start(struct kml_conductor *c, uint64_t now)
{
    struct kml_err err;
    if (open_ledger(c, &err) < 0) {
        kml_conductor_fail(c, "InvalidData", err.text, (uint32_t)kml_code_exit(err.code), now);
        return;
    }
    c->last_ns = now;
    enter(c, KML_PHASE_TRAINING);
    for (uint32_t w = 0; w < c->workers; w++) {
        if (c->worker[w].state != KML_MEMBER_AWAY) {
            kml_conductor_join_training(c, w);
        } else {
            char text[96];
            (void)snprintf(text, sizeof text, "worker %u has not joined; training starts without it", w);
            kml_conductor_warn(c, text);
            (void)kml_ledger_forfeit(&c->ledger, w);
            c->worker[w].forfeited = true;
        }
    }
    struct kml_opening none = kml_conductor_opening(c);
    kml_conductor_settle(c, &none, now);
}

static void maybe_start(struct kml_conductor *c, uint64_t now)
{
    uint32_t present = kml_conductor_present(c);
    bool patient = now < c->first_join_ns + KML_PATIENCE_NS;
    if (c->phase == KML_PHASE_STARTING && c->parameters && present > 0 &&
        (present == c->workers || !patient)) {
        start(c, now);
    }
}

/* ---- Shards ---- */

int kml_conductor_shard_join(struct kml_conductor *c, uint32_t shard, uint64_t now, struct kml_err *err)
{
    if (shard >= c->shards) {
        return kml_fail(err, KML_INVALID, "shard %u joined, but the job has %u", shard, c->shards);
    }
    if (c->shard_present[shard]) {
        return kml_fail(err, KML_EXISTS, "shard %u is here already", shard);
    }
    c->shard_present[shard] = true;
    set_up(c);
    ask_upload(c);
    maybe_start(c, now);
    return 0;
}

void kml_conductor_shard_left(struct kml_conductor *c, uint32_t shard, const char *why, uint64_t now)
{
    if (shard >= c->shards || !c->shard_present[shard]) {
        return;
    }
    c->shard_present[shard] = false;
    char text[KML_ERR_TEXT];
    (void)snprintf(text, sizeof text, "parameter server %u is gone: %s", shard, why);
    kml_conductor_fail(c, "ParameterServerLost", text, (uint32_t)kml_code_exit(KML_UNAVAILABLE), now);
}

/* ---- Workers ---- */

static int check_data(const struct kml_conductor *c, const struct kml_worker_join *j, struct kml_err *err)
{
    if (j->train_samples == 0) {
        return kml_fail(err, KML_INVALID, "worker %u has no training samples", j->index);
    }
    if (!c->have_layout) {
        return 0;
    }
    if (j->train_samples != c->train_samples || j->validation_samples != c->validation_samples ||
        j->test_samples != c->test_samples) {
        return kml_fail(err, KML_PROTOCOL,
                        "worker %u has %llu/%llu/%llu training/validation/test samples, the job has "
                        "%llu/%llu/%llu; give all "
                        "workers the same data",
                        j->index, (unsigned long long)j->train_samples,
                        (unsigned long long)j->validation_samples, (unsigned long long)j->test_samples,
                        (unsigned long long)c->train_samples, (unsigned long long)c->validation_samples,
                        (unsigned long long)c->test_samples);
    }
    if (j->digest_size != c->digest_size || memcmp(j->digest, c->digest, c->digest_size) != 0) {
        return kml_fail(err, KML_PROTOCOL,
                        "worker %u reads other data than the job; give all workers the same files", j->index);
    }
    return 0;
}

/* The first worker says what the job trains. */
static int adopt(struct kml_conductor *c, const struct kml_worker_join *j, struct kml_err *err)
{
    if (c->have_layout) {
        return kml_layout_same(&j->layout, &c->layout, err);
    }
    if (kml_shardmap_init(&c->map, j->layout.floats, c->shards, KML_CHUNK_FLOATS, err) < 0) {
        return kml_wrap(err, "a model of %llu parameters on %u shards", (unsigned long long)j->layout.floats,
                        c->shards);
    }
    kml_layout_finish(&c->layout);
    kml_layout_copy(&c->layout, &j->layout);
    c->train_samples = j->train_samples;
    c->validation_samples = j->validation_samples;
    c->test_samples = j->test_samples;
    c->digest_size = j->digest_size;
    memcpy(c->digest, j->digest, j->digest_size);
    c->have_layout = true;
    return 0;
}

static int check_join(struct kml_conductor *c, const struct kml_worker_join *j, struct kml_err *err)
{
    if (kml_conductor_over(c) || c->phase == KML_PHASE_SAVING) {
        return kml_fail(err, KML_CONFLICT, "the job is over");
    }
    if (j->index >= c->workers) {
        return kml_fail(err, KML_INVALID, "worker %u joined, but the job has %u workers", j->index,
                        c->workers);
    }
    if (j->incarnation == 0 || j->digest_size > KML_DIGEST_MAX) {
        return kml_fail(err, KML_INVALID,
                        "worker %u: a join without an incarnation, or with a digest above %d bytes", j->index,
                        KML_DIGEST_MAX);
    }
    /* The shards fence an incarnation for good once it is given up (sync/fence.h): it must not come as far as
     * to them. */
    if (j->incarnation == c->worker[j->index].incarnation) {
        return kml_fail(err, KML_FENCED,
                        "worker %u: incarnation %016llx has joined before; take a new one for each join",
                        j->index, (unsigned long long)j->incarnation);
    }
    return check_data(c, j, err);
}

int kml_conductor_worker_join(struct kml_conductor *c, const struct kml_worker_join *j, uint64_t now,
                              struct kml_err *err)
{
    if (check_join(c, j, err) < 0 || adopt(c, j, err) < 0) {
        return -1;
    }
    struct kml_conductor_worker *k = &c->worker[j->index];
    if (k->state != KML_MEMBER_AWAY) {
        uint64_t old = k->incarnation;
        if (old != j->incarnation) {
            c->sink.expel(c->sink.self, j->index, old, KML_FENCED, "another process took its place");
        }
        kml_conductor_worker_left(c, j->index, old, "joined again", now);
    }
    kml_conductor_account(c, now);
    kml_conductor_set_state(c, j->index, KML_MEMBER_IDLE);
    k->incarnation = j->incarnation;
    k->welcomed = false;
    k->forfeited = false;
    k->joins++;
    k->heard_ns = now;
    c->first_join_ns = c->first_join_ns == 0 ? now : c->first_join_ns;
    kml_conductor_say(c, &(struct kml_record){.kind = KML_RECORD_WORKER_JOINED,
                                              .worker = j->index,
                                              .incarnation = j->incarnation});
    if (c->set_up) {
        c->sink.admit(c->sink.self, j->index, j->incarnation);
    }
    set_up(c);
    ask_upload(c);
    if (c->phase == KML_PHASE_TRAINING) {
        kml_conductor_join_training(c, j->index);
        struct kml_opening none = kml_conductor_opening(c);
        kml_conductor_settle(c, &none, now);
    }
    maybe_start(c, now);
    return 0;
}

void kml_conductor_worker_left(struct kml_conductor *c, uint32_t worker, uint64_t incarnation,
                               const char *why, uint64_t now)
{
    if (worker >= c->workers || c->worker[worker].state == KML_MEMBER_AWAY ||
        c->worker[worker].incarnation != incarnation) {
        return;
    }
    struct kml_conductor_worker *k = &c->worker[worker];
    kml_conductor_account(c, now);
    bool evaluating = k->state == KML_MEMBER_EVALUATING;
    kml_conductor_set_state(c, worker, KML_MEMBER_AWAY);
    k->welcomed = false;
    k->left_ns = now;
    kml_conductor_say(
        c, &(struct kml_record){
               .kind = KML_RECORD_WORKER_LEFT, .worker = worker, .incarnation = incarnation, .text = why});
    if (kml_conductor_over(c)) {
        return;
    }
    if (c->set_up) {
        c->sink.dismiss(c->sink.self, worker, incarnation);
    }
    if (c->uploading && c->uploader == worker) {
        c->uploading = false;
        ask_upload(c);
    }
    if (c->phase != KML_PHASE_TRAINING) {
        return;
    }
    (void)kml_ledger_lost(&c->ledger, worker);
    if (evaluating) {
        kml_evaluation_lost(c, worker);
    }
    struct kml_opening opening = kml_conductor_opening(c);
    kml_barrier_leave(&c->barrier, worker, now, &opening);
    kml_conductor_settle(c, &opening, now);
}

void kml_conductor_heard(struct kml_conductor *c, uint32_t worker, uint64_t incarnation, uint64_t now)
{
    if (worker < c->workers && c->worker[worker].incarnation == incarnation &&
        now > c->worker[worker].heard_ns) {
        c->worker[worker].heard_ns = now;
    }
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
    maybe_start(c, now);
    if (c->phase == KML_PHASE_TRAINING) {
        struct kml_opening opening = kml_conductor_opening(c);
        kml_barrier_tick(&c->barrier, now, &opening);
        kml_conductor_settle(c, &opening, now);
    }
}

/* ---- Initial parameters; steps go on in decide.c ---- */

static bool shards_ready(const struct kml_conductor *c)
{
    for (uint32_t s = 0; s < c->shards; s++) {
        if (!c->shard_ready[s]) {
            return false;
        }
    }
    return true;
}

static void initial_staged(struct kml_conductor *c, uint32_t shard, bool non_finite, uint64_t now)
{
    if (c->parameters || !c->set_up) {
        return;
    }
    if (non_finite) {
        kml_conductor_fail(c, "InvalidModel", "the initial parameters hold NaN or Inf",
                           (uint32_t)kml_code_exit(KML_INVALID), now);
        return;
    }
    c->shard_ready[shard] = true;
    if (shards_ready(c)) {
        c->parameters = true;
        maybe_start(c, now);
    }
}

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
        initial_staged(c, shard, non_finite, now);
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
