/*
 * The parts of lib/sync together: a conductor in a few lines, with a toy model, virtual time and faults. It
 * trains a linear regression by barrier, ledger, fence and step arithmetic, and is held against plain loops
 * that know none of them.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sync/barrier.h"
#include "sync/fence.h"
#include "sync/ledger.h"
#include "sync/steps.h"
#include "tests/unit/sync/seed.h"

#define MOST 8      /* workers */
#define DIMS 4      /* parameters */
#define SAMPLES 163 /* does not divide by anything */
#define EPOCHS 3
#define BATCH 8
#define RATE 0.05
#define GENERATION 1
#define EVENTS 512
#define EVEN 200    /* spread of step times: nobody takes as long as the others for an epoch */
#define UNEVEN 1000 /* somebody is */

struct setting {
    struct kml_barrier_rule rule;
    enum kml_ledger_policy policy;
    bool lockstep;
    uint32_t workers;
    bool repeats; /* some reports come twice, the second one maybe long after */
    bool deaths;  /* workers are killed; most return, some are given up */
    uint64_t seed, spread;
};

enum event_kind { REPORT, KILL, RETURN, GIVE_UP };

struct event {
    uint64_t at;
    enum event_kind kind;
    uint32_t worker;
    uint64_t incarnation, step; /* of a report */
};

struct toy_worker {
    uint64_t incarnation; /* 0: dead */
    uint64_t step;
    struct kml_lease lease;
    double gradient[DIMS];
    bool wants_work;
};

struct training {
    struct setting set;
    struct kml_rng rng;
    uint64_t now, next_incarnation;
    struct kml_barrier barrier;
    struct kml_barrier_seat seat[MOST];
    uint32_t committing[MOST], staleness[MOST], released[MOST];
    struct kml_opening out;
    struct kml_ledger ledger;
    struct kml_fence fence;
    struct kml_fence_seat fence_seat[MOST];
    struct kml_steps steps;
    struct toy_worker worker[MOST];
    struct event event[EVENTS];
    uint32_t events;
    double w[DIMS];
    uint8_t seen[EPOCHS][SAMPLES]; /* commits of each sample in each epoch */
    uint32_t kills, fenced, repeats;
};

/* ---- The toy model ---- */

static double feature(uint32_t sample, int d)
{
    return sin(1.0 + sample * 0.7 + d * 1.3);
}

static double label(uint32_t sample)
{
    return 2.0 * feature(sample, 0) - feature(sample, 2) + 0.1 * cos(sample * 3.1);
}

/* Any fixed permutation of an epoch does: 163 is prime. */
static uint32_t sample_at(uint32_t epoch, uint64_t position)
{
    return (uint32_t)((position * (37 + epoch) + 11 * epoch) % SAMPLES);
}

static void add_gradient(const double *w, uint32_t sample, double *sum)
{
    double residual = -label(sample);
    for (int d = 0; d < DIMS; d++) {
        residual += w[d] * feature(sample, d);
    }
    for (int d = 0; d < DIMS; d++) {
        sum[d] += residual * feature(sample, d);
    }
}

static void mean_gradient(const double *w, const struct kml_lease *lease, double *mean)
{
    memset(mean, 0, DIMS * sizeof *mean);
    for (uint32_t r = 0; r < lease->count; r++) {
        for (uint64_t p = lease->range[r].begin; p < lease->range[r].end; p++) {
            add_gradient(w, sample_at(lease->epoch, p), mean);
        }
    }
    for (int d = 0; d < DIMS; d++) {
        mean[d] /= (double)lease->samples;
    }
}

/* How long a step takes: a fixed function of worker and step, so that runs can be compared. */
static uint64_t duration(uint64_t seed, uint64_t spread, uint32_t worker, uint64_t step)
{
    struct kml_rng rng;
    kml_rng_init2(&rng, seed + step, worker);
    return (1000 + kml_rng_below(&rng, spread * (1 + worker))) * MOST + worker;
}

/* ---- The conductor ---- */

static void post(struct training *t, struct event e)
{
    assert_true(t->events < EVENTS);
    t->event[t->events++] = e;
}

static struct event next_event(struct training *t)
{
    assert_true(t->events > 0); /* else all wait and nothing can ever happen: a deadlock */
    uint32_t best = 0;
    for (uint32_t i = 1; i < t->events; i++) {
        const struct event *e = &t->event[i];
        const struct event *b = &t->event[best];
        if (e->at < b->at || (e->at == b->at && e->worker < b->worker)) {
            best = i;
        }
    }
    struct event e = t->event[best];
    t->event[best] = t->event[--t->events];
    return e;
}

