#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/flags.h"
#include "base/mem.h"

static struct {
    const char *text;
    struct kml_flag_list list;
    bool yes;
    uint64_t number;
    double real;
    uint64_t time;
} got;

static const struct kml_flag flags[] = {
    {"output", 'o', KML_FLAG_TEXT, &got.text, "FILE", "Where the model goes."},
    {"set", 0, KML_FLAG_LIST, &got.list, "PATH=VALUE", "Overrides a field."},
    {"verbose", 'v', KML_FLAG_BOOL, &got.yes, NULL, "Says more."},
    {"count", 'n', KML_FLAG_UINT, &got.number, "N", "How many."},
    {"rate", 0, KML_FLAG_REAL, &got.real, "X", "How fast."},
    {"timeout", 0, KML_FLAG_DURATION, &got.time, "TIME", "How long."},
};

#define MOST_ARGS 16

static struct kml_flag_list rest;
static bool help;

/* Parses a line of words between blanks, as argv[1..]. */
static int parse(const char *line, struct kml_err *err)
{
    static char words[256];
    static char program[] = "kunal";
    char *argv[MOST_ARGS] = {program};
    int argc = 1;
    memset(&got, 0, sizeof got);
    (void)snprintf(words, sizeof words, "%s", line);
    char *left = words;
    for (char *word = strsep(&left, " "); word != NULL && *line != '\0'; word = strsep(&left, " ")) {
        assert_true(argc < MOST_ARGS);
        argv[argc++] = word;
    }
    return kml_flags_parse(flags, KML_COUNT(flags), argc, argv, &rest, &help, err);
}

static void finish(void)
{
    kml_flags_finish(flags, KML_COUNT(flags), &rest);
}

static void every_kind_is_read_in_both_spellings(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "--output f --set a=1 --set b=2 --verbose --count 3 --rate 0.5 job.yaml",
        "-o f job.yaml --set=a=1 --set=b=2 -v -n 3 --rate=0.5",
    };
    for (size_t i = 0; i < KML_COUNT(lines); i++) {
        struct kml_err err;
        assert_int_equal(parse(lines[i], &err), 0);
        assert_string_equal(got.text, "f");
        assert_int_equal(got.list.count, 2);
        assert_string_equal(got.list.values[0], "a=1");
        assert_string_equal(got.list.values[1], "b=2");
        assert_true(got.yes);
        assert_int_equal(got.number, 3);
        assert_true(got.real == 0.5);
        assert_int_equal(rest.count, 1);
        assert_string_equal(rest.values[0], "job.yaml");
        assert_false(help);
        finish();
    }
    assert_int_equal(parse("--timeout 1m30s --verbose=false", NULL), 0);
    assert_true(got.time == 90 * KML_SECOND && !got.yes);
    finish();
}

static void two_dashes_end_the_flags(void **state)
{
    (void)state;
    assert_int_equal(parse("a -- --count -", NULL), 0);
    assert_int_equal(rest.count, 3);
    assert_string_equal(rest.values[1], "--count");
    assert_string_equal(rest.values[2], "-");
    finish();
}

static void a_request_for_help_stops_the_reading(void **state)
{
    (void)state;
    static const char *const lines[] = {"-h", "--help", "x --help --nonsense", "-v -h"};
    for (size_t i = 0; i < KML_COUNT(lines); i++) {
        assert_int_equal(parse(lines[i], NULL), 0);
        assert_true(help);
        finish();
    }
}

static void a_wrong_line_is_a_usage_error_that_names_the_flag(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *text;
    } rows[] = {
        {"--ouput f", "unknown flag --ouput, did you mean --output?"},
        {"--output", "--output needs a value: --output FILE"},
        {"--count", "--count needs a value: --count N"},
        {"--count -1", "--count: \"-1\" is not a whole number that is 0 or more"},
        {"--rate=fast", "--rate: \"fast\" is not a number"},
        {"--timeout 5x", "--timeout: \"5x\" is not a duration"},
        {"--verbose=maybe", "--verbose: \"maybe\" is neither true nor false"},
        {"--elephant", "unknown flag --elephant, see --help"},
        {"--=x", "unknown flag --, see --help"},
        {"-x", "unknown flag -x, see --help"},
        {"-vn", "unknown flag -vn, see --help"},
        {"--halp", "unknown flag --halp, did you mean --help?"},
    };
    for (size_t i = 0; i < KML_COUNT(rows); i++) {
        struct kml_err err = {.text = ""};
        assert_int_equal(parse(rows[i].line, &err), -1);
        assert_int_equal(err.code, KML_USAGE);
        assert_memory_equal(err.text, rows[i].text, strlen(rows[i].text));
        finish();
    }
}

static void the_help_text_names_every_flag_in_one_column(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    (void)fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    assert_true(dup2(fileno(file), STDOUT_FILENO) >= 0);
    kml_flags_print(flags, KML_COUNT(flags));
    (void)fflush(stdout);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    (void)close(kept);
    char text[1024] = "";
    assert_true(pread(fileno(file), text, sizeof text - 1, 0) > 0);
    (void)fclose(file);
    assert_string_equal(text, "  -o, --output FILE     Where the model goes.\n"
                              "      --set PATH=VALUE  Overrides a field. Repeatable.\n"
                              "  -v, --verbose         Says more.\n"
                              "  -n, --count N         How many.\n"
                              "      --rate X          How fast.\n"
                              "      --timeout TIME    How long.\n"
                              "  -h, --help            Print this text.\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_read_in_both_spellings),
        cmocka_unit_test(two_dashes_end_the_flags),
        cmocka_unit_test(a_request_for_help_stops_the_reading),
        cmocka_unit_test(a_wrong_line_is_a_usage_error_that_names_the_flag),
        cmocka_unit_test(the_help_text_names_every_flag_in_one_column),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
