#ifndef KML_WORKER_INITIAL_H
#define KML_WORKER_INITIAL_H

#include <stdint.h>

#include "base/err.h"
#include "worker/model.h"

/*
 * The first values of the parameters: seeded (path NULL), or those of a safetensors file, tensor by tensor,
 * by name. Each of the model's tensors must be there as F32 with the model's shape; tensors that the model
 * does not have are refused too, as the file is then another model's. KML_NOT_FOUND, KML_INVALID name file
 * and tensor.
 */
int kml_initial_fill(const struct kml_model *m, const char *path, uint64_t seed, float *out,
                     struct kml_err *err) KML_MUST_CHECK;

#endif
