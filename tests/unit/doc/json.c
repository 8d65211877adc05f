#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "base/rng.h"
#include "doc/doc.h"
#include "doc/json.h"

/* Writing JSON; jansson, which shares no code with the writer, says whether it is right. */

static void a_line_of_metrics_reads_back(void **state)
{
    (void)state;
    struct kml_buf buf;
    struct kml_json w;
    struct kml_err err = {0};
    kml_buf_init(&buf, 4096);
    kml_json_begin(&w, &buf);
    kml_json_text(&w, "event", "epoch");
    kml_json_uint(&w, "epoch", UINT64_C(9007199254740993));
    kml_json_int(&w, "delta", -7);
    kml_json_real(&w, "loss", 0.1);
    kml_json_real(&w, "broken", NAN);
    kml_json_real(&w, "endless", -INFINITY);
    kml_json_bool(&w, "done", false);
    kml_json_null(&w, "nothing");
    kml_json_text(&w, "absent", NULL);
    kml_json_list(&w, "share");
    kml_json_real(&w, NULL, 0.25);
    kml_json_real(&w, NULL, 1.0);
    kml_json_map(&w, NULL);
    kml_json_raw(&w, "raw", "[1]");
    kml_json_close(&w);
    kml_json_close(&w);
    kml_json_map(&w, "empty");
    assert_int_equal(kml_json_end(&w, &err), 0);
    assert_string_equal(
        kml_buf_text(&buf),
        "{\"event\":\"epoch\",\"epoch\":9007199254740993,\"delta\":-7,\"loss\":0.1,\"broken\":null,"
        "\"endless\":null,\"done\":false,\"nothing\":null,\"absent\":null,"
        "\"share\":[0.25,1.0,{\"raw\":[1]}],\"empty\":{}}\n");
    json_t *read = json_loadb((const char *)buf.data, buf.size, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(read);
    json_decref(read);
    kml_buf_finish(&buf);
}

static void a_line_that_does_not_fit_leaves_the_buffer_as_it_was(void **state)
{
    (void)state;
    for (size_t max = 0; max < 40; max++) {
        struct kml_buf buf;
        struct kml_json w;
        struct kml_err err = {0};
        kml_buf_init(&buf, max + 5);
        assert_int_equal(kml_buf_puts(&buf, "line\n", &err), 0);
        kml_json_begin(&w, &buf);
        kml_json_text(&w, "a", "0123456789");
        kml_json_list(&w, "b");
        kml_json_uint(&w, NULL, 12345);
        int result = kml_json_end(&w, &err);
        if (max < strlen("{\"a\":\"0123456789\",\"b\":[12345]}\n")) {
            assert_int_equal(result, -1);
            assert_int_equal(err.code, KML_TOO_LARGE);
            assert_string_equal(kml_buf_text(&buf), "line\n");
        } else {
            assert_int_equal(result, 0);
        }
        kml_buf_finish(&buf);
    }
}

static void numbers_are_the_shortest_that_read_back(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } known[] = {{0.1, "0.1"},       {1, "1.0"},
                 {-0.0, "-0.0"},     {1e300, "1e+300"},
                 {5e-324, "5e-324"}, {0.1 + 0.2, "0.30000000000000004"},
                 {1e22, "1e+22"},    {123456789, "123456789.0"}};
    char out[KML_JSON_REAL];
    for (size_t i = 0; i < KML_COUNT(known); i++) {
        kml_format_real(known[i].value, out);
        assert_string_equal(out, known[i].text);
    }
}

static void every_finite_double_survives_writing_and_reading(void **state)
{
    (void)state;
    uint64_t seed = 20240607;
    printf("seed %llu\n", (unsigned long long)seed);
    struct kml_rng rng;
    kml_rng_init(&rng, seed);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = kml_rng_next(&rng);
        double value;
        memcpy(&value, &bits, sizeof(value));
        if (!isfinite(value)) {
            continue;
        }
        char out[KML_JSON_REAL];
        kml_format_real(value, out);
        double back = strtod(out, NULL);
        assert_memory_equal(&back, &value, sizeof(value));
    }
}

static void any_bytes_become_a_json_string_that_jansson_reads(void **state)
{
    (void)state;
    uint64_t seed = 77;
    printf("seed %llu\n", (unsigned long long)seed);
    struct kml_rng rng;
    kml_rng_init(&rng, seed);
    for (int round = 0; round < 5000; round++) {
        char text[24];
        size_t size = kml_rng_below(&rng, sizeof(text));
        for (size_t i = 0; i < size; i++) {
            text[i] = (char)(1 + kml_rng_below(&rng, 255));
        }
        text[size] = '\0';
        struct kml_buf buf;
        kml_buf_init(&buf, 1024);
        assert_int_equal(kml_json_quote(&buf, text, NULL), 0);
        json_t *read = json_loadb((const char *)buf.data, buf.size, JSON_DECODE_ANY, NULL);
        assert_non_null(read);
        json_t *same = json_string(text); /* NULL when it is no UTF-8; otherwise nothing may have changed */
        if (same != NULL) {
            assert_true(json_equal(read, same));
        }
        json_decref(same);
        json_decref(read);
        kml_buf_finish(&buf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_of_metrics_reads_back),
        cmocka_unit_test(a_line_that_does_not_fit_leaves_the_buffer_as_it_was),
        cmocka_unit_test(numbers_are_the_shortest_that_read_back),
        cmocka_unit_test(every_finite_double_survives_writing_and_reading),
        cmocka_unit_test(any_bytes_become_a_json_string_that_jansson_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
