#include "wire/message.h"

#include "base/mem.h"
#include "base/parse.h"

int kml_message_pack(const ProtobufCMessage *m, struct kml_buf *out, struct kml_err *err)
{
    size_t size = protobuf_c_message_get_packed_size(m);
    if (size > KML_CONTROL_MAX) {
        return kml_fail(err, KML_TOO_LARGE, "a %s of %zu bytes, at most %u", m->descriptor->short_name, size,
                        KML_CONTROL_MAX);
    }
    kml_buf_clear(out);
    uint8_t *to = kml_buf_reserve(out, size, err);
    if (to == NULL) {
        return kml_wrap(err, "%s", m->descriptor->short_name);
    }
    kml_buf_added(out, protobuf_c_message_pack(m, to));
    return 0;
}

/* ---- Memory: an unpacked message may be many times larger than its bytes, so what it may take is bounded
 * ---- */

#define BUDGET_BASE ((size_t)8 << 20)
#define BUDGET_FACTOR 24

struct budget {
    size_t left;
};

static void *take(void *self, size_t size)
{
    struct budget *b = self;
    if (size > b->left) {
        return NULL;
    }
    b->left -= size;
    return kml_try_alloc(size);
}

static void give(void *self, void *p)
{
    (void)self;
    kml_free(p);
}

void kml_message_free(ProtobufCMessage *m)
{
    if (m != NULL) {
        protobuf_c_message_free_unpacked(m, NULL); /* free(3), which kml_free is */
    }
}

/* ---- Strings: proto3 wants UTF-8, protobuf-c takes anything ---- */

static bool is_utf8(const char *text)
{
    size_t length = 1;
    for (; *text != '\0' && length > 0; text += length) {
        length = kml_utf8_length(text);
    }
    return length > 0;
}

static const void *member(const ProtobufCMessage *m, unsigned offset)
{
    return (const char *)m + offset;
}

static const ProtobufCFieldDescriptor *bad_string(const ProtobufCMessage *m);

static const ProtobufCFieldDescriptor *bad_value(const ProtobufCFieldDescriptor *f, const void *value)
{
    if (f->type == PROTOBUF_C_TYPE_STRING) {
        const char *text = *(char *const *)value;
        return text == NULL || is_utf8(text) ? NULL : f;
    }
    const ProtobufCMessage *inner = *(ProtobufCMessage *const *)value;
    return inner == NULL ? NULL : bad_string(inner);
}

static const ProtobufCFieldDescriptor *bad_in_list(const ProtobufCFieldDescriptor *f,
                                                   const ProtobufCMessage *m)
{
    size_t count = *(const size_t *)member(m, f->quantifier_offset);
    void *const *list = *(void *const *const *)member(m, f->offset);
    for (size_t i = 0; i < count; i++) {
        const ProtobufCFieldDescriptor *bad = bad_value(f, &list[i]);
        if (bad != NULL) {
            return bad;
        }
    }
    return NULL;
}

/* The first field that holds no UTF-8, anywhere inside. As deep as our types are: none contains itself. */
static const ProtobufCFieldDescriptor *bad_string(const ProtobufCMessage *m)
{
    const ProtobufCFieldDescriptor *bad = NULL;
    for (unsigned i = 0; i < m->descriptor->n_fields && bad == NULL; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        if (f->type != PROTOBUF_C_TYPE_STRING && f->type != PROTOBUF_C_TYPE_MESSAGE) {
            continue;
        }
        if (f->label == PROTOBUF_C_LABEL_REPEATED) {
            bad = bad_in_list(f, m);
        } else if ((f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) == 0 ||
                   *(const uint32_t *)member(m, f->quantifier_offset) == f->id) {
            bad = bad_value(f, member(m, f->offset));
        }
    }
    return bad;
}

/* ---- Unpacking ---- */

static int unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                  ProtobufCMessage **out, struct kml_err *err)
{
    struct budget budget = {BUDGET_BASE + BUDGET_FACTOR * size};
    ProtobufCAllocator allocator = {take, give, &budget};
    ProtobufCMessage *m = protobuf_c_message_unpack(type, &allocator, size, data);
    if (m == NULL) {
        return kml_fail(err, KML_INVALID, "%zu bytes that are not a %s", size, type->name);
    }
    const ProtobufCFieldDescriptor *bad = bad_string(m);
    if (bad != NULL) {
        kml_message_free(m);
        return kml_fail(err, KML_INVALID, "%s: the field '%s' is not UTF-8", type->name, bad->name);
    }
    *out = m;
    return 0;
}

int kml_message_unpack(const ProtobufCMessageDescriptor *type, const struct kml_slices *bytes,
                       ProtobufCMessage **out, struct kml_err *err)
{
    if (bytes->size > KML_CONTROL_MAX) {
        return kml_fail(err, KML_TOO_LARGE, "a %s of %zu bytes, at most %u", type->short_name, bytes->size,
                        KML_CONTROL_MAX);
    }
    struct kml_cursor c = kml_cursor_of(bytes);
    if (bytes->count == 1) {
        return unpack(type, bytes->part[0].data, bytes->size, out, err);
    }
    kml_auto_free uint8_t *joined = kml_try_alloc(bytes->size);
    if (joined == NULL) {
        return kml_fail(err, KML_NO_MEMORY, "no memory for a %s of %zu bytes", type->short_name, bytes->size);
    }
    bool complete = kml_cursor_copy(&c, joined, bytes->size);
    KML_BUG_ON(!complete);
    return unpack(type, joined, bytes->size, out, err);
}
