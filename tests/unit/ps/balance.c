/*
 * W-LSP and AW-LSP as whole jobs, in virtual time: the scenarios of uneven workers with four arms each,
 * static LSP, LSP with plain leases, W-LSP and AW-LSP. All arms have the same limit, rate, seeds and data.
 * The table that a run prints is what docs/algorithms/wlbs.md quotes.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "tests/unit/ps/setup.h"

#define WORKERS 4
#define SEEDS 3

enum arm { ARM_STATIC, ARM_LEASED, ARM_WLBS, ARM_AUTO, ARMS };
static const enum kml_job_strategy strategy_of[ARMS] = {KML_JOB_STRATEGY_STATIC, KML_JOB_STRATEGY_LEASED,
                                                        KML_JOB_STRATEGY_WLBS, KML_JOB_STRATEGY_AUTOWLBS};

/* What the records of a run say of its shares. */
struct tally {
    uint32_t initial, crew, fine, rapid, applied;
    uint32_t experts[KML_EXPERTS]; /* lines by who decided */
    uint64_t share[WORKERS];       /* the newest */
    uint64_t last_ns;
};

static void count_record(void *self, const struct kml_record *r)
{
    struct tally *t = self;
    if (r->kind != KML_RECORD_BALANCE) {
        return;
    }
    const struct kml_share_decision *d = r->decision;
    uint64_t sum = 0;
    t->initial += d->kind == KML_SHARES_INITIAL;
    t->crew += d->kind == KML_SHARES_CREW;
    t->fine += d->kind == KML_SHARES_FINE;
    t->rapid += d->kind == KML_SHARES_RAPID;
    t->applied += d->applied;
    t->last_ns = d->now;
    assert_int_equal(d->lines, WORKERS);
    for (uint32_t w = 0; w < d->lines; w++) {
        const struct kml_share_line *line = &d->line[w];
        assert_true(line->present == (line->after > 0));
        t->experts[line->expert] += line->present;
        t->share[w] = line->after;
        sum += line->after;
    }
    assert_int_equal(sum, d->total);
}

/* One job of 4 workers; what it is can be changed before it is run. */
struct trial {
    struct kml_job job;
    struct sim_problem problem;
    struct sim_config config;
    struct tally tally;
    struct sim *sim;
};

static void prepare(struct trial *t, enum arm arm, const struct sim_pace *pace, uint32_t samples,
                    uint64_t seed)
{
    memset(t, 0, sizeof *t);
    make_job(&t->job, KML_JOB_SYNC_LSP, strategy_of[arm], WORKERS, 1);
    t->job.sync.limit = 2;
    t->job.training.batch_size = 32;
    t->job.training.epochs = 2;
    sim_problem_init(&t->problem, seed, 3, 2, samples, 0, 0);
    t->config = (struct sim_config){.job = &t->job,
                                    .problem = &t->problem,
                                    .pace = pace,
                                    .seed = seed,
                                    .check_every = 1000,
                                    .record = count_record,
                                    .record_self = &t->tally};
}

static const struct sim_report *run(struct trial *t)
{
    t->sim = sim_create(&t->config);
    const struct sim_report *r = sim_run(t->sim);
    must_end(r, KML_PHASE_SUCCEEDED);
    /* Each sample once in each epoch; sim_run looked at every commit. */
    assert_int_equal(r->samples, (uint64_t)t->job.training.epochs * t->problem.count[SIM_TRAIN]);
    return r;
}

static void end(struct trial *t)
{
    sim_destroy(t->sim);
    sim_problem_finish(&t->problem);
    kml_job_finish(&t->job);
}

/* ---- The table ---- */

struct row {
    double seconds[ARMS];
    struct tally tally[ARMS]; /* of the last seed */
};

struct scenario {
    const char *name;
    struct sim_paces paces;
    uint64_t window_ns;
    uint32_t samples;
};

