#include "store/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "store/scan.h"

static const struct {
    const char *name;
    uint32_t size;
} dtypes[] = {
#define DTYPE_ROW(name, size) {#name, size},
    KML_DTYPE_TABLE(DTYPE_ROW)
#undef DTYPE_ROW
};

const char *kml_dtype_name(enum kml_dtype dtype)
{
    return dtypes[dtype].name;
}

uint32_t kml_dtype_size(enum kml_dtype dtype)
{
    return dtypes[dtype].size;
}

/* The file as it is read: offsets are checked against the data once all tensors are known. */
struct reader {
    struct kml_safetensors *s;
    struct kml_scan scan;
    struct kml_view data;
    uint32_t tensor_room;
    uint32_t metadata_room;
    bool metadata_seen;
};

enum part { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL_PARTS = 7 };

static int read_dtype(struct kml_scan *scan, struct kml_tensor *t, struct kml_err *err)
{
    char *name;
    if (kml_scan_string(scan, &name, err) != 0) {
        return -1;
    }
    enum kml_dtype found = KML_DTYPE_COUNT;
    for (int i = 0; i < KML_DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            found = (enum kml_dtype)i;
        }
    }
    kml_free(name);
    if (found == KML_DTYPE_COUNT) {
        return kml_scan_fail(scan, err, "an unknown dtype");
    }
    t->dtype = found;
    return 0;
}

static int read_shape(struct kml_scan *scan, struct kml_tensor *t, struct kml_err *err)
{
    t->dims = 0;
    if (kml_scan_expect(scan, '[', err) != 0) {
        return -1;
    }
    if (kml_scan_accept(scan, ']')) {
        return 0; /* a scalar */
    }
    do {
        if (t->dims == KML_TENSOR_DIMS) {
            return kml_scan_fail(scan, err, "a shape of too many dimensions");
        }
        if (kml_scan_uint(scan, &t->dim[t->dims++], err) != 0) {
            return -1;
        }
    } while (kml_scan_accept(scan, ','));
    return kml_scan_expect(scan, ']', err);
}

static int read_offsets(struct reader *r, struct kml_tensor *t, struct kml_err *err)
{
    uint64_t begin;
    uint64_t end;
    if (kml_scan_expect(&r->scan, '[', err) != 0 || kml_scan_uint(&r->scan, &begin, err) != 0 ||
        kml_scan_expect(&r->scan, ',', err) != 0 || kml_scan_uint(&r->scan, &end, err) != 0 ||
        kml_scan_expect(&r->scan, ']', err) != 0) {
        return -1;
    }
    if (begin > end || end > r->data.size) {
        return kml_scan_fail(&r->scan, err, "data_offsets outside the file (is it truncated?)");
    }
    t->data = (struct kml_view){r->data.data + begin, (size_t)(end - begin)};
    return 0;
}

static int check_size(const struct kml_scan *scan, const struct kml_tensor *t, struct kml_err *err)
{
    uint64_t bytes = kml_dtype_size(t->dtype);
    for (uint32_t i = 0; i < t->dims; i++) {
        if (__builtin_mul_overflow(bytes, t->dim[i], &bytes)) {
            return kml_scan_fail(scan, err, "a shape beyond 64 bits");
        }
    }
    return bytes == t->data.size ? 0
                                 : kml_scan_fail(scan, err, "data_offsets do not agree with shape and dtype");
}

static enum part part_of(const char *key)
{
    return strcmp(key, "dtype") == 0          ? DTYPE
           : strcmp(key, "shape") == 0        ? SHAPE
           : strcmp(key, "data_offsets") == 0 ? OFFSETS
                                              : 0;
}

static int read_part(struct reader *r, struct kml_tensor *t, unsigned *seen, struct kml_err *err)
{
    char *key;
    if (kml_scan_string(&r->scan, &key, err) != 0) {
        return -1;
    }
    unsigned part = part_of(key);
    kml_free(key);
    if (part == 0 || (*seen & part) != 0) {
        return kml_scan_fail(&r->scan, err,
                             "a tensor has dtype, shape and data_offsets, each once, and nothing else");
    }
    *seen |= part;
    if (kml_scan_expect(&r->scan, ':', err) != 0) {
        return -1;
    }
    return part == DTYPE   ? read_dtype(&r->scan, t, err)
           : part == SHAPE ? read_shape(&r->scan, t, err)
                           : read_offsets(r, t, err);
}

