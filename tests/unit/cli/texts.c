/* What the tool reads and writes as text: its last line, environments, /proc, logs, what processes print, the
 * status. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/child.h"
#include "cli/crew.h"
#include "cli/environment.h"
#include "cli/outcome.h"
#include "cli/procstat.h"
#include "cli/statusfile.h"
#include "doc/doc.h"

/* ---- The last line ---- */

static void expect_line(const struct kml_outcome *o, const char *expected)
{
    struct kml_buf out;
    struct kml_err err;
    kml_buf_init(&out, 4096);
    assert_int_equal(kml_outcome_line(o, &out, &err), 0);
    assert_string_equal(kml_buf_text(&out), expected);
    kml_buf_finish(&out);
}

static void success_has_its_numbers_in_one_line(void **state)
{
    (void)state;
    struct kml_outcome o;
    kml_outcome_init(&o);
    kml_outcome_set(&o, KML_OUTCOME_SUCCEEDED, 0, "", "%s", "");
    o.epochs = 10;
    o.samples = 600000;
    o.seconds = 4;
    o.loss = 0.33125;
    o.has_accuracy = true;
    o.accuracy = 0.88339;
    o.model = kml_strdup("/runs/a/model.safetensors");
    expect_line(&o,
                "succeeded epochs=10 accuracy=0.8834 loss=0.33125 samples_per_second=150000.0 seconds=4.000 "
                "model=/runs/a/model.safetensors\n");
    o.has_accuracy = false; /* regression */
    expect_line(&o, "succeeded epochs=10 loss=0.33125 samples_per_second=150000.0 seconds=4.000 "
                    "model=/runs/a/model.safetensors\n");
    kml_outcome_finish(&o);
}

static void failure_has_a_reason_and_a_quoted_message(void **state)
{
    (void)state;
    struct kml_outcome o;
    kml_outcome_init(&o);
    kml_outcome_set(&o, KML_OUTCOME_FAILED, 65, "WorkerFailed", "he said \"%s\"\n", "no");
    expect_line(&o, "failed reason=WorkerFailed message=\"he said \\\"no\\\"\\n\"\n");
    kml_outcome_finish(&o);
}

static void only_the_first_verdict_counts(void **state)
{
    (void)state;
    struct kml_outcome o;
    kml_outcome_init(&o);
    kml_outcome_set(&o, KML_OUTCOME_FAILED, 65, "First", "%s", "a");
    kml_outcome_set(&o, KML_OUTCOME_SUCCEEDED, 0, "", "%s", "");
    assert_int_equal(o.exit_code, 65);
    expect_line(&o, "failed reason=First message=\"a\"\n");
    kml_outcome_finish(&o);
}

static void a_stop_says_where_the_model_is_or_that_there_is_none(void **state)
{
    (void)state;
    struct kml_outcome o;
    kml_outcome_init(&o);
    kml_outcome_set(&o, KML_OUTCOME_STOPPED, 130, "Interrupted", "%s", "nothing was there to save");
    expect_line(&o, "stopped reason=Interrupted message=\"nothing was there to save\"\n");
    o.model = kml_strdup("/m");
    expect_line(&o, "stopped reason=Interrupted epochs=0 samples_per_second=0.0 seconds=0.000 model=/m\n");
    kml_outcome_finish(&o);
}

static void no_exit_code_pretends_that_kunal_itself_was_killed(void **state)
{
    (void)state;
    assert_int_equal(kml_outcome_exit_of_child(65), 65);
    assert_int_equal(kml_outcome_exit_of_child(1), 1);
    assert_int_equal(kml_outcome_exit_of_child(137), 75);
    assert_int_equal(kml_outcome_exit_of_child(139), 70);
    for (unsigned code = 1; code <= 255; code++) {
        assert_in_range(kml_outcome_exit_of_child(code), 1, 125);
    }
}

/* ---- Environments ---- */

