#ifndef KML_MATH_GEMM_H
#define KML_MATH_GEMM_H

#include <stddef.h>

/*
 * The three matrix products that a dense layer needs, over OpenBLAS. Row-major, tight rows. c is overwritten.
 * Same shapes, same thread count, same machine: same bytes.
 */
/* c[m,n] = alpha * a[m,k] * b[n,k]' */
void kml_gemm_nt(size_t m, size_t n, size_t k, float alpha, const float *a, const float *b, float *c);

/* c[m,n] = alpha * a[m,k] * b[k,n] */
void kml_gemm_nn(size_t m, size_t n, size_t k, float alpha, const float *a, const float *b, float *c);

/* c[m,n] = alpha * a[k,m]' * b[k,n] */
void kml_gemm_tn(size_t m, size_t n, size_t k, float alpha, const float *a, const float *b, float *c);

/*
 * Threads of the products above, at least 1. Once, first in main of a program that computes: it may start the
 * program anew (same pid, same arguments) with OPENBLAS_NUM_THREADS set, because the library starts its
 * threads, which spin, before main is reached, and nothing but that variable keeps it from doing so. `argv`
 * NULL never does.
 */
void kml_math_threads(unsigned threads, char **argv);

#endif
