#include "math/stats.h"

#include <stdlib.h>

double kml_mean(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += x[i];
    }
    return n == 0 ? 0 : sum / (double)n;
}

double kml_variance(const double *x, size_t n)
{
    if (n < 2) {
        return 0;
    }
    double mean = kml_mean(x, n);
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (x[i] - mean) * (x[i] - mean);
    }
    return sum / (double)(n - 1);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

double kml_quantile(double *x, size_t n, double q)
{
    if (n == 0) {
        return 0;
    }
    qsort(x, n, sizeof(*x), ascending);
    double rank = q * (double)(n - 1);
    size_t below = (size_t)rank;
    if (below + 1 >= n) {
        return x[n - 1];
    }
    return x[below] + (rank - (double)below) * (x[below + 1] - x[below]);
}

double kml_median(double *x, size_t n)
{
    return kml_quantile(x, n, 0.5);
}

void kml_ewma_init(struct kml_ewma *e, double weight)
{
    *e = (struct kml_ewma){.weight = weight};
}

double kml_ewma_add(struct kml_ewma *e, double x)
{
    e->value = e->filled ? e->value + e->weight * (x - e->value) : x;
    e->filled = true;
    return e->value;
}
