#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <locale.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"

static void whole_numbers_are_read_exactly(void **state)
{
    (void)state;
    uint64_t u = 1;
    int64_t i = 1;
    struct kml_err err;
    assert_int_equal(kml_parse_u64("0", &u, &err), 0);
    assert_int_equal(u, 0);
    assert_int_equal(kml_parse_u64("18446744073709551615", &u, &err), 0);
    assert_true(u == UINT64_MAX);
    assert_int_equal(kml_parse_i64("-9223372036854775808", &i, &err), 0);
    assert_true(i == INT64_MIN);
    assert_int_equal(kml_parse_i64("9223372036854775807", &i, &err), 0);
    assert_true(i == INT64_MAX);
}

static void what_is_no_whole_number_is_refused_and_named(void **state)
{
    (void)state;
    static const char *const bad[] = {"", " 1", "1 ", "+1", "1.0", "0x1", "1e3", "-", "--1", "a", "1,000"};
    static const char *const too_large_u[] = {"18446744073709551616", "99999999999999999999999", "-1"};
    static const char *const too_large_i[] = {"9223372036854775808", "-9223372036854775809"};
    struct kml_err err;
    for (size_t k = 0; k < KML_COUNT(bad); k++) {
        uint64_t u = 77;
        int64_t i = 77;
        assert_int_equal(kml_parse_u64(bad[k], &u, &err), -1);
        assert_int_equal(kml_parse_i64(bad[k], &i, &err), -1);
        assert_int_equal(err.code, KML_INVALID);
        assert_non_null(strstr(err.text, bad[k]));
        assert_true(u == 77 && i == 77);
    }
    for (size_t k = 0; k < KML_COUNT(too_large_u); k++) {
        uint64_t u;
        assert_int_equal(kml_parse_u64(too_large_u[k], &u, &err), -1);
    }
    for (size_t k = 0; k < KML_COUNT(too_large_i); k++) {
        int64_t i;
        assert_int_equal(kml_parse_i64(too_large_i[k], &i, &err), -1);
    }
}

static void reals_are_read_whole_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {{"1", 1},       {"-0.5", -0.5}, {"+2.", 2},   {".25", 0.25},
                {"1e-3", 1e-3}, {"1E+2", 100},  {"1e-400", 0}};
    static const char *const bad[] = {"",      ".",  "-",  "1e",  "1e+",   "inf", "nan",
                                      "0x1p3", " 1", "1 ", "1,5", "1e999", "--1"};
    struct kml_err err;
    double x;
    for (size_t k = 0; k < KML_COUNT(good); k++) {
        assert_int_equal(kml_parse_real(good[k].text, &x, &err), 0);
        assert_true(x == good[k].value);
    }
    for (size_t k = 0; k < KML_COUNT(bad); k++) {
        assert_int_equal(kml_parse_real(bad[k], &x, &err), -1);
        assert_int_equal(err.code, KML_INVALID);
    }
}

static void the_locale_does_not_matter(void **state)
{
    (void)state;
    double x = 0;
    char *found = setlocale(LC_ALL, "de_DE.UTF-8"); /* where it is installed its comma would break strtod */
    print_message("locale %s\n", found == NULL ? "C" : found);
    assert_int_equal(kml_parse_real("1.5", &x, NULL), 0);
    assert_true(x == 1.5);
    assert_int_equal(kml_parse_real("1,5", &x, NULL), -1);
    (void)setlocale(LC_ALL, "C");
}

static void durations_are_exact_to_the_nanosecond(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ns;
    } good[] = {
        {"0", 0},
        {"90", 90 * KML_SECOND},
        {"1.5", 1500 * KML_MILLISECOND},
        {"1.5s", 1500 * KML_MILLISECOND},
        {"250ms", 250 * KML_MILLISECOND},
        {"2m", 120 * KML_SECOND},
        {"1h30m", 5400 * KML_SECOND},
        {"1h0.5s", 3600 * KML_SECOND + 500 * KML_MILLISECOND},
        {"0.000000001s", 1},
        {"0.1h", 360 * KML_SECOND},
        {"3us7ns", 3007},
        {"18446744073.709551615s", UINT64_MAX},
    };
    static const char *const bad[] = {"",     "s",   "-1s",   "1x",  "1s1s", "1m1h", "1h30", "1 s",
                                      "1..5", "1e3", "1ms2m", "+1s", ".5s",  "inf",  "1S"};
    static const char *const large[] = {"18446744073.709551616s", "99999999999h",
                                        "5124095h30m0s1000000000ms"};
    struct kml_err err;
    uint64_t ns;
    for (size_t k = 0; k < KML_COUNT(good); k++) {
        assert_int_equal(kml_parse_duration(good[k].text, &ns, &err), 0);
        assert_true(ns == good[k].ns);
    }
    for (size_t k = 0; k < KML_COUNT(bad); k++) {
        assert_int_equal(kml_parse_duration(bad[k], &ns, &err), -1);
        assert_int_equal(err.code, KML_INVALID);
    }
    for (size_t k = 0; k < KML_COUNT(large); k++) {
        assert_int_equal(kml_parse_duration(large[k], &ns, &err), -1);
        assert_non_null(strstr(err.text, "584"));
    }
}

