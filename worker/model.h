#ifndef KML_WORKER_MODEL_H
#define KML_WORKER_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * The models: a stack of dense layers over one flat float32 vector of parameters.
 *
 *   kind      layers                              output    loss of one sample         in torch.nn
 *   Linear    features -> 1                       y         (y - t)^2                  MSELoss
 *   Logistic  features -> 1                       logit z   log(1 + e^z) - label * z   BCEWithLogitsLoss
 *   Softmax   features -> classes                 logits    -log softmax(z)[label]     CrossEntropyLoss
 *   MLP       features -> hidden ... -> classes   logits    as Softmax                 CrossEntropyLoss
 *
 * Layer N has "layer.N.weight" [out, in] and "layer.N.bias" [out], as torch.nn.Linear: y = x W' + b. The flat
 * vector holds layer.0.weight, layer.0.bias, layer.1.weight, ... without holes.
 *
 * The model itself is immutable once made; what a step needs is in a workspace, one per thread, made once.
 * Steps allocate nothing. Gradients are means over the batch, losses and counts are sums.
 */
#define KML_MODEL_HIDDEN 8
#define KML_MODEL_LAYERS (KML_MODEL_HIDDEN + 1)
#define KML_MODEL_TENSORS (2 * KML_MODEL_LAYERS)
#define KML_MODEL_NAME 32

enum kml_model_kind { KML_MODEL_LINEAR, KML_MODEL_LOGISTIC, KML_MODEL_SOFTMAX, KML_MODEL_MLP };
enum kml_activation { KML_ACTIVATION_RELU, KML_ACTIVATION_TANH, KML_ACTIVATION_SIGMOID };

struct kml_model_spec {
    enum kml_model_kind kind;
    enum kml_activation activation;    /* MLP */
    uint32_t features;                 /* of the data */
    uint32_t classes;                  /* of the data; Logistic wants 2, Linear ignores it */
    uint32_t hidden[KML_MODEL_HIDDEN]; /* MLP: widths */
    uint32_t hidden_count;             /* MLP: 1 .. KML_MODEL_HIDDEN */
};

struct kml_model_tensor {
    char name[KML_MODEL_NAME];
    uint32_t dims; /* 2: weight, 1: bias */
    uint32_t dim[2];
    size_t offset; /* in floats, in the flat vector */
    size_t size;   /* floats */
};

struct kml_model_layer {
    uint32_t in;
    uint32_t out;
    size_t weight; /* offsets in floats */
    size_t bias;
};

struct kml_model {
    struct kml_model_spec spec;
    uint32_t layers;
    struct kml_model_layer layer[KML_MODEL_LAYERS];
    uint32_t tensors;
    struct kml_model_tensor tensor[KML_MODEL_TENSORS];
    size_t size; /* floats of all parameters */
};

/*
 * Computes the layout. KML_INVALID when the kind does not fit the data (Logistic with 10 classes),
 * KML_TOO_LARGE above 2^31 floats.
 */
int kml_model_init(struct kml_model *m, const struct kml_model_spec *spec,
                   struct kml_err *err) KML_MUST_CHECK;

/*
 * Seeded first values, those of torch.nn.Linear: weights and biases uniform in +-1/sqrt(in) (He-uniform with
 * a = sqrt(5)). Layer N draws from stream N of the seed, weights first: the same on every machine, whoever
 * asks.
 */
void kml_model_seed(const struct kml_model *m, uint64_t seed, float *params);

struct kml_workspace;
struct kml_workspace *kml_workspace_create(const struct kml_model *m, uint32_t max_batch,
                                           struct kml_err *err) KML_MUST_CHECK;
void kml_workspace_destroy(struct kml_workspace *w);

/* A batch. Only what the kind needs is read: label for classes, target for Linear. */
struct kml_model_batch {
    const float *x;        /* [n, features] */
    const uint32_t *label; /* [n], < classes */
    const float *target;   /* [n] */
    uint32_t n;            /* 1 .. max_batch */
};

struct kml_score {
    double loss_sum;
    uint64_t correct; /* right classes; 0 for Linear */
    uint64_t samples;
};

/*
 * Called when a range of the gradient is final, while the rest is still being computed: last layer first,
 * then downwards. Ranges are whole layers (weight and bias), so together they cover the vector once.
 */
typedef void kml_gradient_ready(void *self, size_t offset, size_t size);

/* Writes the mean gradient over the batch to grad[size] and adds the batch to *score. `ready` may be NULL. */
void kml_model_gradient(const struct kml_model *m, struct kml_workspace *w, const float *params,
                        const struct kml_model_batch *batch, float *grad, kml_gradient_ready *ready,
                        void *self, struct kml_score *score);

/* Adds the batch to *score. */
void kml_model_evaluate(const struct kml_model *m, struct kml_workspace *w, const float *params,
                        const struct kml_model_batch *batch, struct kml_score *score);

#endif
