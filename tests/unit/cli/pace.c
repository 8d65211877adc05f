#include "cli/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"

static void speeds_are_read_one_for_each_worker(void **state)
{
    (void)state;
    struct kml_pace p;
    struct kml_err err;
    kml_pace_init(&p, 4);
    assert_int_equal(kml_pace_speeds(&p, "1,0.8,0.5,0.25", &err), 0);
    assert_float_equal(p.speed[1], 0.8, 0);
    assert_float_equal(p.speed[3], 0.25, 0);
    assert_float_equal(kml_pace_peak_sum(&p), 2.55, 1e-12);
    assert_float_equal(kml_pace_peak(&p), 1, 0);
    kml_pace_finish(&p);
}

static void wrong_speeds_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        {"1,0.5", "4 workers"},  {"1,1,1,1,1", "5 numbers"}, {"1,0,1,1", "above 0"},
        {"1,-2,1,1", "above 0"}, {"1,fast,1,1", "number"},   {"", "number"},
    };
    for (size_t i = 0; i < KML_COUNT(cases); i++) {
        struct kml_pace p;
        struct kml_err err;
        kml_pace_init(&p, 4);
        assert_int_equal(kml_pace_speeds(&p, cases[i].text, &err), -1);
        assert_int_equal(err.code, KML_USAGE);
        assert_non_null(strstr(err.text, cases[i].says));
        kml_pace_finish(&p);
    }
}

static void a_profile_is_read_and_split_by_worker(void **state)
{
    (void)state;
    static const char text[] = "# seconds worker speed\n0.5 1 0.5\n\n  3\t0 0.25 # slow\r\n3 1 2\n10 1 1";
    struct kml_pace p;
    struct kml_err err;
    struct kml_buf out;
    kml_pace_init(&p, 3);
    kml_buf_init(&out, 4096);
    assert_int_equal(kml_pace_profile(&p, "speeds.txt", kml_view_str(text), &err), 0);
    assert_int_equal(p.events, 4);
    assert_int_equal(kml_pace_split(&p, 1, &out, &err), 0);
    assert_string_equal(kml_buf_text(&out), "0.5 0.5\n3 2\n10 1\n");
    kml_buf_clear(&out);
    assert_int_equal(kml_pace_split(&p, 2, &out, &err), 0);
    assert_int_equal(out.size, 0);
    assert_float_equal(kml_pace_peak_sum(&p), 3.25, 1e-12); /* from second 3 on: 0.25 + 2 + 1 */
    assert_float_equal(kml_pace_peak(&p), 2, 0);
    kml_buf_finish(&out);
    kml_pace_finish(&p);
}

static void a_wrong_line_of_a_profile_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        {"1 0 1\n2 0\n", "p:2: a line needs three"},
        {"1 0 1 1\n", "p:1: a line needs three"},
        {"5 0 1\n4 0 1\n", "p:2: 4 seconds"},
        {"-1 0 1\n", "p:1: -1 seconds"},
        {"1 2 1\n", "p:1: there is no worker 2"},
        {"1 0 0\n", "p:1: a speed of 0"},
        {"x 0 1\n", "p:1"},
        {"1 -1 1\n", "p:1"},
    };
    for (size_t i = 0; i < KML_COUNT(cases); i++) {
        struct kml_pace p;
        struct kml_err err;
        kml_pace_init(&p, 2);
        assert_int_equal(kml_pace_profile(&p, "p", kml_view_str(cases[i].text), &err), -1);
        assert_non_null(strstr(err.text, cases[i].says));
        kml_pace_finish(&p);
    }
}

static void an_over_long_line_is_refused(void **state)
{
    (void)state;
    char text[600];
    struct kml_pace p;
    struct kml_err err;
    memset(text, ' ', sizeof text);
    kml_pace_init(&p, 1);
    assert_int_equal(kml_pace_profile(&p, "p", kml_view_of(text, sizeof text), &err), -1);
    assert_non_null(strstr(err.text, "too long"));
    kml_pace_finish(&p);
}

