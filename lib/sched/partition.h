#ifndef KML_SCHED_PARTITION_H
#define KML_SCHED_PARTITION_H

#include <stdint.h>

/*
 * Partitions of a sorted row into contiguous parts (docs/algorithms/groups.md). A partition of t[0..count-1],
 * ascending and positive, is written as starts: part g is [start[g], start[g + 1]), start[0] = 0 and
 * start[parts] = count; `start` is the caller's array of [count + 1]. Pure, no allocation.
 */

/* Greedy ratio cover: a part takes in workers while t <= ratio * its fastest. It has the fewest parts of all
 * partitions with max / min <= ratio in each (interval cover). Returns the parts. */
uint32_t kml_partition_cover(const double *t, uint32_t count, double ratio, uint32_t *start);

/* While there is more than one part: the smallest part with fewer than `least` members (the first of equals)
 * joins the neighbour that is nearer in ln t across the gap (the faster one of equals). Returns the parts. */
uint32_t kml_partition_merge(const double *t, uint32_t *start, uint32_t parts, uint32_t least);

/*
 * Exactly `parts` parts of at least `least` members with the smallest sum of squared deviations of x (= ln t)
 * from its part's mean (Fisher 1958; the exact one-dimensional k-means). The cost obeys the quadrangle
 * inequality, so the best cuts are monotone and dynamic programming by halves needs O(parts * count * log
 * count). parts * least <= count, parts >= 1. `room` is the caller's [5 * (count + 1)], `cut` its [parts *
 * (count + 1)].
 */
void kml_partition_best(const double *x, uint32_t count, uint32_t parts, uint32_t least, uint32_t *start,
                        double *room, uint32_t *cut);

/* Sum of squared deviations of a partition of x. */
double kml_partition_cost(const double *x, const uint32_t *start, uint32_t parts);

/* Samples-steps per second: sum over parts of members / slowest member's time. */
double kml_partition_rate(const double *t, const uint32_t *start, uint32_t parts);

#endif
