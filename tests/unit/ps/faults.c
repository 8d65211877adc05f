/*
 * Workers die, come back, fall silent, lose their connections; shards go; people stop the job. Whatever
 * happens, the job ends in a defined way, each sample counts once an epoch, and the parameters are those of
 * the commits (tests/sim/shadow.c).
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/unit/ps/setup.h"

static struct sim_problem problem;

static int make_problem(void **state)
{
    (void)state;
    sim_problem_init(&problem, 99, FEATURES, CLASSES, 211, 60, 90);
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
    struct sim_config config = {.job = job, .problem = &problem, .seed = 3};
    return sim_create(&config);
}

static const enum kml_job_sync modes[] = {KML_JOB_SYNC_BSP, KML_JOB_SYNC_ASP, KML_JOB_SYNC_SSP,
                                          KML_JOB_SYNC_LSP};
static const enum kml_job_strategy strategies[] = {KML_JOB_STRATEGY_STATIC, KML_JOB_STRATEGY_LEASED};

static void make_random_job(struct kml_job *job, uint64_t number, struct kml_rng *rng)
{
    uint32_t m = 2 + (uint32_t)kml_rng_below(rng, 6);
    make_job(job, modes[number % 4], strategies[number / 4 % 2], m, 1 + (uint32_t)kml_rng_below(rng, 3));
    job->sync.staleness = (uint32_t)kml_rng_below(rng, 4);
    job->sync.limit = 1 + (uint32_t)kml_rng_below(rng, m);
    job->sync.grace_window = number % 3 == 0 ? 0.2 : 0;
    job->training.evaluation.every_epochs = (uint32_t)kml_rng_below(rng, 2);
    job->training.evaluation.on_test = number % 2 == 0;
    job->training.epochs = 1 + (uint32_t)kml_rng_below(rng, 3);
    if (number % 5 == 0) {
        job->training.optimizer.kind = KML_JOB_OPTIMIZER_ADAM;
        job->training.optimizer.learning_rate = 0.01;
    }
    job->training.clip_norm = number % 7 == 0 ? 0.3 : 0;
}

/* Kills over the time that the job takes; worker 0 may die for good only when another one lives. */
static uint32_t add_kills(struct sim *s, const struct kml_job *job, struct kml_rng *rng)
{
    uint32_t kills = (uint32_t)kml_rng_below(rng, 6);
    for (uint32_t i = 0; i < kills; i++) {
        uint32_t w = (uint32_t)kml_rng_below(rng, job->worker.replicas);
        uint64_t at = kml_rng_below(rng, 800 * KML_MILLISECOND);
        bool returns = w == 0 || kml_rng_below(rng, 3) > 0;
        uint64_t back =
            kml_rng_below(rng, 2) == 0 ? kml_rng_below(rng, KML_SECOND) : kml_rng_below(rng, 30 * KML_SECOND);
        sim_kill(s, w, at, returns ? back : SIM_NEVER, kml_rng_below(rng, 4) > 0);
    }
    if (kml_rng_below(rng, 4) == 0) {
        sim_pause(s, (uint32_t)kml_rng_below(rng, job->worker.replicas),
                  kml_rng_below(rng, 500 * KML_MILLISECOND), kml_rng_below(rng, 40 * KML_SECOND));
    }
    return kills;
}

struct tally {
    uint64_t schedules, kills, joins, disconnected, faults, identities, events;
};

static void one_schedule(uint64_t number, struct kml_rng *rng, struct tally *t)
{
    struct kml_job job;
    struct sim_config config = {.job = &job, .problem = &problem};
    make_random_job(&job, number, rng);
    make_storm(&config, rng);
    config.faults.disconnect = number % 2 == 0 ? 0.002 : 0;
    struct sim *s = sim_create(&config);
    t->kills += add_kills(s, &job, rng);
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_SUCCEEDED);
    assert_int_equal(r->epochs, job.training.epochs);
    assert_int_equal(r->samples, (uint64_t)job.training.epochs * problem.count[SIM_TRAIN]);
    assert_true(r->evaluations >= 1);
    assert_int_equal(r->evaluation[r->evaluations - 1].version, r->versions);
    assert_int_equal(r->saved_version, r->versions);
    t->schedules++;
    t->joins += r->joins;
    t->disconnected += r->disconnected;
    t->faults += r->late + r->twice + r->overtaken;
    t->identities += r->identities;
    t->events += r->events;
    sim_destroy(s);
    kml_job_finish(&job);
}

