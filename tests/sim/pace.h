#ifndef KML_TESTS_SIM_PACE_H
#define KML_TESTS_SIM_PACE_H

#include <stdint.h>

#include "base/rng.h"

/*
 * How fast workers are. A speed is constant inside a window of time, 1 is nominal. Whoever has another story
 * to tell (a recorded trace, a processor whose load shows before the speed falls) gives a function of his
 * own; all of them must answer the same whenever they are asked again, so that a run replays.
 */
struct sim_pace {
    double (*speed)(void *self, uint32_t worker, uint64_t window); /* > 0 */
    void *self;
    uint64_t window_ns; /* length of a window */
};

/* How long `work_ns` of nominal work takes a worker that starts at `now`. */
uint64_t sim_pace_duration(const struct sim_pace *p, uint32_t worker, uint64_t now, uint64_t work_ns);

enum sim_pace_kind {
    SIM_PACE_STATIC, /* base */
    SIM_PACE_DRIFT,  /* base * (1 + spread * sine of `period` windows, each worker with a phase of its own) */
    SIM_PACE_AR1,    /* base * exp(x), x' = correlation * x + spread * sqrt(1 - correlation^2) * normal */
    SIM_PACE_BURST   /* base, but 1 / (1 + spread) of it in a window with the chance 1 / period */
};

/* The usual stories. Worker w has base[w % bases]; no bases: 1. */
struct sim_paces {
    enum sim_pace_kind kind;
    const double *base;
    uint32_t bases;
    double spread, correlation;
    uint32_t period; /* windows */
    uint64_t seed;
};

struct sim_pace sim_paces_of(struct sim_paces *p, uint64_t window_ns); /* borrows p */

#endif
