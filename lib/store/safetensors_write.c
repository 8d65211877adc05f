#include "store/safetensors.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"

#define DATA_ALIGN 64

static int put_string(struct kml_buf *out, const char *text, struct kml_err *err)
{
    int code = kml_buf_puts(out, "\"", err);
    for (const char *p = text; code == 0 && *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\') {
            code = kml_buf_printf(out, err, "\\%c", c);
        } else if (c < 0x20) {
            code = kml_buf_printf(out, err, "\\u%04x", c);
        } else {
            code = kml_buf_append(out, p, 1, err);
        }
    }
    return code == 0 ? kml_buf_puts(out, "\"", err) : code;
}

static int put_metadata(struct kml_buf *out, const struct kml_metadata *metadata, uint32_t count,
                        struct kml_err *err)
{
    int code = kml_buf_puts(out, "\"__metadata__\":{", err);
    for (uint32_t i = 0; code == 0 && i < count; i++) {
        if (i > 0) {
            code = kml_buf_puts(out, ",", err);
        }
        if (code == 0) {
            code = put_string(out, metadata[i].key, err);
        }
        if (code == 0) {
            code = kml_buf_puts(out, ":", err);
        }
        if (code == 0) {
            code = put_string(out, metadata[i].text, err);
        }
    }
    return code == 0 ? kml_buf_puts(out, "}", err) : code;
}

static int put_tensor(struct kml_buf *out, const struct kml_tensor *t, uint64_t begin, struct kml_err *err)
{
    int code = put_string(out, t->name, err);
    if (code == 0) {
        code = kml_buf_printf(out, err, ":{\"dtype\":\"%s\",\"shape\":[", kml_dtype_name(t->dtype));
    }
    for (uint32_t i = 0; code == 0 && i < t->dims; i++) {
        code = kml_buf_printf(out, err, "%s%llu", i == 0 ? "" : ",", (unsigned long long)t->dim[i]);
    }
    return code != 0 ? code
                     : kml_buf_printf(out, err, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
                                      (unsigned long long)(begin + t->data.size));
}

/* Spaces behind the JSON bring the data to a cache line; the length in front is known only then. */
static int close_header(struct kml_buf *out, size_t at, struct kml_err *err)
{
    while ((out->size - at) % DATA_ALIGN != 0) {
        if (kml_buf_puts(out, " ", err) != 0) {
            return -1;
        }
    }
    uint64_t length = out->size - at - 8;
    if (length > KML_SAFETENSORS_MAX_HEADER) {
        return kml_fail(err, KML_TOO_LARGE, "a safetensors header of %llu bytes", (unsigned long long)length);
    }
    for (int i = 0; i < 8; i++) {
        out->data[at + (size_t)i] = (uint8_t)(length >> (8 * i));
    }
    return 0;
}

int kml_safetensors_header(struct kml_buf *out, const struct kml_tensor *tensor, uint32_t count,
                           const struct kml_metadata *metadata, uint32_t metadata_count, struct kml_err *err)
{
    size_t at = out->size;
    uint64_t offset = 0;
    int code = kml_buf_append(out, "\0\0\0\0\0\0\0\0{", 9, err);
    if (code == 0 && metadata_count > 0) {
        code = put_metadata(out, metadata, metadata_count, err);
    }
    for (uint32_t i = 0; code == 0 && i < count; i++) {
        if (i > 0 || metadata_count > 0) {
            code = kml_buf_puts(out, ",", err);
        }
        if (code == 0) {
            code = put_tensor(out, &tensor[i], offset, err);
        }
        offset += tensor[i].data.size;
    }
    if (code == 0) {
        code = kml_buf_puts(out, "}", err);
    }
    return code == 0 ? close_header(out, at, err) : code;
}

int kml_safetensors_write(const char *path, const struct kml_tensor *tensor, uint32_t count,
                          const struct kml_metadata *metadata, uint32_t metadata_count, struct kml_err *err)
{
    struct kml_buf header;
    kml_buf_init(&header, KML_SAFETENSORS_MAX_HEADER + 8);
    int code = kml_safetensors_header(&header, tensor, count, metadata, metadata_count, err);
    if (code == 0) {
        struct kml_view *parts = KML_NEW_ARRAY((size_t)count + 1, struct kml_view);
        parts[0] = kml_buf_view(&header);
        for (uint32_t i = 0; i < count; i++) {
            parts[i + 1] = tensor[i].data;
        }
        code = kml_file_write(path, parts, (size_t)count + 1, 0644, err);
        kml_free(parts);
    }
    kml_buf_finish(&header);
    return code;
}
