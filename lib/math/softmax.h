#ifndef KML_MATH_SOFTMAX_H
#define KML_MATH_SOFTMAX_H

#include <stddef.h>
#include <stdint.h>

/*
 * Rows of logits. All of them subtract the row's largest logit first, so nothing overflows.
 * exp is our own polynomial (relative error < 2e-7), the same bytes for every clone; double where sums are
 * formed.
 */
double kml_log_sum_exp(const float *x, size_t n);       /* one row; n >= 1 */
void kml_softmax_rows(float *x, size_t rows, size_t n); /* x[rows, n] in place */

/*
 * Softmax with cross entropy, forward and backward in one pass: x[rows, n] becomes softmax(x) -
 * onehot(label), not divided by rows. Adds each row's loss to *loss_sum; returns how many rows have their
 * largest logit (the first of equals) at the label. Labels are < n. A row that holds NaN makes the loss NaN
 * and is never correct.
 */
size_t kml_softmax_loss_rows(float *x, size_t rows, size_t n, const uint32_t *label, double *loss_sum);

void kml_exp(float *x, size_t n);     /* in place */
void kml_sigmoid(float *x, size_t n); /* in place: 1 / (1 + exp(-x)) */
void kml_tanh(float *x, size_t n);    /* in place; absolute error < 5e-7 */

#endif
