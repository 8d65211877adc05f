#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "obs/metrics.h"

enum { STEPS, QUEUED, TIME, ROWS };

#define ROOM 3

static const double bound[] = {0.1, 0.5, 2};
static struct kml_series steps[1];
static struct kml_series queued[ROOM];
static struct kml_series times[ROOM];
static uint64_t bucket[ROOM * KML_COUNT(bound)];
static struct kml_metric table[ROWS];
static struct kml_metrics metrics;

static int set_up(void **state)
{
    (void)state;
    table[STEPS] = (struct kml_metric){.name = "kunal_steps_total",
                                       .help = "Steps that were committed.",
                                       .kind = KML_COUNTER,
                                       .series = steps,
                                       .room = 1};
    table[QUEUED] = (struct kml_metric){.name = "kunal_queued",
                                        .help = "Work that waits,\nby \"kind\" \\ job.",
                                        .kind = KML_GAUGE,
                                        .label = {"kind", "job"},
                                        .series = queued,
                                        .room = ROOM};
    table[TIME] = (struct kml_metric){.name = "kunal_step_seconds",
                                      .help = "Time of a step.",
                                      .kind = KML_HISTOGRAM,
                                      .label = {"worker"},
                                      .series = times,
                                      .room = ROOM,
                                      .bound = bound,
                                      .bounds = KML_COUNT(bound),
                                      .bucket = bucket};
    kml_metrics_init(&metrics, table, ROWS);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kml_metrics_finish(&metrics);
    return 0;
}

static const char *text_of_metrics(void)
{
    static char out[8192];
    struct kml_buf b;
    struct kml_err err;
    kml_buf_init(&b, sizeof out - 1);
    assert_int_equal(kml_metrics_print(&metrics, &b, &err), 0);
    memcpy(out, kml_buf_text(&b), b.size + 1);
    kml_buf_finish(&b);
    return out;
}

static void a_metric_without_labels_is_there_from_the_start(void **state)
{
    (void)state;
    assert_string_equal(
        text_of_metrics(),
        "# HELP kunal_steps_total Steps that were committed.\n"
        "# TYPE kunal_steps_total counter\n"
        "kunal_steps_total 0\n"
        "# HELP kunal_queued Work that waits,\\nby \"kind\" \\\\ job.\n"
        "# TYPE kunal_queued gauge\n"
        "# HELP kunal_step_seconds Time of a step.\n"
        "# TYPE kunal_step_seconds histogram\n"
        "# HELP kunal_metrics_lost_total Updates lost because a metric had no room for a series.\n"
        "# TYPE kunal_metrics_lost_total counter\n"
        "kunal_metrics_lost_total 0\n");
}

static void counters_add_and_gauges_follow(void **state)
{
    (void)state;
    static const char *const a[] = {"push", "job-a"};
    static const char *const b[] = {"pull", "job-a"};
    kml_metrics_add(&metrics, STEPS, NULL, 1);
    kml_metrics_add(&metrics, STEPS, NULL, 2.5);
    kml_metrics_set(&metrics, QUEUED, a, 7);
    kml_metrics_add(&metrics, QUEUED, a, -3);
    kml_metrics_set(&metrics, QUEUED, b, 0.1);
    const char *text = text_of_metrics();
    assert_non_null(strstr(text, "\nkunal_steps_total 3.5\n"));
    assert_non_null(strstr(text, "\nkunal_queued{kind=\"push\",job=\"job-a\"} 4\n"));
    assert_non_null(strstr(text, "\nkunal_queued{kind=\"pull\",job=\"job-a\"} 0.1\n"));
}

static void a_histogram_is_cumulative_and_its_bounds_are_inclusive(void **state)
{
    (void)state;
    static const char *const worker[] = {"3"};
    static const double seen[] = {0.05, 0.1, 0.3, 2, 2.0001, 100};
    for (size_t i = 0; i < KML_COUNT(seen); i++) {
        kml_metrics_observe(&metrics, TIME, worker, seen[i]);
    }
    kml_metrics_observe(&metrics, TIME, worker, (double)NAN);
    assert_non_null(strstr(text_of_metrics(), "kunal_step_seconds_bucket{worker=\"3\",le=\"0.1\"} 2\n"
                                              "kunal_step_seconds_bucket{worker=\"3\",le=\"0.5\"} 3\n"
                                              "kunal_step_seconds_bucket{worker=\"3\",le=\"2\"} 4\n"
                                              "kunal_step_seconds_bucket{worker=\"3\",le=\"+Inf\"} 6\n"
                                              "kunal_step_seconds_sum{worker=\"3\"} 104.4501\n"
                                              "kunal_step_seconds_count{worker=\"3\"} 6\n"));
}

static void a_series_without_room_is_lost_and_counted(void **state)
{
    (void)state;
    static const char *const name[] = {"0", "1", "2", "3"};
    for (size_t i = 0; i < KML_COUNT(name); i++) {
        kml_metrics_observe(&metrics, TIME, &name[i], 1);
    }
    kml_metrics_observe(&metrics, TIME, &name[3], 1);
    const char *text = text_of_metrics();
    assert_non_null(strstr(text, "{worker=\"2\"}"));
    assert_null(strstr(text, "{worker=\"3\"}"));
    assert_non_null(strstr(text, "\nkunal_metrics_lost_total 2\n"));
}

