#ifndef KML_TESTS_UNIT_PS_SETUP_H
#define KML_TESTS_UNIT_PS_SETUP_H

/* What the simulated tests share: a job, a small problem, and a run that must go well. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "tests/sim/sim.h"
#include "tests/unit/seed.h"

#define FEATURES 9
#define CLASSES 4

static inline void make_job(struct kml_job *job, enum kml_job_sync mode, enum kml_job_strategy strategy,
                            uint32_t workers, uint32_t shards)
{
    kml_job_init(job);
    job->sync.mode = mode;
    job->balancing.strategy = strategy;
    job->worker.replicas = workers;
    job->ps.replicas = shards;
    job->training.epochs = 2;
    job->training.batch_size = 8;
    job->training.optimizer.kind = KML_JOB_OPTIMIZER_SGD;
    job->training.optimizer.learning_rate = 0.2;
    job->training.evaluation.every_epochs = 0;
    job->training.evaluation.on_test = false;
}

/* Reads like: everything held, and the job ended in this phase. */
static inline void must_end(const struct sim_report *r, enum kml_phase phase)
{
    if (r->wrong[0] != '\0') {
        fail_msg("%s", r->wrong);
    }
    if (r->phase != phase) {
        fail_msg("the job ended in phase %s: %s: %s", kml_phase_name(r->phase), r->reason, r->message);
    }
}

static inline uint32_t bytes_of(const struct sim_report *r, const struct sim_problem *p)
{
    assert_non_null(r->params);
    return kml_crc32c(0, r->params, p->floats * sizeof(float));
}

/* A network and workers that do what they like, within TCP and a little beyond. */
static inline void make_storm(struct sim_config *c, struct kml_rng *rng)
{
    c->seed = kml_rng_next(rng);
    c->pieces = 1 + (uint32_t)kml_rng_below(rng, 6);
    c->faults = (struct sim_faults){.latency_ns = 1 + kml_rng_below(rng, 4 * KML_MILLISECOND),
                                    .jitter = (double)kml_rng_below(rng, 4),
                                    .late = kml_rng_unit(rng) * 0.1,
                                    .late_ns = kml_rng_below(rng, 300 * KML_MILLISECOND),
                                    .twice = kml_rng_unit(rng) * 0.3,
                                    .overtake = kml_rng_unit(rng) * 0.5};
}

#endif
