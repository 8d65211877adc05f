#include "data/table.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"

/*
 * IDX (Y. LeCun, the MNIST page): two zero bytes, a type (8: uint8), the number of dimensions, then each
 * dimension as 32 bits big-endian, then the values, last dimension fastest.
 */
#define TYPE_UINT8 8
#define DIMS_MAX 4

struct idx_shape {
    uint32_t dims;
    uint32_t dim[DIMS_MAX];
};

static int read_exactly(struct kml_source *s, void *to, size_t size, const char *what, struct kml_err *err)
{
    size_t got;
    if (kml_source_read(s, to, size, &got, err) != 0) {
        return -1;
    }
    if (got == size) {
        return 0;
    }
    return kml_fail(err, KML_INVALID, "%s: truncated: %zu of %zu bytes of its %s are there",
                    kml_source_name(s), got, size, what);
}

static int read_magic(struct kml_source *s, uint8_t magic[4], struct kml_err *err)
{
    size_t got;
    if (kml_source_read(s, magic, 4, &got, err) != 0) {
        return -1;
    }
    if (got == 0) {
        return kml_fail(err, KML_INVALID, "%s: the file is empty", kml_source_name(s));
    }
    if (got < 4 || magic[0] != 0 || magic[1] != 0) {
        return kml_fail(err, KML_INVALID, "%s: not an IDX file: it does not begin with two zero bytes",
                        kml_source_name(s));
    }
    if (magic[2] != TYPE_UINT8) {
        return kml_fail(err, KML_INVALID, "%s: IDX values of type 0x%02x; only bytes (0x08) are read",
                        kml_source_name(s), magic[2]);
    }
    return 0;
}

static int read_shape(struct kml_source *s, struct idx_shape *shape, struct kml_err *err)
{
    uint8_t magic[4];
    if (read_magic(s, magic, err) != 0) {
        return -1;
    }
    shape->dims = magic[3];
    if (shape->dims < 1 || shape->dims > DIMS_MAX) {
        return kml_fail(err, KML_INVALID, "%s: wrong magic number: %u dimensions", kml_source_name(s),
                        shape->dims);
    }
    uint8_t raw[4 * DIMS_MAX];
    if (read_exactly(s, raw, 4 * (size_t)shape->dims, "header", err) != 0) {
        return -1;
    }
    for (uint32_t i = 0; i < shape->dims; i++) {
        const uint8_t *b = raw + 4 * i;
        shape->dim[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
        if (shape->dim[i] == 0) {
            return kml_fail(err, KML_INVALID, "%s: dimension %u is 0: no samples", kml_source_name(s), i);
        }
    }
    return 0;
}

static int expect_end(struct kml_source *s, struct kml_err *err)
{
    uint8_t more;
    size_t got;
    if (kml_source_read(s, &more, 1, &got, err) != 0) {
        return -1;
    }
    return got == 0
               ? 0
               : kml_fail(err, KML_INVALID, "%s: trailing bytes after the values that its header announces",
                          kml_source_name(s));
}

/*
 * The header's word is not trusted with the machine's memory: room grows with what really comes, but is cut
 * to the final size at once when that is modest, which is every ordinary data set.
 */
#define TRUSTED ((size_t)64 << 20)

static int read_values(struct kml_source *s, size_t size, uint8_t **out, struct kml_err *err)
{
    size_t room = size < TRUSTED ? size : TRUSTED;
    size_t have = 0;
    uint8_t *values = kml_source_take(s, size);
    if (values != NULL) {
        *out = values;
        return 0;
    }
    for (;;) {
        uint8_t *grown = kml_try_alloc(room);
        if (grown == NULL) {
            kml_free(values);
            return kml_fail(err, KML_NO_MEMORY, "%s: no memory for %zu bytes of values", kml_source_name(s),
                            room);
        }
        if (have > 0) {
            memcpy(grown, values, have);
        }
        kml_free(values);
        values = grown;
        if (read_exactly(s, values + have, room - have, "values", err) != 0) {
            kml_free(values);
            return -1;
        }
        have = room;
        if (have == size) {
            *out = values;
            return expect_end(s, err);
        }
        room = room > size / 2 ? size : room * 2;
    }
}

static int read_images(struct kml_table *t, struct kml_source *s, struct kml_err *err)
{
    struct idx_shape shape;
    if (read_shape(s, &shape, err) != 0) {
        return -1;
    }
    if (shape.dims < 2) {
        return kml_fail(err, KML_INVALID,
                        "%s: wrong magic number: 1 dimension, so these are labels, not samples",
                        kml_source_name(s));
    }
    uint64_t features = 1;
    for (uint32_t i = 1; i < shape.dims; i++) {
        features = features > KML_DATA_MAX_FEATURES ? features : features * shape.dim[i];
    }
    if (shape.dim[0] > KML_DATA_MAX_ROWS || features > KML_DATA_MAX_FEATURES ||
        features * shape.dim[0] > KML_DATA_MAX_BYTES) {
        return kml_fail(err, KML_TOO_LARGE, "%s: %u samples of %s%u values are more than is read",
                        kml_source_name(s), shape.dim[0],
                        features > KML_DATA_MAX_FEATURES ? "more than " : "",
                        features > KML_DATA_MAX_FEATURES ? KML_DATA_MAX_FEATURES : (uint32_t)features);
    }
    t->rows = shape.dim[0];
    t->features = (uint32_t)features;
    return read_values(s, (size_t)features * t->rows, &t->bytes, err);
}

static int read_labels(struct kml_table *t, struct kml_source *images, struct kml_source *s, uint8_t **labels,
                       struct kml_err *err)
{
    struct idx_shape shape;
    if (read_shape(s, &shape, err) != 0) {
        return -1;
    }
    if (shape.dims != 1) {
        return kml_fail(err, KML_INVALID, "%s: wrong magic number: %u dimensions, labels have 1",
                        kml_source_name(s), shape.dims);
    }
    if (shape.dim[0] != t->rows) {
        return kml_fail(err, KML_INVALID, "%s has %u labels, but %s has %u samples", kml_source_name(s),
                        shape.dim[0], kml_source_name(images), t->rows);
    }
    return read_values(s, t->rows, labels, err);
}

static int widen(struct kml_table *t, const uint8_t *labels, enum kml_target_kind targets,
                 struct kml_err *err)
{
    if (targets == KML_TARGET_CLASS) {
        t->label = kml_try_alloc((size_t)t->rows * sizeof(*t->label));
    } else {
        t->target = kml_try_alloc((size_t)t->rows * sizeof(*t->target));
    }
    if (t->label == NULL && t->target == NULL) {
        return kml_fail(err, KML_NO_MEMORY, "no memory for %u labels", t->rows);
    }
    for (uint32_t i = 0; i < t->rows; i++) {
        if (t->label != NULL) {
            t->label[i] = labels[i];
            t->classes = labels[i] >= t->classes ? labels[i] + 1U : t->classes;
        } else {
            t->target[i] = labels[i];
        }
    }
    return 0;
}

int kml_table_read_idx(struct kml_table *t, struct kml_source *images, struct kml_source *labels,
                       enum kml_target_kind targets, struct kml_err *err)
{
    *t = (struct kml_table){0};
    uint8_t *raw = NULL;
    int code = read_images(t, images, err);
    if (code == 0) {
        code = read_labels(t, images, labels, &raw, err);
    }
    if (code == 0) {
        code = widen(t, raw, targets, err);
    }
    kml_free(raw);
    if (code != 0) {
        kml_table_finish(t);
    }
    return code;
}
