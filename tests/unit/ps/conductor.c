/* The conductor alone, with a sink that writes down what it is told: joins and what refuses them, deadlines,
 * odd messages. */
#include <stdio.h>
#include <string.h>

#include "ps/hello.h"
#include "wire/chunk.h"

#include "base/mem.h"
#include "tests/unit/ps/setup.h"

struct bench {
    struct kml_job job;
    struct kml_conductor c;
    struct kml_layout layout;
    struct kml_err err;
    uint64_t now;
    char log[65536]; /* "admit 1 101;" ... */
    uint64_t step[8], samples[8];
    bool disobey; /* our own shard cannot carry out a commit, and says so at once */
};

static struct bench b;

static void note(struct bench *t, const char *format, ...) KML_PRINTF(2, 3);

static void note(struct bench *t, const char *format, ...)
{
    size_t used = strlen(t->log);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(t->log + used, sizeof t->log - used, format, args);
    va_end(args);
}

static void on_setup(void *self, const struct kml_shardmap *map, uint64_t generation)
{
    note(self, "setup %u %llu;", map->shards, (unsigned long long)generation);
}

static void on_admit(void *self, uint32_t worker, uint64_t incarnation)
{
    note(self, "admit %u %llu;", worker, (unsigned long long)incarnation);
}

static void on_dismiss(void *self, uint32_t worker, uint64_t incarnation)
{
    note(self, "dismiss %u %llu;", worker, (unsigned long long)incarnation);
}

static void on_commit(void *self, const struct kml_commit *c)
{
    struct bench *t = self;
    note(t, "commit %llu of %u to %u;", (unsigned long long)c->version, c->count, c->releases);
    if (t->disobey) {
        kml_conductor_fail(&t->c, "ParameterServerFailed", "no memory", 70, t->now);
    }
}

static void on_release(void *self, uint64_t version, const uint32_t *workers, uint32_t count)
{
    (void)workers;
    note(self, "release %llu to %u;", (unsigned long long)version, count);
}

static void on_pin(void *self, uint64_t version)
{
    note(self, "pin %llu;", (unsigned long long)version);
}

static void on_unpin(void *self, uint64_t version)
{
    note(self, "unpin %llu;", (unsigned long long)version);
}

static void on_welcome(void *self, uint32_t worker, uint64_t last_step)
{
    note(self, "welcome %u after %llu;", worker, (unsigned long long)last_step);
}

static void on_upload(void *self, uint32_t worker)
{
    note(self, "upload %u;", worker);
}

static void on_assign(void *self, uint32_t worker, const struct kml_assignment *a)
{
    struct bench *t = self;
    t->step[worker] = a->step;
    t->samples[worker] = a->lease->samples;
    note(t, "assign %u step %llu;", worker, (unsigned long long)a->step);
}

static void on_evaluate(void *self, uint32_t worker, const struct kml_evaluation_lease *e)
{
    note(self, "evaluate %u on %llu;", worker, (unsigned long long)e->version);
}

static void on_abandon(void *self, uint32_t worker, uint64_t step)
{
    note(self, "abandon %u step %llu;", worker, (unsigned long long)step);
}

static void on_expel(void *self, uint32_t worker, uint64_t incarnation, enum kml_code code, const char *why)
{
    note(self, "expel %u %llu %s: %s;", worker, (unsigned long long)incarnation, kml_code_name(code), why);
}

static void on_save(void *self, uint64_t version)
{
    note(self, "save %llu;", (unsigned long long)version);
}

static void on_over(void *self, enum kml_phase phase, const char *reason, uint32_t exit_code)
{
    note(self, "over %s %s %u;", kml_phase_name(phase), reason, exit_code);
}

static void on_record(void *self, const struct kml_record *r)
{
    (void)self;
    (void)r;
}