static void every_job_ends_with_each_sample_once_while_workers_die_and_return(void **state)
{
    (void)state;
    struct kml_rng rng;
    struct tally t = {.schedules = 0};
    uint64_t schedules = getenv("KML_LONG") != NULL ? 20000 : 400;
    kml_rng_init(&rng, test_seed());
    for (uint64_t i = 0; i < schedules; i++) {
        one_schedule(i, &rng, &t);
    }
    print_message("%llu schedules, %llu kills, %llu joins, %llu broken streams, %llu messages late, twice or "
                  "out of order, "
                  "%llu identities, %llu events\n",
                  (unsigned long long)t.schedules, (unsigned long long)t.kills, (unsigned long long)t.joins,
                  (unsigned long long)t.disconnected, (unsigned long long)t.faults,
                  (unsigned long long)t.identities, (unsigned long long)t.events);
    assert_true(t.schedules >= 300 && t.kills > t.schedules && t.faults > 10 * t.schedules &&
                t.disconnected > 10);
    assert_true(t.identities > t.schedules);
}

static void a_worker_that_comes_back_trains_again(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct kml_job job;
        make_job(&job, modes[i % 4], strategies[i / 4], 3, 2);
        job.training.epochs = 6;
        struct sim *s = calm(&job);
        sim_kill(s, 1, 100 * KML_MILLISECOND, 200 * KML_MILLISECOND, true);
        const struct sim_report *r = sim_run(s);
        must_end(r, KML_PHASE_SUCCEEDED);
        assert_int_equal(r->joins, 4);
        assert_true(r->worker_samples[1] > 2u * 211 / 3); /* more than it can have had before it died */
        sim_destroy(s);
        kml_job_finish(&job);
    }
}

static void a_worker_that_does_not_come_back_leaves_its_shard_to_the_others(void **state)
{
    (void)state;
    struct kml_job job;
    make_job(&job, KML_JOB_SYNC_BSP, KML_JOB_STRATEGY_STATIC, 3, 1);
    struct sim *s = calm(&job);
    sim_kill(s, 2, 50 * KML_MILLISECOND, SIM_NEVER, true);
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_SUCCEEDED);
    assert_int_equal(r->worker_samples[0] + r->worker_samples[1] + r->worker_samples[2], 2 * 211);
    assert_true(r->worker_samples[2] < 211 / 3 + 1);
    assert_true(r->elapsed_ns >= KML_RETURN_NS && r->elapsed_ns < KML_RETURN_NS + 5 * KML_SECOND);
    sim_destroy(s);
    kml_job_finish(&job);
}

static void a_worker_that_returns_in_time_keeps_its_shard(void **state)
{
    (void)state;
    struct kml_job job;
    make_job(&job, KML_JOB_SYNC_BSP, KML_JOB_STRATEGY_STATIC, 3, 1);
    struct sim *s = calm(&job);
    sim_kill(s, 2, 50 * KML_MILLISECOND, 8 * KML_SECOND, true);
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_SUCCEEDED);
    for (uint32_t w = 0; w < 3; w++) {
        assert_int_equal(r->worker_samples[w], 2 * (211 * (w + 1) / 3 - 211 * w / 3));
    }
    sim_destroy(s);
    kml_job_finish(&job);
}

static void all_workers_may_die_and_come_back(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct kml_job job;
        make_job(&job, modes[i % 4], strategies[i / 4], 4, 2);
        struct sim *s = calm(&job);
        for (uint32_t w = 0; w < 4; w++) {
            sim_kill(s, w, (60 + w) * KML_MILLISECOND, (1 + 9 * w) * KML_SECOND, w % 2 == 0);
        }
        const struct sim_report *r = sim_run(s);
        must_end(r, KML_PHASE_SUCCEEDED);
        assert_int_equal(r->samples, 2 * 211);
        sim_destroy(s);
        kml_job_finish(&job);
    }
}

static void a_silent_worker_is_expelled_and_welcomed_back(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct kml_job job;
        make_job(&job, modes[i % 4], strategies[i / 4], 3, 2);
        job.training.epochs = 400; /* long enough to see it again */
        struct sim_config config = {.job = &job, .problem = &problem, .seed = 3, .check_every = 50};
        struct sim *s = sim_create(&config);
        sim_pause(s, 1, 100 * KML_MILLISECOND, 20 * KML_SECOND);
        const struct sim_report *r = sim_run(s);
        must_end(r, KML_PHASE_SUCCEEDED);
        assert_int_equal(r->expelled, 1);
        assert_int_equal(r->joins, 4);
        assert_true(r->worker_samples[1] > 211);
        sim_destroy(s);
        kml_job_finish(&job);
    }
}

