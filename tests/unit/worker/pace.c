#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/rng.h"
#include "unit/seed.h"
#include "worker/pace.h"

static struct kml_pace pace_of(double pace_ns, double speed, const char *profile)
{
    struct kml_pace p;
    struct kml_err err = {0};
    if (kml_pace_init(&p, pace_ns, speed, "profile", kml_view_str(profile), &err) < 0) {
        fail_msg("%s", err.text);
    }
    return p;
}

static void without_a_pace_a_step_is_over_at_once(void **state)
{
    (void)state;
    struct kml_pace p = pace_of(0, 1, "");
    assert_false(kml_pace_on(&p));
    assert_int_equal(kml_pace_end(&p, 17, 1000), 17);
    kml_pace_finish(&p);
}

static void half_the_speed_takes_twice_the_time(void **state)
{
    (void)state;
    struct kml_pace p = pace_of(1000, 0.5, "");
    assert_true(kml_pace_on(&p));
    assert_int_equal(kml_pace_end(&p, 5, 64), 5 + 128000);
    kml_pace_finish(&p);
}

static void a_step_across_a_change_of_speed_is_integrated(void **state)
{
    (void)state;
    /* 1 s of work from 0.5 s on: half of it at speed 1, the rest at speed 0.25 */
    struct kml_pace p = pace_of(1e6, 1, "# slower later\n\n1 0.25\n");
    assert_int_equal(kml_pace_end(&p, KML_SECOND / 2, 1000), 3 * KML_SECOND);
    assert_int_equal(kml_pace_end(&p, 0, 1000), KML_SECOND);
    assert_int_equal(kml_pace_end(&p, 2 * KML_SECOND, 1000), 6 * KML_SECOND);
    kml_pace_finish(&p);
}

static void a_speed_of_zero_is_a_pause(void **state)
{
    (void)state;
    struct kml_pace p = pace_of(1e6, 2, "1 0\n3 4\n");
    /* 3 s of work: 2 in the first second, none in the next two, 1 at speed 4 */
    assert_int_equal(kml_pace_end(&p, 0, 3000), 3 * KML_SECOND + KML_SECOND / 4);
    assert_int_equal(kml_pace_end(&p, 2 * KML_SECOND, 1000), 3 * KML_SECOND + KML_SECOND / 4);
    kml_pace_finish(&p);
}

/* Cutting a step in two where the first part ends must not change when all of it ends. */
static void two_steps_in_a_row_end_when_one_of_both_would(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    struct kml_pace p = pace_of(3333, 0.7, "0.001 2\n0.002 0.1\n0.0025 1.5\n0.004 0.3\n0.005 3\n0.02 0.9\n");
    for (int i = 0; i < 10000; i++) {
        uint64_t begin = kml_rng_below(&rng, 10000000);
        uint64_t a = kml_rng_below(&rng, 2000);
        uint64_t b = kml_rng_below(&rng, 2000);
        uint64_t middle = kml_pace_end(&p, begin, a);
        uint64_t two = kml_pace_end(&p, middle, b);
        uint64_t one = kml_pace_end(&p, begin, a + b);
        uint64_t apart = two > one ? two - one : one - two;
        assert_true(middle >= begin && two >= middle);
        assert_true(apart <= 40); /* rounding the middle counts for at most max speed / min speed ns */
    }
    kml_pace_finish(&p);
}

static void bad_profiles_are_refused_with_their_line(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "1 2\n2\n",     /* one number */
        "1 2\n2 x\n",   /* no number */
        "1 2\n2 3 4\n", /* three */
        "1 2\n1 3\n",   /* seconds do not rise */
        "1 2\n2 -1\n",  /* negative */
        "1 2\n-2 1\n",  /* negative time */
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct kml_pace p;
        struct kml_err err = {0};
        assert_int_equal(kml_pace_init(&p, 1, 1, "p.txt", kml_view_str(bad[i]), &err), -1);
        assert_int_equal(err.code, KML_INVALID);
        assert_non_null(strstr(err.text, "p.txt:2"));
    }
    struct kml_pace p;
    struct kml_err err = {0};
    assert_int_equal(kml_pace_init(&p, 1, 1, "p.txt", kml_view_str("1 0\n"), &err), -1);
    assert_non_null(strstr(err.text, "last speed"));
}

static void waits_grow_are_capped_and_differ_between_workers(void **state)
{
    (void)state;
    struct kml_backoff a;
    struct kml_backoff b;
    kml_backoff_init(&a, 1);
    kml_backoff_init(&b, 2);
    uint64_t differ = 0;
    for (int i = 0; i < 30; i++) {
        uint64_t wait = kml_backoff_failed(&a);
        differ += wait != kml_backoff_failed(&b) ? 1 : 0;
        assert_true(wait >= 75 * KML_MILLISECOND && wait <= 6250 * KML_MILLISECOND);
        assert_true(i < 20 || wait >= 3750 * KML_MILLISECOND);
    }
    assert_true(differ > 20);
    kml_backoff_succeeded(&a);
    assert_true(kml_backoff_failed(&a) <= 125 * KML_MILLISECOND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_pace_a_step_is_over_at_once),
        cmocka_unit_test(half_the_speed_takes_twice_the_time),
        cmocka_unit_test(a_step_across_a_change_of_speed_is_integrated),
        cmocka_unit_test(a_speed_of_zero_is_a_pause),
        cmocka_unit_test(two_steps_in_a_row_end_when_one_of_both_would),
        cmocka_unit_test(bad_profiles_are_refused_with_their_line),
        cmocka_unit_test(waits_grow_are_capped_and_differ_between_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
