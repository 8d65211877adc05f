#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "ps/decide.h"

/* A piece is about half of a worker's fair part: small enough to even out speeds, large enough to keep
 * messages few. */
#define LEAST_PIECE 256u

static uint64_t samples_of(const struct kml_conductor *c, bool test)
{
    return test ? c->test_samples : c->validation_samples;
}

/* On the test set when the manifest says so and there is one, else on the validation set. */
static bool choose_set(const struct kml_conductor *c, bool *test)
{
    *test = c->job->training.evaluation.on_test && c->test_samples > 0;
    return samples_of(c, *test) > 0;
}

static void begin(struct kml_conductor *c, bool test)
{
    struct kml_evaluation *e = &c->evaluation;
    struct kml_err err;
    kml_ledger_finish(&e->ledger);
    KML_BUG_ON(kml_ledger_init(&e->ledger, KML_LEDGER_LEASED, true, samples_of(c, test), 1, 1, c->workers,
                               &err) < 0);
    e->running = true;
    e->wanted = false;
    e->to_pin = true;
    e->test = test;
    e->version = c->barrier.version;
    e->epoch = c->ledger.closed;
    e->loss_sum = 0;
    e->correct = 0;
    e->samples = 0;
}

void kml_evaluation_consider(struct kml_conductor *c)
{
    bool test;
    uint64_t every = c->job->training.evaluation.every_epochs;
    bool due = kml_ledger_over(&c->ledger) || (every > 0 && c->ledger.closed % every == 0);
    if (!due || !choose_set(c, &test)) {
        return;
    }
    if (c->evaluation.running) {
        c->evaluation.wanted = true;
    } else {
        begin(c, test);
    }
}

static uint64_t piece_of(const struct kml_conductor *c)
{
    uint64_t piece = c->evaluation.ledger.positions / (2u * c->workers);
    return piece < LEAST_PIECE ? LEAST_PIECE : piece;
}

bool kml_evaluation_lease(struct kml_conductor *c, uint32_t worker, struct kml_evaluation_lease *out)
{
    struct kml_evaluation *e = &c->evaluation;
    struct kml_lease lease;
    if (!e->running ||
        kml_ledger_lease(&e->ledger, worker, e->leases + 1, piece_of(c), &lease) != KML_LEASE_GIVEN) {
        return false;
    }
    /* All pieces are cut alike, so what comes back from a lost worker is whole pieces: a lease is one range.
     */
    KML_BUG_ON(lease.count != 1);
    e->leases++;
    c->worker[worker].evaluation_lease = e->leases;
    *out = (struct kml_evaluation_lease){
        .lease = e->leases, .version = e->version, .test = e->test, .range = lease.range[0]};
    return true;
}

void kml_evaluation_lost(struct kml_conductor *c, uint32_t worker)
{
    (void)kml_ledger_lost(&c->evaluation.ledger, worker);
}

/* ---- What the result means for the job ---- */

static void check_target(struct kml_conductor *c)
{
    if (!c->job->training.target.on) {
        return;
    }
    bool by_loss = c->job->training.target.metric == KML_JOB_METRIC_LOSS;
    double value = by_loss ? c->loss : c->accuracy;
    double wanted = c->job->training.target.value;
    c->target_reached = by_loss ? value <= wanted : value >= wanted;
    if (by_loss ? value < c->best : value > c->best) {
        c->best = value;
        c->best_epoch = c->evaluation.epoch;
    }
    uint32_t patience = c->job->training.target.patience_epochs;
    bool given_up = patience > 0 && c->evaluation.epoch >= c->best_epoch + patience;
    if (c->target_reached || given_up) {
        c->stopping = true;
        c->save_evaluated = true;
    }
}

static void conclude(struct kml_conductor *c)
{
    struct kml_evaluation *e = &c->evaluation;
    e->running = false;
    c->loss = e->loss_sum / (double)e->samples;
    c->has_evaluation = true;
    c->has_accuracy = e->has_accuracy;
    c->accuracy = e->has_accuracy ? (double)e->correct / (double)e->samples : NAN;
    kml_conductor_say(c, &(struct kml_record){.kind = KML_RECORD_EVALUATION,
                                              .epoch = e->epoch,
                                              .version = e->version,
                                              .train_loss = c->train_loss,
                                              .loss = c->loss,
                                              .accuracy = c->accuracy,
                                              .test = e->test});
    check_target(c);
    if (c->save_evaluated) {
        return; /* stays pinned until it is saved */
    }
    c->sink.unpin(c->sink.self, e->version);
    bool test;
    if (e->wanted && choose_set(c, &test)) {
        begin(c, test);
    }
}

void kml_conductor_evaluated(struct kml_conductor *c, uint32_t worker, uint64_t incarnation,
                             const struct kml_evaluation_result *r, uint64_t now)
{
    if (worker >= c->workers || c->phase != KML_PHASE_TRAINING) {
        return;
    }
    struct kml_conductor_worker *k = &c->worker[worker];
    if (k->state != KML_MEMBER_EVALUATING || k->incarnation != incarnation ||
        k->evaluation_lease != r->lease) {
        return;
    }
    struct kml_evaluation *e = &c->evaluation;
    uint64_t leased = kml_ledger_leased(&e->ledger, worker, r->lease);
    if (r->samples != leased || r->correct > leased) {
        char text[200];
        (void)snprintf(text, sizeof text,
                       "worker %u says that of %llu evaluated samples %llu are right, it was given %llu",
                       worker, (unsigned long long)r->samples, (unsigned long long)r->correct,
                       (unsigned long long)leased);
        kml_conductor_fail(c, "WorkerFailed", text, (uint32_t)kml_code_exit(KML_PROTOCOL), now);
        return;
    }
    kml_conductor_account(c, now);
    e->samples += kml_ledger_done(&e->ledger, worker, r->lease);
    e->loss_sum += r->loss_sum;
    e->correct += r->correct;
    e->has_accuracy = r->has_accuracy;
    kml_conductor_set_state(c, worker, KML_MEMBER_IDLE);
    if (kml_ledger_over(&e->ledger)) {
        conclude(c);
    }
    struct kml_opening none = kml_conductor_opening(c);
    kml_conductor_settle(c, &none, now);
}
