/* A worker's whole life against a small conductor on the same loop. */
#include <math.h>
#include <signal.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/signals.h"
#include "math/vec.h"
#include "store/safetensors.h"
#include "unit/temp.h"
#include "unit/worker/fake.h"
#include "worker/input.h"
#include "worker/train.h"

#define SAMPLES 1000u
#define TESTS 300u
#define FEATURES 12u
#define CLASSES 4u
#define RATE 0.2f
#define SEED 5u

struct bench {
    struct kml_loop *loop;
    struct kml_creds *creds;
    struct fake fake;
    struct kml_dataset data;
    struct kml_model model;
    struct kml_join join;
    struct kml_pace pace;
    struct kml_train_config config;
    struct kml_err why; /* of the end */

    /* The script's own. */
    float *params;
    uint64_t version, step, steps;
    bool gradient_done, reported;
    Kunal__V1__StepReport report;
    uint32_t reports, evaluations;
    Kunal__V1__EvaluationResult result;
    uint32_t order[SAMPLES];
    struct kml_workspace *workspace;
    float *local; /* a gradient computed here */
};

static int told_to_stop; /* as of kml_signals_taken */

static int stop_asked(void)
{
    return told_to_stop;
}

static void table_init(struct kml_table *t, uint32_t rows, uint64_t seed)
{
    struct kml_rng rng;
    kml_rng_init(&rng, seed);
    *t = (struct kml_table){.rows = rows, .features = FEATURES, .classes = CLASSES};
    t->reals = KML_NEW_ARRAY((size_t)rows * FEATURES, float);
    t->label = KML_NEW_ARRAY(rows, uint32_t);
    for (uint32_t i = 0; i < rows * FEATURES; i++) {
        t->reals[i] = (float)kml_rng_normal(&rng);
    }
    for (uint32_t i = 0; i < rows; i++) {
        t->label[i] = (uint32_t)kml_rng_below(&rng, CLASSES);
    }
}

static void data_init(struct kml_dataset *d)
{
    *d = (struct kml_dataset){.features = FEATURES, .classes = CLASSES, .standardize = KML_STANDARDIZE_NONE};
    table_init(&d->tables[0], SAMPLES, 1);
    table_init(&d->tables[2], TESTS, 2);
    d->train = (struct kml_split){.table = &d->tables[0], .count = SAMPLES};
    d->test = (struct kml_split){.table = &d->tables[2], .count = TESTS};
    d->mean = KML_NEW_ARRAY(FEATURES, float);
    d->scale = KML_NEW_ARRAY(FEATURES, float);
    for (uint32_t i = 0; i < FEATURES; i++) {
        d->scale[i] = 1;
    }
}

static void bench_init(struct bench *b, uint32_t shards)
{
    static const struct kml_model_spec spec = {
        .kind = KML_MODEL_MLP, .features = FEATURES, .classes = CLASSES, .hidden = {9}, .hidden_count = 1};
    struct kml_err err;
    *b = (struct bench){.loop = kml_loop_create(), .creds = kml_creds_plaintext()};
    data_init(&b->data);
    assert_int_equal(kml_model_init(&b->model, &spec, &err), 0);
    assert_int_equal(kml_pace_init(&b->pace, 0, 1, "", kml_view_str(""), &err), 0);
    kml_join_init(&b->join, &b->model, &b->data, "job", 0, 4711);
    fake_init(&b->fake, b->loop, b->model.size, shards, 64);
    b->fake.test = b;
    b->params = KML_NEW_ARRAY(b->model.size, float);
    b->local = KML_NEW_ARRAY(b->model.size, float);
    b->workspace = kml_workspace_create(&b->model, SAMPLES, &err);
    assert_non_null(b->workspace);
    kml_order_fill(b->order, SAMPLES, KML_SHUFFLE_GLOBAL, SEED, 0, NULL, 0);
    b->config = (struct kml_train_config){.loop = b->loop,
                                          .creds = b->creds,
                                          .conductor = b->fake.address,
                                          .uid = "job",
                                          .join = &b->join.message,
                                          .patience_ns = 30 * KML_SECOND,
                                          .model = &b->model,
                                          .data = &b->data,
                                          .shuffle = KML_SHUFFLE_GLOBAL,
                                          .seed = SEED,
                                          .pace = &b->pace,
                                          .stop_asked = stop_asked,
                                          .root = "/nowhere"};
}

