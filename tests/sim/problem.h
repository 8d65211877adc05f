#ifndef KML_TESTS_SIM_PROBLEM_H
#define KML_TESTS_SIM_PROBLEM_H

#include <stdint.h>

#include "base/err.h"
#include "sync/layout.h"

/*
 * What is trained in a simulation: softmax regression in float32 on a small synthetic set, the same bytes for
 * the same seed. Samples are in splits 0 train, 1 validation, 2 test.
 *
 * The parameters are weight[classes][features], then bias[classes]. A sample's loss is rounded to a multiple
 * of 2^-20, so that sums of losses are exact and do not depend on the order in which parts come in.
 */
enum sim_split { SIM_TRAIN, SIM_VALIDATION, SIM_TEST, SIM_SPLITS };

struct sim_problem {
    uint32_t features, classes;
    uint32_t count[SIM_SPLITS];
    float *x[SIM_SPLITS];        /* [count][features] */
    uint32_t *label[SIM_SPLITS]; /* [count] */
    uint64_t stride;             /* of the order of an epoch: prime to count[SIM_TRAIN] */
    uint32_t floats;             /* parameters */
};

struct sim_score {
    double loss_sum;
    uint64_t correct, samples;
};

void sim_problem_init(struct sim_problem *p, uint64_t seed, uint32_t features, uint32_t classes,
                      uint32_t train, uint32_t validation, uint32_t test);
void sim_problem_finish(struct sim_problem *p);

void sim_problem_layout(const struct sim_problem *p, struct kml_layout *out);
void sim_problem_start(const struct sim_problem *p, float *params); /* version 0 */

/* Which training sample is at a position of an epoch's order. */
uint32_t sim_problem_sample(const struct sim_problem *p, uint32_t epoch, uint64_t position);

/* The mean gradient over some training samples, and their score. */
void sim_problem_gradient(const struct sim_problem *p, const float *params, const uint32_t *sample,
                          uint32_t count, float *gradient, struct sim_score *score);

/* Adds samples [begin, end) of a split to *score. */
void sim_problem_evaluate(const struct sim_problem *p, const float *params, enum sim_split split,
                          uint64_t begin, uint64_t end, struct sim_score *score);

#endif
