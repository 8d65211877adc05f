#include "tests/sim/problem.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "math/softmax.h"

#define CLASSES_MAX 128

static void make_split(struct sim_problem *p, enum sim_split split, uint32_t count, struct kml_rng *rng,
                       const double *truth)
{
    p->count[split] = count;
    p->x[split] = KML_NEW_ARRAY((size_t)count * p->features, float);
    p->label[split] = KML_NEW_ARRAY(count, uint32_t);
    for (uint32_t i = 0; i < count; i++) {
        float *x = p->x[split] + (size_t)i * p->features;
        double best = -INFINITY;
        for (uint32_t f = 0; f < p->features; f++) {
            x[f] = (float)(kml_rng_unit(rng) * 2 - 1);
        }
        for (uint32_t c = 0; c < p->classes; c++) {
            double z = 0.3 * kml_rng_normal(rng);
            for (uint32_t f = 0; f < p->features; f++) {
                z += truth[(size_t)c * p->features + f] * (double)x[f];
            }
            p->label[split][i] = z > best ? c : p->label[split][i];
            best = z > best ? z : best;
        }
    }
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void sim_problem_init(struct sim_problem *p, uint64_t seed, uint32_t features, uint32_t classes,
                      uint32_t train, uint32_t validation, uint32_t test)
{
    KML_BUG_ON(classes > CLASSES_MAX);
    *p = (struct sim_problem){.features = features, .classes = classes, .floats = classes * (features + 1)};
    struct kml_rng rng;
    kml_rng_init(&rng, seed);
    double *truth = KML_NEW_ARRAY((size_t)classes * features, double);
    for (uint32_t i = 0; i < classes * features; i++) {
        truth[i] = kml_rng_normal(&rng);
    }
    make_split(p, SIM_TRAIN, train, &rng, truth);
    make_split(p, SIM_VALIDATION, validation, &rng, truth);
    make_split(p, SIM_TEST, test, &rng, truth);
    kml_free(truth);
    p->stride = train * UINT64_C(5) / 8 + 1;
    while (common_divisor(p->stride, train) != 1) {
        p->stride++;
    }
}

void sim_problem_finish(struct sim_problem *p)
{
    for (int s = 0; s < SIM_SPLITS; s++) {
        kml_free(p->x[s]);
        kml_free(p->label[s]);
    }
    *p = (struct sim_problem){.floats = 0};
}

void sim_problem_layout(const struct sim_problem *p, struct kml_layout *out)
{
    struct kml_err err;
    uint32_t weight[2] = {p->classes, p->features};
    kml_layout_init(out);
    KML_BUG_ON(kml_layout_add(out, "layer.0.weight", weight, 2, &err) < 0);
    KML_BUG_ON(kml_layout_add(out, "layer.0.bias", weight, 1, &err) < 0);
}

void sim_problem_start(const struct sim_problem *p, float *params)
{
    struct kml_rng rng;
    kml_rng_init(&rng, p->floats);
    for (uint32_t i = 0; i < p->floats; i++) {
        params[i] = (float)(kml_rng_unit(&rng) * 0.2 - 0.1);
    }
}

uint32_t sim_problem_sample(const struct sim_problem *p, uint32_t epoch, uint64_t position)
{
    return (uint32_t)((position * p->stride + 13 * (uint64_t)epoch) % p->count[SIM_TRAIN]);
}

/* Logits become softmax - onehot. */
static void forward(const struct sim_problem *p, const float *params, const float *x, uint32_t label,
                    float *z, struct sim_score *score)
{
    const float *bias = params + (size_t)p->classes * p->features;
    for (uint32_t c = 0; c < p->classes; c++) {
        float sum = bias[c];
        for (uint32_t f = 0; f < p->features; f++) {
            sum += params[(size_t)c * p->features + f] * x[f];
        }
        z[c] = sum;
    }
    double loss = 0;
    score->correct += kml_softmax_loss_rows(z, 1, p->classes, &label, &loss);
    score->loss_sum += ldexp(round(ldexp(loss, 20)), -20);
    score->samples++;
}

void sim_problem_gradient(const struct sim_problem *p, const float *params, const uint32_t *sample,
                          uint32_t count, float *gradient, struct sim_score *score)
{
    float z[CLASSES_MAX];
    memset(gradient, 0, p->floats * sizeof *gradient);
    for (uint32_t i = 0; i < count; i++) {
        const float *x = p->x[SIM_TRAIN] + (size_t)sample[i] * p->features;
        forward(p, params, x, p->label[SIM_TRAIN][sample[i]], z, score);
        for (uint32_t c = 0; c < p->classes; c++) {
            for (uint32_t f = 0; f < p->features; f++) {
                gradient[(size_t)c * p->features + f] += z[c] * x[f];
            }
            gradient[(size_t)p->classes * p->features + c] += z[c];
        }
    }
    for (uint32_t i = 0; i < p->floats; i++) {
        gradient[i] /= (float)count;
    }
}

void sim_problem_evaluate(const struct sim_problem *p, const float *params, enum sim_split split,
                          uint64_t begin, uint64_t end, struct sim_score *score)
{
    float z[CLASSES_MAX];
    for (uint64_t i = begin; i < end; i++) {
        forward(p, params, p->x[split] + i * p->features, p->label[split][i], z, score);
    }
}
