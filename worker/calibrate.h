#ifndef KML_WORKER_CALIBRATE_H
#define KML_WORKER_CALIBRATE_H

#include "base/err.h"
#include "worker/input.h"

/*
 * How long this machine computes for one sample of the job's model, at the job's batch size: gathering,
 * forward and backward, no communication. The median over batches, for about 0.3 s.
 */
int kml_calibrate(const struct kml_input *in, double *seconds_per_sample, struct kml_err *err) KML_MUST_CHECK;

#endif
