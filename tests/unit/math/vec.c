#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "math/gemm.h"
#include "math/vec.h"

#define SEED 20260131
#define MEMBERS 5

static float *random_vector(struct kml_rng *r, size_t n)
{
    float *x = KML_NEW_ARRAY(n, float);
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(kml_rng_normal(r) * exp(4 * kml_rng_normal(r)));
    }
    return x;
}

/* The plain meaning of a weighted sum, one element at a time; volatile keeps the compiler from fusing
 * anything. */
static float plain_sum(float *const *x, const float *coef, uint32_t count, size_t i)
{
    volatile float sum = count == 0 ? 0 : coef[0] * x[0][i];
    for (uint32_t k = 1; k < count; k++) {
        volatile float product = coef[k] * x[k][i];
        sum = sum + product;
    }
    return sum;
}

static void a_weighted_sum_is_bit_for_bit_the_plain_one_for_any_length_and_count(void **state)
{
    (void)state;
    print_message("seed %d\n", SEED);
    struct kml_rng r;
    kml_rng_init(&r, SEED);
    for (int round = 0; round < 200; round++) {
        size_t n = kml_rng_below(&r, 5000);
        uint32_t count = (uint32_t)kml_rng_below(&r, MEMBERS + 1);
        float *x[MEMBERS];
        float coef[MEMBERS];
        for (uint32_t k = 0; k < MEMBERS; k++) {
            x[k] = random_vector(&r, n + 1);
            coef[k] = (float)kml_rng_unit(&r);
        }
        float *out = KML_NEW_ARRAY(n + 1, float);
        kml_vec_weighted_sum(out, (const float *const *)x, coef, count, n);
        for (size_t i = 0; i < n; i++) {
            float wanted = plain_sum(x, coef, count, i);
            assert_memory_equal(&out[i], &wanted, sizeof(wanted));
        }
        for (uint32_t k = 0; k < MEMBERS; k++) {
            kml_free(x[k]);
        }
        kml_free(out);
    }
}

static void element_wise_kernels_give_the_same_bytes_in_pieces(void **state)
{
    (void)state;
    print_message("seed %d\n", SEED + 1);
    struct kml_rng r;
    kml_rng_init(&r, SEED + 1);
    for (int round = 0; round < 200; round++) {
        size_t n = 1 + kml_rng_below(&r, 3000);
        size_t cut = kml_rng_below(&r, n + 1);
        float *x = random_vector(&r, n);
        float *whole = random_vector(&r, n);
        float *pieces = KML_NEW_ARRAY(n, float);
        memcpy(pieces, whole, n * sizeof(float));
        kml_vec_axpy(whole, x, 0.37f, n);
        kml_vec_scale(whole, 1.7f, n);
        kml_vec_axpy(pieces, x, 0.37f, cut);
        kml_vec_axpy(pieces + cut, x + cut, 0.37f, n - cut);
        kml_vec_scale(pieces, 1.7f, cut);
        kml_vec_scale(pieces + cut, 1.7f, n - cut);
        assert_memory_equal(whole, pieces, n * sizeof(float));
        kml_free(x);
        kml_free(whole);
        kml_free(pieces);
    }
}

static void a_square_sum_is_double_exact_to_rounding_and_repeatable(void **state)
{
    (void)state;
    print_message("seed %d\n", SEED + 2);
    struct kml_rng r;
    kml_rng_init(&r, SEED + 2);
    for (size_t n = 0; n < 100; n++) {
        float *x = random_vector(&r, n + 1);
        long double wanted = 0;
        for (size_t i = 0; i < n; i++) {
            wanted += (long double)x[i] * x[i];
        }
        double sum = kml_vec_square_sum(x, n);
        assert_true(fabsl(sum - wanted) <= 1e-14L * wanted);
        /* Another address, the same number. */
        float *moved = KML_NEW_ARRAY(n + 2, float);
        memcpy(moved + 1, x, n * sizeof(float));
        assert_true(kml_vec_square_sum(moved + 1, n) == sum);
        kml_free(moved);
        kml_free(x);
    }
}

static void one_bad_number_anywhere_is_found(void **state)
{
    (void)state;
    float bad[] = {NAN, INFINITY, -INFINITY, -NAN};
    float x[67];
    for (size_t at = 0; at < KML_COUNT(x); at++) {
        for (size_t i = 0; i < KML_COUNT(x); i++) {
            x[i] = i % 2 == 0 ? 3.4e38f : 1e-45f;
        }
        assert_true(kml_vec_all_finite(x, KML_COUNT(x)));
        for (size_t b = 0; b < KML_COUNT(bad); b++) {
            x[at] = bad[b];
            assert_false(kml_vec_all_finite(x, KML_COUNT(x)));
            assert_false(isfinite(kml_vec_square_sum(x, KML_COUNT(x))));
        }
    }
    assert_true(kml_vec_all_finite(x, 0));
}

/* c[m,n] = alpha * sum_k A(i,k) B(k,j), with the strides of each form. */
static void check_product(const float *c, const float *a, size_t a_row, size_t a_column, const float *b,
                          size_t b_row, size_t b_column, size_t m, size_t n, size_t k, float alpha)
{
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            double sum = 0;
            double size = 1e-30;
            for (size_t t = 0; t < k; t++) {
                double product = (double)a[i * a_row + t * a_column] * (double)b[t * b_row + j * b_column];
                sum += product;
                size += fabs(product);
            }
            assert_true(fabs((double)c[i * n + j] - alpha * sum) <= 1e-5 * alpha * size);
        }
    }
}

static void matrix_products_agree_with_the_plain_ones(void **state)
{
    (void)state;
    print_message("seed %d\n", SEED + 3);
    struct kml_rng r;
    kml_rng_init(&r, SEED + 3);
    for (int round = 0; round < 60; round++) {
        size_t m = 1 + kml_rng_below(&r, 40);
        size_t n = 1 + kml_rng_below(&r, 40);
        size_t k = 1 + kml_rng_below(&r, 40);
        float *a = random_vector(&r, m * k);
        float *b = random_vector(&r, k * n);
        float *c = random_vector(&r, m * n); /* rubbish before: it is overwritten */
        kml_gemm_nt(m, n, k, 1.0f, a, b, c);
        check_product(c, a, k, 1, b, 1, k, m, n, k, 1.0f);
        kml_gemm_nn(m, n, k, 2.0f, a, b, c);
        check_product(c, a, k, 1, b, n, 1, m, n, k, 2.0f);
        kml_gemm_tn(m, n, k, 0.25f, a, b, c);
        check_product(c, a, 1, m, b, n, 1, m, n, k, 0.25f);
        kml_free(a);
        kml_free(b);
        kml_free(c);
    }
}

int main(void)
{
    kml_math_threads(1, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weighted_sum_is_bit_for_bit_the_plain_one_for_any_length_and_count),
        cmocka_unit_test(element_wise_kernels_give_the_same_bytes_in_pieces),
        cmocka_unit_test(a_square_sum_is_double_exact_to_rounding_and_repeatable),
        cmocka_unit_test(one_bad_number_anywhere_is_found),
        cmocka_unit_test(matrix_products_agree_with_the_plain_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
