/*
 * Crews of other sizes and speeds: a thousand workers, uneven ones, the grace window, and the laws of
 * method.md 2.3 and 2.4 as the whole job shows them.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "tests/unit/ps/setup.h"

static void a_thousand_workers_train(void **state)
{
    (void)state;
    struct sim_problem problem;
    sim_problem_init(&problem, 2, FEATURES, CLASSES, 24000, 500, 0);
    static const double base[] = {1, 0.9, 0.7, 1.2, 1.05};
    struct sim_paces paces = {.kind = SIM_PACE_STATIC, .base = base, .bases = 5};
    struct sim_pace pace = sim_paces_of(&paces, KML_SECOND);
    static const enum kml_job_sync modes[] = {KML_JOB_SYNC_BSP, KML_JOB_SYNC_LSP, KML_JOB_SYNC_ASP};
    for (int i = 0; i < 3; i++) {
        struct kml_job job;
        make_job(&job, modes[i], KML_JOB_STRATEGY_LEASED, 1000, 2);
        job.sync.limit = 50;
        job.training.epochs = 1;
        struct sim_config config = {
            .job = &job, .problem = &problem, .pace = &pace, .seed = 6, .check_every = 1000};
        struct sim *s = sim_create(&config);
        const struct sim_report *r = sim_run(s);
        must_end(r, KML_PHASE_SUCCEEDED);
        assert_int_equal(r->samples, 24000);
        assert_int_equal(r->joins, 1000);
        sim_destroy(s);
        kml_job_finish(&job);
    }
    sim_problem_finish(&problem);
}

/* Samples a second of a job of 4 workers with speeds 1, 0.8, 0.5, 0.25. */
static double throughput(enum kml_job_sync mode, uint32_t limit, enum kml_job_strategy strategy)
{
    struct sim_problem problem;
    sim_problem_init(&problem, 2, FEATURES, CLASSES, 8000, 0, 0);
    static const double base[] = {1, 0.8, 0.5, 0.25};
    struct sim_paces paces = {.kind = SIM_PACE_STATIC, .base = base, .bases = 4};
    struct sim_pace pace = sim_paces_of(&paces, KML_SECOND);
    struct kml_job job;
    make_job(&job, mode, strategy, 4, 1);
    job.sync.limit = limit;
    job.training.epochs = 1;
    struct sim_config config = {
        .job = &job, .problem = &problem, .pace = &pace, .seed = 6, .check_every = 100};
    config.faults.latency_ns = 1000;
    struct sim *s = sim_create(&config);
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_SUCCEEDED);
    double rate = r->samples_per_second;
    sim_destroy(s);
    kml_job_finish(&job);
    sim_problem_finish(&problem);
    return rate;
}

static void uneven_workers_are_as_fast_as_the_model_allows(void **state)
{
    (void)state;
    /* 1000 samples a second at speed 1. In step with the slowest: 4 * 0.25. Alone: 1 + 0.8 + 0.5 + 0.25. */
    double bsp = throughput(KML_JOB_SYNC_BSP, 0, KML_JOB_STRATEGY_STATIC);
    double asp = throughput(KML_JOB_SYNC_ASP, 0, KML_JOB_STRATEGY_LEASED);
    double equal_shards = throughput(KML_JOB_SYNC_ASP, 0, KML_JOB_STRATEGY_STATIC);
    assert_true(fabs(bsp / 1000 - 1) < 0.02);
    assert_true(fabs(asp / 2550 - 1) < 0.02);
    assert_true(fabs(equal_shards / 1000 - 1) <
                0.02); /* the slowest has its quarter to do, whatever the barrier */
    double lsp = throughput(KML_JOB_SYNC_LSP, 2, KML_JOB_STRATEGY_LEASED);
    assert_true(lsp > bsp * 1.3 && lsp < asp);
}

static double mean_staleness(enum kml_job_sync mode, uint32_t limit, double grace, uint64_t *versions)
{
    struct sim_problem problem;
    sim_problem_init(&problem, 2, FEATURES, CLASSES, 16000, 0, 0);
    struct sim_paces paces = {.kind = SIM_PACE_AR1, .spread = 0.05, .correlation = 0.5, .seed = 9};
    struct sim_pace pace = sim_paces_of(&paces, 10 * KML_MILLISECOND);
    struct kml_job job;
    make_job(&job, mode, KML_JOB_STRATEGY_LEASED, 4, 1);
    job.sync.limit = limit;
    job.sync.grace_window = grace;
    job.training.epochs = 1;
    struct sim_config config = {
        .job = &job, .problem = &problem, .pace = &pace, .seed = 6, .check_every = 100};
    struct sim *s = sim_create(&config);
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_SUCCEEDED);
    assert_true(grace > 0 || r->identities > 400); /* the exact identity was looked at in each */
    const struct kml_barrier *b = &sim_conductor(s)->barrier;
    double mean = (double)b->applied / (double)b->contributions;
    *versions = r->versions;
    sim_destroy(s);
    kml_job_finish(&job);
    sim_problem_finish(&problem);
    return mean;
}

static void the_mean_staleness_is_workers_less_limit_over_limit(void **state)
{
    (void)state;
    uint64_t versions;
    assert_true(mean_staleness(KML_JOB_SYNC_BSP, 0, 0, &versions) == 0);
    for (uint32_t limit = 1; limit <= 4; limit++) {
        assert_true(fabs(mean_staleness(KML_JOB_SYNC_LSP, limit, 0, &versions) - (4.0 - limit) / limit) <
                    0.02);
    }
    assert_true(fabs(mean_staleness(KML_JOB_SYNC_ASP, 0, 0, &versions) - 3) < 0.02);
}

static void a_grace_window_lets_a_worker_that_is_nearly_there_come_along(void **state)
{
    (void)state;
    uint64_t without, with;
    double stale = mean_staleness(KML_JOB_SYNC_LSP, 3, 0, &without);
    double fresh = mean_staleness(KML_JOB_SYNC_LSP, 3, 0.25, &with);
    assert_true(with < without && fresh < stale / 2); /* most openings are of all four */
}

static void every_story_of_speed_replays_and_keeps_its_mean(void **state)
{
    (void)state;
    static const double base[] = {1, 0.5};
    for (int kind = SIM_PACE_STATIC; kind <= SIM_PACE_BURST; kind++) {
        struct sim_paces paces = {.kind = (enum sim_pace_kind)kind,
                                  .base = base,
                                  .bases = 2,
                                  .spread = 0.3,
                                  .correlation = 0.8,
                                  .period = 20,
                                  .seed = test_seed()};
        struct sim_pace pace = sim_paces_of(&paces, KML_SECOND);
        for (uint32_t w = 0; w < 2; w++) {
            double sum = 0;
            for (uint64_t window = 0; window < 4000; window++) {
                double speed = pace.speed(pace.self, w, window);
                assert_true(speed > 0 && speed == pace.speed(pace.self, w, window));
                sum += speed;
            }
            assert_true(fabs(sum / 4000 / base[w] - 1) < 0.15);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_workers_train),
        cmocka_unit_test(uneven_workers_are_as_fast_as_the_model_allows),
        cmocka_unit_test(the_mean_staleness_is_workers_less_limit_over_limit),
        cmocka_unit_test(a_grace_window_lets_a_worker_that_is_nearly_there_come_along),
        cmocka_unit_test(every_story_of_speed_replays_and_keeps_its_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
