/*
 * The chunk parser against protobuf-c: the same messages accepted with the same values, but for the bounds
 * that lib/wire/chunk.h adds. The first byte of the input says how the rest is cut into parts.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/mem.h"
#include "kunal/v1/data.pb-c.h"
#include "wire/chunk.h"

#define PARTS_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Parts of the length given, each third of them empty. */
static struct kml_slices cut(uint8_t length, const uint8_t *data, size_t size,
                             struct kml_view parts[PARTS_MAX])
{
    size_t step = length == 0 ? size : length;
    size_t count = 0;
    for (size_t at = 0; at < size && count < PARTS_MAX - 2;) {
        if (count % 3 == 2) {
            parts[count++] = (struct kml_view){NULL, 0};
            continue;
        }
        size_t here = count + 3 >= PARTS_MAX || size - at < step ? size - at : step;
        parts[count++] = (struct kml_view){data + at, here};
        at += here;
    }
    return (struct kml_slices){parts, count, size};
}

/* A field of a message that protobuf-c has accepted: nothing in it is cut off. */
struct field {
    uint32_t number;
    uint32_t wire;
    size_t body; /* of a field with a length: where it starts */
    size_t end;
};

static uint64_t varint(const uint8_t *data, size_t *at)
{
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        uint8_t byte = data[(*at)++];
        value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
        if ((byte & 0x80) == 0) {
            return value;
        }
    }
}

static struct field field_at(const uint8_t *data, size_t at)
{
    uint64_t tag = varint(data, &at);
    struct field f = {(uint32_t)(tag >> 3), tag & 7, 0, at};
    if (f.wire == 0) {
        (void)varint(data, &f.end);
    } else if (f.wire == 2) {
        uint64_t length = varint(data, &f.end);
        f.body = f.end;
        f.end += length;
    } else {
        f.end += f.wire == 1 ? 8 : 4;
    }
    return f;
}

/* protobuf-c takes a boolean of any wire type, and the field number 0 when it is written in two bytes; we do
 * not. */
static bool is_odd_open(const uint8_t *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        struct field f = field_at(data, at);
        if ((f.number == 7 && f.wire != 0) || f.number == 0) {
            return true;
        }
        at = f.end;
    }
    return false;
}

/* Nor do we take `open` twice, which protobuf-c merges. */
static bool is_odd(const uint8_t *data, size_t size)
{
    unsigned opens = 0;
    bool odd = false;
    for (size_t at = 0; at < size;) {
        struct field f = field_at(data, at);
        odd = odd || f.number == 0;
        if (f.number == 8) {
            opens++;
            odd = odd || is_odd_open(data + f.body, f.end - f.body);
        }
        at = f.end;
    }
    return odd || opens > 1;
}

/* Valid protobuf that we refuse on purpose. */
static bool out_of_bounds(const Kunal__V1__Chunk *m, const uint8_t *data, size_t size)
{
    return m->data.len % 4 != 0 || m->data.len > KML_CHUNK_BYTES_MAX || m->dtype != 0 || is_odd(data, size) ||
           (m->elements > 0 && m->data.len > 0) || (m->open != NULL && strlen(m->open->job_uid) >= 64);
}

static void same_open(const struct kml_open *a, const Kunal__V1__Open *b)
{
    KML_BUG_ON(a->protocol != b->protocol);
    KML_BUG_ON(strcmp(a->job_uid, b->job_uid) != 0);
    KML_BUG_ON((int)a->role != (int)b->role);
    KML_BUG_ON(a->index != b->index);
    KML_BUG_ON(a->incarnation != b->incarnation);
    KML_BUG_ON(a->generation != b->generation);
    KML_BUG_ON(a->checksum != (b->checksum != 0));
    KML_BUG_ON(a->shared_pid != b->shared_pid);
    KML_BUG_ON(a->shared_fd != b->shared_fd);
}

static void same(const struct kml_chunk *a, const Kunal__V1__Chunk *b)
{
    KML_BUG_ON(a->step != b->step);
    KML_BUG_ON(a->version != b->version);
    KML_BUG_ON(a->shard != b->shard);
    KML_BUG_ON(a->offset != b->offset);
    KML_BUG_ON((int)a->payload != (int)b->payload);
    KML_BUG_ON((a->has_crc ? a->crc32c : 0) != b->crc32c);
    KML_BUG_ON(a->has_open != (b->open != NULL));
    if (b->open != NULL) {
        same_open(&a->open, b->open);
    }
    KML_BUG_ON(a->shared != (b->elements > 0));
    KML_BUG_ON(a->elements != (a->shared ? b->elements : b->data.len / 4));
    if (a->shared) {
        return;
    }
    struct kml_chunk unchecked = *a;
    unchecked.has_crc = false;
    float *copy = kml_try_alloc(b->data.len);
    KML_BUG_ON(copy == NULL || kml_chunk_copy(&unchecked, copy, NULL) != 0);
    KML_BUG_ON(b->data.len > 0 && memcmp(copy, b->data.data, b->data.len) != 0);
    kml_free(copy);
}

/* What was read, written again, must read the same. */
static void round_trip(const struct kml_chunk *c)
{
    uint8_t header[KML_CHUNK_HEADER_MAX];
    size_t size = 0;
    KML_BUG_ON(kml_chunk_header(c, header, &size, NULL) != 0);
    struct kml_cursor data = c->data;
    size_t bytes = c->shared ? 0 : c->elements * 4;
    uint8_t *payload = kml_try_alloc(bytes);
    KML_BUG_ON(payload == NULL || !kml_cursor_copy(&data, payload, bytes));
    struct kml_view parts[2] = {{header, size}, {payload, bytes}};
    struct kml_slices message = {parts, 2, size + bytes};
    struct kml_chunk again;
    KML_BUG_ON(kml_chunk_parse(&message, &again, NULL) != 0);
    KML_BUG_ON(again.step != c->step || again.version != c->version || again.shard != c->shard ||
               again.offset != c->offset || again.payload != c->payload || again.has_crc != c->has_crc ||
               again.crc32c != c->crc32c || again.has_open != c->has_open || again.elements != c->elements ||
               again.shared != c->shared || memcmp(&again.open, &c->open, sizeof c->open) != 0);
    kml_free(payload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    static struct kml_view parts[PARTS_MAX];
    struct kml_slices message = cut(data[0], data + 1, size - 1, parts);
    struct kml_chunk ours;
    struct kml_err err = {KML_OK, ""};
    bool accepted = kml_chunk_parse(&message, &ours, &err) == 0;
    Kunal__V1__Chunk *theirs = kunal__v1__chunk__unpack(NULL, size - 1, data + 1);
    KML_BUG_ON(!accepted && err.code != KML_INVALID && err.code != KML_TOO_LARGE);
    KML_BUG_ON(accepted != (theirs != NULL && !out_of_bounds(theirs, data + 1, size - 1)));
    if (accepted) {
        same(&ours, theirs);
        round_trip(&ours);
    }
    kunal__v1__chunk__free_unpacked(theirs, NULL);
    return 0;
}