static void bench_finish(struct bench *b)
{
    fake_finish(&b->fake);
    kml_workspace_destroy(b->workspace);
    kml_free(b->params);
    kml_free(b->local);
    kml_join_finish(&b->join);
    kml_pace_finish(&b->pace);
    kml_dataset_finish(&b->data);
    kml_creds_destroy(b->creds);
    kml_loop_destroy(b->loop);
}

/* The worker's life; returns its exit code. */
static int live(struct bench *b)
{
    struct kml_train t;
    struct kml_err err;
    assert_int_equal(kml_train_init(&t, &b->config, &err), 0);
    int exit_code = kml_train_run(&t, &b->why);
    kml_train_finish(&t);
    return exit_code;
}

/* The mean gradient over positions [begin, end) of epoch 0, at once. */
static void local_gradient(struct bench *b, uint32_t begin, uint32_t end, struct kml_score *score)
{
    float *x = KML_NEW_ARRAY((size_t)SAMPLES * FEATURES, float);
    uint32_t *label = KML_NEW_ARRAY(SAMPLES, uint32_t);
    struct kml_batch to = {.x = x, .label = label};
    kml_dataset_gather(&b->data, &b->data.train, b->order + begin, end - begin, &to);
    struct kml_model_batch batch = {.x = x, .label = label, .n = end - begin};
    kml_model_gradient(&b->model, b->workspace, b->params, &batch, b->local, NULL, NULL, score);
    kml_free(x);
    kml_free(label);
}

/* ---- A small BSP: one worker, SGD ---- */

static void next_step(struct bench *b)
{
    uint64_t begin = b->step * 100;
    b->gradient_done = false;
    b->reported = false;
    b->step++;
    fake_assign(&b->fake, b->step, b->version, begin, begin + 100);
    fake_parameters(&b->fake, b->version, b->params);
}

static void commit_when_staged(struct bench *b)
{
    struct kml_score score = {0};
    if (!b->gradient_done || !b->reported) {
        return;
    }
    local_gradient(b, (uint32_t)(b->step - 1) * 100, (uint32_t)b->step * 100, &score);
    assert_memory_equal(b->fake.gradient, b->local, b->model.size * sizeof(float)); /* to the last bit */
    assert_true(b->report.loss_sum == score.loss_sum);
    assert_int_equal(b->report.correct, score.correct);
    assert_int_equal(b->report.samples, 100);
    assert_int_equal(b->report.step, b->step);
    assert_false(b->report.throttled_known);
    kml_vec_axpy(b->params, b->local, -RATE, b->model.size);
    b->version++;
    if (b->step == b->steps) {
        fake_finish_job(&b->fake);
    } else {
        next_step(b);
    }
}

static void bsp_gradient(struct fake *f)
{
    struct bench *b = f->test;
    if (f->payload == KML_PAYLOAD_PARAMETERS) { /* the upload */
        float *seeded = KML_NEW_ARRAY(b->model.size, float);
        kml_model_seed(&b->model, SEED, seeded);
        assert_int_equal(f->step, 0);
        memcpy(b->params, f->gradient, b->model.size * sizeof(float));
        assert_memory_equal(b->params, seeded, b->model.size * sizeof(float));
        kml_free(seeded);
        next_step(b);
        return;
    }
    b->gradient_done = true;
    commit_when_staged(b);
}

static void bsp_report(struct fake *f, const Kunal__V1__StepReport *m)
{
    struct bench *b = f->test;
    b->reported = true;
    b->report = *m;
    commit_when_staged(b);
}