/* Takes `name`, also on failure: it goes into the table first. */
static int read_tensor(struct reader *r, char *name, struct kml_err *err)
{
    struct kml_safetensors *s = r->s;
    if (s->count == r->tensor_room) {
        r->tensor_room = r->tensor_room == 0 ? 16 : r->tensor_room * 2;
        s->tensor = kml_realloc(s->tensor, r->tensor_room * sizeof(*s->tensor));
    }
    struct kml_tensor *t = &s->tensor[s->count++];
    *t = (struct kml_tensor){.name = name};
    unsigned seen = 0;
    if (kml_scan_expect(&r->scan, '{', err) != 0) {
        return -1;
    }
    do {
        if (read_part(r, t, &seen, err) != 0) {
            return -1;
        }
    } while (kml_scan_accept(&r->scan, ','));
    if (kml_scan_expect(&r->scan, '}', err) != 0) {
        return -1;
    }
    if (seen != ALL_PARTS) {
        return kml_scan_fail(&r->scan, err, "a tensor has dtype, shape and data_offsets");
    }
    return check_size(&r->scan, t, err);
}

static int read_pair(struct reader *r, struct kml_err *err)
{
    struct kml_safetensors *s = r->s;
    char *key;
    char *text;
    if (s->metadata_count == KML_SAFETENSORS_MAX_TENSORS) {
        return kml_scan_fail(&r->scan, err, "too many metadata");
    }
    if (kml_scan_string(&r->scan, &key, err) != 0) {
        return -1;
    }
    if (kml_scan_expect(&r->scan, ':', err) != 0 || kml_scan_string(&r->scan, &text, err) != 0) {
        kml_free(key);
        return -1;
    }
    if (s->metadata_count == r->metadata_room) {
        r->metadata_room = r->metadata_room == 0 ? 16 : r->metadata_room * 2;
        s->metadata = kml_realloc(s->metadata, r->metadata_room * sizeof(*s->metadata));
    }
    s->metadata[s->metadata_count++] = (struct kml_metadata){key, text};
    return 0;
}

static int read_metadata(struct reader *r, struct kml_err *err)
{
    if (r->metadata_seen) {
        return kml_scan_fail(&r->scan, err, "__metadata__ a second time");
    }
    r->metadata_seen = true;
    if (kml_scan_expect(&r->scan, '{', err) != 0) {
        return -1;
    }
    if (kml_scan_accept(&r->scan, '}')) {
        return 0;
    }
    do {
        if (read_pair(r, err) != 0) {
            return -1;
        }
    } while (kml_scan_accept(&r->scan, ','));
    return kml_scan_expect(&r->scan, '}', err);
}

static int read_entry(struct reader *r, struct kml_err *err)
{
    char *name;
    if (r->s->count == KML_SAFETENSORS_MAX_TENSORS) {
        return kml_scan_fail(&r->scan, err, "too many tensors");
    }
    if (kml_scan_string(&r->scan, &name, err) != 0) {
        return -1;
    }
    bool metadata = strcmp(name, "__metadata__") == 0;
    if (metadata || kml_scan_expect(&r->scan, ':', err) != 0) {
        kml_free(name);
        return metadata && kml_scan_expect(&r->scan, ':', err) == 0 ? read_metadata(r, err) : -1;
    }
    return read_tensor(r, name, err);
}

static int read_header(struct reader *r, struct kml_err *err)
{
    if (kml_scan_expect(&r->scan, '{', err) != 0) {
        return -1;
    }
    if (!kml_scan_accept(&r->scan, '}')) {
        do {
            if (read_entry(r, err) != 0) {
                return -1;
            }
        } while (kml_scan_accept(&r->scan, ','));
        if (kml_scan_expect(&r->scan, '}', err) != 0) {
            return -1;
        }
    }
    return kml_scan_ended(&r->scan) ? 0 : kml_scan_fail(&r->scan, err, "text behind the header's end");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct kml_tensor *)a)->name, ((const struct kml_tensor *)b)->name);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int by_place(const void *a, const void *b)
{
    const struct kml_tensor *x = a;
    const struct kml_tensor *y = b;
    if (x->data.data != y->data.data) {
        return x->data.data < y->data.data ? -1 : 1;
    }
    return (x->data.size > y->data.size) - (x->data.size < y->data.size); /* empty ones first */
}

