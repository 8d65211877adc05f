#include "math/gemm.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS_VARIABLE "OPENBLAS_NUM_THREADS"

static void product(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, size_t m, size_t n, size_t k, float alpha,
                    const float *a, const float *b, float *c)
{
    blasint rows_a = (blasint)(ta == CblasNoTrans ? k : m);
    blasint rows_b = (blasint)(tb == CblasNoTrans ? n : k);
    cblas_sgemm(CblasRowMajor, ta, tb, (blasint)m, (blasint)n, (blasint)k, alpha, a, rows_a, b, rows_b, 0.0f,
                c, (blasint)n);
}

void kml_gemm_nt(size_t m, size_t n, size_t k, float alpha, const float *a, const float *b, float *c)
{
    product(CblasNoTrans, CblasTrans, m, n, k, alpha, a, b, c);
}

void kml_gemm_nn(size_t m, size_t n, size_t k, float alpha, const float *a, const float *b, float *c)
{
    product(CblasNoTrans, CblasNoTrans, m, n, k, alpha, a, b, c);
}

void kml_gemm_tn(size_t m, size_t n, size_t k, float alpha, const float *a, const float *b, float *c)
{
    product(CblasTrans, CblasNoTrans, m, n, k, alpha, a, b, c);
}

/*
 * By its own path, not by /proc/self/exe, whose last part would become the process's name. Comes back only on
 * failure.
 */
static void start_again(char **argv)
{
    char path[4096];
    ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (size > 0) {
        path[size] = '\0';
        (void)execv(path, argv);
    }
}

void kml_math_threads(unsigned threads, char **argv)
{
    char wanted[16];
    (void)snprintf(wanted, sizeof(wanted), "%u", threads == 0 ? 1 : threads);
    const char *now = getenv(THREADS_VARIABLE);
    if (now == NULL || strcmp(now, wanted) != 0) {
        /* The variable is set before, so the second start does not come here again. */
        if (argv != NULL && setenv(THREADS_VARIABLE, wanted, 1) == 0) {
            start_again(argv);
        }
        openblas_set_num_threads((int)(threads == 0 ? 1 : threads));
    }
}