static void commit(struct training *t)
{
    struct kml_member member[MOST];
    struct kml_step_plan plan;
    struct kml_err err;
    double sum[DIMS] = {0};
    if (t->out.count == 0) {
        return;
    }
    assert_int_equal(kml_fence_commit(&t->fence, t->out.version, GENERATION), KML_VERDICT_CURRENT);
    for (uint32_t i = 0; i < t->out.count; i++) {
        const struct toy_worker *w = &t->worker[t->out.worker[i]];
        member[i] =
            (struct kml_member){.worker = t->out.worker[i], .step = w->step, .samples = w->lease.samples};
    }
    assert_int_equal(kml_steps_plan(&t->steps, member, t->out.count, 1.0, &plan, &err), 0);
    for (uint32_t i = 0; i < t->out.count; i++) {
        const struct toy_worker *w = &t->worker[member[i].worker];
        for (int d = 0; d < DIMS; d++) {
            sum[d] += member[i].coefficient * w->gradient[d];
        }
        for (uint32_t r = 0; r < w->lease.count; r++) {
            for (uint64_t p = w->lease.range[r].begin; p < w->lease.range[r].end; p++) {
                t->seen[w->lease.epoch][sample_at(w->lease.epoch, p)]++;
            }
        }
        assert_int_equal(kml_ledger_done(&t->ledger, member[i].worker, w->step), w->lease.samples);
        kml_fence_closed(&t->fence, member[i].worker, w->step);
    }
    for (int d = 0; d < DIMS; d++) {
        t->w[d] -= RATE * plan.scale * sum[d];
    }
}

/* What the barrier has decided happens: commits first, then releases. */
static void carry_out(struct training *t)
{
    commit(t);
    for (uint32_t i = 0; i < t->out.releases; i++) {
        t->worker[t->out.released[i]].wants_work = true;
    }
}

static void start_step(struct training *t, uint32_t worker)
{
    struct toy_worker *w = &t->worker[worker];
    mean_gradient(t->w, &w->lease, w->gradient);
    struct event e = {.at = t->now + duration(t->set.seed, t->set.spread, worker, w->step),
                      .kind = REPORT,
                      .worker = worker,
                      .incarnation = w->incarnation,
                      .step = w->step};
    post(t, e);
    if (t->set.repeats && kml_rng_below(&t->rng, 4) == 0) {
        e.at += kml_rng_below(&t->rng, 30000);
        post(t, e);
    }
}

static void welcome_back_whom_the_ledger_has_work_for(struct training *t)
{
    for (uint32_t w = 0; w < t->set.workers; w++) {
        if (t->seat[w].state == KML_SEAT_EXCUSED && kml_ledger_has_work(&t->ledger, w)) {
            kml_barrier_readmit(&t->barrier, w);
            t->worker[w].wants_work = true;
        }
    }
}

/* Workers without a step get one, or are excused. Either can change what there is for the others. */
static void deal(struct training *t)
{
    for (bool busy = true; busy;) {
        busy = false;
        welcome_back_whom_the_ledger_has_work_for(t);
        for (uint32_t i = 0; i < t->set.workers; i++) {
            struct toy_worker *w = &t->worker[i];
            if (!w->wants_work) {
                continue;
            }
            busy = true;
            w->wants_work = false;
            if (kml_ledger_lease(&t->ledger, i, ++w->step, BATCH, &w->lease) == KML_LEASE_GIVEN) {
                start_step(t, i);
            } else {
                kml_barrier_excuse(&t->barrier, i, t->now, &t->out);
                carry_out(t);
            }
        }
    }
}

static void come_in(struct training *t, uint32_t worker)
{
    bool replaced;
    struct kml_err err;
    struct toy_worker *w = &t->worker[worker];
    *w = (struct toy_worker){.incarnation = ++t->next_incarnation, .wants_work = true};
    assert_int_equal(kml_fence_admit(&t->fence, worker, w->incarnation, &replaced, &err), 0);
    assert_false(replaced);
    assert_int_equal(kml_barrier_join(&t->barrier, worker, &err), 0);
}

