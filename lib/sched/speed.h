#ifndef KML_SCHED_SPEED_H
#define KML_SCHED_SPEED_H

#include <stdbool.h>
#include <stdint.h>

/*
 * How fast a worker is, from its own step times (docs/algorithms/speed.md).
 *
 *     seconds of a step with b samples  =  fixed + per_sample * b
 *
 * The model is that of LBB's online fit, a0 + a1 * b; how to fit it robustly is our reading:
 *   - `fixed` is the Theil-Sen line's (Theil 1950, Sen 1968) over the last KML_SPEED_RING steps, with slopes
 * of pairs whose batches differ by a quarter or more. While there are fewer than KML_SPEED_PAIRS of them it
 *     keeps its value, 0 at the beginning: with one batch size a step's time says nothing about the two
 * parts. It stays in [0, KML_SPEED_FIXED_MOST * shortest step], so that a change of speed between two batch
 * sizes cannot turn all the time into fixed cost;
 *   - `per_sample` is the median of (seconds - fixed) / b over the last KML_SPEED_RECENT steps. So a new
 * speed shows after KML_SPEED_RECENT / 2 + 1 steps, and an outlier (a paused pod) not at all.
 *
 * Between any two calls: unknown, or per_sample > 0 and fixed >= 0, both finite. Pure, no allocation; the
 * struct may be copied. Not thread-safe; the conductor owns one for each worker. A refit costs about a
 * microsecond and is made by kml_speed_add, so a decision only reads.
 */
#define KML_SPEED_RING 24
#define KML_SPEED_RECENT 9
#define KML_SPEED_PAIRS 12
#define KML_SPEED_FIXED_MOST 0.75
#define KML_SPEED_BURST 3.0

struct kml_speed_step {
    double batch; /* samples */
    double seconds;
};

struct kml_speed {
    double nominal;                             /* B, samples of the nominal batch */
    double fixed, per_sample;                   /* seconds; per_sample 0: not known yet */
    uint64_t steps;                             /* taken in so far */
    uint32_t window;                            /* of them since the last kml_speed_window */
    double window_seconds;                      /* that those took, each at the nominal batch */
    struct kml_speed_step ring[KML_SPEED_RING]; /* step k is ring[k % KML_SPEED_RING] */
};

void kml_speed_init(struct kml_speed *s, uint64_t nominal); /* nominal >= 1 */

/* A finished step. False, and nothing changes, when the numbers are no step's: no sample, a time that is not
 * positive, not finite or beyond a day. */
bool kml_speed_add(struct kml_speed *s, uint64_t batch, double seconds);

bool kml_speed_known(const struct kml_speed *s);

/* Predicted seconds of a step of so many samples, and of one of the nominal batch; 0 when not known. */
double kml_speed_time(const struct kml_speed *s, double batch);
double kml_speed_nominal_time(const struct kml_speed *s);

/* Ends a window: samples per second over its steps, each brought to the nominal batch, and to KML_SPEED_BURST
 * times the estimate at most: a pause counts, but it does not make the window. 0 when no step came since the
 * last call. */
double kml_speed_window(struct kml_speed *s);

/*
 * What is reported beside the step times. CPU use is not speed: a throttled worker and one that waits for the
 * network both show little of it. So it is an input of the forecast (sched/predict.h) and nothing else, and
 * an input that is not there is masked, never taken as zero.
 */
struct kml_reading {
    bool known;
    double value;
    double age; /* seconds since it was measured */
};

struct kml_usage {
    struct kml_reading cpu;       /* cores */
    struct kml_reading throttled; /* share of the cgroup's periods that were throttled, 0..1 */
    struct kml_reading pressure;  /* share of the time in which something waited for a CPU (PSI), 0..1 */
};

#define KML_READING_OLDEST 60.0 /* seconds; older is stale */
#define KML_CORES_MOST 4096.0

/* The readings after the mask: 0 wherever `known` is false. Masked are those that are missing, stale, of
 * negative age, not finite or out of range, and a CPU use of 0 (a worker that computes uses some: that is how
 * the metrics API shows that it has no sample yet). No throttling and no pressure are readings like others.
 */
struct kml_signals {
    double cpu, throttled, pressure;
    bool cpu_known, throttled_known, pressure_known;
};
struct kml_signals kml_usage_signals(const struct kml_usage *u);

#endif
