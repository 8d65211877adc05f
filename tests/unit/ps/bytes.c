/*
 * The bytes of the parameters: what a job trains is a function of its manifest, never of timing, of the
 * number of shards or of what a network does to messages. Held against plain loops that know no conductor and
 * no shard.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "math/optimizer.h"
#include "math/schedule.h"
#include "math/vec.h"
#include "tests/unit/ps/setup.h"

static struct sim_problem problem;

static int make_problem(void **state)
{
    (void)state;
    sim_problem_init(&problem, 4711, FEATURES, CLASSES, 151, 0, 0);
    return 0;
}

static int drop_problem(void **state)
{
    (void)state;
    sim_problem_finish(&problem);
    return 0;
}

static uint64_t faults_seen;

static uint32_t run(const struct kml_job *job, struct sim_config *config, float *params)
{
    config->job = job;
    config->problem = &problem;
    struct sim *s = sim_create(config);
    const struct sim_report *r = sim_run(s);
    must_end(r, KML_PHASE_SUCCEEDED);
    uint32_t crc = bytes_of(r, &problem);
    if (params != NULL) {
        memcpy(params, r->params, problem.floats * sizeof *params);
    }
    assert_int_equal(r->joins, job->worker.replicas); /* nobody was lost on the way */
    faults_seen += r->twice + r->late + r->overtaken;
    sim_destroy(s);
    return crc;
}

static uint32_t run_calm(const struct kml_job *job, float *params)
{
    struct sim_config config = {.seed = 1};
    return run(job, &config, params);
}

static uint32_t run_wild(const struct kml_job *job, struct kml_rng *rng)
{
    struct sim_config config = {.seed = 1};
    make_storm(&config, rng);
    static const double base[] = {1, 0.8, 0.5, 0.25};
    struct sim_paces paces = {.kind = (enum sim_pace_kind)kml_rng_below(rng, 4),
                              .base = base,
                              .bases = 1 + (uint32_t)kml_rng_below(rng, 4),
                              .spread = 0.4,
                              .correlation = 0.8,
                              .period = 5,
                              .seed = config.seed};
    struct sim_pace pace = sim_paces_of(&paces, 10 * KML_MILLISECOND);
    config.pace = &pace;
    return run(job, &config, NULL);
}

/* ---- The references ---- */

/* Synchronous SGD in a plain loop over whole vectors: m micro-batches a step from equal shards, summed in
 * worker order. */
struct reference {
    const struct kml_job *job;
    struct kml_optimizer optimizer;
    struct kml_schedule schedule;
    float *params, *sum, *slot[KML_OPTIMIZER_SLOTS], *gradient[16];
    uint64_t dealt, number;
};

static struct kml_optimizer plain_optimizer(const struct kml_job *job)
{
    struct kml_optimizer o = {.momentum = job->training.optimizer.momentum,
                              .beta1 = job->training.optimizer.beta1,
                              .beta2 = job->training.optimizer.beta2,
                              .epsilon = job->training.optimizer.epsilon,
                              .weight_decay = job->training.optimizer.weight_decay};
    o.kind = job->training.optimizer.kind == KML_JOB_OPTIMIZER_ADAM       ? KML_OPTIMIZER_ADAM
             : job->training.optimizer.kind == KML_JOB_OPTIMIZER_MOMENTUM ? KML_OPTIMIZER_MOMENTUM
                                                                          : KML_OPTIMIZER_SGD;
    return o;
}

static void reference_init(struct reference *f, const struct kml_job *job)
{
    *f = (struct reference){.job = job, .optimizer = plain_optimizer(job)};
    f->schedule = (struct kml_schedule){.kind = job->training.schedule.kind == KML_JOB_SCHEDULE_COSINE
                                                    ? KML_SCHEDULE_COSINE
                                                    : KML_SCHEDULE_CONSTANT,
                                        .warmup_epochs = job->training.schedule.warmup_epochs,
                                        .epochs = job->training.epochs};
    f->params = KML_NEW_ARRAY(problem.floats, float);
    f->sum = KML_NEW_ARRAY(problem.floats, float);
    for (int k = 0; k < KML_OPTIMIZER_SLOTS; k++) {
        f->slot[k] = KML_NEW_ARRAY(problem.floats, float);
    }
    for (int i = 0; i < 16; i++) {
        f->gradient[i] = KML_NEW_ARRAY(problem.floats, float);
    }
    sim_problem_start(&problem, f->params);
}

