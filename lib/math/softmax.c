#include "math/softmax.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/clones.h"

#define ROWS 64 /* rows whose bookkeeping is on the stack at a time */

/*
 * e^x = 2^k * e^r with r = x - k ln 2, |r| <= ln(2) / 2, the polynomial of Moshier's Cephes for the last. k
 * is read out of the low bits of x log2(e) + 1.5 * 2^23, which is exact rounding to a whole number. Arguments
 * are held within +-87.
 */
static inline float exp_one(float x)
{
    const float magic = 12582912.0f;
    x = x > 87.0f ? 87.0f : x;
    x = x < -87.0f ? -87.0f : x;
    float shifted = x * 1.44269504f + magic;
    float k = shifted - magic;
    float r = (x - k * 0.693359375f) - k * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * r * r + r) + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof(bits));
    bits = (bits << 23) + UINT32_C(0x3f800000); /* 2^k: the low 9 bits of `shifted` hold k */
    float scale;
    memcpy(&scale, &bits, sizeof(scale));
    return p * scale;
}

/* Near 0 the form with e^2x would cancel; there the odd polynomial of Cephes. Both are computed, one is
 * taken. */
static inline float tanh_one(float x)
{
    float z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    float small = p * z * x + x;
    float large = 1.0f - 2.0f / (exp_one(2.0f * x) + 1.0f);
    return z < 0.390625f ? small : large;
}

KML_CLONES static void exp_all(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = exp_one(x[i]);
    }
}

KML_CLONES static void sigmoid_all(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = 1.0f / (1.0f + exp_one(-x[i]));
    }
}

KML_CLONES static void tanh_all(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = tanh_one(x[i]);
    }
}

void kml_exp(float *x, size_t n)
{
    exp_all(x, n);
}

void kml_sigmoid(float *x, size_t n)
{
    sigmoid_all(x, n);
}

void kml_tanh(float *x, size_t n)
{
    tanh_all(x, n);
}

static size_t largest_at(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        best = x[i] > x[best] ? i : best;
    }
    return best;
}

double kml_log_sum_exp(const float *x, size_t n)
{
    float top = x[largest_at(x, n)];
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += exp((double)(x[i] - top));
    }
    return (double)top + log(sum);
}

static size_t subtract_largest(float *x, size_t n)
{
    size_t best = largest_at(x, n);
    float top = x[best];
    for (size_t i = 0; i < n; i++) {
        x[i] -= top;
    }
    return best;
}

/* The row holds exponentials; returns their sum. */
static double divide_by_sum(float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)x[i];
    }
    float inverse = (float)(1.0 / sum);
    for (size_t i = 0; i < n; i++) {
        x[i] *= inverse;
    }
    return sum;
}

void kml_softmax_rows(float *x, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++) {
        (void)subtract_largest(x + r * n, n);
    }
    exp_all(x, rows * n);
    for (size_t r = 0; r < rows; r++) {
        (void)divide_by_sum(x + r * n, n);
    }
}

/* Exponentials of many rows at once keep the vector units busy; rows of 10 alone would not. */
static size_t loss_block(float *x, size_t rows, size_t n, const uint32_t *label, double *loss_sum)
{
    float at_label[ROWS];
    bool best[ROWS];
    for (size_t r = 0; r < rows; r++) {
        best[r] = subtract_largest(x + r * n, n) == label[r];
        at_label[r] = x[r * n + label[r]];
    }
    exp_all(x, rows * n);
    size_t correct = 0;
    for (size_t r = 0; r < rows; r++) {
        double sum = divide_by_sum(x + r * n, n);
        x[r * n + label[r]] -= 1.0f;
        *loss_sum += log(sum) - (double)at_label[r];
        correct += best[r] && !isnan(sum);
    }
    return correct;
}

size_t kml_softmax_loss_rows(float *x, size_t rows, size_t n, const uint32_t *label, double *loss_sum)
{
    size_t correct = 0;
    for (size_t at = 0; at < rows; at += ROWS) {
        size_t count = rows - at < ROWS ? rows - at : ROWS;
        correct += loss_block(x + at * n, count, n, label + at, loss_sum);
    }
    return correct;
}
