#include <stdio.h>
#include <string.h>

#include "ps/decide.h"

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
    return kml_ledger_init(&c->ledger, is_static ? KML_LEDGER_STATIC : KML_LEDGER_LEASED,
                           kml_conductor_is_bsp(c->job), c->train_samples, c->job->training.epochs,
                           c->workers, c->workers, err);
}

static void start(struct kml_conductor *c, uint64_t now)
{
    struct kml_err err;
    if (open_ledger(c, &err) < 0) {
        kml_conductor_fail(c, "InvalidData", err.text, (uint32_t)kml_code_exit(err.code), now);
        return;
    }
    c->last_ns = now;
    kml_conductor_enter(c, KML_PHASE_TRAINING);
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

void kml_conductor_maybe_start(struct kml_conductor *c, uint64_t now)
{
    uint32_t present = kml_conductor_present(c);
    bool patient = now < c->first_join_ns + KML_PATIENCE_NS;
    if (c->phase == KML_PHASE_STARTING && c->parameters && present > 0 &&
        (present == c->workers || !patient)) {
        start(c, now);
    }
}

/* ---- Initial parameters ---- */

static bool shards_ready(const struct kml_conductor *c)
{
    for (uint32_t s = 0; s < c->shards; s++) {
        if (!c->shard_ready[s]) {
            return false;
        }
    }
    return true;
}

/* Only what the uploader of now has sent counts: the shards must not hold parts of two workers' values. */
void kml_conductor_initial_staged(struct kml_conductor *c, uint32_t shard, uint32_t worker,
                                  uint64_t incarnation, bool non_finite, uint64_t now)
{
    if (c->parameters || !c->uploading || worker != c->uploader ||
        incarnation != c->worker[worker].incarnation) {
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
        kml_conductor_maybe_start(c, now);
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
    kml_conductor_maybe_start(c, now);
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
    kml_conductor_maybe_start(c, now);
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
    kml_balance_forget(&c->balance, worker);
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
        memset(c->shard_ready, 0, c->shards * sizeof *c->shard_ready); /* the next one sends all of it */
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