static void what_is_left_over_in_a_shell_does_not_steer_a_worker(void **state)
{
    (void)state;
    char *const from[] = {(char[]){"HOME=/h"}, (char[]){"KUNAL_PACE_NS=9"}, (char[]){"KUNAL_LOG=text"},
                          (char[]){"A=1"}, NULL};
    struct kml_environment e;
    kml_environment_init(&e, from);
    assert_null(kml_environment_get(&e, "KUNAL_PACE_NS"));
    assert_string_equal(kml_environment_get(&e, "KUNAL_LOG"), "text");
    assert_string_equal(kml_environment_get(&e, "HOME"), "/h");
    kml_environment_finish(&e);
}

static void a_name_stands_in_an_environment_once(void **state)
{
    (void)state;
    char *const from[] = {(char[]){"A=1"}, (char[]){"AB=2"}, (char[]){"A=3"}, NULL};
    struct kml_environment e;
    kml_environment_init(&e, from);
    kml_environment_set(&e, "A", "4");
    assert_int_equal(e.count, 2);
    assert_string_equal(kml_environment_get(&e, "A"), "4");
    assert_string_equal(kml_environment_get(&e, "AB"), "2");
    kml_environment_set(&e, "A", NULL);
    assert_null(kml_environment_get(&e, "A"));
    assert_null(e.text[e.count]);
    kml_environment_finish(&e);
}

/* ---- /proc ---- */

static void proc_is_read_also_when_the_name_has_parentheses(void **state)
{
    (void)state;
    struct kml_procstat p = {0};
    assert_true(kml_procstat_parse(
        "42 (a) (b c) S 1 42 42 0 -1 4194560 900 0 0 0 150 50 7 8 20 0 5 0 100 1 2", "1000 250 3", &p));
    assert_int_equal(p.cpu_ticks, 200);
    assert_int_equal(p.resident, 250);
    assert_false(kml_procstat_parse("42", "1000 250", &p));
    assert_false(kml_procstat_parse("42 (x) S 1", "1000 250", &p));
}

static void cores_are_ticks_over_the_window(void **state)
{
    (void)state;
    const struct kml_procstat a = {.known = true, .cpu_ticks = 100, .at_ns = KML_SECOND};
    const struct kml_procstat b = {.known = true, .cpu_ticks = 250, .at_ns = 3 * KML_SECOND};
    const struct kml_procstat none = {.known = false, .at_ns = 5 * KML_SECOND};
    double cores = -1;
    assert_true(kml_procstat_cores(&a, &b, 100, &cores));
    assert_float_equal(cores, 0.75, 1e-12);
    assert_false(kml_procstat_cores(&b, &a, 100, &cores));
    assert_false(kml_procstat_cores(&a, &none, 100, &cores));
}

static void our_own_process_can_be_read(void **state)
{
    (void)state;
    struct kml_procstat p;
    kml_procstat_read(getpid(), 7, &p);
    assert_true(p.known);
    assert_true(p.resident > 0);
    assert_int_equal(p.at_ns, 7);
}

/* ---- What processes say ---- */

static void expect_words(const char *log, uint64_t start, const char *expected)
{
    char path[] = "/tmp/kunal-words-XXXXXX";
    char words[200];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, log, strlen(log)), (ssize_t)strlen(log));
    assert_int_equal(close(fd), 0);
    kml_child_last_words(path, start, words, sizeof words);
    assert_string_equal(words, expected);
    assert_int_equal(unlink(path), 0);
}

static void the_last_error_of_a_log_is_found(void **state)
{
    (void)state;
    expect_words(
        "{\"level\":\"info\",\"message\":\"a\"}\n"
        "{\"level\":\"error\",\"message\":\"cannot go on\",\"error\":\"INVALID: x.csv:3: no number\"}\n"
        "{\"level\":\"info\",\"message\":\"bye\"}\n",
        0, "cannot go on: x.csv:3: no number");
}

