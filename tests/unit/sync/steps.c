#include "sync/steps.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/unit/sync/seed.h"

static struct kml_step_plan plan(struct kml_steps *s, struct kml_member *member, uint32_t count)
{
    struct kml_step_plan out;
    struct kml_err err;
    assert_int_equal(kml_steps_plan(s, member, count, 1.0, &out, &err), 0);
    return out;
}

static void coefficients_weigh_by_samples(void **state)
{
    (void)state;
    struct kml_steps s;
    kml_steps_init(&s, 4, 64, 0.0, false);
    struct kml_member m[] = {{.worker = 0, .samples = 64, .square_sum = 1e6}, {.worker = 3, .samples = 192}};
    struct kml_step_plan out = plan(&s, m, 2);
    assert_true(m[0].coefficient == 0.25 && m[1].coefficient == 0.75);
    assert_true(out.scale == 1.0);
    assert_int_equal(out.samples, 256);
    assert_int_equal(out.members, 2);
}

static void a_runt_batch_makes_a_small_step(void **state)
{
    (void)state;
    struct kml_steps s;
    kml_steps_init(&s, 4, 64, 0.0, false);
    struct kml_member m[] = {{.samples = 2}};
    assert_true(plan(&s, m, 1).scale == 2.0 / 256.0);
    assert_true(m[0].coefficient == 1.0);
}

static void damping_scales_the_step_and_not_the_gradient(void **state)
{
    (void)state;
    struct kml_steps s;
    struct kml_step_plan out;
    kml_steps_init(&s, 2, 10, 0.0, false);
    struct kml_member m[] = {{.samples = 10}, {.samples = 10}};
    assert_int_equal(kml_steps_plan(&s, m, 2, 0.5, &out, NULL), 0);
    assert_true(out.scale == 0.5 && m[0].coefficient == 0.5 && m[1].coefficient == 0.5);
}

static void a_long_gradient_is_cut_to_the_clip_norm(void **state)
{
    (void)state;
    struct kml_steps s;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 10000; run++) {
        double clip = 0.01 + kml_rng_unit(&rng) * 10.0;
        double norm = 0.01 + kml_rng_unit(&rng) * 20.0;
        kml_steps_init(&s, 1, 1, clip, false);
        struct kml_member m[] = {{.samples = 1, .square_sum = norm * norm}};
        plan(&s, m, 1);
        if (sqrt(norm * norm) <= clip) {
            assert_true(m[0].coefficient == 1.0 && s.clipped == 0);
        } else {
            assert_true(m[0].coefficient * norm <= clip * (1.0 + 1e-15));
            assert_true(m[0].coefficient * norm > clip * (1.0 - 1.0 / 32768.0));
            assert_int_equal(s.clipped, 1);
        }
    }
}

static void the_last_bits_of_the_norm_do_not_reach_the_coefficient(void **state)
{
    (void)state;
    struct kml_steps s;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 10000; run++) {
        double parts[8], forward = 0.0, backward = 0.0;
        for (int i = 0; i < 8; i++) {
            parts[i] = 1.0 + kml_rng_unit(&rng);
            forward += parts[i];
        }
        for (int i = 7; i >= 0; i--) {
            backward += parts[i];
        }
        kml_steps_init(&s, 1, 1, 0.7, false);
        struct kml_member a = {.samples = 1, .square_sum = forward};
        struct kml_member b = {.samples = 1, .square_sum = backward};
        plan(&s, &a, 1);
        plan(&s, &b, 1);
        assert_true(a.coefficient == b.coefficient);
    }
}

static void clipping_acts_on_each_member_alone(void **state)
{
    (void)state;
    struct kml_steps s;
    kml_steps_init(&s, 2, 10, 1.0, false);
    struct kml_member m[] = {{.samples = 10, .square_sum = 4.0}, {.samples = 10, .square_sum = 0.25}};
    plan(&s, m, 2);
    assert_true(m[0].coefficient == 0.25 && m[1].coefficient == 0.5);
}

static void a_refused_gradient_leaves_the_others_as_if_it_had_not_come(void **state)
{
    (void)state;
    struct kml_steps s;
    kml_steps_init(&s, 3, 10, 5.0, false);
    struct kml_member m[] = {{.samples = 10, .square_sum = 1.0},
                             {.samples = 10, .non_finite = true},
                             {.samples = 30, .square_sum = 1.0},
                             {.samples = 10, .square_sum = NAN},
                             {.samples = 10, .square_sum = INFINITY}};
    struct kml_step_plan out = plan(&s, m, 5);
    assert_true(m[0].coefficient == 0.25 && m[2].coefficient == 0.75);
    assert_true(m[1].coefficient == 0.0 && m[1].refused && m[3].refused && m[4].refused);
    assert_int_equal(out.members, 2);
    assert_int_equal(out.refused, 3);
    assert_int_equal(out.samples, 40);
    assert_true(out.scale == 40.0 / 30.0);
    assert_int_equal(s.refused, 3);
}