static void a_removed_series_is_gone_and_comes_back_empty(void **state)
{
    (void)state;
    static const char *const name[] = {"0", "1", "2"};
    for (size_t i = 0; i < KML_COUNT(name); i++) {
        for (size_t n = 0; n <= i; n++) {
            kml_metrics_observe(&metrics, TIME, &name[i], 0.3);
        }
    }
    kml_metrics_remove(&metrics, TIME, &name[0]);
    kml_metrics_remove(&metrics, TIME, &name[0]);
    const char *text = text_of_metrics();
    assert_null(strstr(text, "worker=\"0\""));
    assert_non_null(strstr(text, "kunal_step_seconds_bucket{worker=\"2\",le=\"0.5\"} 3\n"));
    assert_non_null(strstr(text, "kunal_step_seconds_count{worker=\"1\"} 2\n"));
    kml_metrics_observe(&metrics, TIME, &name[0], 5);
    text = text_of_metrics();
    assert_non_null(strstr(text, "kunal_step_seconds_bucket{worker=\"0\",le=\"2\"} 0\n"));
    assert_non_null(strstr(text, "kunal_step_seconds_count{worker=\"0\"} 1\n"));
}

static void a_label_cannot_break_the_format(void **state)
{
    (void)state;
    static const char *const odd[] = {"a\"b\\c\nd", ""};
    kml_metrics_set(&metrics, QUEUED, odd, 1);
    assert_non_null(strstr(text_of_metrics(), "\nkunal_queued{kind=\"a\\\"b\\\\c\\nd\",job=\"\"} 1\n"));
}

static void a_long_label_is_cut_between_characters(void **state)
{
    (void)state;
    char text[200];
    memset(text, 'x', sizeof text);
    memcpy(text + KML_LABEL_ROOM - 2, "\xc3\xa9",
           3); /* the last byte that fits would be the half of a character */
    const char *label[] = {text, "j"};
    kml_metrics_set(&metrics, QUEUED, label, 1);
    const char *found = strstr(text_of_metrics(), "kunal_queued{kind=\"");
    assert_non_null(found);
    assert_int_equal(strcspn(found + 19, "\""), KML_LABEL_ROOM - 2);
}

static void numbers_that_are_none_have_names(void **state)
{
    (void)state;
    static const char *const label[3][2] = {{"a", "j"}, {"b", "j"}, {"c", "j"}};
    kml_metrics_set(&metrics, QUEUED, label[0], (double)NAN);
    kml_metrics_set(&metrics, QUEUED, label[1], (double)INFINITY);
    kml_metrics_set(&metrics, QUEUED, label[2], -(double)INFINITY);
    const char *text = text_of_metrics();
    assert_non_null(strstr(text, "{kind=\"a\",job=\"j\"} NaN\n"));
    assert_non_null(strstr(text, "{kind=\"b\",job=\"j\"} +Inf\n"));
    assert_non_null(strstr(text, "{kind=\"c\",job=\"j\"} -Inf\n"));
}

static void a_buffer_too_small_at_any_size_is_an_error(void **state)
{
    (void)state;
    static const char *const worker[] = {"3"};
    kml_metrics_observe(&metrics, TIME, worker, 1);
    size_t whole = strlen(text_of_metrics());
    for (size_t max = 0; max <= whole; max++) {
        struct kml_buf b;
        struct kml_err err = {.code = KML_OK};
        kml_buf_init(&b, max);
        assert_int_equal(kml_metrics_print(&metrics, &b, &err), max == whole ? 0 : -1);
        assert_int_equal(err.code, max == whole ? KML_OK : KML_TOO_LARGE);
        kml_buf_finish(&b);
    }
}

#define THREADS 3
#define EACH 2000

static void *count_up(void *self)
{
    const char *label[] = {"kind", self};
    for (int i = 0; i < EACH; i++) {
        kml_metrics_add(&metrics, STEPS, NULL, 1);
        kml_metrics_add(&metrics, QUEUED, label, 1);
    }
    return NULL;
}

static void threads_may_count_while_the_text_is_printed(void **state)
{
    (void)state;
    static char name[THREADS][2] = {"0", "1", "2"};
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(kml_thread_start(&thread[i], "count", count_up, name[i], NULL), 0);
    }
    for (int i = 0; i < 50; i++) {
        (void)text_of_metrics();
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    }
    const char *text = text_of_metrics();
    assert_non_null(strstr(text, "\nkunal_steps_total 6000\n"));
    assert_non_null(strstr(text, "\nkunal_queued{kind=\"kind\",job=\"1\"} 2000\n"));
}

#define WITH_METRICS(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_METRICS(a_metric_without_labels_is_there_from_the_start),
        WITH_METRICS(counters_add_and_gauges_follow),
        WITH_METRICS(a_histogram_is_cumulative_and_its_bounds_are_inclusive),
        WITH_METRICS(a_series_without_room_is_lost_and_counted),
        WITH_METRICS(a_removed_series_is_gone_and_comes_back_empty),
        WITH_METRICS(a_label_cannot_break_the_format),
        WITH_METRICS(a_long_label_is_cut_between_characters),
        WITH_METRICS(numbers_that_are_none_have_names),
        WITH_METRICS(a_buffer_too_small_at_any_size_is_an_error),
        WITH_METRICS(threads_may_count_while_the_text_is_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