static void without_an_error_the_last_line_speaks(void **state)
{
    (void)state;
    expect_words("Traceback:\n  here\nValueError: no\n\n", 0, "ValueError: no");
    expect_words("{\"level\":\"info\",\"message\":\"bye\"}\n", 0, "bye");
    expect_words("{\"broken\n", 0, "{\"broken");
    expect_words("bell\a", 0, "bell ");
    expect_words("", 0, "");
}

static void words_of_an_earlier_start_do_not_count(void **state)
{
    (void)state;
    expect_words("old\nnew\n", 4, "new");
    expect_words("old\n", 4, "");
}

static void the_listening_line_is_recognised(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *address;
    } cases[] = {
        {"{\"event\":\"listening\",\"address\":\"unix:/x/ps-0.sock\"}", "unix:/x/ps-0.sock"},
        {"{\"event\":\"listening\",\"address\":\"0.0.0.0:4242\"}", "127.0.0.1:4242"},
        {"{\"event\":\"listening\",\"address\":\"[::]:4242\"}", "127.0.0.1:4242"},
        {"{\"event\":\"epoch\",\"address\":\"x\"}", NULL},
        {"{\"event\":\"listening\"}", NULL},
        {"{\"event\":3,\"address\":\"x\"}", NULL},
        {"{rubbish", NULL},
        {"rubbish", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < KML_COUNT(cases); i++) {
        char *address = kml_crew_listening(cases[i].line);
        if (cases[i].address == NULL) {
            assert_null(address);
        } else {
            assert_string_equal(address, cases[i].address);
        }
        kml_free(address);
    }
}

static void a_calibration_is_a_positive_number(void **state)
{
    (void)state;
    double cost = 0;
    struct kml_err err;
    assert_int_equal(kml_crew_calibration("hello\nseconds_per_sample=2.5e-06\n", &cost, &err), 0);
    assert_float_equal(cost, 2500, 1e-9);
    assert_int_equal(kml_crew_calibration("seconds_per_sample=0\n", &cost, &err), -1);
    assert_int_equal(kml_crew_calibration("seconds_per_sample=soon\n", &cost, &err), -1);
    assert_int_equal(kml_crew_calibration("nothing\n", &cost, &err), -1);
}

/* ---- The status ---- */

static void read_status(const struct kml_status_view *v, struct kml_doc *doc)
{
    struct kml_buf out;
    struct kml_err err;
    kml_buf_init(&out, 1 << 20);
    kml_doc_init(doc);
    assert_int_equal(kml_status_json(v, &out, &err), 0);
    assert_int_equal(kml_doc_read(doc, "status", kml_buf_view(&out), &err), 0);
    kml_buf_finish(&out);
}

static void expect_text(const struct kml_doc *doc, const char *path, const char *expected)
{
    const struct kml_node *node = kml_doc_find(doc, path);
    assert_non_null(node);
    assert_int_equal(node->kind, KML_NODE_TEXT);
    assert_string_equal(node->text, expected);
}

static void expect_integer(const struct kml_doc *doc, const char *path, int64_t expected)
{
    const struct kml_node *node = kml_doc_find(doc, path);
    assert_non_null(node);
    assert_int_equal(node->kind, KML_NODE_INT);
    assert_int_equal(node->value.integer, expected);
}

