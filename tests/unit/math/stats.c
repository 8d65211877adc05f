#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "math/schedule.h"
#include "math/stats.h"

static void near(double got, double wanted)
{
    assert_true(fabs(got - wanted) <= 1e-12 * (1 + fabs(wanted)));
}

static void mean_variance_and_quantiles_of_a_small_sample(void **state)
{
    (void)state;
    double x[] = {4, 1, 3, 2};
    near(kml_mean(x, 4), 2.5);
    near(kml_variance(x, 4), 5.0 / 3);
    near(kml_median(x, 4), 2.5);
    near(kml_quantile(x, 4, 0), 1);
    near(kml_quantile(x, 4, 1), 4);
    near(kml_quantile(x, 4, 0.1), 1.3);
    double odd[] = {9, 7, 8};
    near(kml_median(odd, 3), 8);
}

static void empty_and_single_samples_have_plain_answers(void **state)
{
    (void)state;
    double x[] = {7};
    near(kml_mean(x, 0), 0);
    near(kml_median(x, 0), 0);
    near(kml_variance(x, 1), 0);
    near(kml_quantile(x, 1, 0.99), 7);
}

static void an_ewma_starts_at_its_first_value(void **state)
{
    (void)state;
    struct kml_ewma e;
    kml_ewma_init(&e, 0.25);
    near(kml_ewma_add(&e, 8), 8);
    near(kml_ewma_add(&e, 4), 7);
    near(kml_ewma_add(&e, 7), 7);
}

static void schedules_follow_their_formulas(void **state)
{
    (void)state;
    struct kml_schedule s = {.kind = KML_SCHEDULE_CONSTANT};
    near(kml_schedule_factor(&s, 0), 1);
    near(kml_schedule_factor(&s, 99.5), 1);
    s = (struct kml_schedule){.kind = KML_SCHEDULE_STEP, .step_epochs = 3, .factor = 0.5};
    near(kml_schedule_factor(&s, 2.99), 1);
    near(kml_schedule_factor(&s, 3), 0.5);
    near(kml_schedule_factor(&s, 9.5), 0.125);
    s = (struct kml_schedule){.kind = KML_SCHEDULE_COSINE, .epochs = 10};
    near(kml_schedule_factor(&s, 0), 1);
    near(kml_schedule_factor(&s, 5), 0.5);
    near(kml_schedule_factor(&s, 2.5), (1 + sqrt(0.5)) / 2);
    near(kml_schedule_factor(&s, 10), 0);
    near(kml_schedule_factor(&s, 11), 0);
}

static void a_warm_up_rises_in_a_straight_line_and_then_leaves_the_schedule_alone(void **state)
{
    (void)state;
    struct kml_schedule s = {.kind = KML_SCHEDULE_COSINE, .epochs = 12, .warmup_epochs = 2};
    near(kml_schedule_factor(&s, 0.5), 0.25);
    near(kml_schedule_factor(&s, 2), 1);
    near(kml_schedule_factor(&s, 7), 0.5);
    s.kind = KML_SCHEDULE_CONSTANT;
    near(kml_schedule_factor(&s, 1), 0.5);
    near(kml_schedule_factor(&s, 2.1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mean_variance_and_quantiles_of_a_small_sample),
        cmocka_unit_test(empty_and_single_samples_have_plain_answers),
        cmocka_unit_test(an_ewma_starts_at_its_first_value),
        cmocka_unit_test(schedules_follow_their_formulas),
        cmocka_unit_test(a_warm_up_rises_in_a_straight_line_and_then_leaves_the_schedule_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