static void an_infeasible_nominal_time_is_refused_with_the_smallest(void **state)
{
    (void)state;
    struct kml_pace p;
    struct kml_err err;
    double nominal;
    kml_pace_init(&p, 4);
    assert_int_equal(kml_pace_speeds(&p, "1,0.8,0.5,0.25", &err), 0);
    /* 2.55 * 1000 ns of work a sample at speed 1, for 1 of 2 cores */
    assert_float_equal(kml_pace_smallest(&p, 1000, 2), 2550, 1e-9);
    assert_int_equal(kml_pace_choose(&p, 1000, 2, 2549, &nominal, &err), -1);
    assert_int_equal(err.code, KML_USAGE);
    assert_non_null(strstr(err.text, "--nominal 2551ns"));
    assert_int_equal(kml_pace_choose(&p, 1000, 2, 2551, &nominal, &err), 0);
    assert_float_equal(nominal, 2551, 0);
    kml_pace_finish(&p);
}

static void one_worker_cannot_be_faster_than_a_core(void **state)
{
    (void)state;
    struct kml_pace p;
    struct kml_err err;
    kml_pace_init(&p, 1);
    assert_int_equal(kml_pace_speeds(&p, "3", &err), 0);
    assert_float_equal(kml_pace_smallest(&p, 100, 64), 300, 1e-9);
    kml_pace_finish(&p);
}

/* Whatever the speeds and their changes: what is chosen keeps both promises of the header at every moment. */
static void the_chosen_time_is_feasible_at_every_moment(void **state)
{
    (void)state;
    uint64_t seed = kml_random_secret();
    struct kml_rng rng;
    print_message("seed %llu\n", (unsigned long long)seed);
    kml_rng_init(&rng, seed);
    for (int round = 0; round < 2000; round++) {
        uint32_t workers = 1 + (uint32_t)kml_rng_below(&rng, 6);
        double cores = 1 + (double)kml_rng_below(&rng, 8);
        double cost = 10 + 1000 * kml_rng_unit(&rng);
        double now[6];
        struct kml_pace p;
        struct kml_err err;
        double nominal;
        kml_pace_init(&p, workers);
        for (uint32_t w = 0; w < workers; w++) {
            now[w] = p.speed[w] = 0.1 + kml_rng_unit(&rng);
        }
        struct kml_buf text;
        kml_buf_init(&text, 4096);
        for (uint32_t i = 0; i < 8; i++) {
            assert_int_equal(kml_buf_printf(&text, &err, "%u %u %.3f\n", (unsigned)i,
                                            (unsigned)kml_rng_below(&rng, workers),
                                            0.1 + 2 * kml_rng_unit(&rng)),
                             0);
        }
        assert_int_equal(kml_pace_profile(&p, "p", kml_buf_view(&text), &err), 0);
        assert_int_equal(kml_pace_choose(&p, cost, cores, 0, &nominal, &err), 0);
        for (uint32_t i = 0; i <= p.events; i++) {
            double sum = 0;
            for (uint32_t w = 0; w < workers; w++) {
                assert_true(cost <= nominal / now[w]);
                sum += cost * now[w] / nominal;
            }
            assert_true(sum <= cores / 2);
            if (i < p.events) {
                now[p.event[i].worker] = p.event[i].speed;
            }
        }
        kml_buf_finish(&text);
        kml_pace_finish(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(speeds_are_read_one_for_each_worker),
        cmocka_unit_test(wrong_speeds_are_refused_with_the_reason),
        cmocka_unit_test(a_profile_is_read_and_split_by_worker),
        cmocka_unit_test(a_wrong_line_of_a_profile_is_named),
        cmocka_unit_test(an_over_long_line_is_refused),
        cmocka_unit_test(an_infeasible_nominal_time_is_refused_with_the_smallest),
        cmocka_unit_test(one_worker_cannot_be_faster_than_a_core),
        cmocka_unit_test(the_chosen_time_is_feasible_at_every_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
