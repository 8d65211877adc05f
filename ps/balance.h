#ifndef KML_PS_BALANCE_H
#define KML_PS_BALANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "job/job.h"
#include "sched/predict.h"
#include "sched/speed.h"
#include "sched/wlbs.h"

/*
 * How many samples each worker gets for a step: the balancing strategies WLBS and AutoWLBS in their batch
 * form (docs/algorithms/wlbs.md, predict.md). It joins what lib/sched offers: speeds measured from the
 * workers' own step times, for AutoWLBS their forecast, and the division of m * B samples by them. With the
 * other strategies it is idle and every worker gets B.
 *
 * Pure: no clock; seeded by the job's seed, so the same reports make the same shares. The conductor owns it.
 */
struct kml_balance_reading {
    bool known;
    double value;
    uint64_t at_ns; /* when it was measured */
};

struct kml_balance_readings {
    struct kml_balance_reading cpu, throttled; /* as in struct kml_usage */
};

struct kml_balance {
    bool on;
    bool forecasts; /* AutoWLBS */
    uint32_t workers;
    uint64_t nominal;                      /* B */
    struct kml_speed *speed;               /* [workers] */
    struct kml_balance_readings *readings; /* [workers], the newest */
    struct kml_wlbs wlbs;
    struct kml_predict predict;
    bool *present;                 /* [workers], scratch of a look */
    struct kml_window *window;     /* [workers], scratch */
    struct kml_forecast *forecast; /* [workers], the newest */
    struct kml_share_input *input; /* [workers], scratch */
    double rounds;                 /* steps so far per worker of the crew that made them */
};

int kml_balance_init(struct kml_balance *b, const struct kml_job *job, struct kml_err *err) KML_MUST_CHECK;
void kml_balance_finish(struct kml_balance *b);

/* A step of one of `crew` present workers is committed: `samples` in `compute_ns` of its own time. */
void kml_balance_step(struct kml_balance *b, uint32_t worker, uint32_t crew, uint64_t samples,
                      uint64_t compute_ns);

/* What a driver said of a worker's CPU, in cores, and what the worker itself said of the share of its last
 * step in which it was throttled. They are masked when unknown, and when they are old at a look. */
void kml_balance_cpu(struct kml_balance *b, uint32_t worker, struct kml_balance_reading cores);
void kml_balance_throttled(struct kml_balance *b, uint32_t worker, struct kml_balance_reading share);

/* Another process runs as this worker, maybe on another machine: what was measured does not hold any more. */
void kml_balance_forget(struct kml_balance *b, uint32_t worker);

/*
 * Looks at the shares if it is time. True: `out` is a change, applied or, with dryRun, only recorded; its
 * lines are valid until the next look.
 */
bool kml_balance_look(struct kml_balance *b, uint64_t now, const bool *present,
                      struct kml_share_decision *out);

/* Samples of this worker's next step, at least 1. */
uint64_t kml_balance_want(const struct kml_balance *b, uint32_t worker);

/* What is known of a worker, for people: measured and, with AutoWLBS, predicted samples/s; 0: unknown. */
double kml_balance_measured(const struct kml_balance *b, uint32_t worker);
double kml_balance_predicted(const struct kml_balance *b, uint32_t worker);

#endif
