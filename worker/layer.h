#ifndef KML_WORKER_LAYER_H
#define KML_WORKER_LAYER_H

#include <stddef.h>

#include "worker/model.h"

/*
 * One dense layer on a batch of n rows. Pure kernels over the caller's arrays; everything is row-major.
 */

/* y[n, out] = x[n, in] W' + b */
void kml_dense_forward(const struct kml_model_layer *l, const float *params, const float *x, size_t n,
                       float *y);

/* The same, then the activation, in one pass over y. */
void kml_dense_forward_active(const struct kml_model_layer *l, const float *params,
                              enum kml_activation activation, const float *x, size_t n, float *y);

/*
 * dW = delta' x / n and db = column sums of delta / n, written into grad at the layer's offsets. delta[n,
 * out], x[n, in]
 */
void kml_dense_gradient(const struct kml_model_layer *l, const float *delta, const float *x, size_t n,
                        float *grad);

/* dx[n, in] = (delta W) * activation'(.), with the derivative taken from the activation's value x[n, in]. */
void kml_dense_backward(const struct kml_model_layer *l, const float *params, enum kml_activation activation,
                        const float *delta, const float *x, size_t n, float *dx);

#endif
