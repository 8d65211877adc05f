#ifndef KML_MATH_OPTIMIZER_H
#define KML_MATH_OPTIMIZER_H

#include <stddef.h>
#include <stdint.h>

/*
 * Optimisers on ranges of float32, as PyTorch 1.13 defines them (torch.optim, dampening 0, amsgrad off):
 *
 *   SGD       g += wd * p;  p -= lr * g
 *   Momentum  g += wd * p;  v = mu * v + g;  p -= lr * v
 *   Nesterov  g += wd * p;  v = mu * v + g;  p -= lr * (g + mu * v)
 *   Adagrad   g += wd * p;  s += g^2;  p -= lr * g / (sqrt(s) + eps)
 *   Adam      g += wd * p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
 *             p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)               (Kingma, Ba 2015)
 *   AdamW     p *= 1 - lr * wd, then Adam without wd                            (Loshchilov, Hutter 2019)
 *
 * The learning rate of a step already carries the schedule and the step scale: a scale on the gradient would
 * cancel in Adam. State starts as zeros, [slots] arrays of the parameters' length.
 *
 * Invariant: a call on any sub-range writes the same bytes there as one call on the whole (see math/vec.h),
 * so the result does not depend on the number of shards. Pure; any thread, on ranges that do not overlap.
 */
enum kml_optimizer_kind {
    KML_OPTIMIZER_SGD,
    KML_OPTIMIZER_MOMENTUM,
    KML_OPTIMIZER_NESTEROV,
    KML_OPTIMIZER_ADAGRAD,
    KML_OPTIMIZER_ADAM,
    KML_OPTIMIZER_ADAMW,
};

#define KML_OPTIMIZER_SLOTS 2 /* the most that any kind needs */

struct kml_optimizer {
    enum kml_optimizer_kind kind;
    double momentum; /* Momentum, Nesterov */
    double beta1;    /* Adam, AdamW */
    double beta2;
    double epsilon;      /* Adagrad, Adam, AdamW */
    double weight_decay; /* L2 in the gradient; decoupled in AdamW */
};

/* What differs from step to step. */
struct kml_optimizer_step {
    double learning_rate; /* base rate * schedule * step scale */
    uint64_t number;      /* of this step: 1 for the first (Adam's t) */
};

uint32_t kml_optimizer_slots(enum kml_optimizer_kind kind); /* 0, 1 or 2 state arrays */

/*
 * out[i] = the optimiser's new value of param[i] under grad[i]; state arrays change in place. out may be
 * param, and never overlaps anything else. slot[k] is only read for k < kml_optimizer_slots.
 */
void kml_optimizer_apply(const struct kml_optimizer *o, const struct kml_optimizer_step *step, float *out,
                         const float *param, const float *grad, float *const slot[KML_OPTIMIZER_SLOTS],
                         size_t n);

/*
 * The commit of the parameter server, in one pass over blocks that stay in the first-level cache:
 * kml_optimizer_apply with grad = kml_vec_weighted_sum(member gradients, coef), bit for bit. Parameters are
 * immutable versions, so `out` is a new buffer.
 */
void kml_optimizer_commit(const struct kml_optimizer *o, const struct kml_optimizer_step *step, float *out,
                          const float *param, const float *const *grad, const float *coef, uint32_t members,
                          float *const slot[KML_OPTIMIZER_SLOTS], size_t n);

#endif