static void set_up(uint32_t workers, uint32_t shards)
{
    struct kml_conductor_sink sink = {&b,         on_setup, on_admit,   on_dismiss, on_commit, on_release,
                                      on_pin,     on_unpin, on_welcome, on_upload,  on_assign, on_evaluate,
                                      on_abandon, on_expel, on_save,    on_over,    on_record};
    memset(&b, 0, sizeof b);
    b.now = KML_SECOND;
    make_job(&b.job, KML_JOB_SYNC_BSP, KML_JOB_STRATEGY_STATIC, workers, shards);
    uint32_t shape[2] = {4, 9};
    kml_layout_init(&b.layout);
    assert_int_equal(kml_layout_add(&b.layout, "layer.0.weight", shape, 2, &b.err), 0);
    kml_conductor_init(&b.c, &b.job, &sink, 3, b.now);
}

static void shards_join(void)
{
    for (uint32_t s = 0; s < b.c.shards; s++) {
        assert_int_equal(kml_conductor_shard_join(&b.c, s, b.now, &b.err), 0);
    }
}

static int finish(void **state)
{
    (void)state;
    kml_conductor_finish(&b.c);
    kml_layout_finish(&b.layout);
    kml_job_finish(&b.job);
    return 0;
}

static struct kml_worker_join join_of(uint32_t index, uint64_t incarnation)
{
    struct kml_worker_join j = {.index = index,
                                .incarnation = incarnation,
                                .layout = b.layout,
                                .train_samples = 40,
                                .validation_samples = 10,
                                .test_samples = 5,
                                .digest_size = 2};
    memcpy(j.digest, "ab", 2);
    return j;
}

static int join(uint32_t index, uint64_t incarnation)
{
    struct kml_worker_join j = join_of(index, incarnation);
    return kml_conductor_worker_join(&b.c, &j, b.now, &b.err);
}

static void must_refuse(const struct kml_worker_join *j, enum kml_code code, const char *words)
{
    struct kml_conductor before = b.c;
    b.log[0] = '\0';
    assert_int_equal(kml_conductor_worker_join(&b.c, j, b.now, &b.err), -1);
    assert_int_equal(b.err.code, code);
    if (strstr(b.err.text, words) == NULL) {
        fail_msg("'%s' does not say '%s'", b.err.text, words);
    }
    assert_string_equal(b.log, ""); /* nobody was told anything */
    assert_memory_equal(before.members, b.c.members, sizeof before.members);
    assert_int_equal(b.c.phase, before.phase);
}

static void stage(uint32_t worker)
{
    const struct kml_conductor_worker *k = &b.c.worker[worker];
    struct kml_step_report r = {.step = b.step[worker], .samples = b.samples[worker], .compute_ns = 1000};
    for (uint32_t s = 0; s < b.c.shards; s++) {
        kml_conductor_staged(&b.c, s, worker, k->incarnation, b.step[worker], 1, false, b.now);
    }
    kml_conductor_report(&b.c, worker, k->incarnation, &r, b.now);
}

/* Two workers, 101 and 201, train. */
static void train_two(void)
{
    set_up(2, 2);
    shards_join();
    assert_int_equal(join(0, 101), 0);
    assert_int_equal(join(1, 201), 0);
    kml_conductor_staged(&b.c, 0, 0, 101, 0, 0, false, b.now);
    kml_conductor_staged(&b.c, 1, 0, 101, 0, 0, false, b.now);
    assert_int_equal(b.c.phase, KML_PHASE_TRAINING);
}

/* ---- Joining ---- */

static void a_job_starts_when_shards_workers_and_parameters_are_there(void **state)
{
    (void)state;
    set_up(2, 2);
    assert_int_equal(join(1, 201), 0);
    assert_string_equal(b.log, "");
    shards_join();
    assert_string_equal(b.log, "setup 2 3;admit 1 201;welcome 1 after 0;upload 1;");
    b.log[0] = '\0';
    kml_conductor_staged(&b.c, 0, 1, 201, 0, 0, false, b.now);
    kml_conductor_staged(&b.c, 1, 1, 201, 0, 0, false, b.now);
    assert_int_equal(b.c.phase, KML_PHASE_STARTING); /* one is missing */
    assert_int_equal(join(0, 101), 0);
    assert_string_equal(b.log,
                        "admit 0 101;welcome 0 after 0;release 0 to 2;assign 0 step 1;assign 1 step 1;");
}