static void quantities_are_those_of_kubernetes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {
        {"250m", 0.25}, {"1.5", 1.5},          {"64Mi", 67108864}, {"2G", 2e9},
        {"1e3", 1000},  {"1E3", 1000},         {"1E", 1e18},       {"1Ki", 1024},
        {"0", 0},       {"100u", 1e-4},        {"5n", 5e-9},       {"2k", 2000},
        {"-1", -1},     {"1.5Gi", 1610612736},
    };
    static const char *const bad[] = {"",   "m",    "1K", "1mi",   "1 Mi",  "1MiB",
                                      "1e", "1Kim", "e3", "1e3Mi", "1e999", "x"};
    struct kml_err err;
    double x;
    for (size_t k = 0; k < KML_COUNT(good); k++) {
        assert_int_equal(kml_parse_quantity(good[k].text, &x, &err), 0);
        assert_true(fabs(x - good[k].value) <= 1e-12 * fabs(good[k].value));
    }
    for (size_t k = 0; k < KML_COUNT(bad); k++) {
        assert_int_equal(kml_parse_quantity(bad[k], &x, &err), -1);
        assert_int_equal(err.code, KML_INVALID);
    }
}

static void the_nearest_word_is_offered_and_a_far_one_is_not(void **state)
{
    (void)state;
    static const char *const names[] = {"epochs", "batchSize", "optimizer", "lr"};
    static const struct {
        const char *word;
        const char *near;
    } rows[] = {
        {"epoch", "epochs"},
        {"epohcs", "epochs"},
        {"batchsize", "batchSize"},
        {"optimiser", "optimizer"},
        {"learningRate", NULL},
        {"xr", NULL},
        {"", NULL},
        {"lrs", "lr"},
    };
    for (size_t k = 0; k < KML_COUNT(rows); k++) {
        const char *near = kml_nearest(rows[k].word, names, KML_COUNT(names));
        if (rows[k].near == NULL) {
            assert_null(near);
        } else {
            assert_string_equal(near, rows[k].near);
        }
    }
    char long_word[200];
    memset(long_word, 'a', sizeof long_word);
    long_word[199] = '\0';
    assert_null(kml_nearest(long_word, names, KML_COUNT(names)));
}

static void a_utf8_character_has_one_form_and_no_other(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t length;
    } some[] = {
        {"", 1},
        {"a", 1},
        {"\x7f", 1},
        {"\xc2\x80", 2},
        {"\xdf\xbf", 2},
        {"\xe0\xa0\x80", 3},
        {"\xed\x9f\xbf", 3},
        {"\xef\xbf\xbf", 3},
        {"\xf0\x90\x80\x80", 4},
        {"\xf4\x8f\xbf\xbf", 4},
        {"\x80", 0},             /* a second byte without a first */
        {"\xc1\xbf", 0},         /* overlong */
        {"\xe0\x9f\xbf", 0},     /* overlong */
        {"\xf0\x8f\xbf\xbf", 0}, /* overlong */
        {"\xed\xa0\x80", 0},     /* a surrogate */
        {"\xf4\x90\x80\x80", 0}, /* past U+10FFFF */
        {"\xf5\x80\x80\x80", 0},
        {"\xc2", 0}, /* cut */
        {"\xe0\xa0", 0},
        {"\xf0\x90\x80", 0},
        {"\xe2\x82\x41", 0},
    };
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        assert_int_equal(kml_utf8_length(some[i].text), some[i].length);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_utf8_character_has_one_form_and_no_other),
        cmocka_unit_test(whole_numbers_are_read_exactly),
        cmocka_unit_test(what_is_no_whole_number_is_refused_and_named),
        cmocka_unit_test(reals_are_read_whole_or_refused),
        cmocka_unit_test(the_locale_does_not_matter),
        cmocka_unit_test(durations_are_exact_to_the_nanosecond),
        cmocka_unit_test(quantities_are_those_of_kubernetes),
        cmocka_unit_test(the_nearest_word_is_offered_and_a_far_one_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
