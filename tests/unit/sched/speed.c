#include "sched/speed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/unit/seed.h"

static void add(struct kml_speed *s, uint64_t batch, double seconds)
{
    assert_true(kml_speed_add(s, batch, seconds));
}

static bool near(double x, double wanted, double relative)
{
    return fabs(x - wanted) <= relative * fabs(wanted);
}

static void nothing_is_known_before_the_first_step(void **state)
{
    (void)state;
    struct kml_speed s;
    kml_speed_init(&s, 64);
    assert_false(kml_speed_known(&s));
    assert_true(kml_speed_nominal_time(&s) == 0);
    assert_true(kml_speed_window(&s) == 0);
}

static void with_one_batch_size_all_time_is_per_sample(void **state)
{
    (void)state;
    struct kml_speed s;
    kml_speed_init(&s, 64);
    for (int i = 0; i < 30; i++) {
        add(&s, 64, 0.128);
    }
    assert_true(s.fixed == 0);
    assert_true(near(s.per_sample, 0.002, 1e-12));
    assert_true(near(kml_speed_time(&s, 32), 0.064, 1e-12));
}

static void two_batch_sizes_tell_the_fixed_part_from_the_rest(void **state)
{
    (void)state;
    struct kml_speed s;
    kml_speed_init(&s, 64);
    for (int i = 0; i < 12; i++) {
        add(&s, 64, 0.02 + 0.002 * 64);
        add(&s, 32, 0.02 + 0.002 * 32);
    }
    assert_true(near(s.fixed, 0.02, 1e-9));
    assert_true(near(s.per_sample, 0.002, 1e-9));
    assert_true(near(kml_speed_nominal_time(&s), 0.148, 1e-9));
    for (int i = 0; i < 40; i++) {
        add(&s, 64, 0.148); /* one size again: the fixed part is remembered */
    }
    assert_true(near(s.fixed, 0.02, 1e-9));
}

static void a_fifth_of_wild_steps_moves_the_estimate_by_a_few_percent(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 300; run++) {
        struct kml_speed s;
        kml_speed_init(&s, 64);
        for (int i = 0; i < 60; i++) {
            uint64_t batch = i % 2 == 0 ? 48 : 96;
            double seconds = (0.03 + 0.002 * (double)batch) * (1 + 0.01 * (2 * kml_rng_unit(&rng) - 1));
            add(&s, batch, i % 5 == 3 ? 20 * seconds : seconds);
        }
        assert_true(near(kml_speed_time(&s, 96), 0.222, 0.05));
        assert_true(near(kml_speed_nominal_time(&s), 0.158, 0.1));
    }
}

static void a_new_speed_shows_after_five_steps_and_an_outlier_never(void **state)
{
    (void)state;
    struct kml_speed s;
    kml_speed_init(&s, 64);
    for (int i = 0; i < 24; i++) {
        add(&s, 64, 1);
    }
    add(&s, 64, 50);
    assert_true(near(kml_speed_nominal_time(&s), 1, 1e-12));
    for (int i = 0; i < KML_SPEED_RECENT / 2 + 1; i++) {
        add(&s, 64, 2);
    }
    assert_true(near(kml_speed_nominal_time(&s), 2, 1e-12));
}

/* Slower by half and, at the same time, a batch of half the size: the step takes as long as before. */
static void a_change_of_speed_between_two_sizes_does_not_turn_all_time_into_fixed_cost(void **state)
{
    (void)state;
    struct kml_speed s;
    kml_speed_init(&s, 64);
    for (int i = 0; i < 24; i++) {
        add(&s, 64, 1);
    }
    for (int i = 0; i < 12; i++) {
        add(&s, 32, 1);
    }
    assert_true(s.fixed <= KML_SPEED_FIXED_MOST);
    assert_true(s.per_sample > 0);
    assert_true(near(kml_speed_time(&s, 32), 1, 1e-12));
}