static void die(struct training *t, uint32_t worker)
{
    t->kills++;
    t->worker[worker] = (struct toy_worker){.incarnation = 0};
    kml_fence_dismiss(&t->fence, worker);
    kml_barrier_leave(&t->barrier, worker, t->now, &t->out);
    carry_out(t);
    kml_ledger_lost(&t->ledger, worker);
    uint64_t back = t->now + kml_rng_below(&t->rng, 100000);
    bool for_ever = worker != 0 && kml_rng_below(&t->rng, 4) == 0; /* worker 0 always comes back */
    if (for_ever || kml_rng_below(&t->rng, 3) == 0) {
        post(t,
             (struct event){.at = t->now + kml_rng_below(&t->rng, 50000), .kind = GIVE_UP, .worker = worker});
    }
    if (!for_ever) {
        post(t, (struct event){.at = back, .kind = RETURN, .worker = worker});
    }
}

static void report(struct training *t, const struct event *e)
{
    switch (kml_fence_push(&t->fence, e->worker, e->incarnation, e->step, GENERATION)) {
    case KML_VERDICT_CURRENT:
        kml_fence_staged(&t->fence, e->worker, e->step);
        kml_barrier_staged(&t->barrier, e->worker, t->now, &t->out);
        carry_out(t);
        break;
    case KML_VERDICT_FENCED:
        t->fenced++;
        break;
    default:
        t->repeats++;
    }
}

static void handle(struct training *t, const struct event *e)
{
    switch (e->kind) {
    case REPORT:
        report(t, e);
        break;
    case KILL:
        if (t->worker[e->worker].incarnation != 0) {
            die(t, e->worker);
        }
        post(t, (struct event){.at = t->now + kml_rng_below(&t->rng, 60000),
                               .kind = KILL,
                               .worker = (uint32_t)kml_rng_below(&t->rng, t->set.workers)});
        break;
    case RETURN:
        come_in(t, e->worker);
        break;
    case GIVE_UP:
        if (t->worker[e->worker].incarnation == 0) {
            kml_ledger_forfeit(&t->ledger, e->worker);
        }
        break;
    }
}

static void train(struct training *t, struct setting set)
{
    struct kml_err err;
    *t = (struct training){.set = set};
    t->out =
        (struct kml_opening){.worker = t->committing, .staleness = t->staleness, .released = t->released};
    kml_rng_init(&t->rng, set.seed);
    kml_barrier_init(&t->barrier, 0, set.rule, t->seat, MOST);
    kml_fence_init(&t->fence, GENERATION, 0, t->fence_seat, MOST);
    kml_steps_init(&t->steps, set.workers, BATCH, 0.0, true);
    assert_int_equal(kml_ledger_init(&t->ledger, set.policy, set.lockstep, SAMPLES, EPOCHS, set.workers,
                                     set.workers, &err),
                     0);
    for (uint32_t w = 0; w < set.workers; w++) {
        come_in(t, w);
    }
    if (set.deaths) {
        post(t, (struct event){.at = kml_rng_below(&t->rng, 60000), .kind = KILL, .worker = 0});
    }
    deal(t);
    while (!kml_ledger_over(&t->ledger)) {
        struct event e = next_event(t);
        if (t->barrier.deadline < e.at) {
            post(t, e);
            t->now = t->barrier.deadline;
            kml_barrier_tick(&t->barrier, t->now, &t->out);
            carry_out(t);
        } else {
            t->now = e.at;
            handle(t, &e);
        }
        deal(t);
        assert_true(kml_ledger_sound(&t->ledger));
    }
    for (int e = 0; e < EPOCHS; e++) {
        for (int s = 0; s < SAMPLES; s++) {
            assert_int_equal(t->seen[e][s], 1);
        }
    }
    kml_ledger_finish(&t->ledger);
}

static struct setting setting(struct kml_barrier_rule rule, enum kml_ledger_policy policy, uint32_t workers,
                              uint64_t seed)
{
    bool lockstep = rule.limit == KML_BARRIER_ALL || (rule.limit == 1 && rule.bound == 0);
    return (struct setting){.rule = rule,
                            .policy = policy,
                            .lockstep = lockstep,
                            .workers = workers,
                            .seed = seed,
                            .spread = EVEN};
}

/* ---- The references ---- */

