/* base64 and RFC 3339 times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kube/text.h"
#include "unit/seed.h"

static void base64_knows_the_examples_of_rfc_4648(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct kml_buf b;
        kml_buf_init(&b, 100);
        assert_int_equal(kml_base64_write(&b, kml_view_str(pairs[i][0]), NULL), 0);
        assert_string_equal(kml_buf_text(&b), pairs[i][1]);
        kml_buf_clear(&b);
        assert_int_equal(kml_base64_read(&b, pairs[i][1], NULL), 0);
        assert_string_equal(kml_buf_text(&b), pairs[i][0]);
        kml_buf_finish(&b);
    }
}

static void what_is_no_base64_is_refused_and_appends_nothing(void **state)
{
    (void)state;
    static const char *const bad[] = {"Z", "Zg", "Zg=", "Zg===", "=Zg=", "Z=g=", "Zm9v!", "====", "Zg==Zg=="};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kml_buf b;
        kml_buf_init(&b, 100);
        struct kml_err err = {0};
        assert_int_equal(kml_base64_read(&b, bad[i], &err), -1);
        assert_int_equal(err.code, KML_INVALID);
        assert_int_equal(b.size, 0);
        kml_buf_finish(&b);
    }
}

static void base64_reads_back_what_it_wrote(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 500; run++) {
        uint8_t bytes[64];
        size_t size = kml_rng_below(&rng, sizeof bytes + 1);
        for (size_t i = 0; i < size; i++) {
            bytes[i] = (uint8_t)kml_rng_next(&rng);
        }
        struct kml_buf text, back;
        kml_buf_init(&text, 1000);
        kml_buf_init(&back, 1000);
        assert_int_equal(kml_base64_write(&text, kml_view_of(bytes, size), NULL), 0);
        assert_int_equal(kml_base64_read(&back, kml_buf_text(&text), NULL), 0);
        assert_int_equal(back.size, size);
        assert_memory_equal(back.data == NULL ? bytes : back.data, bytes, size);
        kml_buf_finish(&text);
        kml_buf_finish(&back);
    }
}

static void times_of_rfc_3339_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t seconds;
        uint64_t ns;
    } good[] = {
        {"1970-01-01T00:00:00Z", 0, 0},
        {"2026-01-31T12:00:00Z", 1769860800, 0},
        {"2024-02-29T23:59:59.5Z", 1709251199, 500000000},
        {"2026-01-31T14:00:00+02:00", 1769860800, 0},
        {"2026-01-31t10:30:00.123456-01:30", 1769860800, 123456000},
        {"2000-03-01T00:00:00Z", 951868800, 0},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t ns = 0;
        assert_int_equal(kml_kube_time_read(good[i].text, &ns, NULL), 0);
        assert_int_equal(ns, good[i].seconds * KML_SECOND + good[i].ns);
    }
    static const char *const bad[] = {"",
                                      "2026-01-31",
                                      "2026-13-31T12:00:00Z",
                                      "2026-01-31T12:00:00",
                                      "2026-01-31T12:00:00.Z",
                                      "2026-01-31T24:00:00Z",
                                      "2026-01-31T12:00:00Zz",
                                      "1970-01-01T00:00:00+01:00"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t ns = 7;
        struct kml_err err = {0};
        assert_int_equal(kml_kube_time_read(bad[i], &ns, &err), -1);
        assert_int_equal(err.code, KML_INVALID);
        assert_int_equal(ns, 7);
    }
}

static void times_read_back_as_they_were_written(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 2000; run++) {
        uint64_t us = kml_rng_below(&rng, UINT64_C(4102444800000000)); /* until 2100 */
        char text[KML_KUBE_TIME];
        uint64_t back = 0;
        kml_kube_time_micro(us * 1000, text);
        assert_int_equal(kml_kube_time_read(text, &back, NULL), 0);
        assert_int_equal(back, us * 1000);
        kml_kube_time(us * 1000, text);
        assert_int_equal(kml_kube_time_read(text, &back, NULL), 0);
        assert_int_equal(back, us / 1000000 * KML_SECOND);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64_knows_the_examples_of_rfc_4648),
        cmocka_unit_test(what_is_no_base64_is_refused_and_appends_nothing),
        cmocka_unit_test(base64_reads_back_what_it_wrote),
        cmocka_unit_test(times_of_rfc_3339_are_read),
        cmocka_unit_test(times_read_back_as_they_were_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
