#ifndef KML_SYNC_LAYOUT_H
#define KML_SYNC_LAYOUT_H

#include <stdint.h>

#include "base/err.h"

/*
 * The layout of a model: an ordered list of named float32 tensors, laid end to end in one flat vector. The
 * parameter server knows no more of a model than this; the first worker's layout becomes the job's and a
 * differing one is refused by name.
 *
 * Tensor i occupies [offset, offset + count) of the vector; offsets ascend without a gap; names are unique.
 * Bounded: names of 1 to 128 printable ASCII characters without space, 0 to 4 dimensions (0: a scalar), each
 * >= 1, at most 4096 tensors, fewer than 2^31 floats in all. Input from a peer may be added as it comes: all
 * is checked.
 */

#define KML_LAYOUT_NAME 128
#define KML_LAYOUT_DIMS 4
#define KML_LAYOUT_TENSORS 4096u

struct kml_layout_tensor {
    char name[KML_LAYOUT_NAME + 1];
    uint32_t dims;
    uint32_t shape[KML_LAYOUT_DIMS]; /* the slowest dimension first; unused ones are 0 */
    uint64_t offset;                 /* floats */
    uint64_t count;                  /* floats */
};

struct kml_layout {
    struct kml_layout_tensor *tensor; /* [count] */
    uint32_t count, room;
    uint64_t floats; /* in all */
};

void kml_layout_init(struct kml_layout *l);
void kml_layout_finish(struct kml_layout *l);

/* Appends a tensor. KML_INVALID or KML_TOO_LARGE, naming it, when a bound above is broken; then nothing
 * has changed. */
int kml_layout_add(struct kml_layout *l, const char *name, const uint32_t *shape, uint32_t dims,
                   struct kml_err *err) KML_MUST_CHECK;

/* `to` is initialised by this call. */
void kml_layout_copy(struct kml_layout *to, const struct kml_layout *from);

/* NULL when there is none. */
const struct kml_layout_tensor *kml_layout_find(const struct kml_layout *l, const char *name);

/*
 * Are they the same, names, order and shapes? Otherwise KML_PROTOCOL with the first difference, such as
 * "layer.0.weight: [128,784] here, [64,784] in the job".
 */
int kml_layout_same(const struct kml_layout *here, const struct kml_layout *job,
                    struct kml_err *err) KML_MUST_CHECK;

#endif