static void reference_finish(struct reference *f)
{
    kml_free(f->params);
    kml_free(f->sum);
    for (int k = 0; k < KML_OPTIMIZER_SLOTS; k++) {
        kml_free(f->slot[k]);
    }
    for (int i = 0; i < 16; i++) {
        kml_free(f->gradient[i]);
    }
}

/* The samples of worker i of m at a step; returns how many. */
static uint32_t micro_batch(uint32_t m, uint32_t i, uint32_t epoch, uint64_t step, uint32_t batch,
                            uint32_t *sample)
{
    uint64_t n = problem.count[SIM_TRAIN];
    uint64_t end = n * (i + 1) / m;
    uint32_t count = 0;
    for (uint64_t p = n * i / m + step * batch; p < end && count < batch; p++) {
        sample[count++] = sim_problem_sample(&problem, epoch, p);
    }
    return count;
}

/* Clipping, written again from the words of sync/steps.h: a factor with 16 significant bits, rounded down. */
static double clip_of(const struct reference *f, const float *gradient)
{
    double square = 0;
    for (uint32_t i = 0; i < problem.floats; i++) {
        square += (double)gradient[i] * (double)gradient[i];
    }
    double factor = f->job->training.clip_norm / sqrt(square);
    if (f->job->training.clip_norm == 0 || factor >= 1) {
        return 1;
    }
    double unit = exp2(floor(log2(factor)) - 15);
    return floor(factor / unit) * unit;
}

static void step_along(struct reference *f, uint64_t samples)
{
    f->dealt += samples;
    double epoch = (double)f->dealt / (double)problem.count[SIM_TRAIN];
    double scale = (double)samples / ((double)f->job->worker.replicas * f->job->training.batch_size);
    struct kml_optimizer_step step = {.number = ++f->number,
                                      .learning_rate = f->job->training.optimizer.learning_rate *
                                                       kml_schedule_factor(&f->schedule, epoch) * scale};
    kml_optimizer_apply(&f->optimizer, &step, f->params, f->params, f->sum, f->slot, problem.floats);
}

static void reference_step(struct reference *f, uint32_t epoch, uint64_t step, bool united)
{
    uint32_t m = f->job->worker.replicas;
    uint32_t sample[16 * 64];
    uint32_t count[16];
    uint32_t total = 0;
    struct sim_score score = {.samples = 0};
    for (uint32_t i = 0; i < m; i++) {
        count[i] = micro_batch(m, i, epoch, step, f->job->training.batch_size, sample + total);
        if (count[i] > 0 && !united) {
            sim_problem_gradient(&problem, f->params, sample + total, count[i], f->gradient[i], &score);
        }
        total += count[i];
    }
    if (united) {
        sim_problem_gradient(&problem, f->params, sample, total, f->sum, &score);
    } else {
        const float *part[16];
        float coefficient[16];
        uint32_t parts = 0;
        for (uint32_t i = 0; i < m; i++) {
            if (count[i] > 0) {
                part[parts] = f->gradient[i];
                coefficient[parts++] = (float)((double)count[i] / (double)total * clip_of(f, f->gradient[i]));
            }
        }
        kml_vec_weighted_sum(f->sum, part, coefficient, parts, problem.floats);
    }
    step_along(f, total);
}

/* united: one process, one batch: the union. */
static void reference_run(struct reference *f, bool united)
{
    uint32_t m = f->job->worker.replicas;
    uint64_t largest = (problem.count[SIM_TRAIN] + m - 1) / m;
    for (uint32_t epoch = 0; epoch < f->job->training.epochs; epoch++) {
        for (uint64_t step = 0; step * f->job->training.batch_size < largest; step++) {
            reference_step(f, epoch, step, united);
        }
    }
}

