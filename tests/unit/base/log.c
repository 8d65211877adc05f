#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#include "unit/temp.h"

static char captured[8192];

/* Runs one log line with stderr going into a file, and reads the file. */
static const char *capture(void (*act)(void))
{
    FILE *file = tmpfile();
    assert_non_null(file);
    (void)fflush(stderr);
    int kept = dup(STDERR_FILENO);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    act();
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    (void)close(kept);
    ssize_t size = pread(fileno(file), captured, sizeof captured - 1, 0);
    assert_true(size >= 0);
    captured[size] = '\0';
    (void)fclose(file);
    return captured;
}

/* The line without its time stamp, which stands between the first `from` letters and the next `size`. */
static const char *without_time(const char *line, size_t from, size_t size)
{
    static char out[8192];
    assert_true(strlen(line) > from + size);
    (void)snprintf(out, sizeof out, "%.*s%s", (int)from, line, line + from + size);
    return out;
}

static void all_kinds(void)
{
    kml_info("shard opened", kv_s("job", "a"), kv_u("bytes", UINT64_MAX), kv_i("delta", -5),
             kv_f("loss", 0.25), kv_b("ready", true), kv_s("none", NULL));
}

static void a_json_line_holds_message_and_pairs(void **state)
{
    (void)state;
    kml_log_init("kunal-ps-0", KML_INFO, true);
    assert_string_equal(
        without_time(capture(all_kinds), 9, 24),
        "{\"time\":\"\",\"level\":\"info\",\"program\":\"kunal-ps-0\",\"message\":\"shard opened\","
        "\"job\":\"a\",\"bytes\":18446744073709551615,\"delta\":-5,\"loss\":0.25,\"ready\":true,\"none\":"
        "null}\n");
}

static void a_terminal_line_is_for_people(void **state)
{
    (void)state;
    kml_log_init("kunal-ps-0", KML_INFO, false);
    assert_string_equal(
        without_time(capture(all_kinds), 0, 12),
        " info kunal-ps-0: shard opened job=a bytes=18446744073709551615 delta=-5 loss=0.25 ready=true "
        "none=null\n");
}

static void rubbish(void)
{
    kml_warn("odd", kv_s("text", "a\"b\\c\nd\x1b[0m \xff \xc3\xa9 \xe2\x82 \xed\xa0\x80"),
             kv_f("nan", (double)NAN), kv_f("inf", (double)INFINITY));
}

static void rubbish_in_a_value_never_breaks_the_line(void **state)
{
    (void)state;
    kml_log_init("p", KML_INFO, true);
    const char *line = capture(rubbish);
    assert_non_null(strstr(line, "\"text\":\"a\\\"b\\\\c\\nd\\u001b[0m \\ufffd \xc3\xa9 \\ufffd\\ufffd "
                                 "\\ufffd\\ufffd\\ufffd\""));
    assert_non_null(strstr(line, "\"nan\":null,\"inf\":null}\n"));
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    kml_log_init("p", KML_INFO, false);
    line = capture(rubbish);
    assert_non_null(strstr(line, "nan=nan inf=inf\n"));
    assert_null(strchr(line, 0x1b));
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
}

static void too_much(void)
{
    static char text[900];
    memset(text, 'x', sizeof text - 1);
    kml_error("big", kv_s("a", text), kv_s("b", text), kv_s("c", text), kv_s("d", text), kv_s("e", text),
              kv_s("f", "y"));
}

static void a_line_that_does_not_fit_is_cut_between_pairs(void **state)
{
    (void)state;
    kml_log_init("p", KML_INFO, true);
    const char *line = capture(too_much);
    assert_in_range(strlen(line), 3000, 4096);
    assert_non_null(strstr(line, "x\",\"cut\":true}\n"));
    assert_null(strstr(line, "\"e\""));
}

static void debug_line(void)
{
    kml_debug("hidden", kv_u("x", 1));
}

static void lines_below_the_level_are_not_written(void **state)
{
    (void)state;
    kml_log_init("p", KML_INFO, true);
    assert_string_equal(capture(debug_line), "");
    kml_log_init("p", KML_DEBUG, true);
    assert_non_null(strstr(capture(debug_line), "hidden"));
}

static void error_line(void)
{
    struct kml_err err;
    (void)kml_fail(&err, KML_NOT_FOUND, "no such file");
    kml_error("read failed", kv_err(&err));
}

static void an_error_is_a_pair_with_its_code(void **state)
{
    (void)state;
    kml_log_init("p", KML_INFO, true);
    assert_non_null(strstr(capture(error_line), "\"error\":\"NOT_FOUND: no such file\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_json_line_holds_message_and_pairs),
        cmocka_unit_test(a_terminal_line_is_for_people),
        cmocka_unit_test(rubbish_in_a_value_never_breaks_the_line),
        cmocka_unit_test(a_line_that_does_not_fit_is_cut_between_pairs),
        cmocka_unit_test(lines_below_the_level_are_not_written),
        cmocka_unit_test(an_error_is_a_pair_with_its_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
