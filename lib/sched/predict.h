#ifndef KML_SCHED_PREDICT_H
#define KML_SCHED_PREDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/rng.h"
#include "sched/net.h"
#include "sched/speed.h"

/*
 * Forecasts of the speed of workers (docs/algorithms/predict.md): the mean over the next `horizon` windows,
 * as a lease lasts that long. Four experts run side by side for each worker, on x = ln speed:
 *
 *     last      x
 *     average   exponentially weighted mean of x, weight 0.3
 *     AR(1)     mean over k = 1..horizon of mu + phi^k (x - mu); mu, phi from discounted sums (0.99)
 *     network   x + the read-out of one recurrent network for all workers of the job (sched/net.h). Its
 *               inputs are 4 (x - ln slow mean), ln of CPU over its slow mean, throttled share, pressure, and
 *               for the last three whether they are known
 *
 * The gate takes the expert with the smallest discounted (0.95) |ln(predicted / actual)|, a quarter the
 * worker's own and three quarters the job's mean (its own alone is too short a record to tell experts apart
 * that are nearly alike); the network only once KML_PREDICT_SAMPLES of the worker's forecasts were scored and
 * while its error is KML_PREDICT_BETTER of the best other's or less. Whoever decides is in the answer. So a
 * forecast is never much worse than the best plain one (the idea of a gate is ours; a network fed with CPU
 * readings is that of LB-BSP, Chen et al. 2020).
 *
 * Missing readings are masked. A worker without a speed in a window keeps its state. All numbers but x depend
 * on ratios only, so forecasts scale with the speeds. Same seed and calls, same bytes.
 *
 * Pure; allocates at init only. Not thread-safe; the conductor owns it. kml_predict_window is what a decision
 * waits for; kml_predict_train, constant in the number of workers, can follow when the decision is out.
 */
#define KML_PREDICT_HORIZON_MOST 16
#define KML_PREDICT_SAMPLES 64
#define KML_PREDICT_BETTER 0.98
#define KML_PREDICT_BATCHES 2 /* mini-batches that kml_predict_train makes */

enum kml_expert { KML_EXPERT_LAST, KML_EXPERT_AVERAGE, KML_EXPERT_AR1, KML_EXPERT_NETWORK, KML_EXPERTS };

struct kml_window {
    double speed; /* samples/s of the window; not positive or not finite: none was measured */
    struct kml_usage usage;
};

struct kml_forecast {
    bool known;             /* false: this worker never had a speed */
    double speed;           /* samples/s, mean over the next horizon windows */
    enum kml_expert expert; /* that decided */
};

/* One window of a worker. */
struct kml_predict_step {
    double speed;
    double said[KML_EXPERTS]; /* x as each expert forecast it then */
    float x[KML_NET_INPUTS];
    float h[KML_NET_HIDDEN]; /* state before it */
    float target;            /* ln(mean speed of the next windows / speed), once it is known */
};

/* What is known of a worker. x = ln speed - origin, so that no number depends on the unit. */
struct kml_track {
    uint64_t windows;        /* with a speed */
    double origin;           /* ln of the first speed */
    double x, average, slow; /* the last, weight 0.3, slow mean */
    uint64_t cpu_windows;
    double slow_cpu;                            /* of ln cores */
    double pairs, now, before, product, square; /* discounted sums over pairs (x before, x now): of 1, x now,
                                                   x before, both, x before squared */
    uint64_t scored;
    double error[KML_EXPERTS]; /* discounted |ln(predicted / actual)| */
    double h[KML_NET_HIDDEN];
    enum kml_expert expert; /* the gate's choice */
};

struct kml_predict {
    uint32_t workers, horizon;
    uint32_t length; /* windows of history for each worker */
    struct kml_rng rng;
    struct kml_net net;
    struct kml_track *track;       /* [workers] */
    struct kml_predict_step *step; /* [length][workers]: step k of worker i at [k % length][i] */
    struct kml_net_batch *batch;   /* scratch */
    struct kml_net_tape *tape;     /* scratch */
    uint32_t *eligible;            /* scratch, [workers] */
};

/* workers >= 1, horizon 1..KML_PREDICT_HORIZON_MOST, else KML_INVALID. */
int kml_predict_init(struct kml_predict *p, uint32_t workers, uint32_t horizon, uint64_t seed,
                     struct kml_err *err) KML_MUST_CHECK;
void kml_predict_finish(struct kml_predict *p);

/* A window is over: takes in [workers] measurements, gives [workers] forecasts. */
void kml_predict_window(struct kml_predict *p, const struct kml_window *in, struct kml_forecast *out);

/* What an expert says about a worker, samples/s, whoever decided; 0 when the worker is unknown. */
double kml_predict_by(const struct kml_predict *p, uint32_t worker, enum kml_expert e);

/* Trains the network on what has been seen. Nothing happens while histories are too short. */
void kml_predict_train(struct kml_predict *p);

/* A new process runs as this worker: forgets its history, keeps the network. */
void kml_predict_forget(struct kml_predict *p, uint32_t worker);

const char *kml_expert_name(enum kml_expert e); /* "LastValue" */

#endif