static double distance(const float *a, const float *b)
{
    double most = 0;
    for (uint32_t i = 0; i < problem.floats; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]) / fmax(1, fabs((double)b[i])));
    }
    return most;
}

/* ---- The jobs ---- */

enum { PLAIN, MOMENTUM, ADAM, CLIPPED, COSINE, VARIANTS };

static void make_variant(struct kml_job *job, int variant, uint32_t workers, uint32_t shards)
{
    make_job(job, KML_JOB_SYNC_BSP, KML_JOB_STRATEGY_STATIC, workers, shards);
    switch (variant) {
    case MOMENTUM:
        job->training.optimizer.kind = KML_JOB_OPTIMIZER_MOMENTUM;
        job->training.optimizer.momentum = 0.9;
        job->training.optimizer.learning_rate = 0.05;
        break;
    case ADAM:
        job->training.optimizer.kind = KML_JOB_OPTIMIZER_ADAM;
        job->training.optimizer.learning_rate = 0.01;
        break;
    case CLIPPED:
        job->training.clip_norm = 0.25;
        break;
    case COSINE:
        job->training.schedule.kind = KML_JOB_SCHEDULE_COSINE;
        job->training.schedule.warmup_epochs = 0.5;
        break;
    default:
        break;
    }
}

/* ---- The tests ---- */

static void bsp_static_gives_the_bytes_of_a_plain_loop_for_any_number_of_shards(void **state)
{
    (void)state;
    for (int variant = 0; variant < VARIANTS; variant++) {
        for (uint32_t m = 1; m <= 5; m++) {
            struct kml_job job;
            struct reference f;
            make_variant(&job, variant, m, 1);
            reference_init(&f, &job);
            reference_run(&f, false);
            uint32_t wanted = kml_crc32c(0, f.params, problem.floats * sizeof *f.params);
            reference_finish(&f);
            kml_job_finish(&job);
            for (uint32_t shards = 1; shards <= 3; shards++) {
                make_variant(&job, variant, m, shards);
                assert_int_equal(run_calm(&job, NULL), wanted);
                kml_job_finish(&job);
            }
        }
    }
}

static void bsp_static_is_one_process_on_the_union_batch_to_one_in_a_hundred_thousand(void **state)
{
    (void)state;
    float trained[CLASSES * (FEATURES + 1)];
    for (int variant = 0; variant < VARIANTS; variant++) {
        if (variant == CLIPPED) {
            continue; /* each member's gradient is clipped by itself: our reading, see sync/steps.h */
        }
        for (uint32_t m = 1; m <= 5; m++) {
            struct kml_job job;
            struct reference f;
            make_variant(&job, variant, m, 2);
            reference_init(&f, &job);
            float start[CLASSES * (FEATURES + 1)];
            memcpy(start, f.params, sizeof start);
            reference_run(&f, true);
            (void)run_calm(&job, trained);
            assert_true(distance(trained, f.params) < 1e-5);
            assert_true(distance(trained, start) > 0.01); /* it has learned something */
            reference_finish(&f);
            kml_job_finish(&job);
        }
    }
}

static void no_timing_and_no_message_fault_changes_a_byte_of_bsp_static(void **state)
{
    (void)state;
    struct kml_rng rng;
    uint64_t schedules = 0;
    faults_seen = 0;
    kml_rng_init(&rng, test_seed());
    for (int variant = 0; variant < VARIANTS; variant++) {
        for (uint32_t i = 0; i < 60; i++) {
            struct kml_job job;
            uint32_t m = 1 + (uint32_t)kml_rng_below(&rng, 6);
            make_variant(&job, variant, m, 1);
            uint32_t wanted = run_calm(&job, NULL);
            job.ps.replicas = 1 + i % 3;
            assert_int_equal(run_wild(&job, &rng), wanted);
            kml_job_finish(&job);
            schedules++;
        }
    }
    print_message("%llu schedules, %llu messages late, twice or out of order\n",
                  (unsigned long long)schedules, (unsigned long long)faults_seen);
    assert_true(schedules >= 200 && faults_seen > schedules);
}