static void initial_parameters_with_nan_fail_the_job(void **state)
{
    (void)state;
    set_up(2, 1);
    shards_join();
    assert_int_equal(join(0, 101), 0);
    kml_conductor_staged(&b.c, 0, 0, 101, 0, 0, true, b.now);
    assert_int_equal(b.c.phase, KML_PHASE_FAILED);
    assert_string_equal(b.c.reason, "InvalidModel");
}

static void what_a_lost_uploader_left_on_some_shards_does_not_count(void **state)
{
    (void)state;
    set_up(2, 2);
    shards_join();
    assert_int_equal(join(0, 101), 0);
    assert_int_equal(join(1, 201), 0);
    kml_conductor_staged(&b.c, 0, 0, 101, 0, 0, false, b.now);
    b.log[0] = '\0';
    kml_conductor_worker_left(&b.c, 0, 101, "test", b.now);
    assert_string_equal(b.log, "dismiss 0 101;upload 1;");
    kml_conductor_staged(&b.c, 1, 0, 101, 0, 0, false, b.now); /* was on its way */
    kml_conductor_staged(&b.c, 1, 1, 201, 0, 0, false, b.now);
    assert_false(b.c.parameters); /* shard 0 has only what worker 0 sent */
    kml_conductor_staged(&b.c, 0, 1, 201, 0, 0, false, b.now);
    assert_true(b.c.parameters);
    assert_int_equal(join(0, 102), 0);
    assert_int_equal(b.c.phase, KML_PHASE_TRAINING);
}

static void an_index_that_the_job_has_not_got_is_refused(void **state)
{
    (void)state;
    set_up(2, 1);
    shards_join();
    struct kml_worker_join j = join_of(2, 301);
    must_refuse(&j, KML_INVALID, "worker 2 joined, but the job has 2 workers");
    j = join_of(0, 0);
    must_refuse(&j, KML_INVALID, "without an incarnation");
    assert_int_equal(kml_conductor_shard_join(&b.c, 1, b.now, &b.err), -1);
    assert_int_equal(b.err.code, KML_INVALID);
    assert_int_equal(kml_conductor_shard_join(&b.c, 0, b.now, &b.err), -1);
    assert_int_equal(b.err.code, KML_EXISTS);
}

static void another_layout_is_refused_by_the_name_of_the_tensor(void **state)
{
    (void)state;
    set_up(2, 1);
    shards_join();
    assert_int_equal(join(0, 101), 0);
    struct kml_worker_join j = join_of(1, 201);
    struct kml_layout other;
    uint32_t shape[2] = {5, 9};
    kml_layout_init(&other);
    assert_int_equal(kml_layout_add(&other, "layer.0.weight", shape, 2, &b.err), 0);
    j.layout = other;
    must_refuse(&j, KML_PROTOCOL, "layer.0.weight");
    kml_layout_finish(&other);
}

static void other_data_are_refused(void **state)
{
    (void)state;
    set_up(2, 1);
    shards_join();
    struct kml_worker_join j = join_of(1, 201);
    j.train_samples = 0;
    must_refuse(&j, KML_INVALID, "no training samples");
    assert_int_equal(join(0, 101), 0);
    j = join_of(1, 201);
    j.digest[1] = 'c';
    must_refuse(&j, KML_PROTOCOL, "reads other data");
    j = join_of(1, 201);
    j.digest_size = 1;
    must_refuse(&j, KML_PROTOCOL, "reads other data");
    j = join_of(1, 201);
    j.digest_size = KML_DIGEST_MAX + 1;
    must_refuse(&j, KML_INVALID, "digest");
    j = join_of(1, 201);
    j.validation_samples = 11;
    must_refuse(&j, KML_PROTOCOL, "40/11/5");
    assert_int_equal(join(1, 201), 0);
}

static void a_model_smaller_than_the_shards_is_refused(void **state)
{
    (void)state;
    set_up(1, 40);
    shards_join();
    struct kml_worker_join j = join_of(0, 101);
    must_refuse(&j, KML_INVALID, "36 parameters");
}