/* Synchronous SGD in a plain loop: m micro-batches a step, from equal shards, added in worker order. */
static void synchronous_sgd(uint32_t m, double *w)
{
    memset(w, 0, DIMS * sizeof *w);
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        for (uint64_t step = 0; step * BATCH < SAMPLES; step++) {
            struct kml_lease part[MOST];
            uint64_t n = 0;
            for (uint32_t i = 0; i < m; i++) {
                uint64_t begin = (uint64_t)SAMPLES * i / m + step * BATCH;
                uint64_t end = (uint64_t)SAMPLES * (i + 1) / m;
                end = begin + BATCH < end ? begin + BATCH : end;
                uint64_t samples = begin < end ? end - begin : 0;
                part[i] = (struct kml_lease){
                    .epoch = epoch, .count = 1, .samples = samples, .range = {{begin, end}}};
                n += samples;
            }
            double sum[DIMS] = {0};
            for (uint32_t i = 0; i < m; i++) {
                double mean[DIMS];
                for (int d = 0; part[i].samples > 0 && d < DIMS; d++) {
                    if (d == 0) {
                        mean_gradient(w, &part[i], mean);
                    }
                    sum[d] += (double)part[i].samples / (double)n * mean[d];
                }
            }
            for (int d = 0; n > 0 && d < DIMS; d++) {
                w[d] -= RATE * ((double)n / ((double)m * BATCH)) * sum[d];
            }
        }
    }
}

/* The same on one machine: one batch, the union. */
static void union_sgd(uint32_t m, double *w)
{
    memset(w, 0, DIMS * sizeof *w);
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        for (uint64_t step = 0; step * BATCH < SAMPLES; step++) {
            double sum[DIMS] = {0};
            for (uint32_t i = 0; i < m; i++) {
                uint64_t end = (uint64_t)SAMPLES * (i + 1) / m;
                uint64_t p = (uint64_t)SAMPLES * i / m + step * BATCH;
                for (int k = 0; k < BATCH && p < end; k++, p++) {
                    add_gradient(w, sample_at(epoch, p), sum);
                }
            }
            for (int d = 0; d < DIMS; d++) {
                w[d] -= RATE * sum[d] / ((double)m * BATCH);
            }
        }
    }
}

/* Asynchronous SGD in a plain loop: who finishes first applies its gradient and takes the next batch of the
 * queue. */
static void asynchronous_sgd(uint32_t m, uint64_t seed, double *w)
{
    uint64_t end[MOST], step[MOST] = {0}, position = 0, n[MOST];
    double gradient[MOST][DIMS];
    uint32_t epoch = 0, working = 0;
    memset(w, 0, DIMS * sizeof *w);
    uint64_t now = 0;
    for (uint32_t next = 0; next < m || working > 0;) {
        uint32_t i = next;
        if (next < m) {
            next++; /* at the start each takes a batch in turn */
        } else {
            for (uint32_t k = 0; k < m; k++) {
                i = i == next || end[k] < end[i] ? k : i;
            }
            now = end[i];
            for (int d = 0; d < DIMS; d++) {
                w[d] -= RATE * ((double)n[i] / ((double)m * BATCH)) * gradient[i][d];
            }
            working--;
        }
        if (position == SAMPLES) {
            position = 0;
            epoch++;
        }
        end[i] = UINT64_MAX;
        if (epoch < EPOCHS) {
            n[i] = SAMPLES - position < BATCH ? SAMPLES - position : BATCH;
            struct kml_lease lease = {
                .epoch = epoch, .count = 1, .samples = n[i], .range = {{position, position + n[i]}}};
            mean_gradient(w, &lease, gradient[i]);
            position += n[i];
            end[i] = now + duration(seed, EVEN, i, ++step[i]);
            working++;
        }
    }
}

static double distance(const double *a, const double *b)
{
    double most = 0.0;
    for (int d = 0; d < DIMS; d++) {
        most = fmax(most, fabs(a[d] - b[d]) / fmax(1.0, fabs(b[d])));
    }
    return most;
}

/* ---- The tests ---- */

static struct training t; /* large: not on the stack */
static struct training other;

static void bsp_is_synchronous_sgd_byte_for_byte(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (uint32_t m = 1; m <= MOST; m++) {
        double w[DIMS], one[DIMS];
        synchronous_sgd(m, w);
        union_sgd(m, one);
        for (uint64_t run = 0; run < 20; run++) { /* whatever the timing */
            train(&t, setting(kml_barrier_bsp(), KML_LEDGER_STATIC, m, seed + run));
            assert_memory_equal(t.w, w, sizeof w);
            assert_int_equal(t.barrier.applied, 0);
        }
        assert_true(distance(t.w, one) < 1e-12);
        assert_true(fabs(w[0]) > 0.1); /* it has learned something */
    }
}

