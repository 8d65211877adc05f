#ifndef KML_CLI_TENSORSTATS_H
#define KML_CLI_TENSORSTATS_H

#include <stdint.h>

#include "store/safetensors.h"

/*
 * What the numbers of a tensor look like. NaN and Inf are counted and left out of the rest; a tensor without
 * a finite element has mean, deviation, least and most 0. Mean and deviation by Welford's update, so large
 * means lose nothing.
 */
struct kml_tensor_stats {
    uint64_t elements;
    uint64_t non_finite;
    double mean;
    double deviation; /* of the population: divided by n */
    double least;
    double most;
};

/* Pure. Every dtype of the format is read; 64-bit integers are rounded to doubles. */
void kml_tensor_stats_of(const struct kml_tensor *tensor, struct kml_tensor_stats *out);

/* One element as a number: `at` needs no alignment. */
double kml_tensor_number(enum kml_dtype dtype, const uint8_t *at);

#endif