static int check_names(struct kml_safetensors *s, struct kml_err *err)
{
    if (s->count > 1) {
        qsort(s->tensor, s->count, sizeof(*s->tensor), by_name);
    }
    for (uint32_t i = 1; i < s->count; i++) {
        if (strcmp(s->tensor[i - 1].name, s->tensor[i].name) == 0) {
            return kml_fail(err, KML_INVALID, "two tensors are named \"%s\"", s->tensor[i].name);
        }
    }
    const char **keys = KML_NEW_ARRAY(s->metadata_count, const char *);
    for (uint32_t i = 0; i < s->metadata_count; i++) {
        keys[i] = s->metadata[i].key;
    }
    qsort(keys, s->metadata_count, sizeof(*keys), by_key);
    const char *twice = NULL;
    for (uint32_t i = 1; i < s->metadata_count; i++) {
        twice = strcmp(keys[i - 1], keys[i]) == 0 ? keys[i] : twice;
    }
    kml_free(keys);
    return twice == NULL ? 0 : kml_fail(err, KML_INVALID, "two metadata are named \"%s\"", twice);
}

static int check_cover(struct reader *r, struct kml_err *err)
{
    struct kml_safetensors *s = r->s;
    if (s->count > 1) {
        qsort(s->tensor, s->count, sizeof(*s->tensor), by_place);
    }
    const uint8_t *at = r->data.data;
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->tensor[i].data.data != at) {
            return kml_fail(err, KML_INVALID, "tensor \"%s\" %s", s->tensor[i].name,
                            s->tensor[i].data.data < at ? "overlaps another one" : "leaves a hole before it");
        }
        at += s->tensor[i].data.size;
    }
    if (at != r->data.data + r->data.size) {
        return kml_fail(err, KML_INVALID, "%zu bytes behind the last tensor",
                        (size_t)(r->data.data + r->data.size - at));
    }
    return 0;
}

static int header_length(struct kml_view bytes, uint64_t *length, struct kml_err *err)
{
    if (bytes.size < 8) {
        return kml_fail(err, KML_INVALID, "not a safetensors file: only %zu bytes", bytes.size);
    }
    *length = 0;
    for (int i = 7; i >= 0; i--) {
        *length = *length << 8 | bytes.data[i];
    }
    if (*length > KML_SAFETENSORS_MAX_HEADER) {
        return kml_fail(err, KML_TOO_LARGE, "not a safetensors file: it would have a header of %llu bytes",
                        (unsigned long long)*length);
    }
    if (*length > bytes.size - 8) {
        return kml_fail(err, KML_INVALID, "truncated: a header of %llu bytes in a file of %zu",
                        (unsigned long long)*length, bytes.size);
    }
    return 0;
}

int kml_safetensors_parse(struct kml_safetensors *s, struct kml_view bytes, struct kml_err *err)
{
    *s = (struct kml_safetensors){0};
    uint64_t length = 0;
    if (header_length(bytes, &length, err) != 0) {
        return -1;
    }
    struct reader r = {.s = s, .data = {bytes.data + 8 + length, bytes.size - 8 - (size_t)length}};
    kml_scan_init(&r.scan, (struct kml_view){bytes.data + 8, (size_t)length});
    if (read_header(&r, err) != 0 || check_names(s, err) != 0 || check_cover(&r, err) != 0) {
        kml_safetensors_finish(s);
        return -1;
    }
    return 0;
}

int kml_safetensors_read(struct kml_safetensors *s, const char *path, struct kml_err *err)
{
    struct kml_buf file;
    kml_buf_init(&file, KML_SAFETENSORS_MAX_FILE);
    if (kml_file_read(path, &file, err) != 0) {
        kml_buf_finish(&file);
        return -1;
    }
    if (kml_safetensors_parse(s, kml_buf_view(&file), err) != 0) {
        kml_buf_finish(&file);
        return kml_wrap(err, "%s", path);
    }
    s->file = file;
    return 0;
}

void kml_safetensors_finish(struct kml_safetensors *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        kml_free((void *)(uintptr_t)s->tensor[i].name); /* owned, const for readers */
    }
    for (uint32_t i = 0; i < s->metadata_count; i++) {
        kml_free((void *)(uintptr_t)s->metadata[i].key);
        kml_free((void *)(uintptr_t)s->metadata[i].text);
    }
    kml_free(s->tensor);
    kml_free(s->metadata);
    kml_buf_finish(&s->file);
    *s = (struct kml_safetensors){0};
}

const struct kml_tensor *kml_safetensors_find(const struct kml_safetensors *s, const char *name)
{
    for (uint32_t i = 0; i < s->count; i++) {
        if (strcmp(s->tensor[i].name, name) == 0) {
            return &s->tensor[i];
        }
    }
    return NULL;
}

const char *kml_safetensors_metadata(const struct kml_safetensors *s, const char *key)
{
    for (uint32_t i = 0; i < s->metadata_count; i++) {
        if (strcmp(s->metadata[i].key, key) == 0) {
            return s->metadata[i].text;
        }
    }
    return NULL;
}
