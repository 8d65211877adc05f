#ifndef KML_MATH_STATS_H
#define KML_MATH_STATS_H

#include <stdbool.h>
#include <stddef.h>

/* Statistics of small samples of doubles. Empty input gives 0. `sorted` helpers order the caller's array in
 * place. */
double kml_mean(const double *x, size_t n);
double kml_variance(const double *x, size_t n); /* unbiased, n - 1; 0 for n < 2 */
double kml_median(double *x, size_t n);         /* sorts x */
double kml_quantile(double *x, size_t n,
                    double q); /* sorts x; linear between ranks (Hyndman and Fan, type 7); q in [0, 1] */

/* Exponentially weighted mean: the first value counts fully, later ones by `weight` in (0, 1]. */
struct kml_ewma {
    double weight;
    double value;
    bool filled;
};
void kml_ewma_init(struct kml_ewma *e, double weight);
double kml_ewma_add(struct kml_ewma *e, double x); /* the new value */

#endif