static void a_worker_uploads_seeded_values_and_its_steps_equal_a_local_computation(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 3);
    b.steps = 10;
    b.fake.joined = fake_upload;
    b.fake.gradient_done = bsp_gradient;
    b.fake.reported = bsp_report;
    assert_int_equal(live(&b), 0);
    assert_int_equal(b.why.code, KML_OK);
    assert_int_equal(b.step, 10);
    assert_int_equal(b.fake.joins, 1);
    assert_int_equal(b.fake.opens, 3);
    assert_int_equal(b.fake.bad_chunks, 0);
    bench_finish(&b);
}

/* ---- One piece of work, then the end ---- */

static void note_report(struct fake *f, const Kunal__V1__StepReport *m)
{
    struct bench *b = f->test;
    b->report = *m;
    b->reports++;
    fake_finish_job(f);
}

static void seed_params(struct bench *b)
{
    kml_model_seed(&b->model, SEED, b->params);
}

static void assign_large(struct fake *f)
{
    struct bench *b = f->test;
    seed_params(b);
    fake_parameters(f, 9, b->params);
    fake_assign(f, 1, 9, 100, 700);
}

static void a_large_lease_is_the_mean_over_all_its_samples(void **state)
{
    (void)state;
    struct bench b;
    struct kml_score score = {0};
    bench_init(&b, 2);
    b.fake.joined = assign_large;
    b.fake.reported = note_report;
    assert_int_equal(live(&b), 0);
    local_gradient(&b, 100, 700, &score);
    assert_int_equal(b.report.samples, 600);
    assert_int_equal(b.report.correct, score.correct);
    assert_true(fabs(b.report.loss_sum - score.loss_sum) < 1e-3);
    for (size_t i = 0; i < b.model.size; i++) {
        assert_true(fabsf(b.fake.gradient[i] - b.local[i]) < 1e-6f);
    }
    bench_finish(&b);
}

/* The report of a paced step tells the time that a slow machine would have taken. */
static void a_paced_step_takes_its_time(void **state)
{
    (void)state;
    struct bench b;
    struct kml_err err;
    bench_init(&b, 1);
    kml_pace_finish(&b.pace);
    assert_int_equal(kml_pace_init(&b.pace, 20000, 2, "", kml_view_str(""), &err), 0);
    b.fake.joined = assign_large;
    b.fake.reported = note_report;
    assert_int_equal(live(&b), 0);
    assert_true(b.report.compute_ns >= 600u * 10000u);
    bench_finish(&b);
}

static void wait_for_exact_version(struct fake *f)
{
    struct bench *b = f->test;
    seed_params(b);
    fake_assign(f, 1, 5, 0, 50);
    for (size_t i = 0; i < b->model.size; i++) {
        b->local[i] = 1e9f; /* what must not be computed on */
    }
    fake_parameters(f, 4, b->local);
    fake_piece(f, 5, b->params, 0, fake_cut(f, 1));
    fake_parameters(f, 4, b->local);
    for (uint64_t at = b->model.size; at > fake_cut(f, 1); at--) { /* backwards, one float at a time */
        fake_piece(f, 5, b->params, at - 1, at);
    }
}

static void a_step_computes_on_exactly_the_version_it_was_given(void **state)
{
    (void)state;
    struct bench b;
    struct kml_score score = {0};
    bench_init(&b, 3);
    b.fake.joined = wait_for_exact_version;
    b.fake.reported = note_report;
    assert_int_equal(live(&b), 0);
    local_gradient(&b, 0, 50, &score);
    assert_true(b.report.loss_sum == score.loss_sum);
    bench_finish(&b);
}

static void evaluate_test(struct fake *f)
{
    struct bench *b = f->test;
    seed_params(b);
    fake_parameters(f, 3, b->params);
    fake_evaluate(f, 17, 3, KUNAL__V1__SPLIT__TEST, 10, 290);
}

static void note_result(struct fake *f, const Kunal__V1__EvaluationResult *m)
{
    struct bench *b = f->test;
    b->result = *m;
    fake_finish_job(f);
}

