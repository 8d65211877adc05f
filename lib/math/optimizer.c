#include "math/optimizer.h"

#include <math.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "math/vec.h"

/* Gradient sum, parameters, two state arrays and the result of one block are 40 KB at most, and mostly less.
 */
#define BLOCK 2048

/* What the kernels need, rounded to float once per call. */
struct numbers {
    float rate;
    float decay;
    float momentum;
    float beta1, one_less_beta1;
    float beta2, one_less_beta2;
    float root_correction2; /* sqrt(1 - beta2^t) */
    float epsilon;
    float keep; /* AdamW: 1 - lr * wd; else 1 */
};

/* `out` may be `p`; each element is read before it is written. */
KML_CLONES static void sgd(const struct numbers *c, float *out, const float *p, const float *g, size_t n)
{
    float rate = c->rate;
    float decay = c->decay;
    for (size_t i = 0; i < n; i++) {
        out[i] = p[i] - rate * (g[i] + decay * p[i]);
    }
}

KML_CLONES static void momentum(const struct numbers *c, float *out, const float *p, const float *g, float *v,
                                size_t n)
{
    float rate = c->rate;
    float decay = c->decay;
    float mu = c->momentum;
    for (size_t i = 0; i < n; i++) {
        v[i] = mu * v[i] + (g[i] + decay * p[i]);
        out[i] = p[i] - rate * v[i];
    }
}

KML_CLONES static void nesterov(const struct numbers *c, float *out, const float *p, const float *g, float *v,
                                size_t n)
{
    float rate = c->rate;
    float decay = c->decay;
    float mu = c->momentum;
    for (size_t i = 0; i < n; i++) {
        float d = g[i] + decay * p[i];
        v[i] = mu * v[i] + d;
        out[i] = p[i] - rate * (d + mu * v[i]);
    }
}

KML_CLONES static void adagrad(const struct numbers *c, float *out, const float *p, const float *g, float *s,
                               size_t n)
{
    float rate = c->rate;
    float decay = c->decay;
    float epsilon = c->epsilon;
    for (size_t i = 0; i < n; i++) {
        float d = g[i] + decay * p[i];
        s[i] += d * d;
        out[i] = p[i] - rate * (d / (sqrtf(s[i]) + epsilon));
    }
}

KML_CLONES static void adam(const struct numbers *c, float *out, const float *p, const float *g, float *m,
                            float *v, size_t n)
{
    struct numbers k = *c; /* out of the way of the stores below */
    for (size_t i = 0; i < n; i++) {
        float d = g[i] + k.decay * p[i];
        m[i] = k.beta1 * m[i] + k.one_less_beta1 * d;
        v[i] = k.beta2 * v[i] + k.one_less_beta2 * (d * d);
        out[i] = p[i] * k.keep - k.rate * (m[i] / (sqrtf(v[i]) / k.root_correction2 + k.epsilon));
    }
}

static struct numbers numbers_of(const struct kml_optimizer *o, const struct kml_optimizer_step *step)
{
    struct numbers c = {
        .rate = (float)step->learning_rate,
        .decay = (float)o->weight_decay,
        .momentum = (float)o->momentum,
        .epsilon = (float)o->epsilon,
        .keep = 1,
    };
    if (o->kind == KML_OPTIMIZER_ADAM || o->kind == KML_OPTIMIZER_ADAMW) {
        double t = (double)step->number;
        c.beta1 = (float)o->beta1;
        c.one_less_beta1 = (float)(1 - o->beta1);
        c.beta2 = (float)o->beta2;
        c.one_less_beta2 = (float)(1 - o->beta2);
        c.root_correction2 = (float)sqrt(1 - pow(o->beta2, t));
        c.rate = (float)(step->learning_rate / (1 - pow(o->beta1, t)));
    }
    if (o->kind == KML_OPTIMIZER_ADAMW) {
        c.keep = (float)(1 - step->learning_rate * o->weight_decay);
        c.decay = 0;
    }
    return c;
}

static void run(enum kml_optimizer_kind kind, const struct numbers *c, float *out, const float *p,
                const float *g, float *s0, float *s1, size_t n)
{
    switch (kind) {
    case KML_OPTIMIZER_SGD:
        sgd(c, out, p, g, n);
        return;
    case KML_OPTIMIZER_MOMENTUM:
        momentum(c, out, p, g, s0, n);
        return;
    case KML_OPTIMIZER_NESTEROV:
        nesterov(c, out, p, g, s0, n);
        return;
    case KML_OPTIMIZER_ADAGRAD:
        adagrad(c, out, p, g, s0, n);
        return;
    case KML_OPTIMIZER_ADAM:
    case KML_OPTIMIZER_ADAMW:
        adam(c, out, p, g, s0, s1, n);
        return;
    }
    KML_BUG_ON(true);
}

uint32_t kml_optimizer_slots(enum kml_optimizer_kind kind)
{
    switch (kind) {
    case KML_OPTIMIZER_SGD:
        return 0;
    case KML_OPTIMIZER_MOMENTUM:
    case KML_OPTIMIZER_NESTEROV:
    case KML_OPTIMIZER_ADAGRAD:
        return 1;
    case KML_OPTIMIZER_ADAM:
    case KML_OPTIMIZER_ADAMW:
        return 2;
    }
    KML_BUG_ON(true);
}

void kml_optimizer_apply(const struct kml_optimizer *o, const struct kml_optimizer_step *step, float *out,
                         const float *param, const float *grad, float *const slot[KML_OPTIMIZER_SLOTS],
                         size_t n)
{
    struct numbers c = numbers_of(o, step);
    uint32_t slots = kml_optimizer_slots(o->kind);
    run(o->kind, &c, out, param, grad, slots > 0 ? slot[0] : NULL, slots > 1 ? slot[1] : NULL, n);
}

void kml_optimizer_commit(const struct kml_optimizer *o, const struct kml_optimizer_step *step, float *out,
                          const float *param, const float *const *grad, const float *coef, uint32_t members,
                          float *const slot[KML_OPTIMIZER_SLOTS], size_t n)
{
    struct numbers c = numbers_of(o, step);
    uint32_t slots = kml_optimizer_slots(o->kind);
    float sum[BLOCK] __attribute__((aligned(64)));
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t size = n - at < BLOCK ? n - at : BLOCK;
        kml_vec_weighted_sum_at(sum, grad, coef, members, at, size);
        run(o->kind, &c, out + at, param + at, sum, slots > 0 ? slot[0] + at : NULL,
            slots > 1 ? slot[1] + at : NULL, size);
    }
}