static void an_incarnation_that_has_joined_is_refused_whether_it_is_here_or_gone(void **state)
{
    (void)state;
    train_two();
    struct kml_worker_join j = join_of(0, 101);
    must_refuse(&j, KML_FENCED, "has joined before");
    assert_int_equal(b.c.worker[0].state, KML_MEMBER_TRAINING); /* nothing happened to it */
    kml_conductor_worker_left(&b.c, 0, 101, "test", b.now);
    must_refuse(&j, KML_FENCED, "take a new one for each join");
    b.now += KML_RETURN_NS; /* also after it was given up */
    kml_conductor_tick(&b.c, b.now);
    must_refuse(&j, KML_FENCED, "worker 0");
    assert_int_equal(join(0, 102), 0);
    assert_int_equal(b.c.worker[0].state, KML_MEMBER_TRAINING);
}

static void a_new_process_replaces_the_old_one(void **state)
{
    (void)state;
    train_two();
    b.log[0] = '\0';
    assert_int_equal(join(0, 102), 0);
    assert_string_equal(
        b.log,
        "expel 0 101 FENCED: another process took its place;dismiss 0 101;admit 0 102;welcome 0 after 1;"
        "release 0 to 1;assign 0 step 2;");
    kml_conductor_worker_left(&b.c, 0, 101, "late news", b.now);
    assert_int_equal(b.c.worker[0].state, KML_MEMBER_TRAINING);
}

static void a_job_that_is_over_takes_nobody(void **state)
{
    (void)state;
    train_two();
    kml_conductor_fail(&b.c, "Test", "a test", 1, b.now);
    struct kml_worker_join j = join_of(0, 102);
    must_refuse(&j, KML_CONFLICT, "the job is over");
}

static void another_protocol_or_another_job_is_refused(void **state)
{
    (void)state;
    set_up(1, 1);
    assert_int_equal(kml_check_hello(KML_PROTOCOL_VERSION, "u", "u", &b.err), 0);
    assert_int_equal(kml_check_hello(KML_PROTOCOL_VERSION + 1, "u", "u", &b.err), -1);
    assert_int_equal(b.err.code, KML_PROTOCOL);
    assert_non_null(strstr(b.err.text, "protocol 2"));
    assert_int_equal(kml_check_hello(KML_PROTOCOL_VERSION, "v", "u", &b.err), -1);
    assert_int_equal(b.err.code, KML_DENIED);
    assert_non_null(strstr(b.err.text, "job v"));
}

/* ---- Odd messages ---- */

static void late_repeated_and_foreign_messages_change_nothing(void **state)
{
    (void)state;
    train_two();
    b.log[0] = '\0';
    struct kml_step_report r = {.step = 1, .samples = 8};
    kml_conductor_staged(&b.c, 0, 7, 101, 1, 1, false, b.now); /* no such worker */
    kml_conductor_staged(&b.c, 9, 0, 101, 1, 1, false, b.now); /* no such shard */
    kml_conductor_staged(&b.c, 0, 0, 999, 1, 1, false, b.now); /* another process */
    kml_conductor_staged(&b.c, 0, 0, 101, 2, 1, false, b.now); /* another step */
    kml_conductor_staged(&b.c, 0, 0, 101, 1, 1, false, b.now);
    kml_conductor_staged(&b.c, 0, 0, 101, 1, 1, false, b.now); /* the same shard again is not the other one */
    kml_conductor_report(&b.c, 0, 999, &r, b.now);
    kml_conductor_report(&b.c, 9, 101, &r, b.now);
    kml_conductor_report(&b.c, 0, 101, &r, b.now);
    kml_conductor_report(&b.c, 0, 101, &r, b.now);
    kml_conductor_evaluated(&b.c, 0, 101, &(struct kml_evaluation_result){.lease = 1, .samples = 5}, b.now);
    stage(1);
    assert_string_equal(b.log, ""); /* worker 0 is not whole on shard 1 */
    kml_conductor_staged(&b.c, 1, 0, 101, 1, 1, false, b.now);
    assert_string_equal(b.log, "commit 1 of 2 to 2;assign 0 step 2;assign 1 step 2;");
}