static void a_short_pause_is_only_waited_for(void **state)
{
    (void)state;
    struct kml_job job;
    make_job(&job, KML_JOB_SYNC_BSP, KML_JOB_STRATEGY_STATIC, 3, 2);
    struct sim *s = calm(&job);
    sim_pause(s, 1, 100 * KML_MILLISECOND, 10 * KML_SECOND);
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_SUCCEEDED);
    assert_int_equal(r->joins, 3);
    assert_true(r->elapsed_ns >= 9 * KML_SECOND);
    sim_destroy(s);
    kml_job_finish(&job);
}

static void a_worker_that_dies_while_it_uploads_is_replaced_by_the_next_one(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int i = 0; i < 60; i++) {
        struct kml_job job;
        make_job(&job, KML_JOB_SYNC_BSP, KML_JOB_STRATEGY_LEASED, 3, 1 + (uint32_t)i % 3);
        struct sim_config config = {
            .job = &job, .problem = &problem, .pieces = 8, .seed = kml_rng_next(&rng)};
        config.faults = (struct sim_faults){.latency_ns = 5 * KML_MILLISECOND, .jitter = 1};
        struct sim *s = sim_create(&config);
        /* Uploads happen in the first tens of milliseconds; some kills come before, some after. */
        sim_kill(s, 0, kml_rng_below(&rng, 80 * KML_MILLISECOND), SIM_NEVER, true);
        const struct sim_report *r = sim_run(s);
        must_end(r, KML_PHASE_SUCCEEDED);
        assert_int_equal(r->samples, 2 * 211);
        sim_destroy(s);
        kml_job_finish(&job);
    }
}

static void training_starts_without_workers_that_do_not_come_in_time(void **state)
{
    (void)state;
    struct kml_job job;
    make_job(&job, KML_JOB_SYNC_BSP, KML_JOB_STRATEGY_STATIC, 3, 2);
    struct sim *s = calm(&job);
    sim_start(s, 1, SIM_NEVER);
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_SUCCEEDED);
    assert_int_equal(r->worker_samples[1], 0);
    assert_true(sim_now(s) >= KML_PATIENCE_NS && sim_now(s) < KML_PATIENCE_NS + 10 * KML_SECOND);
    assert_string_equal(sim_conductor(s)->warning[0], "worker 1 has not joined; training starts without it");
    sim_destroy(s);
    kml_job_finish(&job);
}

static void a_worker_that_comes_late_owns_its_shard_from_the_next_epoch_on(void **state)
{
    (void)state;
    struct kml_job job;
    make_job(&job, KML_JOB_SYNC_BSP, KML_JOB_STRATEGY_STATIC, 3, 2);
    job.training.epochs = 40;
    struct sim *s = calm(&job);
    sim_start(s, 1, KML_PATIENCE_NS + 100 * KML_MILLISECOND);
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_SUCCEEDED);
    assert_true(r->worker_samples[1] >= 38u * 70);
    sim_destroy(s);
    kml_job_finish(&job);
}

static void a_lost_parameter_server_fails_the_job(void **state)
{
    (void)state;
    struct kml_job job;
    make_job(&job, KML_JOB_SYNC_ASP, KML_JOB_STRATEGY_LEASED, 3, 3);
    struct sim *s = calm(&job);
    sim_lose_shard(s, 2, 100 * KML_MILLISECOND);
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_FAILED);
    assert_string_equal(r->reason, "ParameterServerLost");
    assert_string_equal(r->message, "parameter server 2 is gone: its session ended");
    assert_int_equal(r->exit_code, 69);
    assert_null(r->params);
    sim_destroy(s);
    kml_job_finish(&job);
}

static void a_stop_saves_the_newest_version(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct kml_job job;
        make_job(&job, modes[i % 4], strategies[i / 4], 3, 2);
        job.training.evaluation.every_epochs = 1;
        job.training.epochs = 50;
        struct sim *s = calm(&job);
        sim_stop(s, (uint64_t)(150 + 40 * i) * KML_MILLISECOND, "Interrupted");
        const struct sim_report *r = sim_run(s);
        must_end(r, KML_PHASE_STOPPED);
        assert_string_equal(r->reason, "Interrupted");
        assert_int_equal(r->exit_code, 0);
        assert_true(r->versions > 0);
        assert_int_equal(r->saved_version, r->versions);
        sim_destroy(s);
        kml_job_finish(&job);
    }
}