static void lsp_of_all_workers_and_ssp_without_staleness_give_the_bytes_of_bsp(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int variant = 0; variant < VARIANTS; variant++) {
        for (uint32_t i = 0; i < 12; i++) {
            struct kml_job job;
            make_variant(&job, variant, 1 + i % 6, 1 + i % 3);
            uint32_t wanted = run_calm(&job, NULL);
            job.sync.mode = KML_JOB_SYNC_LSP;
            job.sync.limit = job.worker.replicas;
            assert_int_equal(run_wild(&job, &rng), wanted);
            job.sync.mode = KML_JOB_SYNC_SSP;
            job.sync.staleness = 0;
            assert_int_equal(run_wild(&job, &rng), wanted);
            kml_job_finish(&job);
        }
    }
}

static void lsp_of_one_gives_the_bytes_of_asp(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (uint32_t i = 0; i < 40; i++) {
        struct kml_job job;
        struct sim_config config = {.seed = 1};
        enum kml_job_strategy strategy = i % 2 == 0 ? KML_JOB_STRATEGY_LEASED : KML_JOB_STRATEGY_STATIC;
        make_job(&job, KML_JOB_SYNC_ASP, strategy, 1 + i % 6, 1 + i % 3);
        make_storm(&config, &rng); /* the same storm for both: what is asynchronous depends on timing */
        uint32_t wanted = run(&job, &config, NULL);
        job.sync.mode = KML_JOB_SYNC_LSP;
        job.sync.limit = 1;
        assert_int_equal(run(&job, &config, NULL), wanted);
        kml_job_finish(&job);
    }
}

static void a_run_is_played_again_exactly_from_its_seed(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    bool differs = false;
    for (uint32_t i = 0; i < 10; i++) {
        struct kml_job job;
        struct sim_config config = {.seed = 1};
        make_job(&job, KML_JOB_SYNC_LSP, KML_JOB_STRATEGY_LEASED, 4, 2);
        job.sync.limit = 2;
        make_storm(&config, &rng);
        uint32_t first = run(&job, &config, NULL);
        assert_int_equal(run(&job, &config, NULL), first);
        config.seed++;
        differs |= run(&job, &config, NULL) != first;
        kml_job_finish(&job);
    }
    assert_true(differs);
}

/* More than one chunk a shard: references, reuse of blocks and cuts inside a chunk matter. */
static void a_model_of_several_chunks_keeps_its_bytes_too(void **state)
{
    (void)state;
    struct kml_rng rng;
    struct sim_problem small = problem;
    sim_problem_init(&problem, 5, 1600, 100, 24, 0, 0); /* 160,100 parameters: 3 chunks */
    kml_rng_init(&rng, test_seed());
    struct kml_job job;
    make_variant(&job, MOMENTUM, 3, 1);
    job.training.epochs = 2;
    job.training.batch_size = 4;
    uint32_t wanted = run_calm(&job, NULL);
    assert_int_equal(run_wild(&job, &rng), wanted);
    job.ps.replicas = 2;
    assert_int_equal(run_wild(&job, &rng), wanted);
    kml_job_finish(&job);
    sim_problem_finish(&problem);
    problem = small;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bsp_static_gives_the_bytes_of_a_plain_loop_for_any_number_of_shards),
        cmocka_unit_test(bsp_static_is_one_process_on_the_union_batch_to_one_in_a_hundred_thousand),
        cmocka_unit_test(no_timing_and_no_message_fault_changes_a_byte_of_bsp_static),
        cmocka_unit_test(lsp_of_all_workers_and_ssp_without_staleness_give_the_bytes_of_bsp),
        cmocka_unit_test(lsp_of_one_gives_the_bytes_of_asp),
        cmocka_unit_test(a_run_is_played_again_exactly_from_its_seed),
        cmocka_unit_test(a_model_of_several_chunks_keeps_its_bytes_too),
    };
    return cmocka_run_group_tests(tests, make_problem, drop_problem);
}