static void after_a_commit_that_failed_at_once_nothing_more_is_ordered(void **state)
{
    (void)state;
    train_two();
    stage(0);
    b.log[0] = '\0';
    b.disobey = true;
    stage(1);
    assert_string_equal(b.log, "commit 1 of 2 to 2;over Failed ParameterServerFailed 70;");
    assert_int_equal(kml_conductor_deadline(&b.c), UINT64_MAX);
}

static void a_worker_that_counts_other_samples_fails_the_job(void **state)
{
    (void)state;
    train_two();
    struct kml_step_report r = {.step = 1, .samples = 7};
    kml_conductor_report(&b.c, 0, 101, &r, b.now);
    assert_int_equal(b.c.phase, KML_PHASE_FAILED);
    assert_string_equal(b.c.message, "worker 0 says step 1 has 7 samples, it was given 8");
}

/* ---- Deadlines ---- */

static void a_silent_worker_is_expelled_at_the_deadline_and_not_before(void **state)
{
    (void)state;
    train_two();
    uint64_t due = kml_conductor_deadline(&b.c);
    assert_int_equal(due, b.now + KML_SILENCE_NS);
    kml_conductor_heard(&b.c, 1, 201, b.now + KML_SECOND);
    kml_conductor_heard(&b.c, 0, 999, b.now + KML_SECOND); /* somebody else */
    b.log[0] = '\0';
    kml_conductor_tick(&b.c, due - 1);
    assert_string_equal(b.log, "");
    kml_conductor_tick(&b.c, due);
    assert_string_equal(b.log, "expel 0 101 AGAIN: silent for too long;dismiss 0 101;");
    assert_int_equal(kml_conductor_deadline(&b.c), due + KML_SECOND); /* the other one's */
}

static void a_lost_workers_shard_is_dealt_to_the_others_after_its_time(void **state)
{
    (void)state;
    train_two();
    kml_conductor_worker_left(&b.c, 0, 101, "test", b.now);
    for (int i = 0; i < 3; i++) {
        stage(1); /* its own shard: 20 samples */
    }
    assert_int_equal(b.c.worker[1].state, KML_MEMBER_IDLE);
    assert_int_equal(kml_conductor_deadline(&b.c), b.now + KML_RETURN_NS);
    b.log[0] = '\0';
    b.now += KML_RETURN_NS;
    kml_conductor_tick(&b.c, b.now - 1);
    assert_string_equal(b.log, "");
    kml_conductor_tick(&b.c, b.now);
    assert_string_equal(b.log, "release 3 to 1;assign 1 step 4;");
    assert_true(kml_conductor_deadline(&b.c) > b.now);
}

static void no_deadline_stays_in_the_past_while_a_job_cannot_start(void **state)
{
    (void)state;
    set_up(2, 1);
    shards_join();
    assert_int_equal(kml_conductor_deadline(&b.c), UINT64_MAX);
    assert_int_equal(join(0, 101), 0); /* no parameters come */
    for (int i = 0; i < 200; i++) {
        b.now += KML_SECOND;
        kml_conductor_heard(&b.c, 0, 101, b.now);
        kml_conductor_tick(&b.c, b.now);
        assert_true(kml_conductor_deadline(&b.c) > b.now);
    }
    kml_conductor_staged(&b.c, 0, 0, 101, 0, 0, false, b.now);
    assert_int_equal(b.c.phase, KML_PHASE_TRAINING); /* patience was over long ago */
}

static void a_job_whose_workers_all_left_before_it_started_waits_without_spinning(void **state)
{
    (void)state;
    set_up(2, 1);
    shards_join();
    assert_int_equal(join(0, 101), 0);
    kml_conductor_staged(&b.c, 0, 0, 101, 0, 0, false, b.now);
    kml_conductor_worker_left(&b.c, 0, 101, "test", b.now);
    b.now += 2 * KML_PATIENCE_NS;
    kml_conductor_tick(&b.c, b.now);
    assert_int_equal(kml_conductor_deadline(&b.c), UINT64_MAX);
    assert_int_equal(join(1, 201), 0);
    assert_int_equal(b.c.phase, KML_PHASE_TRAINING);
}