static struct row play(const struct scenario *of)
{
    struct row row = {.seconds = {0}};
    for (int arm = 0; arm < ARMS; arm++) {
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct sim_paces paces = of->paces;
            paces.seed = seed;
            struct sim_pace pace = sim_paces_of(&paces, of->window_ns);
            struct trial t;
            prepare(&t, (enum arm)arm, &pace, of->samples, seed);
            row.seconds[arm] += (double)run(&t)->elapsed_ns / 1e9 / SEEDS;
            row.tally[arm] = t.tally;
            end(&t);
        }
    }
    static const char *const names[] = {"static LSP", "leased LSP", "W-LSP", "AW-LSP"};
    for (int arm = 0; arm < ARMS; arm++) {
        const struct tally *y = &row.tally[arm];
        printf("%-4s %-10s %9.2f s %+7.2f %%  fine %u rapid %u  last %u average %u AR(1) %u network %u\n", of->name,
               names[arm], row.seconds[arm], 100 * (row.seconds[arm] / row.seconds[ARM_STATIC] - 1), y->fine,
               y->rapid, y->experts[KML_EXPERT_LAST], y->experts[KML_EXPERT_AVERAGE],
               y->experts[KML_EXPERT_AR1], y->experts[KML_EXPERT_NETWORK]);
    }
    return row;
}

static const double even[] = {1, 1, 1, 1};

static void b_severe_spread_is_balanced_to_the_bound(void **state)
{
    (void)state;
    static const double base[] = {1, 0.8, 0.5, 0.25};
    struct row row = play(&(struct scenario){"B",
                                             {.kind = SIM_PACE_STATIC, .base = base, .bases = 4},
                                             KML_SECOND,
                                             200000});
    double bound = 1 - 0.25 / ((1 + 0.8 + 0.5 + 0.25) / 4);
    for (int arm = ARM_WLBS; arm <= ARM_AUTO; arm++) {
        double less = 1 - row.seconds[arm] / row.seconds[ARM_STATIC];
        assert_true(less >= 0.95 * bound);
        assert_true(less >= 0.1356);
    }
    assert_true(row.seconds[ARM_AUTO] <= 1.03 * row.seconds[ARM_WLBS]);
}

static void d_equal_workers_pay_nothing(void **state)
{
    (void)state;
    struct row row =
        play(&(struct scenario){"D", {.kind = SIM_PACE_STATIC, .base = even, .bases = 4}, KML_SECOND, 100000});
    assert_true(row.seconds[ARM_AUTO] <= 1.01 * row.seconds[ARM_STATIC]);
    assert_true(row.seconds[ARM_WLBS] <= 1.01 * row.seconds[ARM_STATIC]);
}

static void a_drifting_workers_gain(void **state)
{
    (void)state;
    static const double base[] = {1.06, 1.02, 1, 0.92};
    struct row row = play(&(struct scenario){
        "A",
        {.kind = SIM_PACE_DRIFT, .base = base, .bases = 4, .spread = 0.35, .period = 90},
        KML_SECOND / 2,
        400000});
    assert_true(row.seconds[ARM_WLBS] <= row.seconds[ARM_STATIC]);
    assert_true(row.seconds[ARM_AUTO] <= row.seconds[ARM_STATIC]);
    assert_true(row.seconds[ARM_AUTO] <= 1.01 * row.seconds[ARM_WLBS]);
}

static void a_mild_noise_gains(void **state)
{
    (void)state;
    static const double base[] = {1.1, 1.05, 1, 0.85};
    struct row row = play(&(struct scenario){
        "A'",
        {.kind = SIM_PACE_AR1, .base = base, .bases = 4, .spread = 0.15, .correlation = 0.95},
        KML_SECOND,
        400000});
    assert_true(row.seconds[ARM_WLBS] <= row.seconds[ARM_STATIC]);
    assert_true(row.seconds[ARM_AUTO] <= row.seconds[ARM_STATIC]);
    assert_true(row.seconds[ARM_AUTO] <= 1.01 * row.seconds[ARM_WLBS]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b_severe_spread_is_balanced_to_the_bound),
        cmocka_unit_test(d_equal_workers_pay_nothing),
        cmocka_unit_test(a_drifting_workers_gain),
        cmocka_unit_test(a_mild_noise_gains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