static void a_stop_before_there_are_parameters_ends_at_once(void **state)
{
    (void)state;
    struct kml_job job;
    make_job(&job, KML_JOB_SYNC_BSP, KML_JOB_STRATEGY_STATIC, 3, 2);
    struct sim *s = calm(&job);
    sim_start(s, 0, SIM_NEVER);
    sim_start(s, 1, SIM_NEVER);
    sim_start(s, 2, SIM_NEVER);
    sim_stop(s, KML_SECOND, "Interrupted");
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_STOPPED);
    assert_null(r->params);
    sim_destroy(s);
    kml_job_finish(&job);
}

/* ---- Gradients with NaN or Inf ---- */

struct poison {
    uint32_t worker;
    uint64_t from, to; /* steps */
};

static bool is_poisoned(void *self, uint32_t worker, uint64_t step)
{
    const struct poison *p = self;
    return worker == p->worker && step >= p->from && step < p->to;
}

static struct sim *poisoned(const struct kml_job *job, struct poison *p)
{
    struct sim_config config = {
        .job = job, .problem = &problem, .seed = 4, .poison = is_poisoned, .poison_self = p};
    return sim_create(&config);
}

static void a_gradient_with_nan_or_inf_is_refused_and_the_job_goes_on(void **state)
{
    (void)state;
    struct kml_job job;
    struct poison p = {1, 3, 6};
    make_job(&job, KML_JOB_SYNC_BSP, KML_JOB_STRATEGY_STATIC, 3, 2);
    struct sim *s = poisoned(&job, &p);
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_SUCCEEDED);
    assert_int_equal(sim_conductor(s)->worker[1].refused, 3);
    assert_int_equal(sim_conductor(s)->warnings, 3);
    assert_string_equal(sim_conductor(s)->warning[0], "worker 1 step 3: gradient with NaN or Inf refused");
    for (uint32_t i = 0; i < problem.floats; i++) {
        assert_true(r->params[i] > -100 && r->params[i] < 100);
    }
    sim_destroy(s);
    kml_job_finish(&job);
}

static void ten_such_gradients_in_a_row_fail_the_job_and_name_worker_and_step(void **state)
{
    (void)state;
    struct kml_job job;
    struct poison p = {0, 5, 1000};
    make_job(&job, KML_JOB_SYNC_ASP, KML_JOB_STRATEGY_LEASED, 1, 2);
    struct sim *s = poisoned(&job, &p);
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_FAILED);
    assert_string_equal(r->reason, "NonFiniteGradient");
    assert_non_null(strstr(r->message, "worker 0, step 14"));
    assert_int_equal(r->exit_code, 65);
    sim_destroy(s);
    kml_job_finish(&job);
}

static void with_the_policy_fail_the_first_one_is_enough(void **state)
{
    (void)state;
    struct kml_job job;
    struct poison p = {2, 4, 5};
    make_job(&job, KML_JOB_SYNC_LSP, KML_JOB_STRATEGY_LEASED, 3, 1);
    job.sync.limit = 2;
    job.training.nonfinite = KML_JOB_NONFINITE_FAIL;
    struct sim *s = poisoned(&job, &p);
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_FAILED);
    assert_string_equal(r->reason, "NonFiniteGradient");
    assert_non_null(strstr(r->message, "worker 2, step 4"));
    sim_destroy(s);
    kml_job_finish(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_job_ends_with_each_sample_once_while_workers_die_and_return),
        cmocka_unit_test(a_worker_that_comes_back_trains_again),
        cmocka_unit_test(a_worker_that_does_not_come_back_leaves_its_shard_to_the_others),
        cmocka_unit_test(a_worker_that_returns_in_time_keeps_its_shard),
        cmocka_unit_test(all_workers_may_die_and_come_back),
        cmocka_unit_test(a_silent_worker_is_expelled_and_welcomed_back),
        cmocka_unit_test(a_short_pause_is_only_waited_for),
        cmocka_unit_test(a_worker_that_dies_while_it_uploads_is_replaced_by_the_next_one),
        cmocka_unit_test(training_starts_without_workers_that_do_not_come_in_time),
        cmocka_unit_test(a_worker_that_comes_late_owns_its_shard_from_the_next_epoch_on),
        cmocka_unit_test(a_lost_parameter_server_fails_the_job),
        cmocka_unit_test(a_stop_saves_the_newest_version),
        cmocka_unit_test(a_stop_before_there_are_parameters_ends_at_once),
        cmocka_unit_test(a_gradient_with_nan_or_inf_is_refused_and_the_job_goes_on),
        cmocka_unit_test(ten_such_gradients_in_a_row_fail_the_job_and_name_worker_and_step),
        cmocka_unit_test(with_the_policy_fail_the_first_one_is_enough),
    };
    return cmocka_run_group_tests(tests, make_problem, drop_problem);
}
