#include "worker/model.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"

#define SIZE_MAX_FLOATS ((size_t)1 << 31)
#define WIDTH_MAX (1U << 20)

static int check(const struct kml_model_spec *spec, struct kml_err *err)
{
    if (spec->features == 0) {
        return kml_fail(err, KML_INVALID, "the model has no input: the data set has no features");
    }
    if (spec->kind == KML_MODEL_LOGISTIC && spec->classes != 2) {
        return kml_fail(err, KML_INVALID,
                        "a Logistic model tells 2 classes apart, the data set has %u; use Softmax or MLP",
                        spec->classes);
    }
    if ((spec->kind == KML_MODEL_SOFTMAX || spec->kind == KML_MODEL_MLP) && spec->classes < 2) {
        return kml_fail(err, KML_INVALID,
                        "a Softmax or MLP model needs at least 2 classes, the data set has %u",
                        spec->classes);
    }
    if (spec->kind == KML_MODEL_MLP && (spec->hidden_count < 1 || spec->hidden_count > KML_MODEL_HIDDEN)) {
        return kml_fail(err, KML_INVALID, "an MLP has 1 to %d hidden layers, not %u", KML_MODEL_HIDDEN,
                        spec->hidden_count);
    }
    for (uint32_t i = 0; spec->kind == KML_MODEL_MLP && i < spec->hidden_count; i++) {
        if (spec->hidden[i] < 1 || spec->hidden[i] > WIDTH_MAX) {
            return kml_fail(err, KML_INVALID, "hidden layer %u has a width of %u; 1 to %u are possible", i,
                            spec->hidden[i], WIDTH_MAX);
        }
    }
    return 0;
}

static void add_tensor(struct kml_model *m, const char *part, uint32_t dims, uint32_t rows, uint32_t columns)
{
    struct kml_model_tensor *t = &m->tensor[m->tensors];
    (void)snprintf(t->name, sizeof(t->name), "layer.%u.%s", m->layers, part);
    t->dims = dims;
    t->dim[0] = rows;
    t->dim[1] = columns;
    t->offset = m->size;
    t->size = (size_t)rows * (dims == 2 ? columns : 1);
    m->size += t->size;
    m->tensors++;
}

static void add_layer(struct kml_model *m, uint32_t in, uint32_t out)
{
    struct kml_model_layer *l = &m->layer[m->layers];
    l->in = in;
    l->out = out;
    l->weight = m->size;
    add_tensor(m, "weight", 2, out, in);
    l->bias = m->size;
    add_tensor(m, "bias", 1, out, 0);
    m->layers++;
}

int kml_model_init(struct kml_model *m, const struct kml_model_spec *spec, struct kml_err *err)
{
    if (check(spec, err) != 0) {
        return -1;
    }
    *m = (struct kml_model){.spec = *spec};
    uint32_t in = spec->features;
    for (uint32_t i = 0; spec->kind == KML_MODEL_MLP && i < spec->hidden_count; i++) {
        add_layer(m, in, spec->hidden[i]);
        in = spec->hidden[i];
    }
    bool one = spec->kind == KML_MODEL_LINEAR || spec->kind == KML_MODEL_LOGISTIC;
    add_layer(m, in, one ? 1 : spec->classes);
    if (m->size > SIZE_MAX_FLOATS) {
        return kml_fail(err, KML_TOO_LARGE, "the model has %zu parameters, more than %zu", m->size,
                        SIZE_MAX_FLOATS);
    }
    return 0;
}

void kml_model_seed(const struct kml_model *m, uint64_t seed, float *params)
{
    for (uint32_t n = 0; n < m->layers; n++) {
        const struct kml_model_layer *l = &m->layer[n];
        struct kml_rng rng;
        kml_rng_init2(&rng, seed, n);
        double bound = 1.0 / sqrt((double)l->in);
        size_t end = l->bias + l->out; /* weight and bias are neighbours */
        for (size_t i = l->weight; i < end; i++) {
            params[i] = (float)(bound * (2.0 * kml_rng_unit(&rng) - 1.0));
        }
    }
}
