#include "worker/model.h"

#include <math.h>

#include "base/mem.h"
#include "math/softmax.h"
#include "worker/layer.h"

/*
 * All arrays are parts of one block. out[k] is what layer k puts out (after its activation; logits for the
 * last), and the last one turns into the loss's derivative in place. delta[] take turns as the derivative of
 * hidden layers.
 */
struct kml_workspace {
    uint32_t max_batch;
    float *out[KML_MODEL_LAYERS];
    float *delta[2];
    float block[];
};

#define ALIGN_FLOATS 16 /* rows of a cache line */

static size_t padded(size_t floats)
{
    return (floats + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

static size_t widest_hidden(const struct kml_model *m)
{
    size_t widest = 0;
    for (uint32_t k = 0; k + 1 < m->layers; k++) {
        widest = m->layer[k].out > widest ? m->layer[k].out : widest;
    }
    return widest;
}

struct kml_workspace *kml_workspace_create(const struct kml_model *m, uint32_t max_batch, struct kml_err *err)
{
    KML_BUG_ON(max_batch == 0);
    size_t delta = padded(widest_hidden(m) * max_batch);
    size_t floats = 2 * delta + ALIGN_FLOATS;
    for (uint32_t k = 0; k < m->layers; k++) {
        floats += padded((size_t)m->layer[k].out * max_batch);
    }
    struct kml_workspace *w = kml_try_alloc(sizeof(*w) + floats * sizeof(float));
    if (w == NULL) {
        (void)kml_fail(err, KML_NO_MEMORY, "no memory for the activations of %u samples (%zu MB)", max_batch,
                       floats * sizeof(float) >> 20);
        return NULL;
    }
    w->max_batch = max_batch;
    float *at = (float *)(((uintptr_t)w->block + 63) / 64 * 64);
    for (uint32_t k = 0; k < m->layers; k++) {
        w->out[k] = at;
        at += padded((size_t)m->layer[k].out * max_batch);
    }
    w->delta[0] = at;
    w->delta[1] = at + delta;
    return w;
}

void kml_workspace_destroy(struct kml_workspace *w)
{
    kml_free(w);
}

static const float *input_of(const struct kml_workspace *w, const struct kml_model_batch *batch,
                             uint32_t layer)
{
    return layer == 0 ? batch->x : w->out[layer - 1];
}

static void forward(const struct kml_model *m, struct kml_workspace *w, const float *params,
                    const struct kml_model_batch *batch)
{
    KML_BUG_ON(batch->n == 0 || batch->n > w->max_batch);
    uint32_t last = m->layers - 1;
    for (uint32_t k = 0; k < last; k++) {
        kml_dense_forward_active(&m->layer[k], params, m->spec.activation, input_of(w, batch, k), batch->n,
                                 w->out[k]);
    }
    kml_dense_forward(&m->layer[last], params, input_of(w, batch, last), batch->n, w->out[last]);
}

static void squared_loss(float *y, const float *target, uint32_t n, double *loss_sum)
{
    for (uint32_t i = 0; i < n; i++) {
        double d = (double)y[i] - (double)target[i];
        *loss_sum += d * d;
        y[i] = (float)(2 * d);
    }
}

/* log(1 + e^z) = max(z, 0) + log(1 + e^-|z|), which neither overflows nor cancels. */
static uint64_t logistic_loss(float *z, const uint32_t *label, uint32_t n, double *loss_sum)
{
    uint64_t correct = 0;
    for (uint32_t i = 0; i < n; i++) {
        double v = (double)z[i];
        double small = exp(-fabs(v));
        *loss_sum += (v < 0 ? 0 : v) + log1p(small) - (label[i] != 0 ? v : 0);
        correct += !isnan(v) && (v > 0) == (label[i] != 0);
        double sigmoid = v < 0 ? small / (1 + small) : 1 / (1 + small);
        z[i] = (float)(sigmoid - (label[i] != 0 ? 1 : 0));
    }
    return correct;
}

/* The last layer's output becomes the derivative of the summed loss by it. */
static void loss(const struct kml_model *m, struct kml_workspace *w, const struct kml_model_batch *batch,
                 struct kml_score *score)
{
    float *out = w->out[m->layers - 1];
    switch (m->spec.kind) {
    case KML_MODEL_LINEAR:
        squared_loss(out, batch->target, batch->n, &score->loss_sum);
        break;
    case KML_MODEL_LOGISTIC:
        score->correct += logistic_loss(out, batch->label, batch->n, &score->loss_sum);
        break;
    case KML_MODEL_SOFTMAX:
    case KML_MODEL_MLP:
        score->correct +=
            kml_softmax_loss_rows(out, batch->n, m->spec.classes, batch->label, &score->loss_sum);
        break;
    }
    score->samples += batch->n;
}

void kml_model_gradient(const struct kml_model *m, struct kml_workspace *w, const float *params,
                        const struct kml_model_batch *batch, float *grad, kml_gradient_ready *ready,
                        void *self, struct kml_score *score)
{
    forward(m, w, params, batch);
    loss(m, w, batch, score);
    const float *delta = w->out[m->layers - 1];
    for (uint32_t k = m->layers; k-- > 0;) {
        const struct kml_model_layer *l = &m->layer[k];
        const float *input = input_of(w, batch, k);
        kml_dense_gradient(l, delta, input, batch->n, grad);
        if (ready != NULL) {
            ready(self, l->weight, l->bias + l->out - l->weight);
        }
        if (k > 0) { /* nobody needs the derivative by the data */
            float *next = w->delta[k % 2];
            kml_dense_backward(l, params, m->spec.activation, delta, input, batch->n, next);
            delta = next;
        }
    }
}

void kml_model_evaluate(const struct kml_model *m, struct kml_workspace *w, const float *params,
                        const struct kml_model_batch *batch, struct kml_score *score)
{
    forward(m, w, params, batch);
    loss(m, w, batch, score);
}