static void the_status_has_the_names_of_the_manifest_page(void **state)
{
    (void)state;
    enum { WORKERS = 70 };
    Kunal__V1__WorkerStatus worker[WORKERS];
    Kunal__V1__WorkerStatus *workers[WORKERS];
    Kunal__V1__JobStatus s = KUNAL__V1__JOB_STATUS__INIT;
    uint8_t sha[32] = {0xab};
    for (uint32_t w = 0; w < WORKERS; w++) {
        kunal__v1__worker_status__init(&worker[w]);
        worker[w].index = w;
        worker[w].share = 0.5;
        workers[w] = &worker[w];
    }
    s.phase = KUNAL__V1__PHASE__TRAINING;
    s.epoch = 3;
    s.epochs = 10;
    s.epoch_fraction = 0.5;
    s.has_accuracy = true;
    s.accuracy = 0.75;
    s.remaining_seconds = 3.2;
    s.workers = workers;
    s.n_workers = WORKERS;
    s.model_bytes = 99;
    s.model_sha256 = (ProtobufCBinaryData){sizeof sha, sha};
    const struct kml_status_view v = {
        .phase = "Running",
        .start_ns = KML_SECOND,
        .running_ns = 2 * KML_SECOND,
        .ps = {.desired = 1, .active = 1, .ready = 1},
        .worker = {.desired = WORKERS, .active = 69, .ready = 68, .restarts = 2},
        .model = "/m",
        .training = &s,
        .updated_ns = 5 * KML_SECOND,
    };
    struct kml_doc doc;
    read_status(&v, &doc);
    expect_text(&doc, "phase", "Running");
    expect_text(&doc, "conditions[0].type", "Created");
    expect_text(&doc, "conditions[1].type", "Running");
    expect_text(&doc, "conditions[1].status", "True");
    expect_text(&doc, "startTime", "1970-01-01T00:00:01.000Z");
    expect_integer(&doc, "replicaStatuses.Worker.desired", WORKERS);
    expect_integer(&doc, "restarts", 2);
    expect_text(&doc, "workersReady", "68/70");
    expect_text(&doc, "psReady", "1/1");
    expect_integer(&doc, "training.progressPercentage", 35);
    expect_integer(&doc, "training.estimatedRemainingSeconds", 4);
    expect_integer(&doc, "training.epoch", 3);
    expect_text(&doc, "training.metrics[1].name", "accuracy");
    expect_text(&doc, "training.metrics[1].value", "0.75");
    expect_integer(&doc, "scheduling.shares[63].worker", 63);
    assert_null(kml_doc_find(&doc, "scheduling.shares[64]"));
    expect_integer(&doc, "scheduling.sharesLeftOut", 6);
    expect_integer(&doc, "model.bytes", 99);
    kml_doc_finish(&doc);
}

static void a_finished_job_is_not_running_and_has_one_terminal_condition(void **state)
{
    (void)state;
    const struct kml_status_view v = {
        .phase = "Failed",
        .reason = "WorkerFailed",
        .message = "m",
        .start_ns = 1,
        .running_ns = 2,
        .completion_ns = 3,
    };
    struct kml_doc doc;
    read_status(&v, &doc);
    expect_text(&doc, "conditions[1].type", "Running");
    expect_text(&doc, "conditions[1].status", "False");
    expect_text(&doc, "conditions[2].type", "Failed");
    expect_text(&doc, "conditions[2].reason", "WorkerFailed");
    assert_null(kml_doc_find(&doc, "conditions[3]"));
    assert_null(kml_doc_find(&doc, "training"));
    kml_doc_finish(&doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(success_has_its_numbers_in_one_line),
        cmocka_unit_test(failure_has_a_reason_and_a_quoted_message),
        cmocka_unit_test(only_the_first_verdict_counts),
        cmocka_unit_test(a_stop_says_where_the_model_is_or_that_there_is_none),
        cmocka_unit_test(no_exit_code_pretends_that_kunal_itself_was_killed),
        cmocka_unit_test(what_is_left_over_in_a_shell_does_not_steer_a_worker),
        cmocka_unit_test(a_name_stands_in_an_environment_once),
        cmocka_unit_test(proc_is_read_also_when_the_name_has_parentheses),
        cmocka_unit_test(cores_are_ticks_over_the_window),
        cmocka_unit_test(our_own_process_can_be_read),
        cmocka_unit_test(the_last_error_of_a_log_is_found),
        cmocka_unit_test(without_an_error_the_last_line_speaks),
        cmocka_unit_test(words_of_an_earlier_start_do_not_count),
        cmocka_unit_test(the_listening_line_is_recognised),
        cmocka_unit_test(a_calibration_is_a_positive_number),
        cmocka_unit_test(the_status_has_the_names_of_the_manifest_page),
        cmocka_unit_test(a_finished_job_is_not_running_and_has_one_terminal_condition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
