#ifndef KML_STORE_SAFETENSORS_H
#define KML_STORE_SAFETENSORS_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * The safetensors format, version of huggingface/safetensors' README: 8 bytes little-endian header length N,
 * N bytes of JSON, then the tensors' bytes, without holes.
 *
 *   {"__metadata__": {"key": "text"},
 *    "layer.0.weight": {"dtype": "F32", "shape": [128, 784], "data_offsets": [0, 401408]}}
 *
 * The reader is strict, because a model file comes from anywhere: the header is bounded, every tensor's byte
 * count equals shape times size of its type, the tensors cover the data exactly once, no name comes twice.
 */
#define KML_TENSOR_DIMS 8
#define KML_SAFETENSORS_MAX_HEADER (UINT64_C(16) << 20)
#define KML_SAFETENSORS_MAX_TENSORS 65536
#define KML_SAFETENSORS_MAX_FILE (UINT64_C(64) << 30)

/* name, bytes of one value */
#define KML_DTYPE_TABLE(X)                                                                                   \
    X(BOOL, 1)                                                                                               \
    X(U8, 1)                                                                                                 \
    X(I8, 1)                                                                                                 \
    X(I16, 2)                                                                                                \
    X(U16, 2)                                                                                                \
    X(F16, 2)                                                                                                \
    X(BF16, 2)                                                                                               \
    X(I32, 4)                                                                                                \
    X(U32, 4)                                                                                                \
    X(F32, 4)                                                                                                \
    X(F64, 8)                                                                                                \
    X(I64, 8)                                                                                                \
    X(U64, 8)
enum kml_dtype {
#define KML_DTYPE_ENUM(name, size) KML_##name,
    KML_DTYPE_TABLE(KML_DTYPE_ENUM)
#undef KML_DTYPE_ENUM
        KML_DTYPE_COUNT
};

struct kml_tensor {
    const char *name;
    enum kml_dtype dtype;
    uint32_t dims;
    uint64_t dim[KML_TENSOR_DIMS];
    struct kml_view data; /* little-endian, row-major */
};

struct kml_metadata {
    const char *key;
    const char *text;
};

struct kml_safetensors {
    struct kml_tensor *tensor; /* [count] in the order of their data */
    uint32_t count;
    struct kml_metadata *metadata; /* [metadata_count] in file order */
    uint32_t metadata_count;
    struct kml_buf file; /* what kml_safetensors_read read; empty after kml_safetensors_parse */
};

/* Data views borrow `bytes` (no alignment is promised: copy floats out with memcpy); names and metadata are
 * owned. */
int kml_safetensors_parse(struct kml_safetensors *s, struct kml_view bytes,
                          struct kml_err *err) KML_MUST_CHECK;
int kml_safetensors_read(struct kml_safetensors *s, const char *path, struct kml_err *err) KML_MUST_CHECK;
void kml_safetensors_finish(struct kml_safetensors *s);

const struct kml_tensor *kml_safetensors_find(const struct kml_safetensors *s,
                                              const char *name);                        /* NULL: none */
const char *kml_safetensors_metadata(const struct kml_safetensors *s, const char *key); /* NULL: none */
const char *kml_dtype_name(enum kml_dtype dtype);
uint32_t kml_dtype_size(enum kml_dtype dtype); /* bytes */

/*
 * Appends length and JSON for tensors that follow in this order; padded with spaces so that the data is
 * 64-byte aligned.
 */
int kml_safetensors_header(struct kml_buf *out, const struct kml_tensor *tensor, uint32_t count,
                           const struct kml_metadata *metadata, uint32_t metadata_count,
                           struct kml_err *err) KML_MUST_CHECK;

/*
 * Header and data as one file, all or nothing and durable (base/file.h). A tensor's data may be of any size
 * up to memory.
 */
int kml_safetensors_write(const char *path, const struct kml_tensor *tensor, uint32_t count,
                          const struct kml_metadata *metadata, uint32_t metadata_count,
                          struct kml_err *err) KML_MUST_CHECK;

#endif
