#ifndef KML_SCHED_SPLIT_H
#define KML_SCHED_SPLIT_H

#include <stdint.h>

/*
 * Divisions of a whole number of tasks (samples) over workers (docs/algorithms/wlbs.md). Worker i needs
 * fixed_i + per_sample_i * n seconds for n tasks, and nothing for none.
 *
 * All of them: shares add up to `total` exactly; ties go to the lowest index; the same input gives the same
 * shares. Pure, no allocation: `room` and `real` are the caller's, [count], overwritten. Costs are finite,
 * fixed
 * >= 0, per_sample > 0; weights are finite and >= 0 with a positive sum; minimum * count <= total. Else it is
 * a bug of the caller.
 */
struct kml_cost {
    double fixed, per_sample; /* seconds */
};

struct kml_split_room {
    double key;
    uint32_t index;
};

/* Whole numbers beside `real` (>= 0, sum = total up to rounding errors), by the largest remainder (Hamilton
 * 1792): |share - real| < 1. */
void kml_split_round(const double *real, uint32_t count, uint64_t total, uint64_t *share,
                     struct kml_split_room *room);

/* share_i proportional to weight_i, rounded by the largest remainder. Who would get less than `minimum` gets
 * it; the rest is divided over the others in proportion. `real` [count] gets the division before rounding. */
void kml_split_proportional(const double *weight, uint32_t count, uint64_t total, uint64_t minimum,
                            uint64_t *share, double *real, struct kml_split_room *room);

/*
 * Water-filling: the real-valued division that lets all end at the same time,
 *     n_i = max(minimum, (level - fixed_i) / per_sample_i),   sum n_i = total.
 * Returns the level, seconds. Without a binding minimum: (total + sum fixed/per_sample) / sum 1/per_sample.
 */
double kml_split_level(const struct kml_cost *cost, uint32_t count, uint64_t total, uint64_t minimum,
                       double *real);

/*
 * The whole-number division with the smallest makespan: from `minimum` each, every further task goes to whom
 * it would end first with, the smallest fixed_i + (n_i + 1) * per_sample_i. Optimal by exchange: any division
 * with a smaller makespan would have to use keys that this one has passed over. All keys below the water
 * level are taken at once, so it costs O(count log count) and not O(total log count).
 */
void kml_split_optimal(const struct kml_cost *cost, uint32_t count, uint64_t total, uint64_t minimum,
                       uint64_t *share, double *real, struct kml_split_room *room);

/* max over workers with a share of fixed + per_sample * share. */
double kml_split_makespan(const struct kml_cost *cost, const uint64_t *share, uint32_t count);

#endif
