#include "math/vec.h"

#include <string.h>

#include "base/clones.h"

/* Elements worked on before moving on: inputs and output of one block stay in the first-level cache. */
#define BLOCK 2048
#define LANES 8

KML_CLONES static void axpy(float *y, const float *x, float a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] += a * x[i];
    }
}

KML_CLONES static void scale(float *x, float a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] *= a;
    }
}

KML_CLONES static void product(float *restrict out, const float *restrict x, float a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = a * x[i];
    }
}

void kml_vec_weighted_sum_at(float *out, const float *const *x, const float *coef, uint32_t count,
                             size_t from, size_t n)
{
    if (count == 0) {
        memset(out, 0, n * sizeof(*out));
        return;
    }
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t size = n - at < BLOCK ? n - at : BLOCK;
        product(out + at, x[0] + from + at, coef[0], size);
        for (uint32_t k = 1; k < count; k++) {
            axpy(out + at, x[k] + from + at, coef[k], size);
        }
    }
}

void kml_vec_weighted_sum(float *out, const float *const *x, const float *coef, uint32_t count, size_t n)
{
    kml_vec_weighted_sum_at(out, x, coef, count, 0, n);
}

/* Eight sums side by side fill the vector units; they are folded in one fixed order. */
KML_CLONES static double square_sum(const float *x, size_t n)
{
    double sum[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            sum[k] += (double)x[i + k] * (double)x[i + k];
        }
    }
    for (size_t k = 0; i < n; i++, k++) {
        sum[k] += (double)x[i] * (double)x[i];
    }
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

/* NaN and Inf are the floats whose exponent is all ones; looked for without a branch. */
KML_CLONES static bool all_finite(const float *x, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bad |= (bits & UINT32_C(0x7f800000)) == UINT32_C(0x7f800000);
    }
    return bad == 0;
}

void kml_vec_axpy(float *y, const float *x, float a, size_t n)
{
    axpy(y, x, a, n);
}

void kml_vec_scale(float *x, float a, size_t n)
{
    scale(x, a, n);
}

double kml_vec_square_sum(const float *x, size_t n)
{
    return square_sum(x, n);
}

bool kml_vec_all_finite(const float *x, size_t n)
{
    return all_finite(x, n);
}
