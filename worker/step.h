#ifndef KML_WORKER_STEP_H
#define KML_WORKER_STEP_H

#include "worker/train.h"

/*
 * One piece of work, from parameters to what is sent. Leases above KML_MICRO_BATCH samples are computed in
 * micro-batches, and the gradient is the mean over all samples: sum of n_i * g_i, divided by the sum of n_i.
 * Between micro-batches the loop is looked at; work that does not count any more (t->live) ends there and
 * sends nothing.
 *
 * The pieces of a gradient leave as soon as the layers that they cover are final, the last layer first. A
 * paced worker sends all at the end of its time: on a slow machine they would not have been there earlier.
 */
void kml_step_run(struct kml_train *t, struct kml_task *task, const float *params);
void kml_step_evaluate(struct kml_train *t, struct kml_task *task, const float *params);

/* Of train.c: handles what has come, without waiting; waits until a time or until the work does not count any
 * more. */
void kml_train_look(struct kml_train *t);
void kml_train_wait(struct kml_train *t, uint64_t until_ns);

#endif