static void an_evaluation_counts_what_a_local_one_counts(void **state)
{
    (void)state;
    struct bench b;
    struct kml_score score = {0};
    bench_init(&b, 2);
    b.fake.joined = evaluate_test;
    b.fake.evaluated = note_result;
    assert_int_equal(live(&b), 0);
    struct kml_model_batch batch = {
        .x = b.data.tables[2].reals + (size_t)10 * FEATURES, .label = b.data.tables[2].label + 10, .n = 280};
    kml_model_evaluate(&b.model, b.workspace, b.params, &batch, &score);
    assert_int_equal(b.result.lease, 17);
    assert_int_equal(b.result.samples, 280);
    assert_int_equal(b.result.correct, score.correct);
    assert_true(b.result.has_accuracy);
    assert_true(fabs(b.result.loss_sum - score.loss_sum) < 1e-3);
    bench_finish(&b);
}

static void evaluate_older(struct fake *f)
{
    struct bench *b = f->test;
    seed_params(b);
    fake_assign(f, 1, 20, 0, 10);
    fake_parameters(f, 20, b->params);
}

static void then_evaluate_pinned(struct fake *f, const Kunal__V1__StepReport *m)
{
    struct bench *b = f->test;
    (void)m;
    fake_parameters(f, 12, b->params);
    fake_evaluate(f, 1, 12, KUNAL__V1__SPLIT__TRAIN, 0, 1000);
}

static void a_pinned_version_older_than_the_last_one_can_be_evaluated(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 2);
    b.fake.joined = evaluate_older;
    b.fake.reported = then_evaluate_pinned;
    b.fake.evaluated = note_result;
    assert_int_equal(live(&b), 0);
    assert_int_equal(b.result.samples, SAMPLES);
    bench_finish(&b);
}

/* ---- Abandoned ---- */

static void abandon_first(struct fake *f)
{
    struct bench *b = f->test;
    seed_params(b);
    fake_parameters(f, 1, b->params);
    fake_assign(f, 1, 1, 0, 1000);
    fake_abandon(f, 1);
    fake_abandon(f, 77); /* of no step that we have */
    fake_assign(f, 2, 1, 0, 64);
}

static void an_abandoned_step_is_not_reported_and_the_next_one_is(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1);
    b.fake.joined = abandon_first;
    b.fake.reported = note_report;
    assert_int_equal(live(&b), 0);
    assert_int_equal(b.reports, 1);
    assert_int_equal(b.report.step, 2);
    assert_int_equal(b.report.samples, 64);
    bench_finish(&b);
}

/* A paced step waits after its computation: there an abandonment finds it running. */
static void pace_for_ever(struct fake *f)
{
    struct bench *b = f->test;
    seed_params(b);
    fake_parameters(f, 1, b->params);
    fake_assign(f, 1, 1, 0, 600);
}

/* Nobody says anything until a heartbeat shows that the worker waits. */
static void abandon_at_heartbeat(struct fake *f)
{
    fake_abandon(f, 1);
    fake_finish_job(f);
}

static void a_step_that_waits_for_its_pace_beats_and_can_be_abandoned(void **state)
{
    (void)state;
    struct bench b;
    struct kml_err err;
    bench_init(&b, 1);
    kml_pace_finish(&b.pace);
    assert_int_equal(kml_pace_init(&b.pace, 1e9, 1, "", kml_view_str(""), &err),
                     0); /* ten minutes for this step */
    b.fake.joined = pace_for_ever;
    b.fake.heart = abandon_at_heartbeat;
    assert_int_equal(live(&b), 0);
    assert_int_equal(b.reports, 0);
    assert_int_equal(b.fake.have, 0); /* nothing of it was sent */
    bench_finish(&b);
}

/* ---- Breaks, refusals, ends ---- */

static void break_twice_then_finish(struct fake *f)
{
    if (f->joins <= 2) {
        struct bench *b = f->test;
        seed_params(b);
        fake_assign(f, 1, 1, 0, 10); /* is forgotten with the session */
        fake_piece(f, 1, b->params, 0, 10);
        fake_break(f);
    } else {
        struct bench *b = f->test;
        fake_assign(f, 2, 2, 0, 30);
        fake_parameters(f, 2, b->params);
    }
}

