#include "sync/layout.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "sync/shardmap.h"

void kml_layout_init(struct kml_layout *l)
{
    *l = (struct kml_layout){.tensor = NULL};
}

void kml_layout_finish(struct kml_layout *l)
{
    kml_free(l->tensor);
    kml_layout_init(l);
}

/* The name's length, 0 when it is no good. */
static size_t check_name(const char *name)
{
    size_t length = strnlen(name, KML_LAYOUT_NAME + 1);
    for (size_t i = 0; i < length; i++) {
        if (name[i] < 0x21 || name[i] > 0x7e) {
            return 0;
        }
    }
    return length <= KML_LAYOUT_NAME ? length : 0;
}

/* Floats of a tensor, 0 when a dimension is 0 or they are more than a model may have. */
static uint64_t volume(const uint32_t *shape, uint32_t dims)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < dims; d++) {
        count *= shape[d]; /* below 2^31 times below 2^32: no overflow */
        if (count == 0 || count > KML_FLOATS_MAX) {
            return 0;
        }
    }
    return count;
}

static int check_tensor(const struct kml_layout *l, const char *name, const uint32_t *shape, uint32_t dims,
                        struct kml_err *err)
{
    if (check_name(name) == 0) {
        return kml_fail(err, KML_INVALID,
                        "tensor %u: a name is 1 to %d printable characters without spaces, this one begins "
                        "\"%.40s\"",
                        l->count, KML_LAYOUT_NAME, name);
    }
    if (strcmp(name, "__metadata__") == 0) {
        return kml_fail(err, KML_INVALID,
                        "tensor %u: the model file has its metadata under the name %s; take another one",
                        l->count, name);
    }
    if (kml_layout_find(l, name) != NULL) {
        return kml_fail(err, KML_INVALID, "%s: two tensors have this name", name);
    }
    if (l->count == KML_LAYOUT_TENSORS) {
        return kml_fail(err, KML_TOO_LARGE, "%s: a model has at most %u tensors", name, KML_LAYOUT_TENSORS);
    }
    if (dims > KML_LAYOUT_DIMS) {
        return kml_fail(err, KML_INVALID, "%s: %u dimensions, at most %d are allowed", name, dims,
                        KML_LAYOUT_DIMS);
    }
    for (uint32_t d = 0; d < dims; d++) {
        if (shape[d] == 0) {
            return kml_fail(err, KML_INVALID, "%s: dimension %u is 0", name, d);
        }
    }
    uint64_t count = volume(shape, dims);
    if (count == 0 || l->floats + count > KML_FLOATS_MAX) {
        return kml_fail(err, KML_TOO_LARGE, "%s: the model has more than %llu parameters", name,
                        (unsigned long long)KML_FLOATS_MAX);
    }
    return 0;
}

int kml_layout_add(struct kml_layout *l, const char *name, const uint32_t *shape, uint32_t dims,
                   struct kml_err *err)
{
    if (check_tensor(l, name, shape, dims, err) != 0) {
        return -1;
    }
    if (l->count == l->room) {
        l->room = l->room == 0 ? 16 : 2 * l->room;
        l->tensor = kml_realloc(l->tensor, l->room * sizeof *l->tensor);
    }
    struct kml_layout_tensor *t = &l->tensor[l->count++];
    *t = (struct kml_layout_tensor){.dims = dims, .offset = l->floats, .count = volume(shape, dims)};
    memcpy(t->name, name, check_name(name));
    for (uint32_t d = 0; d < dims; d++) {
        t->shape[d] = shape[d];
    }
    l->floats += t->count;
    return 0;
}

void kml_layout_copy(struct kml_layout *to, const struct kml_layout *from)
{
    *to = *from;
    to->room = from->count;
    to->tensor = NULL;
    if (from->count > 0) {
        to->tensor = KML_NEW_ARRAY(from->count, struct kml_layout_tensor);
        memcpy(to->tensor, from->tensor, from->count * sizeof *from->tensor);
    }
}

const struct kml_layout_tensor *kml_layout_find(const struct kml_layout *l, const char *name)
{
    for (uint32_t i = 0; i < l->count; i++) {
        if (strcmp(l->tensor[i].name, name) == 0) {
            return &l->tensor[i];
        }
    }
    return NULL;
}

#define SHAPE_TEXT 64

/* "[128,784]" */
static const char *shape_text(const struct kml_layout_tensor *t, char text[SHAPE_TEXT])
{
    int used = snprintf(text, SHAPE_TEXT, "[");
    for (uint32_t d = 0; d < t->dims; d++) {
        used += snprintf(text + used, (size_t)(SHAPE_TEXT - used), d == 0 ? "%u" : ",%u", t->shape[d]);
    }
    snprintf(text + used, (size_t)(SHAPE_TEXT - used), "]");
    return text;
}

static bool same_shape(const struct kml_layout_tensor *a, const struct kml_layout_tensor *b)
{
    return a->dims == b->dims && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

int kml_layout_same(const struct kml_layout *here, const struct kml_layout *job, struct kml_err *err)
{
    char mine[SHAPE_TEXT];
    char theirs[SHAPE_TEXT];
    uint32_t both = here->count < job->count ? here->count : job->count;
    for (uint32_t i = 0; i < both; i++) {
        const struct kml_layout_tensor *h = &here->tensor[i];
        const struct kml_layout_tensor *j = &job->tensor[i];
        if (strcmp(h->name, j->name) != 0) {
            return kml_fail(err, KML_PROTOCOL, "tensor %u: %s here, %s in the job", i, h->name, j->name);
        }
        if (!same_shape(h, j)) {
            return kml_fail(err, KML_PROTOCOL, "%s: %s here, %s in the job", h->name, shape_text(h, mine),
                            shape_text(j, theirs));
        }
    }
    if (here->count > both) {
        const struct kml_layout_tensor *h = &here->tensor[both];
        return kml_fail(err, KML_PROTOCOL, "%s: %s here, missing in the job", h->name, shape_text(h, mine));
    }
    if (job->count > both) {
        const struct kml_layout_tensor *j = &job->tensor[both];
        return kml_fail(err, KML_PROTOCOL, "%s: missing here, %s in the job", j->name, shape_text(j, theirs));
    }
    return 0;
}
