#ifndef KML_MATH_VEC_H
#define KML_MATH_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Kernels on float32 vectors.
 *
 * Every element-wise kernel gives the same bytes on every machine, for every alignment, and for a vector that
 * is done in pieces: element i of the result depends on the i-th elements alone, each operation is rounded
 * once, and products are never contracted into fused multiply-adds. This is what makes the parameters
 * independent of the number of shards.
 *
 * Pure. Outputs may not overlap inputs unless they are the same array.
 */
void kml_vec_axpy(float *y, const float *x, float a, size_t n); /* y += a * x */
void kml_vec_scale(float *x, float a, size_t n);                /* x *= a */

/* out = coef[0] * x[0] + coef[1] * x[1] + ..., added in that order; count 0 gives zeros. One pass over `out`.
 */
void kml_vec_weighted_sum(float *out, const float *const *x, const float *coef, uint32_t count, size_t n);

/* The same of x[k][from .. from + n - 1], into out[0 .. n - 1]. */
void kml_vec_weighted_sum_at(float *out, const float *const *x, const float *coef, uint32_t count,
                             size_t from, size_t n);

/*
 * Sum of x[i]^2 in double (each square is exact). The order of the additions depends on n alone, so the same
 * vector always gives the same number; the sums of two halves added up may differ from it in the last bits.
 * NaN and Inf come through.
 */
double kml_vec_square_sum(const float *x, size_t n);

bool kml_vec_all_finite(const float *x, size_t n); /* no NaN, no Inf; true for n = 0 */

#endif