static void a_broken_session_joins_again_with_a_fresh_incarnation_and_forgets_its_work(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 2);
    b.fake.joined = break_twice_then_finish;
    b.fake.reported = note_report;
    assert_int_equal(live(&b), 0);
    assert_int_equal(b.fake.joins, 3);
    assert_true(b.fake.incarnation[0] != 0);
    assert_true(b.fake.incarnation[1] != b.fake.incarnation[0] &&
                b.fake.incarnation[2] != b.fake.incarnation[1]);
    assert_int_equal(b.fake.opens, 6);
    assert_int_equal(b.reports, 1);
    assert_int_equal(b.report.step, 2);
    bench_finish(&b);
}

static void break_a_lane(struct fake *f)
{
    struct bench *b = f->test;
    seed_params(b);
    if (f->joins == 1) {
        fake_piece(f, 1, b->params, fake_cut(f, 1), fake_cut(f, 1) + 1);
        kml_stream_close(f->lane[1], NULL);
    } else {
        fake_finish_job(f);
    }
}

static void a_broken_data_stream_joins_again_too(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 2);
    b.fake.joined = break_a_lane;
    assert_int_equal(live(&b), 0);
    assert_int_equal(b.fake.joins, 2);
    assert_int_equal(b.fake.opens, 4);
    bench_finish(&b);
}

static void a_refusal_ends_the_worker_with_its_code_and_is_not_tried_again(void **state)
{
    (void)state;
    static const struct {
        enum kml_code code;
        int exit_code;
    } cases[] = {
        {KML_PROTOCOL, 76}, {KML_INVALID, 65}, {KML_DENIED, 77}, {KML_CONFLICT, 76}, {KML_FENCED, 75}};
    for (size_t i = 0; i < KML_COUNT(cases); i++) {
        struct bench b;
        bench_init(&b, 1);
        (void)kml_fail(&b.fake.refuse, cases[i].code, "layer.0.weight differs");
        assert_int_equal(live(&b), cases[i].exit_code);
        assert_non_null(strstr(b.why.text, "layer.0.weight differs"));
        assert_non_null(strstr(b.why.text, b.fake.address));
        assert_int_equal(b.fake.joins, 0);
        bench_finish(&b);
    }
}

static void without_a_conductor_the_worker_ends_with_69_and_says_what_to_check(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1);
    (void)kml_fail(&b.fake.refuse, KML_UNAVAILABLE, "not yet");
    b.config.patience_ns = 1;
    assert_int_equal(live(&b), 69);
    assert_int_equal(b.why.code, KML_UNAVAILABLE);
    assert_non_null(strstr(b.why.text, "unreachable"));
    assert_non_null(strstr(b.why.text, "not yet"));
    assert_non_null(strstr(b.why.text, "check"));
    bench_finish(&b);
}

static void stop_at_heartbeat(struct fake *f)
{
    fake_stop_job(f, "enough", 0);
}

/* The answer comes when all shards are there; a worker that said nothing until then would be given up. */
static void a_worker_that_waits_for_its_answer_beats(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1);
    b.fake.mute = true;
    b.fake.heart = stop_at_heartbeat;
    assert_int_equal(live(&b), 0);
    assert_int_equal(b.fake.joins, 1);
    assert_int_equal(b.fake.heartbeats, 1);
    bench_finish(&b);
}

static void stop_with_3(struct fake *f)
{
    fake_stop_job(f, "target cannot be reached", 3);
}

static void stop_ends_the_worker_with_its_exit_code(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1);
    b.fake.joined = stop_with_3;
    assert_int_equal(live(&b), 3);
    assert_int_equal(b.why.code, KML_OK);
    assert_string_equal(b.why.text, "target cannot be reached");
    bench_finish(&b);
}

static void signal_now(struct fake *f)
{
    told_to_stop = SIGTERM;
    kml_loop_wake(f->loop);
}

static void parent_gone_now(struct fake *f)
{
    told_to_stop = KML_SIGNALS_PARENT;
    kml_loop_wake(f->loop);
}

