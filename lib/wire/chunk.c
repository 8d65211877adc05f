#include "wire/chunk.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/mem.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "float data lie in memory as they go over the wire");

/* Wire types of protobuf; 3 and 4 (groups) are no part of proto3. */
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

enum {
    CHUNK_STEP = 1,
    CHUNK_VERSION = 2,
    CHUNK_SHARD = 3,
    CHUNK_OFFSET = 4,
    CHUNK_DTYPE = 5,
    CHUNK_PAYLOAD = 6,
    CHUNK_CRC32C = 7,
    CHUNK_OPEN = 8,
    CHUNK_ELEMENTS = 9,
    CHUNK_DATA = 15
};

enum {
    OPEN_PROTOCOL = 1,
    OPEN_JOB_UID = 2,
    OPEN_ROLE = 3,
    OPEN_INDEX = 4,
    OPEN_INCARNATION = 5,
    OPEN_GENERATION = 6,
    OPEN_CHECKSUM = 7,
    OPEN_SHARED_PID = 8,
    OPEN_SHARED_FD = 9
};

/* ---- Writing ---- */

struct pen {
    uint8_t *at;
};

static void put_varint(struct pen *p, uint64_t value)
{
    while (value >= 0x80) {
        *p->at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *p->at++ = (uint8_t)value;
}

static void put_tag(struct pen *p, uint32_t field, uint32_t wire)
{
    put_varint(p, field << 3 | wire);
}

/* Zero is the default of every field and stays off the wire. */
static void put_number(struct pen *p, uint32_t field, uint64_t value)
{
    if (value != 0) {
        put_tag(p, field, WIRE_VARINT);
        put_varint(p, value);
    }
}

static void put_bytes(struct pen *p, uint32_t field, const void *data, size_t size)
{
    put_tag(p, field, WIRE_BYTES);
    put_varint(p, size);
    memcpy(p->at, data, size);
    p->at += size;
}

static void put_open(struct pen *p, const struct kml_open *o)
{
    uint8_t body[KML_CHUNK_HEADER_MAX / 2];
    struct pen in = {body};
    size_t uid = strnlen(o->job_uid, sizeof o->job_uid - 1);
    put_number(&in, OPEN_PROTOCOL, o->protocol);
    if (uid > 0) {
        put_bytes(&in, OPEN_JOB_UID, o->job_uid, uid);
    }
    put_number(&in, OPEN_ROLE, (uint32_t)o->role);
    put_number(&in, OPEN_INDEX, o->index);
    put_number(&in, OPEN_INCARNATION, o->incarnation);
    put_number(&in, OPEN_GENERATION, o->generation);
    put_number(&in, OPEN_CHECKSUM, o->checksum);
    put_number(&in, OPEN_SHARED_PID, o->shared_pid);
    put_number(&in, OPEN_SHARED_FD, o->shared_fd);
    put_bytes(p, CHUNK_OPEN, body, (size_t)(in.at - body));
}

int kml_chunk_header(const struct kml_chunk *c, uint8_t out[KML_CHUNK_HEADER_MAX], size_t *size,
                     struct kml_err *err)
{
    if (!c->shared && c->elements > KML_CHUNK_BYTES_MAX / 4) {
        return kml_fail(err, KML_TOO_LARGE, "a chunk of %llu elements, at most %u",
                        (unsigned long long)c->elements, KML_CHUNK_BYTES_MAX / 4);
    }
    struct pen p = {out};
    put_number(&p, CHUNK_STEP, c->step);
    put_number(&p, CHUNK_VERSION, c->version);
    put_number(&p, CHUNK_SHARD, c->shard);
    put_number(&p, CHUNK_OFFSET, c->offset);
    put_number(&p, CHUNK_PAYLOAD, (uint32_t)c->payload);
    if (c->has_crc) {
        put_tag(&p, CHUNK_CRC32C, WIRE_32);
        memcpy(p.at, &c->crc32c, 4);
        p.at += 4;
    }
    if (c->has_open) {
        put_open(&p, &c->open);
    }
    if (c->shared) {
        put_number(&p, CHUNK_ELEMENTS, c->elements);
    } else if (c->elements > 0) {
        put_tag(&p, CHUNK_DATA, WIRE_BYTES);
        put_varint(&p, c->elements * 4);
    }
    *size = (size_t)(p.at - out);
    return 0;
}

/* ---- Reading ---- */

/* One field as it stands on the wire: a number, or a range of bytes with a cursor at its start. */
struct field {
    uint32_t number;
    uint32_t wire;
    uint64_t value;
    bool nonzero; /* of a varint; also bits that value has no room for count, as in protobuf-c's booleans */
    struct kml_cursor bytes;
    size_t size;
};

static int broken(struct kml_err *err, const char *what)
{
    return kml_fail(err, KML_INVALID, "not a kunal.v1.Chunk: %s", what);
}

/* At most `most` bytes long; bits that do not fit are dropped, as protobuf does. */
static bool get_varint(struct kml_cursor *c, unsigned most, uint64_t *value, bool *nonzero)
{
    *value = 0;
    *nonzero = false;
    for (unsigned i = 0; i < most; i++) {
        struct kml_view one = kml_cursor_run(c, 1);
        if (one.size == 0) {
            return false;
        }
        uint64_t bits = one.data[0] & 0x7f;
        *value |= bits << (7 * i);
        *nonzero = *nonzero || bits != 0;
        if ((one.data[0] & 0x80) == 0) {
            return true;
        }
    }
    return false;
}

static bool get_length(struct kml_cursor *c, struct field *f)
{
    uint64_t length;
    bool nonzero;
    if (!get_varint(c, 5, &length, &nonzero) || length > INT32_MAX || length > c->left) {
        return false;
    }
    f->size = (size_t)length;
    f->bytes = *c;
    f->bytes.left = f->size;
    return kml_cursor_skip(c, f->size);
}

static bool get_value(struct kml_cursor *c, struct field *f)
{
    switch (f->wire) {
    case WIRE_VARINT:
        return get_varint(c, 10, &f->value, &f->nonzero);
    case WIRE_64:
        return kml_cursor_copy(c, &f->value, 8);
    case WIRE_32:
        return kml_cursor_copy(c, &f->value, 4);
    case WIRE_BYTES:
        return get_length(c, f);
    default:
        return false;
    }
}

static int get_field(struct kml_cursor *c, struct field *f, struct kml_err *err)
{
    uint64_t tag;
    bool nonzero;
    *f = (struct field){0};
    if (!get_varint(c, 5, &tag, &nonzero)) {
        return broken(err, "a field's number does not end");
    }
    f->number = (uint32_t)(tag >> 3);
    f->wire = tag & 7;
    if (f->number == 0) {
        return broken(err, "a field has the number 0");
    }
    return get_value(c, f) ? 0
                           : broken(err, "a field's value is cut off or of a kind that proto3 does not have");
}

static int want(const struct field *f, uint32_t wire, struct kml_err *err)
{
    return f->wire == wire ? 0 : broken(err, "a field has another type");
}

static int read_job_uid(const struct field *f, struct kml_open *o, struct kml_err *err)
{
    struct kml_cursor bytes = f->bytes;
    size_t size = f->size < sizeof o->job_uid ? f->size : sizeof o->job_uid;
    memset(o->job_uid, 0, sizeof o->job_uid);
    if (!kml_cursor_copy(&bytes, o->job_uid, size) || memchr(o->job_uid, '\0', sizeof o->job_uid) == NULL) {
        return kml_fail(err, KML_INVALID, "the job uid is longer than %zu bytes", sizeof o->job_uid - 1);
    }
    size = strlen(o->job_uid);
    memset(o->job_uid + size, 0, sizeof o->job_uid - size);
    return 0;
}

static int read_open_field(const struct field *f, struct kml_open *o, struct kml_err *err)
{
    if (f->number < OPEN_PROTOCOL || f->number > OPEN_SHARED_FD) {
        return 0;
    }
    if (want(f, f->number == OPEN_JOB_UID ? WIRE_BYTES : WIRE_VARINT, err) != 0) {
        return -1;
    }
    switch (f->number) {
    case OPEN_PROTOCOL:
        o->protocol = (uint32_t)f->value;
        return 0;
    case OPEN_JOB_UID:
        return read_job_uid(f, o, err);
    case OPEN_ROLE:
        o->role = (enum kml_role)(uint32_t)f->value;
        return 0;
    case OPEN_INDEX:
        o->index = (uint32_t)f->value;
        return 0;
    case OPEN_INCARNATION:
        o->incarnation = f->value;
        return 0;
    case OPEN_GENERATION:
        o->generation = f->value;
        return 0;
    case OPEN_SHARED_PID:
        o->shared_pid = (uint32_t)f->value;
        return 0;
    case OPEN_SHARED_FD:
        o->shared_fd = (uint32_t)f->value;
        return 0;
    default:
        o->checksum = f->nonzero;
        return 0;
    }
}

static int read_open(const struct field *f, struct kml_chunk *out, struct kml_err *err)
{
    if (out->has_open) {
        return broken(err, "open stands in it twice");
    }
    out->has_open = true;
    struct kml_cursor c = f->bytes;
    while (c.left > 0) {
        struct field inner;
        if (get_field(&c, &inner, err) != 0 || read_open_field(&inner, &out->open, err) != 0) {
            return -1;
        }
    }
    return 0;
}

static uint32_t wire_of(uint32_t number)
{
    switch (number) {
    case CHUNK_CRC32C:
        return WIRE_32;
    case CHUNK_OPEN:
    case CHUNK_DATA:
        return WIRE_BYTES;
    default:
        return WIRE_VARINT;
    }
}

struct reading {
    struct kml_chunk *out;
    uint32_t dtype;
    uint64_t elements; /* in shared memory */
    size_t data_size;
};

static int read_field(const struct field *f, struct reading *r, struct kml_err *err)
{
    struct kml_chunk *out = r->out;
    bool known = (f->number >= CHUNK_STEP && f->number <= CHUNK_ELEMENTS) || f->number == CHUNK_DATA;
    if (!known) {
        return 0;
    }
    if (want(f, wire_of(f->number), err) != 0) {
        return -1;
    }
    switch (f->number) {
    case CHUNK_STEP:
        out->step = f->value;
        return 0;
    case CHUNK_VERSION:
        out->version = f->value;
        return 0;
    case CHUNK_SHARD:
        out->shard = (uint32_t)f->value;
        return 0;
    case CHUNK_OFFSET:
        out->offset = f->value;
        return 0;
    case CHUNK_DTYPE:
        r->dtype = (uint32_t)f->value;
        return 0;
    case CHUNK_PAYLOAD:
        out->payload = (enum kml_payload)(uint32_t)f->value;
        return 0;
    case CHUNK_CRC32C:
        out->has_crc = true;
        out->crc32c = (uint32_t)f->value;
        return 0;
    case CHUNK_OPEN:
        return read_open(f, out, err);
    case CHUNK_ELEMENTS:
        r->elements = f->value;
        return 0;
    default:
        out->data = f->bytes;
        r->data_size = f->size;
        return 0;
    }
}

/* Only now, as of a repeated field the last one counts. */
static int check(const struct reading *r, struct kml_err *err)
{
    if (r->dtype != 0) {
        return kml_fail(err, KML_INVALID, "a chunk of dtype %u, only FLOAT32 (0) is spoken", r->dtype);
    }
    if (r->data_size % 4 != 0) {
        return kml_fail(err, KML_INVALID, "a chunk of %zu bytes of data, no multiple of 4", r->data_size);
    }
    if (r->data_size > KML_CHUNK_BYTES_MAX) {
        return kml_fail(err, KML_TOO_LARGE, "a chunk of %zu bytes of data, at most %u", r->data_size,
                        KML_CHUNK_BYTES_MAX);
    }
    if (r->elements > 0 && r->data_size > 0) {
        return kml_fail(err, KML_INVALID, "a chunk with data, which says that they are in shared memory");
    }
    return 0;
}

int kml_chunk_parse(const struct kml_slices *message, struct kml_chunk *out, struct kml_err *err)
{
    struct kml_chunk parsed = {0};
    struct reading r = {.out = &parsed};
    struct kml_cursor c = kml_cursor_of(message);
    while (c.left > 0) {
        struct field f;
        if (get_field(&c, &f, err) != 0 || read_field(&f, &r, err) != 0) {
            return -1;
        }
    }
    if (check(&r, err) != 0) {
        return -1;
    }
    parsed.shared = r.elements > 0;
    parsed.elements = parsed.shared ? r.elements : r.data_size / 4;
    *out = parsed;
    return 0;
}

int kml_chunk_copy(const struct kml_chunk *c, float *to, struct kml_err *err)
{
    struct kml_cursor data = c->data;
    if (c->elements > data.left / 4) { /* a peer may say `shared` on a stream that shares nothing */
        return kml_fail(err, KML_INVALID,
                        "a chunk whose data are said to be in shared memory, and there is none");
    }
    uint8_t *at = (uint8_t *)to;
    uint32_t crc = 0;
    for (size_t left = c->elements * 4; left > 0;) {
        struct kml_view run = kml_cursor_run(&data, left);
        KML_BUG_ON(run.size == 0); /* parse saw all of them */
        memcpy(at, run.data, run.size);
        crc = c->has_crc ? kml_crc32c(crc, at, run.size) : 0; /* while it is in the cache */
        at += run.size;
        left -= run.size;
    }
    if (c->has_crc && crc != c->crc32c) {
        return kml_fail(err, KML_INVALID,
                        "checksum of a chunk is %08x, its data have %08x: damaged on the way", c->crc32c,
                        crc);
    }
    return 0;
}

/* ---- Shared memory ---- */

size_t kml_area_bytes(uint64_t floats)
{
    return (floats * sizeof(float) + 4095) / 4096 * 4096;
}

float *kml_area_gradient(uint8_t *memory)
{
    return (float *)(void *)memory;
}

float *kml_area_parameters(uint8_t *memory, uint64_t floats, uint64_t version)
{
    return (float *)(void *)(memory + (1 + version % 2) * kml_area_bytes(floats));
}
