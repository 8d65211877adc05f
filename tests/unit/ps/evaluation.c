/*
 * Evaluations: on one pinned version, exactly what that version is worth, without stopping those who train;
 * what they mean for the end of the job; whose time they are. That each result equals a direct computation is
 * checked in every run, by tests/sim/shadow.c.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "tests/unit/ps/setup.h"

static struct sim_problem problem;

static int make_problem(void **state)
{
    (void)state;
    sim_problem_init(&problem, 21, FEATURES, CLASSES, 400, 1000, 2600);
    return 0;
}

static int drop_problem(void **state)
{
    (void)state;
    sim_problem_finish(&problem);
    return 0;
}

static struct sim *calm(const struct kml_job *job)
{
    struct sim_config config = {.job = job, .problem = &problem, .seed = 8};
    return sim_create(&config);
}

static void each_epoch_is_evaluated_on_the_version_that_ends_it(void **state)
{
    (void)state;
    struct kml_job job;
    make_job(&job, KML_JOB_SYNC_BSP, KML_JOB_STRATEGY_STATIC, 4, 2);
    job.training.epochs = 5;
    job.training.evaluation.every_epochs = 1;
    struct sim *s = calm(&job);
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_SUCCEEDED);
    assert_int_equal(r->evaluations, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(r->evaluation[i].epoch, i + 1);
        assert_int_equal(r->evaluation[i].version, (i + 1) * 13); /* 100 samples each, 8 a step */
        assert_false(r->evaluation[i].test);
    }
    assert_true(r->evaluation[4].loss < r->evaluation[0].loss);
    sim_destroy(s);
    kml_job_finish(&job);
}

static void the_last_version_is_evaluated_whatever_the_rhythm(void **state)
{
    (void)state;
    for (uint32_t every = 0; every < 4; every++) {
        struct kml_job job;
        make_job(&job, KML_JOB_SYNC_ASP, KML_JOB_STRATEGY_LEASED, 3, 2);
        job.training.epochs = 4;
        job.training.evaluation.every_epochs = every;
        job.training.evaluation.on_test = true;
        struct sim *s = calm(&job);
        const struct sim_report *r = sim_run(s);
        must_end(r, KML_PHASE_SUCCEEDED);
        assert_int_equal(r->evaluation[r->evaluations - 1].version, r->versions);
        assert_true(r->evaluation[r->evaluations - 1].test);
        assert_true(r->evaluations >= 1 && (every != 0 || r->evaluations == 1));
        sim_destroy(s);
        kml_job_finish(&job);
    }
}

static void without_a_set_nothing_is_evaluated(void **state)
{
    (void)state;
    struct sim_problem full = problem;
    sim_problem_init(&problem, 21, FEATURES, CLASSES, 100, 0, 0);
    struct kml_job job;
    make_job(&job, KML_JOB_SYNC_BSP, KML_JOB_STRATEGY_LEASED, 3, 1);
    job.training.evaluation.every_epochs = 1;
    struct sim *s = calm(&job);
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_SUCCEEDED);
    assert_int_equal(r->evaluations, 0);
    assert_true(r->evaluation_ns == 0);
    sim_destroy(s);
    kml_job_finish(&job);
    sim_problem_finish(&problem);
    problem = full;
}

/* Counts versions that were made while an evaluation ran. */
struct watch {
    struct sim *sim;
    uint64_t made, before;
    bool ran;
};

static void look(void *self, void *sim)
{
    struct watch *w = self;
    struct kml_conductor *c = sim_conductor(sim);
    if (w->ran && c->evaluation.running) {
        w->made += c->barrier.version - w->before;
    }
    w->ran = c->evaluation.running;
    w->before = c->barrier.version;
    if (!kml_conductor_over(c)) {
        sim_at(sim, sim_now(sim) + 5 * KML_MILLISECOND, look, w);
    }
}

static void the_others_train_on_while_some_evaluate(void **state)
{
    (void)state;
    static const enum kml_job_sync modes[] = {KML_JOB_SYNC_LSP, KML_JOB_SYNC_ASP, KML_JOB_SYNC_SSP,
                                              KML_JOB_SYNC_BSP};
    for (int i = 0; i < 4; i++) {
        struct kml_job job;
        struct watch w = {.made = 0};
        make_job(&job, modes[i], KML_JOB_STRATEGY_LEASED, 4, 2);
        job.sync.limit = 2;
        job.sync.staleness = 3;
        job.training.epochs = 6;
        job.training.evaluation.every_epochs = 1;
        job.training.evaluation.on_test = true;
        struct sim *s = calm(&job);
        sim_at(s, KML_MILLISECOND, look, &w);
        must_end(sim_run(s), KML_PHASE_SUCCEEDED);
        if (modes[i] == KML_JOB_SYNC_BSP) {
            assert_int_equal(w.made,
                             0); /* in lockstep nobody trains meanwhile, so that timing never matters */
        } else {
            assert_true(w.made > 0);
        }
        sim_destroy(s);
        kml_job_finish(&job);
    }
}

