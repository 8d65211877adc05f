#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "wire/chunk.h"
#include "worker/input.h"

#define ENTRIES_MOST 8
#define NUMBERS_MOST                                                                                         \
    ((size_t)1 << 20) /* bytes of a list of numbers; a longer one would not fit into a control message */

static Kunal__V1__Layout *make_layout(const struct kml_model *m)
{
    Kunal__V1__Layout *layout = KML_NEW(Kunal__V1__Layout);
    kunal__v1__layout__init(layout);
    layout->n_tensors = m->tensors;
    layout->tensors = KML_NEW_ARRAY(m->tensors, Kunal__V1__Tensor *);
    for (uint32_t i = 0; i < m->tensors; i++) {
        const struct kml_model_tensor *t = &m->tensor[i];
        Kunal__V1__Tensor *to = layout->tensors[i] = KML_NEW(Kunal__V1__Tensor);
        kunal__v1__tensor__init(to);
        to->name = kml_strdup(t->name);
        to->n_shape = t->dims;
        to->shape = KML_NEW_ARRAY(t->dims, uint32_t);
        memcpy(to->shape, t->dim, t->dims * sizeof(*t->dim));
    }
    return layout;
}

static void free_layout(Kunal__V1__Layout *layout)
{
    for (size_t i = 0; i < layout->n_tensors; i++) {
        kml_free(layout->tensors[i]->name);
        kml_free(layout->tensors[i]->shape);
        kml_free(layout->tensors[i]);
    }
    kml_free(layout->tensors);
    kml_free(layout);
}

/* Takes `value`; NULL is left out. */
static void add_entry(Kunal__V1__Join *join, const char *key, char *value)
{
    if (value == NULL) {
        return;
    }
    KML_BUG_ON(join->n_metadata == ENTRIES_MOST);
    Kunal__V1__Join__MetadataEntry *e = join->metadata[join->n_metadata++] =
        KML_NEW(Kunal__V1__Join__MetadataEntry);
    kunal__v1__join__metadata_entry__init(e);
    e->key = kml_strdup(key);
    e->value = value;
}

/* "0.5" when all are alike, else "0.5 0.25 ..."; NULL when that is too long. */
static char *numbers(const float *x, uint32_t count)
{
    bool alike = true;
    for (uint32_t i = 1; i < count; i++) {
        alike = alike && memcmp(&x[i], &x[0], sizeof(float)) == 0;
    }
    struct kml_buf text;
    kml_buf_init(&text, NUMBERS_MOST);
    bool fits = true;
    for (uint32_t i = 0; i < (alike ? 1 : count) && fits; i++) {
        fits = kml_buf_printf(&text, NULL, "%s%.9g", i == 0 ? "" : " ", (double)x[i]) == 0;
    }
    char *result = fits ? kml_strdup(kml_buf_text(&text)) : NULL;
    kml_buf_finish(&text);
    return result;
}

static void describe(Kunal__V1__Join *join, const struct kml_model *m, const struct kml_dataset *d)
{
    static const char *const kind[] = {[KML_MODEL_LINEAR] = "Linear",
                                       [KML_MODEL_LOGISTIC] = "Logistic",
                                       [KML_MODEL_SOFTMAX] = "Softmax",
                                       [KML_MODEL_MLP] = "MLP"};
    static const char *const activation[] = {
        [KML_ACTIVATION_RELU] = "ReLU", [KML_ACTIVATION_TANH] = "Tanh", [KML_ACTIVATION_SIGMOID] = "Sigmoid"};
    static const char *const standardize[] = {[KML_STANDARDIZE_AUTO] = "Auto",
                                              [KML_STANDARDIZE_NONE] = "None",
                                              [KML_STANDARDIZE_SCALE255] = "Scale255",
                                              [KML_STANDARDIZE_MEANSTD] = "MeanStd"};
    join->metadata = KML_NEW_ARRAY(ENTRIES_MOST, Kunal__V1__Join__MetadataEntry *);
    add_entry(join, "model", kml_strdup(kind[m->spec.kind]));
    if (m->spec.kind == KML_MODEL_MLP) {
        add_entry(join, "activation", kml_strdup(activation[m->spec.activation]));
    }
    add_entry(join, "features", kml_format("%u", d->features));
    if (d->classes > 0) {
        add_entry(join, "classes", kml_format("%u", d->classes));
    }
    add_entry(join, "standardize", kml_strdup(standardize[d->standardize]));
    add_entry(join, "mean", numbers(d->mean, d->features));
    add_entry(join, "scale", numbers(d->scale, d->features));
}

static void digest_part(void *self, struct kml_view bytes)
{
    kml_sha256_add(self, bytes.data, bytes.size);
}

void kml_join_init(struct kml_join *j, const struct kml_model *model, const struct kml_dataset *data,
                   const char *uid, uint32_t index, uint64_t incarnation)
{
    Kunal__V1__Join *m = &j->message;
    kunal__v1__join__init(m);
    m->protocol = KML_PROTOCOL_VERSION;
    m->job_uid = kml_strdup(uid);
    m->role = KUNAL__V1__ROLE__WORKER;
    m->index = index;
    m->incarnation = incarnation;
    m->layout = make_layout(model);
    m->train_samples = data->train.count;
    m->validation_samples = data->validation.count;
    m->test_samples = data->test.count;
    struct kml_sha256 *hash = kml_sha256_create();
    kml_dataset_digest_parts(data, data->test.count > 0, digest_part, hash);
    kml_sha256_end(hash, j->digest);
    m->data_digest = (ProtobufCBinaryData){.len = sizeof(j->digest), .data = j->digest};
    describe(m, model, data);
}

void kml_join_finish(struct kml_join *j)
{
    Kunal__V1__Join *m = &j->message;
    for (size_t i = 0; i < m->n_metadata; i++) {
        kml_free(m->metadata[i]->key);
        kml_free(m->metadata[i]->value);
        kml_free(m->metadata[i]);
    }
    kml_free(m->metadata);
    kml_free(m->job_uid);
    free_layout(m->layout);
}