static void whoever_is_told_to_stop_says_goodbye_and_does_not_look_like_success(void **state)
{
    (void)state;
    static const struct {
        void (*how)(struct fake *f);
        int exit_code;
    } cases[] = {{signal_now, 143}, {parent_gone_now, 75}};
    for (size_t i = 0; i < KML_COUNT(cases); i++) {
        struct bench b;
        bench_init(&b, 2);
        b.fake.joined = cases[i].how;
        assert_int_equal(live(&b), cases[i].exit_code);
        assert_int_equal(b.why.code, KML_OK);
        assert_int_equal(b.fake.leavings, 1);
        told_to_stop = 0;
        bench_finish(&b);
    }
}

static void assign_beyond(struct fake *f)
{
    fake_assign(f, 1, 1, 990, 1001);
}

static void evaluate_beyond(struct fake *f)
{
    fake_evaluate(f, 1, 1, KUNAL__V1__SPLIT__VALIDATION, 0, 1);
}

static void assign_too_much(struct fake *f)
{
    for (uint64_t step = 1; step < 10; step++) {
        fake_assign(f, step, 1, 0, 1);
    }
}

static void join_reply_again(struct fake *f)
{
    fake_join_reply(f);
}

static void a_conductor_that_breaks_the_protocol_ends_the_worker_with_76(void **state)
{
    (void)state;
    void (*const script[])(struct fake * f) = {assign_beyond, evaluate_beyond, assign_too_much,
                                               join_reply_again};
    for (size_t i = 0; i < KML_COUNT(script); i++) {
        struct bench b;
        bench_init(&b, 1);
        b.fake.joined = script[i];
        assert_int_equal(live(&b), 76);
        assert_int_equal(b.why.code, KML_PROTOCOL);
        bench_finish(&b);
    }
}

static void a_model_that_does_not_match_the_table_is_refused(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 2);
    b.fake.floats--;
    assert_int_equal(live(&b), 76);
    b.fake.floats++;
    bench_finish(&b);
}

static void another_table(struct fake *f)
{
    Kunal__V1__ShardTable m = KUNAL__V1__SHARD_TABLE__INIT;
    if (f->joins == 1) {
        fake_say(f, KUNAL__V1__FROM_CONDUCTOR__MESSAGE_SHARDS, &m);
    } else {
        fake_finish_job(f);
    }
}

static void a_new_shard_table_is_a_new_beginning(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 2);
    b.fake.joined = another_table;
    assert_int_equal(live(&b), 0);
    assert_int_equal(b.fake.joins, 2);
    bench_finish(&b);
}

/* ---- Initial values from a file ---- */

