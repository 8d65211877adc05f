#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "math/softmax.h"

#define SEED 4242

static void exp_sigmoid_and_tanh_are_within_their_error_over_their_whole_range(void **state)
{
    (void)state;
    for (double at = -90; at <= 90; at += 0.0137) {
        float x = (float)at;
        float e = x;
        float s = x;
        float t = x;
        kml_exp(&e, 1);
        kml_sigmoid(&s, 1);
        kml_tanh(&t, 1);
        if (fabsf(x) <= 87.0f) {
            assert_true(fabs((double)e / exp((double)x) - 1) < 2e-7);
            double sigmoid = 1 / (1 + exp(-(double)x));
            assert_true(fabs((double)s / sigmoid - 1) < 5e-7);
        }
        assert_true(fabs((double)t - tanh((double)x)) < 5e-7);
    }
    for (double at = 1e-30; at < 1; at *= 1.37) {
        float t = (float)at;
        kml_tanh(&t, 1);
        assert_true(fabs((double)t / tanh((double)(float)at) - 1) < 1e-6);
    }
}

static void not_a_number_stays_not_a_number(void **state)
{
    (void)state;
    float x[3] = {NAN, NAN, NAN};
    kml_exp(&x[0], 1);
    kml_sigmoid(&x[1], 1);
    kml_tanh(&x[2], 1);
    for (int i = 0; i < 3; i++) {
        assert_true(isnan(x[i]));
    }
}

static void a_function_of_a_vector_is_the_function_of_each_element(void **state)
{
    (void)state;
    print_message("seed %d\n", SEED);
    struct kml_rng r;
    kml_rng_init(&r, SEED);
    float whole[133];
    float single[133];
    for (size_t i = 0; i < KML_COUNT(whole); i++) {
        whole[i] = single[i] = (float)(5 * kml_rng_normal(&r));
    }
    kml_tanh(whole, KML_COUNT(whole));
    for (size_t i = 0; i < KML_COUNT(single); i++) {
        kml_tanh(&single[i], 1);
    }
    assert_memory_equal(whole, single, sizeof(whole));
}

static void softmax_and_loss_agree_with_the_definition_in_double(void **state)
{
    (void)state;
    print_message("seed %d\n", SEED + 1);
    struct kml_rng r;
    kml_rng_init(&r, SEED + 1);
    for (int round = 0; round < 100; round++) {
        size_t rows = 1 + kml_rng_below(&r, 150);
        size_t n = 2 + kml_rng_below(&r, 20);
        float *x = KML_NEW_ARRAY(rows * n, float);
        float *soft = KML_NEW_ARRAY(rows * n, float);
        float *delta = KML_NEW_ARRAY(rows * n, float);
        uint32_t *label = KML_NEW_ARRAY(rows, uint32_t);
        double wanted_loss = 0;
        size_t wanted_correct = 0;
        for (size_t i = 0; i < rows * n; i++) {
            x[i] = soft[i] = delta[i] = (float)(8 * kml_rng_normal(&r));
        }
        for (size_t i = 0; i < rows; i++) {
            label[i] = (uint32_t)kml_rng_below(&r, n);
            double total = kml_log_sum_exp(x + i * n, n);
            wanted_loss += total - (double)x[i * n + label[i]];
            bool best = true;
            for (size_t j = 0; j < n; j++) {
                best = best && x[i * n + j] <= x[i * n + label[i]];
            }
            wanted_correct += best;
        }
        double loss = 0;
        kml_softmax_rows(soft, rows, n);
        assert_int_equal(kml_softmax_loss_rows(delta, rows, n, label, &loss), wanted_correct);
        assert_true(fabs(loss - wanted_loss) <= 1e-6 * (1 + wanted_loss));
        for (size_t i = 0; i < rows * n; i++) {
            double p = exp((double)x[i] - kml_log_sum_exp(x + i / n * n, n));
            assert_true(fabs((double)soft[i] - p) < 1e-6);
            assert_true(fabs((double)delta[i] - (p - (i % n == label[i / n] ? 1 : 0))) < 1e-6);
        }
        kml_free(x);
        kml_free(soft);
        kml_free(delta);
        kml_free(label);
    }
}

static void huge_logits_do_not_overflow(void **state)
{
    (void)state;
    float x[] = {1e30f, -1e30f, 0.0f, 3e4f, 3e4f, -3e4f};
    assert_true(kml_log_sum_exp(x + 3, 3) == 3e4 + log(2));
    uint32_t label[] = {0, 1};
    double loss = 0;
    assert_int_equal(kml_softmax_loss_rows(x, 2, 3, label, &loss), 1); /* of equals, the first is meant */
    assert_true(fabs(loss - log(2)) < 1e-6);
}

static void a_row_with_nan_shows_in_the_loss_and_is_never_correct(void **state)
{
    (void)state;
    for (size_t at = 0; at < 3; at++) {
        float x[] = {1, 2, 3};
        x[at] = NAN;
        for (uint32_t label = 0; label < 3; label++) {
            float copy[3];
            memcpy(copy, x, sizeof(copy));
            double loss = 0;
            assert_int_equal(kml_softmax_loss_rows(copy, 1, 3, &label, &loss), 0);
            assert_true(isnan(loss));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_sigmoid_and_tanh_are_within_their_error_over_their_whole_range),
        cmocka_unit_test(not_a_number_stays_not_a_number),
        cmocka_unit_test(a_function_of_a_vector_is_the_function_of_each_element),
        cmocka_unit_test(softmax_and_loss_agree_with_the_definition_in_double),
        cmocka_unit_test(huge_logits_do_not_overflow),
        cmocka_unit_test(a_row_with_nan_shows_in_the_loss_and_is_never_correct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