static void a_worker_that_leaves_during_an_evaluation_gives_its_part_to_the_others(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int i = 0; i < 60; i++) {
        struct kml_job job;
        make_job(&job, i % 2 == 0 ? KML_JOB_SYNC_BSP : KML_JOB_SYNC_LSP, KML_JOB_STRATEGY_LEASED, 3, 2);
        job.sync.limit = 2;
        job.training.evaluation.every_epochs = 1;
        struct sim_config config = {.job = &job, .problem = &problem, .seed = kml_rng_next(&rng)};
        struct sim *s = sim_create(&config);
        for (uint32_t w = 0; w < 3; w++) { /* the evaluations fill a good part of this time */
            sim_kill(s, w, 100 * KML_MILLISECOND + kml_rng_below(&rng, 500 * KML_MILLISECOND),
                     kml_rng_below(&rng, KML_SECOND), true);
        }
        const struct sim_report *r = sim_run(s);
        must_end(r, KML_PHASE_SUCCEEDED);
        assert_true(r->evaluations >= 1 && r->evaluations <= 2);
        sim_destroy(s);
        kml_job_finish(&job);
    }
}

static void a_target_that_is_reached_ends_the_job_with_the_version_that_reached_it(void **state)
{
    (void)state;
    static const enum kml_job_sync modes[] = {KML_JOB_SYNC_BSP, KML_JOB_SYNC_LSP, KML_JOB_SYNC_ASP};
    for (int i = 0; i < 6; i++) {
        struct kml_job job;
        make_job(&job, modes[i % 3], KML_JOB_STRATEGY_LEASED, 4, 1 + (uint32_t)i % 3);
        job.sync.limit = 2;
        job.training.epochs = 60;
        job.training.evaluation.every_epochs = 1;
        job.training.target.on = true;
        job.training.target.metric = i < 3 ? KML_JOB_METRIC_ACCURACY : KML_JOB_METRIC_LOSS;
        job.training.target.value = i < 3 ? 0.8 : 0.6;
        struct sim *s = calm(&job);
        const struct sim_report *r = sim_run(s);
        must_end(r, KML_PHASE_SUCCEEDED);
        const struct sim_evaluation *last = &r->evaluation[r->evaluations - 1];
        assert_true(r->epochs < 60 && sim_conductor(s)->target_reached);
        assert_int_equal(r->saved_version, last->version); /* its bytes are checked by the simulator */
        assert_true(i < 3 ? last->accuracy >= 0.8 : last->loss <= 0.6);
        assert_true(modes[i % 3] == KML_JOB_SYNC_BSP || r->versions > last->version); /* the pin was needed */
        for (uint32_t e = 0; e + 1 < r->evaluations; e++) {
            assert_true(i < 3 ? r->evaluation[e].accuracy < 0.8 : r->evaluation[e].loss > 0.6);
        }
        sim_destroy(s);
        kml_job_finish(&job);
    }
}

static void patience_ends_a_job_that_makes_no_progress(void **state)
{
    (void)state;
    struct kml_job job;
    make_job(&job, KML_JOB_SYNC_BSP, KML_JOB_STRATEGY_STATIC, 3, 2);
    job.training.epochs = 50;
    job.training.optimizer.learning_rate = 1e-30; /* stays as it is */
    job.training.evaluation.every_epochs = 1;
    job.training.target.on = true;
    job.training.target.metric = KML_JOB_METRIC_LOSS;
    job.training.target.value = 1e-9;
    job.training.target.patience_epochs = 4;
    struct sim *s = calm(&job);
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_SUCCEEDED);
    assert_false(sim_conductor(s)->target_reached);
    assert_int_equal(r->epochs, 5); /* the first is the best, four more bring nothing */
    assert_int_equal(r->saved_version, r->evaluation[r->evaluations - 1].version);
    sim_destroy(s);
    kml_job_finish(&job);
}

static void time_of_evaluation_is_not_time_of_training(void **state)
{
    (void)state;
    struct kml_job job;
    make_job(&job, KML_JOB_SYNC_BSP, KML_JOB_STRATEGY_STATIC, 4, 1);
    job.training.epochs = 2;
    job.training.evaluation.every_epochs = 1;
    struct sim *s = calm(&job);
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_SUCCEEDED);
    /* 2 epochs of 13 steps of at most 8 ms; 2 evaluations of 1000 samples, a third of a millisecond each, 4
     * pieces. */
    assert_true(r->training_ns > 200e6 && r->training_ns < 230e6);
    assert_true(r->evaluation_ns > 2 * 83e6 && r->evaluation_ns < 2 * 95e6);
    assert_true(fabs(r->training_ns + r->evaluation_ns - (double)r->elapsed_ns) < 1e3);
    sim_destroy(s);
    kml_job_finish(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_epoch_is_evaluated_on_the_version_that_ends_it),
        cmocka_unit_test(the_last_version_is_evaluated_whatever_the_rhythm),
        cmocka_unit_test(without_a_set_nothing_is_evaluated),
        cmocka_unit_test(the_others_train_on_while_some_evaluate),
        cmocka_unit_test(a_worker_that_leaves_during_an_evaluation_gives_its_part_to_the_others),
        cmocka_unit_test(a_target_that_is_reached_ends_the_job_with_the_version_that_reached_it),
        cmocka_unit_test(patience_ends_a_job_that_makes_no_progress),
        cmocka_unit_test(time_of_evaluation_is_not_time_of_training),
    };
    return cmocka_run_group_tests(tests, make_problem, drop_problem);
}
