#include "worker/initial.h"

#include <string.h>

#include "store/safetensors.h"

static int copy_tensor(const struct kml_safetensors *file, const struct kml_model_tensor *want, float *out,
                       struct kml_err *err)
{
    const struct kml_tensor *t = kml_safetensors_find(file, want->name);
    if (t == NULL) {
        return kml_fail(err, KML_INVALID, "tensor %s of the model is not there", want->name);
    }
    if (t->dtype != KML_F32) {
        return kml_fail(err, KML_INVALID, "tensor %s is %s, not F32", want->name, kml_dtype_name(t->dtype));
    }
    bool same = t->dims == want->dims && t->data.size == want->size * sizeof(float);
    for (uint32_t i = 0; i < want->dims && same; i++) {
        same = t->dim[i] == want->dim[i];
    }
    if (!same) {
        return kml_fail(err, KML_INVALID,
                        "tensor %s has another shape than the model's (%u dimensions, first %u)", want->name,
                        want->dims, want->dim[0]);
    }
    memcpy(out + want->offset, t->data.data, t->data.size);
    return 0;
}

static int fill(const struct kml_model *m, const struct kml_safetensors *file, float *out,
                struct kml_err *err)
{
    for (uint32_t i = 0; i < m->tensors; i++) {
        if (copy_tensor(file, &m->tensor[i], out, err) < 0) {
            return -1;
        }
    }
    if (file->count != m->tensors) {
        return kml_fail(err, KML_INVALID, "%u tensors, the model has %u", file->count, m->tensors);
    }
    return 0;
}

int kml_initial_fill(const struct kml_model *m, const char *path, uint64_t seed, float *out,
                     struct kml_err *err)
{
    struct kml_safetensors file;
    if (path == NULL) {
        kml_model_seed(m, seed, out);
        return 0;
    }
    if (kml_safetensors_read(&file, path, err) < 0) {
        return kml_wrap(err, "model.initialModelUri");
    }
    int result = fill(m, &file, out, err);
    kml_safetensors_finish(&file);
    return result < 0 ? kml_wrap(err, "model.initialModelUri: %s", path) : 0;
}