static void write_model(const struct bench *b, const char *path, const char *first_name)
{
    struct kml_tensor tensor[KML_MODEL_TENSORS];
    struct kml_err err;
    for (uint32_t i = 0; i < b->model.tensors; i++) {
        const struct kml_model_tensor *t = &b->model.tensor[i];
        tensor[i] =
            (struct kml_tensor){.name = i == 0 ? first_name : t->name, .dtype = KML_F32, .dims = t->dims};
        tensor[i].dim[0] = t->dim[0];
        tensor[i].dim[1] = t->dims > 1 ? t->dim[1] : 0;
        tensor[i].data = kml_view_of(b->params + t->offset, t->size * sizeof(float));
    }
    if (kml_safetensors_write(path, tensor, b->model.tensors, NULL, 0, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static void finish_after_upload(struct fake *f)
{
    fake_finish_job(f);
}

static void initial_values_come_from_a_file_whose_tensors_have_the_models_names(void **state)
{
    (void)state;
    struct bench b;
    char folder[TEMP_ROOM];
    bench_init(&b, 2);
    temp_make(folder);
    for (size_t i = 0; i < b.model.size; i++) {
        b.params[i] = (float)i;
    }
    b.config.initial = temp_path(folder, "model.safetensors");
    write_model(&b, b.config.initial, b.model.tensor[0].name);
    b.fake.joined = fake_upload;
    b.fake.gradient_done = finish_after_upload;
    assert_int_equal(live(&b), 0);
    assert_memory_equal(b.fake.gradient, b.params, b.model.size * sizeof(float));

    write_model(&b, b.config.initial, "other.weight");
    assert_int_equal(live(&b), 65);
    assert_non_null(strstr(b.why.text, "layer.0.weight"));
    assert_non_null(strstr(b.why.text, b.config.initial));
    temp_remove(folder);
    bench_finish(&b);
}

/* ---- Heartbeats, with a clock that the test turns ---- */

static int take_join(void *self, const Kunal__V1__JoinReply *m, struct kml_err *err)
{
    (void)self;
    (void)m;
    (void)err;
    return 0;
}

static void whoever_is_silent_for_two_seconds_sends_a_heartbeat(void **state)
{
    (void)state;
    static const struct kml_session_ops ops = {.joined = take_join};
    struct bench b;
    bench_init(&b, 1);
    struct kml_session s;
    struct kml_session_config config = {.loop = b.loop,
                                        .creds = b.creds,
                                        .address = b.fake.address,
                                        .join = &b.join.message,
                                        .patience_ns = KML_SECOND,
                                        .ops = &ops};
    uint64_t at = 1000;
    kml_session_init(&s, &config, at);
    while (s.state != KML_SESSION_JOINED) {
        (void)kml_session_tick(&s, at, true);
        (void)kml_loop_run(b.loop, UINT64_MAX, true);
    }
    assert_int_equal(kml_session_tick(&s, at + KML_SECOND, true), at + KML_SESSION_HEARTBEAT_NS);
    (void)kml_session_tick(&s, at + KML_SESSION_HEARTBEAT_NS, true);
    (void)kml_session_tick(&s, at + KML_SESSION_HEARTBEAT_NS + 1, true); /* not twice */
    while (b.fake.heartbeats == 0) {
        (void)kml_loop_run(b.loop, UINT64_MAX, true);
    }
    (void)kml_loop_run(b.loop, 0, false);
    assert_int_equal(b.fake.heartbeats, 1);
    kml_session_leave(&s, "test", 0);
    kml_session_finish(&s);
    bench_finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_uploads_seeded_values_and_its_steps_equal_a_local_computation),
        cmocka_unit_test(a_large_lease_is_the_mean_over_all_its_samples),
        cmocka_unit_test(a_paced_step_takes_its_time),
        cmocka_unit_test(a_step_computes_on_exactly_the_version_it_was_given),
        cmocka_unit_test(an_evaluation_counts_what_a_local_one_counts),
        cmocka_unit_test(a_pinned_version_older_than_the_last_one_can_be_evaluated),
        cmocka_unit_test(an_abandoned_step_is_not_reported_and_the_next_one_is),
        cmocka_unit_test(a_step_that_waits_for_its_pace_beats_and_can_be_abandoned),
        cmocka_unit_test(a_broken_session_joins_again_with_a_fresh_incarnation_and_forgets_its_work),
        cmocka_unit_test(a_broken_data_stream_joins_again_too),
        cmocka_unit_test(a_refusal_ends_the_worker_with_its_code_and_is_not_tried_again),
        cmocka_unit_test(a_worker_that_waits_for_its_answer_beats),
        cmocka_unit_test(without_a_conductor_the_worker_ends_with_69_and_says_what_to_check),
        cmocka_unit_test(stop_ends_the_worker_with_its_exit_code),
        cmocka_unit_test(whoever_is_told_to_stop_says_goodbye_and_does_not_look_like_success),
        cmocka_unit_test(a_conductor_that_breaks_the_protocol_ends_the_worker_with_76),
        cmocka_unit_test(a_model_that_does_not_match_the_table_is_refused),
        cmocka_unit_test(a_new_shard_table_is_a_new_beginning),
        cmocka_unit_test(initial_values_come_from_a_file_whose_tensors_have_the_models_names),
        cmocka_unit_test(whoever_is_silent_for_two_seconds_sends_a_heartbeat),
    };
    kml_log_init("test", KML_ERROR, false);
    kml_rpc_init();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kml_rpc_shutdown();
    return failed;
}
