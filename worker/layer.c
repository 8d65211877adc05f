#include "worker/layer.h"

#include <string.h>

#include "base/clones.h"
#include "math/gemm.h"
#include "math/softmax.h"
#include "math/vec.h"

KML_CLONES static void add_bias(float *y, const float *bias, size_t n, size_t out)
{
    for (size_t r = 0; r < n; r++) {
        for (size_t j = 0; j < out; j++) {
            y[r * out + j] += bias[j];
        }
    }
}

/* Written so that NaN stays NaN: a broken model must not look healthy behind a ReLU. */
KML_CLONES static void add_bias_relu(float *y, const float *bias, size_t n, size_t out)
{
    for (size_t r = 0; r < n; r++) {
        float *row = y + r * out;
        for (size_t j = 0; j < out; j++) {
            float v = row[j] + bias[j];
            row[j] = v < 0.0f ? 0.0f : v;
        }
    }
}

KML_CLONES static void through_relu(float *dx, const float *a, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        dx[i] = a[i] > 0.0f ? dx[i] : 0.0f;
    }
}

KML_CLONES static void through_tanh(float *dx, const float *a, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        dx[i] *= 1.0f - a[i] * a[i];
    }
}

KML_CLONES static void through_sigmoid(float *dx, const float *a, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        dx[i] *= a[i] * (1.0f - a[i]);
    }
}

KML_CLONES static void column_sums(float *sum, const float *x, size_t n, size_t columns)
{
    memset(sum, 0, columns * sizeof(*sum));
    for (size_t r = 0; r < n; r++) {
        for (size_t j = 0; j < columns; j++) {
            sum[j] += x[r * columns + j];
        }
    }
}

void kml_dense_forward(const struct kml_model_layer *l, const float *params, const float *x, size_t n,
                       float *y)
{
    kml_gemm_nt(n, l->out, l->in, 1.0f, x, params + l->weight, y);
    add_bias(y, params + l->bias, n, l->out);
}

void kml_dense_forward_active(const struct kml_model_layer *l, const float *params,
                              enum kml_activation activation, const float *x, size_t n, float *y)
{
    if (activation == KML_ACTIVATION_RELU) {
        kml_gemm_nt(n, l->out, l->in, 1.0f, x, params + l->weight, y);
        add_bias_relu(y, params + l->bias, n, l->out);
        return;
    }
    kml_dense_forward(l, params, x, n, y);
    if (activation == KML_ACTIVATION_TANH) {
        kml_tanh(y, n * l->out);
    } else {
        kml_sigmoid(y, n * l->out);
    }
}

void kml_dense_gradient(const struct kml_model_layer *l, const float *delta, const float *x, size_t n,
                        float *grad)
{
    float inverse = 1.0f / (float)n;
    kml_gemm_tn(l->out, l->in, n, inverse, delta, x, grad + l->weight);
    column_sums(grad + l->bias, delta, n, l->out);
    kml_vec_scale(grad + l->bias, inverse, l->out);
}

void kml_dense_backward(const struct kml_model_layer *l, const float *params, enum kml_activation activation,
                        const float *delta, const float *x, size_t n, float *dx)
{
    kml_gemm_nn(n, l->in, l->out, 1.0f, delta, params + l->weight, dx);
    switch (activation) {
    case KML_ACTIVATION_RELU:
        through_relu(dx, x, n * l->in);
        return;
    case KML_ACTIVATION_TANH:
        through_tanh(dx, x, n * l->in);
        return;
    case KML_ACTIVATION_SIGMOID:
        through_sigmoid(dx, x, n * l->in);
        return;
    }
}