static void a_commit_of_refused_members_only_changes_nothing(void **state)
{
    (void)state;
    struct kml_steps s;
    kml_steps_init(&s, 1, 10, 0.0, false);
    struct kml_member m[] = {{.samples = 10, .non_finite = true}};
    struct kml_step_plan out = plan(&s, m, 1);
    assert_true(out.scale == 0.0);
    assert_int_equal(out.members, 0);
}

static void ten_refused_gradients_in_a_row_fail_and_name_the_last(void **state)
{
    (void)state;
    struct kml_steps s;
    struct kml_step_plan out;
    struct kml_err err;
    kml_steps_init(&s, 1, 10, 0.0, false);
    struct kml_member good = {.samples = 10};
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < KML_REFUSED_IN_A_ROW - 1; i++) {
            struct kml_member bad = {.worker = 2, .step = 7, .samples = 10, .non_finite = true};
            plan(&s, &bad, 1);
        }
        plan(&s, &good, 1); /* ends the row */
    }
    struct kml_member bad[KML_REFUSED_IN_A_ROW];
    for (int i = 0; i < KML_REFUSED_IN_A_ROW; i++) {
        bad[i] = (struct kml_member){.worker = (uint32_t)i, .step = 7, .samples = 10, .non_finite = true};
    }
    assert_int_equal(kml_steps_plan(&s, bad, KML_REFUSED_IN_A_ROW, 1.0, &out, &err), -1);
    assert_int_equal(err.code, KML_INVALID);
    assert_non_null(strstr(err.text, "worker 9, step 7: the gradient holds NaN or Inf, 10 in a row"));
}

static void the_policy_fail_fails_at_the_first(void **state)
{
    (void)state;
    struct kml_steps s;
    struct kml_step_plan out;
    struct kml_err err;
    kml_steps_init(&s, 1, 10, 0.0, true);
    struct kml_member bad = {.worker = 4, .step = 12, .samples = 10, .non_finite = true};
    assert_int_equal(kml_steps_plan(&s, &bad, 1, 1.0, &out, &err), -1);
    assert_non_null(strstr(err.text, "worker 4, step 12"));
}

/* ---- Oracle 8: the weighted aggregate of unequal batches is the gradient over the union ---- */

#define DIMS 7
#define SAMPLES 64

static void the_aggregate_of_unequal_batches_is_the_gradient_of_the_union(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 2000; run++) {
        double x[SAMPLES][DIMS], w[DIMS], all[DIMS] = {0}, sum[DIMS] = {0};
        uint32_t members = 1 + (uint32_t)kml_rng_below(&rng, 6);
        struct kml_member m[6] = {{.samples = 0}};
        double mean[6][DIMS] = {{0}};
        for (int d = 0; d < DIMS; d++) {
            w[d] = kml_rng_normal(&rng);
        }
        for (uint32_t k = 0; k < SAMPLES; k++) {
            /* the first ones see to it that no batch is empty */
            uint32_t i = k < members ? k : (uint32_t)kml_rng_below(&rng, 1 + kml_rng_below(&rng, members));
            double residual = kml_rng_normal(&rng);
            for (int d = 0; d < DIMS; d++) {
                x[k][d] = kml_rng_normal(&rng);
                residual += x[k][d] * w[d];
            }
            for (int d = 0; d < DIMS; d++) {
                mean[i][d] += residual * x[k][d];
                all[d] += residual * x[k][d] / SAMPLES;
            }
            m[i].samples++;
        }
        struct kml_steps s;
        kml_steps_init(&s, members, 16, 0.0, false);
        struct kml_step_plan out = plan(&s, m, members);
        double total = 0.0;
        for (uint32_t i = 0; i < members; i++) {
            total += m[i].coefficient;
            for (int d = 0; d < DIMS; d++) {
                sum[d] += m[i].coefficient * (mean[i][d] / (double)m[i].samples);
            }
        }
        assert_true(fabs(total - 1.0) < 1e-15 * 6);
        assert_true(out.scale == (double)SAMPLES / (members * 16.0));
        for (int d = 0; d < DIMS; d++) {
            assert_true(fabs(sum[d] - all[d]) <= 1e-12 * fmax(1.0, fabs(all[d])));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coefficients_weigh_by_samples),
        cmocka_unit_test(a_runt_batch_makes_a_small_step),
        cmocka_unit_test(damping_scales_the_step_and_not_the_gradient),
        cmocka_unit_test(a_long_gradient_is_cut_to_the_clip_norm),
        cmocka_unit_test(the_last_bits_of_the_norm_do_not_reach_the_coefficient),
        cmocka_unit_test(clipping_acts_on_each_member_alone),
        cmocka_unit_test(a_refused_gradient_leaves_the_others_as_if_it_had_not_come),
        cmocka_unit_test(a_commit_of_refused_members_only_changes_nothing),
        cmocka_unit_test(ten_refused_gradients_in_a_row_fail_and_name_the_last),
        cmocka_unit_test(the_policy_fail_fails_at_the_first),
        cmocka_unit_test(the_aggregate_of_unequal_batches_is_the_gradient_of_the_union),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