static void bsp_does_not_mind_repeated_reports(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    double w[DIMS];
    synchronous_sgd(4, w);
    for (uint64_t run = 0; run < 50; run++) {
        struct setting set = setting(kml_barrier_bsp(), KML_LEDGER_STATIC, 4, seed + run);
        set.repeats = true;
        train(&t, set);
        assert_true(t.repeats > 0);
        assert_memory_equal(t.w, w, sizeof w);
    }
}

static void lsp_of_all_is_bsp_and_ssp_without_staleness_is_too(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (uint64_t run = 0; run < 100; run++) {
        uint32_t m = 1 + (uint32_t)(run % MOST);
        enum kml_ledger_policy policy = run % 3 == 0 ? KML_LEDGER_LEASED : KML_LEDGER_STATIC;
        struct setting set = setting(kml_barrier_bsp(), policy, m, seed + run);
        set.spread = run % 2 == 0 ? EVEN : UNEVEN;
        train(&t, set);
        set.rule = kml_barrier_lsp(m, 0);
        train(&other, set);
        assert_memory_equal(other.w, t.w, sizeof t.w);
        assert_int_equal(other.barrier.version, t.barrier.version);
        if (policy == KML_LEDGER_STATIC) { /* a common queue deals by arrival within a round: other sums */
            set.rule = kml_barrier_ssp(0);
            train(&other, set);
            assert_true(distance(other.w, t.w) < 1e-12);
        }
    }
}

static void lsp_of_one_and_ssp_without_end_are_asynchronous_sgd(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (uint64_t run = 0; run < 100; run++) {
        uint32_t m = 1 + (uint32_t)(run % MOST);
        double w[DIMS];
        asynchronous_sgd(m, seed + run, w);
        train(&t, setting(kml_barrier_lsp(1, 0), KML_LEDGER_LEASED, m, seed + run));
        assert_true(distance(t.w, w) < 1e-12);
        train(&t, setting(kml_barrier_ssp(1000000), KML_LEDGER_LEASED, m, seed + run));
        assert_true(distance(t.w, w) < 1e-12);
    }
}

static struct kml_barrier_rule rule_of(uint64_t run, struct kml_rng *rng)
{
    switch (run % 4) {
    case 0:
        return kml_barrier_bsp();
    case 1:
        return kml_barrier_asp();
    case 2:
        return kml_barrier_ssp((uint32_t)kml_rng_below(rng, 4));
    default:
        return kml_barrier_lsp(1 + (uint32_t)kml_rng_below(rng, MOST), kml_rng_below(rng, 2) * 5000);
    }
}

static void every_sample_counts_once_an_epoch_while_workers_die_and_return(void **state)
{
    (void)state;
    struct kml_rng rng;
    uint64_t seed = test_seed();
    uint64_t kills = 0, fenced = 0, repeats = 0;
    kml_rng_init(&rng, seed);
    for (uint64_t run = 0; run < 1500; run++) {
        enum kml_ledger_policy policy = run / 4 % 2 == 0 ? KML_LEDGER_STATIC : KML_LEDGER_LEASED;
        struct kml_barrier_rule rule = rule_of(run, &rng);
        struct setting set = setting(rule, policy, 1 + (uint32_t)kml_rng_below(&rng, MOST), seed + run);
        set.repeats = true;
        set.deaths = true;
        set.spread = UNEVEN;
        train(&t, set); /* ends, or next_event finds a deadlock; every sample is counted in there */
        kills += t.kills;
        fenced += t.fenced;
        repeats += t.repeats;
    }
    assert_true(kills > 1500 && fenced > 1000 && repeats > 10000); /* the storm was one */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bsp_is_synchronous_sgd_byte_for_byte),
        cmocka_unit_test(bsp_does_not_mind_repeated_reports),
        cmocka_unit_test(lsp_of_all_is_bsp_and_ssp_without_staleness_is_too),
        cmocka_unit_test(lsp_of_one_and_ssp_without_end_are_asynchronous_sgd),
        cmocka_unit_test(every_sample_counts_once_an_epoch_while_workers_die_and_return),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