static void training_starts_without_a_missing_worker_when_patience_is_over(void **state)
{
    (void)state;
    set_up(2, 1);
    shards_join();
    assert_int_equal(join(0, 101), 0);
    kml_conductor_staged(&b.c, 0, 0, 101, 0, 0, false, b.now);
    uint64_t due = b.now + KML_PATIENCE_NS;
    kml_conductor_heard(&b.c, 0, 101, due);
    assert_int_equal(kml_conductor_deadline(&b.c), due);
    kml_conductor_tick(&b.c, due - 1);
    assert_int_equal(b.c.phase, KML_PHASE_STARTING);
    kml_conductor_tick(&b.c, due);
    assert_int_equal(b.c.phase, KML_PHASE_TRAINING);
}

static void time_is_shared_between_training_and_evaluation(void **state)
{
    (void)state;
    train_two();
    uint64_t began = b.now;
    for (int i = 0; i < 3; i++) {
        b.now += KML_SECOND;
        stage(0);
        stage(1);
    }
    assert_true(b.c.training_ns == 3e9 && b.c.evaluation_ns == 0);
    b.job.training.evaluation.every_epochs = 1;
    for (int i = 0; i < 3; i++) { /* to the end: 40 samples, 2 epochs */
        b.now += KML_SECOND;
        stage(0);
        stage(1);
    }
    assert_int_equal(b.c.phase, KML_PHASE_TRAINING);
    assert_true(b.c.evaluation.running);
    b.now += 5 * KML_SECOND;
    kml_conductor_account(&b.c, b.now);
    assert_true(b.c.training_ns == 6e9 && b.c.evaluation_ns == 5e9);
    struct kml_evaluation_result result = {.lease = b.c.worker[0].evaluation_lease,
                                           .samples = 10,
                                           .loss_sum = 5,
                                           .correct = 7,
                                           .has_accuracy = true};
    kml_conductor_evaluated(&b.c, 0, 101, &result, b.now);
    assert_int_equal(b.c.phase, KML_PHASE_SAVING);
    assert_true(b.c.loss == 0.5 && b.c.accuracy == 0.7);
    kml_conductor_saved(&b.c, b.now + KML_SECOND);
    assert_int_equal(b.c.phase, KML_PHASE_SUCCEEDED);
    assert_true(b.c.training_ns + b.c.evaluation_ns == (double)(b.now - began));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, finish)
    const struct CMUnitTest tests[] = {
        CASE(a_job_starts_when_shards_workers_and_parameters_are_there),
        CASE(initial_parameters_with_nan_fail_the_job),
        CASE(what_a_lost_uploader_left_on_some_shards_does_not_count),
        CASE(an_index_that_the_job_has_not_got_is_refused),
        CASE(another_layout_is_refused_by_the_name_of_the_tensor),
        CASE(other_data_are_refused),
        CASE(a_model_smaller_than_the_shards_is_refused),
        CASE(an_incarnation_that_has_joined_is_refused_whether_it_is_here_or_gone),
        CASE(a_new_process_replaces_the_old_one),
        CASE(a_job_that_is_over_takes_nobody),
        CASE(another_protocol_or_another_job_is_refused),
        CASE(late_repeated_and_foreign_messages_change_nothing),
        CASE(after_a_commit_that_failed_at_once_nothing_more_is_ordered),
        CASE(a_worker_that_counts_other_samples_fails_the_job),
        CASE(a_silent_worker_is_expelled_at_the_deadline_and_not_before),
        CASE(a_lost_workers_shard_is_dealt_to_the_others_after_its_time),
        CASE(no_deadline_stays_in_the_past_while_a_job_cannot_start),
        CASE(a_job_whose_workers_all_left_before_it_started_waits_without_spinning),
        CASE(training_starts_without_a_missing_worker_when_patience_is_over),
        CASE(time_is_shared_between_training_and_evaluation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