static void numbers_that_are_no_step_change_nothing(void **state)
{
    (void)state;
    struct kml_speed s;
    kml_speed_init(&s, 64);
    add(&s, 64, 1);
    struct kml_speed before = s;
    assert_false(kml_speed_add(&s, 0, 1));
    assert_false(kml_speed_add(&s, 64, 0));
    assert_false(kml_speed_add(&s, 64, -1));
    assert_false(kml_speed_add(&s, 64, (double)NAN));
    assert_false(kml_speed_add(&s, 64, (double)INFINITY));
    assert_false(kml_speed_add(&s, 64, 1e9));
    assert_memory_equal(&s, &before, sizeof s);
}

static void a_window_is_the_speed_of_its_own_steps_at_the_nominal_batch(void **state)
{
    (void)state;
    struct kml_speed s;
    kml_speed_init(&s, 64);
    for (int i = 0; i < 10; i++) {
        add(&s, 64, 1);
    }
    assert_true(near(kml_speed_window(&s), 64, 1e-12));
    for (int i = 0; i < 3; i++) {
        add(&s, 64, 2);
    }
    assert_true(near(kml_speed_window(&s), 32, 1e-12));
    add(&s, 16, 0.25); /* too few pairs for a fixed part: a quarter of the batch in a quarter of the time */
    assert_true(near(kml_speed_window(&s), 64, 1e-12));
    assert_true(kml_speed_window(&s) == 0);
}

static void speeds_scale_with_the_unit_of_time(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    struct kml_speed a;
    struct kml_speed b;
    kml_speed_init(&a, 64);
    kml_speed_init(&b, 64);
    for (int i = 0; i < 100; i++) {
        uint64_t batch = 32 + kml_rng_below(&rng, 64);
        double seconds = 0.01 + kml_rng_unit(&rng);
        add(&a, batch, seconds);
        add(&b, batch, 8 * seconds);
        assert_true(b.fixed == 8 * a.fixed);
        assert_true(b.per_sample == 8 * a.per_sample);
    }
}

static void a_reading_that_cannot_be_is_masked(void **state)
{
    (void)state;
    const struct kml_reading bad[] = {
        {false, 0.5, 1},
        {true, 0.5, KML_READING_OLDEST + 1},
        {true, 0.5, -1},
        {true, (double)NAN, 1},
        {true, (double)INFINITY, 1},
        {true, -0.5, 1},
        {true, 1e30, 1},
        {true, 0.5, (double)NAN},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kml_signals s = kml_usage_signals(&(struct kml_usage){bad[i], bad[i], bad[i]});
        assert_false(s.cpu_known || s.throttled_known || s.pressure_known);
        assert_true(s.cpu == 0 && s.throttled == 0 && s.pressure == 0);
    }
}

static void zero_cpu_is_masked_and_zero_throttling_is_a_reading(void **state)
{
    (void)state;
    struct kml_reading zero = {true, 0, 1};
    struct kml_signals s = kml_usage_signals(&(struct kml_usage){zero, zero, zero});
    assert_false(s.cpu_known);
    assert_true(s.throttled_known && s.pressure_known);
    struct kml_reading full = {true, 1, KML_READING_OLDEST};
    s = kml_usage_signals(&(struct kml_usage){full, full, full});
    assert_true(s.cpu_known && s.throttled_known && s.pressure_known);
    assert_true(s.cpu == 1 && s.throttled == 1 && s.pressure == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known_before_the_first_step),
        cmocka_unit_test(with_one_batch_size_all_time_is_per_sample),
        cmocka_unit_test(two_batch_sizes_tell_the_fixed_part_from_the_rest),
        cmocka_unit_test(a_fifth_of_wild_steps_moves_the_estimate_by_a_few_percent),
        cmocka_unit_test(a_new_speed_shows_after_five_steps_and_an_outlier_never),
        cmocka_unit_test(a_change_of_speed_between_two_sizes_does_not_turn_all_time_into_fixed_cost),
        cmocka_unit_test(numbers_that_are_no_step_change_nothing),
        cmocka_unit_test(a_window_is_the_speed_of_its_own_steps_at_the_nominal_batch),
        cmocka_unit_test(speeds_scale_with_the_unit_of_time),
        cmocka_unit_test(a_reading_that_cannot_be_is_masked),
        cmocka_unit_test(zero_cpu_is_masked_and_zero_throttling_is_a_reading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
