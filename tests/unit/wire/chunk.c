#include "wire/chunk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kunal/v1/data.pb-c.h"

#define SEED UINT64_C(20260131)

/* A message as protobuf-c writes it. The caller frees. */
static uint8_t *packed(const Kunal__V1__Chunk *m, size_t *size)
{
    *size = kunal__v1__chunk__get_packed_size(m);
    uint8_t *bytes = kml_try_alloc(*size);
    assert_int_equal(kunal__v1__chunk__pack(m, bytes), *size);
    return bytes;
}

static int parse_bytes(const uint8_t *bytes, size_t size, struct kml_chunk *out, struct kml_err *err)
{
    static struct kml_view one; /* `out` refers to it */
    one = (struct kml_view){bytes, size};
    struct kml_slices message = kml_slices_of(&one);
    return kml_chunk_parse(&message, out, err);
}

static struct kml_chunk a_chunk(struct kml_rng *r)
{
    struct kml_chunk c = {0};
    c.step = kml_rng_next(r) >> kml_rng_below(r, 64);
    c.version = kml_rng_next(r) >> kml_rng_below(r, 64);
    c.shard = (uint32_t)(kml_rng_next(r) >> (32 + kml_rng_below(r, 32)));
    c.offset = kml_rng_below(r, 2) == 0 ? 0 : kml_rng_next(r) >> kml_rng_below(r, 64);
    c.payload = (enum kml_payload)kml_rng_below(r, 2);
    c.has_crc = kml_rng_below(r, 2) == 0;
    c.has_open = kml_rng_below(r, 3) == 0;
    if (c.has_open) {
        c.open = (struct kml_open){.protocol = 1,
                                   .role = (enum kml_role)kml_rng_below(r, 3),
                                   .index = (uint32_t)kml_rng_below(r, 9),
                                   .incarnation = kml_rng_next(r),
                                   .generation = kml_rng_below(r, 4),
                                   .checksum = kml_rng_below(r, 2) == 0,
                                   .shared_pid = (uint32_t)kml_rng_below(r, 2) * 77,
                                   .shared_fd = (uint32_t)kml_rng_below(r, 2) * 5};
        memset(c.open.job_uid, 'u', kml_rng_below(r, sizeof c.open.job_uid));
    }
    c.elements = kml_rng_below(r, 3) == 0 ? 0 : kml_rng_below(r, 600);
    return c;
}

static void to_protobuf(struct kml_chunk *c, float *data, Kunal__V1__Chunk *m, Kunal__V1__Open *o)
{
    kunal__v1__chunk__init(m);
    kunal__v1__open__init(o);
    o->protocol = c->open.protocol;
    o->job_uid = c->open.job_uid;
    o->role = (Kunal__V1__Role)c->open.role;
    o->index = c->open.index;
    o->incarnation = c->open.incarnation;
    o->generation = c->open.generation;
    o->checksum = c->open.checksum;
    o->shared_pid = c->open.shared_pid;
    o->shared_fd = c->open.shared_fd;
    m->step = c->step;
    m->version = c->version;
    m->shard = c->shard;
    m->offset = c->offset;
    m->payload = (Kunal__V1__Payload)c->payload;
    m->crc32c = c->has_crc ? c->crc32c : 0;
    m->open = c->has_open ? o : NULL;
    m->data = (ProtobufCBinaryData){c->elements * 4, (uint8_t *)data};
}

static void same(const struct kml_chunk *a, const struct kml_chunk *b)
{
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->version, b->version);
    assert_int_equal(a->shard, b->shard);
    assert_int_equal(a->offset, b->offset);
    assert_int_equal(a->payload, b->payload);
    assert_int_equal(a->has_crc, b->has_crc);
    assert_int_equal(a->crc32c, b->crc32c);
    assert_int_equal(a->has_open, b->has_open);
    assert_int_equal(a->open.protocol, b->open.protocol);
    assert_string_equal(a->open.job_uid, b->open.job_uid);
    assert_int_equal(a->open.role, b->open.role);
    assert_int_equal(a->open.index, b->open.index);
    assert_int_equal(a->open.incarnation, b->open.incarnation);
    assert_int_equal(a->open.generation, b->open.generation);
    assert_int_equal(a->open.checksum, b->open.checksum);
    assert_int_equal(a->open.shared_pid, b->open.shared_pid);
    assert_int_equal(a->open.shared_fd, b->open.shared_fd);
    assert_int_equal(a->shared, b->shared);
    assert_int_equal(a->elements, b->elements);
}

/* Cuts bytes at random places, empty parts included. */
static struct kml_slices cut(struct kml_rng *r, const uint8_t *bytes, size_t size, struct kml_view *parts,
                             size_t most)
{
    size_t count = 0;
    size_t at = 0;
    while (count + 1 < most && at < size) {
        size_t here = kml_rng_below(r, kml_rng_below(r, 2) == 0 ? 4 : 700);
        here = here < size - at ? here : size - at;
        parts[count++] = (struct kml_view){bytes + at, here};
        at += here;
    }
    parts[count++] = (struct kml_view){bytes + at, size - at};
    return (struct kml_slices){parts, count, size};
}

static void header_and_data_are_the_bytes_of_protobuf_and_read_back_from_any_cut(void **state)
{
    (void)state;
    struct kml_rng r;
    kml_rng_init(&r, SEED);
    printf("seed %llu\n", (unsigned long long)SEED);
    for (int round = 0; round < 3000; round++) {
        struct kml_chunk c = a_chunk(&r);
        float data[600];
        float copied[600];
        for (size_t i = 0; i < c.elements; i++) {
            data[i] = (float)kml_rng_normal(&r);
        }
        c.crc32c = c.has_crc ? kml_crc32c(0, data, c.elements * 4) : 0;
        c.has_crc = c.crc32c != 0; /* protobuf leaves a zero out */
        uint8_t bytes[KML_CHUNK_HEADER_MAX + sizeof data];
        size_t size = 0;
        assert_int_equal(kml_chunk_header(&c, bytes, &size, NULL), 0);
        memcpy(bytes + size, data, c.elements * 4);
        size += c.elements * 4;

        Kunal__V1__Chunk m;
        Kunal__V1__Open o;
        to_protobuf(&c, data, &m, &o);
        size_t expected_size = 0;
        uint8_t *expected = packed(&m, &expected_size);
        assert_int_equal(size, expected_size);
        assert_memory_equal(bytes, expected, size);
        kml_free(expected);

        struct kml_view parts[64];
        struct kml_slices message = cut(&r, bytes, size, parts, KML_COUNT(parts));
        struct kml_chunk read;
        struct kml_err err = {0};
        if (kml_chunk_parse(&message, &read, &err) != 0) {
            fail_msg("round %d: %s", round, err.text);
        }
        same(&read, &c);
        assert_int_equal(kml_chunk_copy(&read, copied, NULL), 0);
        assert_memory_equal(copied, data, c.elements * 4);
    }
}

static void a_message_cut_short_anywhere_is_refused_or_lacks_its_last_fields(void **state)
{
    (void)state;
    struct kml_chunk c = {
        .step = 300, .offset = 1 << 20, .has_crc = true, .crc32c = 1, .has_open = true, .elements = 2};
    uint8_t bytes[KML_CHUNK_HEADER_MAX + 8] = {0};
    size_t size = 0;
    memset(c.open.job_uid, 'u', 63);
    assert_int_equal(kml_chunk_header(&c, bytes, &size, NULL), 0);
    unsigned refused = 0;
    for (size_t n = 0; n < size + 8; n++) {
        struct kml_chunk read;
        struct kml_err err = {0};
        if (parse_bytes(bytes, n, &read, &err) != 0) {
            assert_int_equal(err.code, KML_INVALID);
            refused++;
        } else {
            assert_int_equal(read.elements, 0);
        }
    }
    assert_in_range(refused, size, size + 8 - 4); /* only the cuts between two fields pass */
    struct kml_chunk read;
    assert_int_equal(parse_bytes(bytes, size + 8, &read, NULL), 0);
}

static void what_is_no_chunk_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        uint8_t bytes[16];
        size_t size;
    } bad[] = {
        {"step as bytes", {0x0a, 0x01, 0x00}, 3},
        {"crc as varint", {0x38, 0x01}, 2},
        {"data as varint", {0x78, 0x01}, 2},
        {"open as fixed32", {0x45, 0, 0, 0, 0}, 5},
        {"a group", {0x0b, 0x0c}, 2},
        {"wire type 7", {0x0f}, 1},
        {"a varint of 11 bytes",
         {0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01},
         12},
        {"data beyond the end", {0x7a, 0x04, 1, 2, 3}, 5},
        {"a length of 2^35", {0x7a, 0xff, 0xff, 0xff, 0xff, 0x7f}, 6},
        {"data of 3 bytes", {0x7a, 0x03, 1, 2, 3}, 5},
        {"dtype 1", {0x28, 0x01}, 2},
        {"open twice", {0x42, 0x00, 0x42, 0x00}, 4},
        {"open beyond the end", {0x42, 0x02, 0x08}, 3},
        {"a cut field in open", {0x42, 0x01, 0x08, 0x01}, 4},
        {"job uid as varint", {0x42, 0x02, 0x10, 0x01}, 4},
    };
    for (size_t i = 0; i < KML_COUNT(bad); i++) {
        struct kml_chunk out;
        struct kml_err err = {0};
        if (parse_bytes(bad[i].bytes, bad[i].size, &out, &err) == 0) {
            fail_msg("accepted: %s", bad[i].what);
        }
        assert_int_equal(err.code, KML_INVALID);
    }
}

static void unknown_fields_any_order_and_repeats_are_read_as_protobuf_says(void **state)
{
    (void)state;
    /* data, an unknown varint, fixed64, bytes and fixed32, step 1, data again, step 7 */
    static const uint8_t bytes[] = {0x7a, 0x03, 9,    9,    9,    0xa0, 0x06, 0x05, 0xa9, 0x06, 1,    2, 3, 4,
                                    5,    6,    7,    8,    0xb2, 0x06, 0x02, 0xff, 0xff, 0xbd, 0x06, 1, 2, 3,
                                    4,    0x08, 0x01, 0x7a, 0x04, 0x00, 0x00, 0x80, 0x3f, 0x08, 0x07};
    struct kml_chunk out;
    float value = 0;
    assert_int_equal(parse_bytes(bytes, sizeof bytes, &out, NULL), 0);
    assert_int_equal(out.step, 7);
    assert_int_equal(out.elements, 1);
    assert_int_equal(kml_chunk_copy(&out, &value, NULL), 0);
    assert_true(value == 1.0f);
}

static void limits_hold_for_data_and_job_uid(void **state)
{
    (void)state;
    struct kml_chunk c = {.elements = KML_CHUNK_BYTES_MAX / 4 + 1};
    uint8_t header[KML_CHUNK_HEADER_MAX];
    size_t size = 0;
    struct kml_err err = {0};
    assert_int_equal(kml_chunk_header(&c, header, &size, &err), -1);
    assert_int_equal(err.code, KML_TOO_LARGE);
    size_t most = KML_CHUNK_BYTES_MAX + 4;
    uint8_t *bytes = kml_alloc(8 + most);
    static const uint8_t head[] = {0x7a, 0x84, 0x80, 0x40}; /* data of 1 MiB + 4 */
    memcpy(bytes, head, sizeof head);
    struct kml_chunk out;
    assert_int_equal(parse_bytes(bytes, sizeof head + most, &out, &err), -1);
    assert_int_equal(err.code, KML_TOO_LARGE);
    bytes[1] = 0x80;
    assert_int_equal(parse_bytes(bytes, sizeof head + KML_CHUNK_BYTES_MAX, &out, &err), 0);
    assert_int_equal(out.elements, KML_CHUNK_BYTES_MAX / 4);
    kml_free(bytes);
    uint8_t uid[70] = {0x42, 66, 0x12, 64};
    memset(uid + 4, 'u', 64);
    assert_int_equal(parse_bytes(uid, 68, &out, &err), -1);
    assert_int_equal(err.code, KML_INVALID);
    uid[1] = 65;
    uid[3] = 63;
    assert_int_equal(parse_bytes(uid, 67, &out, &err), 0);
    assert_int_equal(strlen(out.open.job_uid), 63);
}

static void a_chunk_in_shared_memory_carries_no_data_and_is_not_read_without_it(void **state)
{
    (void)state;
    struct kml_chunk c = {.step = 9, .shared = true, .elements = UINT64_C(1) << 40};
    Kunal__V1__Chunk m;
    uint8_t bytes[KML_CHUNK_HEADER_MAX];
    size_t size = 0;
    kunal__v1__chunk__init(&m);
    m.step = 9;
    m.elements = c.elements;
    assert_int_equal(kml_chunk_header(&c, bytes, &size, NULL), 0);
    size_t expected_size = 0;
    uint8_t *expected = packed(&m, &expected_size);
    assert_int_equal(size, expected_size);
    assert_memory_equal(bytes, expected, size);
    kml_free(expected);
    struct kml_chunk read;
    struct kml_err err = {0};
    float out[4] = {0};
    assert_int_equal(parse_bytes(bytes, size, &read, NULL), 0);
    same(&read, &c);
    assert_int_equal(kml_chunk_copy(&read, out, &err), -1);
    assert_int_equal(err.code, KML_INVALID);
    static const float area[] = {1, 2, 3, 4};
    struct kml_view view = {(const uint8_t *)area, sizeof area};
    struct kml_slices shared = kml_slices_of(&view);
    read.elements = 4;
    read.data = kml_cursor_of(&shared);
    assert_int_equal(kml_chunk_copy(&read, out, NULL), 0);
    assert_memory_equal(out, area, sizeof area);
    static const uint8_t both[] = {0x48, 0x01, 0x7a, 0x04, 0, 0, 0, 0};
    assert_int_equal(parse_bytes(both, sizeof both, &read, &err), -1);
    assert_int_equal(err.code, KML_INVALID);
}

static void a_flipped_bit_in_the_data_is_found_by_the_checksum(void **state)
{
    (void)state;
    float data[100];
    float out[100];
    for (size_t i = 0; i < KML_COUNT(data); i++) {
        data[i] = (float)i;
    }
    struct kml_chunk c = {.elements = 100, .has_crc = true, .crc32c = kml_crc32c(0, data, sizeof data)};
    uint8_t bytes[KML_CHUNK_HEADER_MAX + sizeof data];
    size_t size = 0;
    assert_int_equal(kml_chunk_header(&c, bytes, &size, NULL), 0);
    memcpy(bytes + size, data, sizeof data);
    for (size_t bit = 0; bit < sizeof data * 8; bit += 97) {
        struct kml_err err = {0};
        bytes[size + bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(parse_bytes(bytes, size + sizeof data, &c, NULL), 0);
        assert_int_equal(kml_chunk_copy(&c, out, &err), -1);
        assert_int_equal(err.code, KML_INVALID);
        bytes[size + bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(parse_bytes(bytes, size + sizeof data, &c, NULL), 0);
    assert_int_equal(kml_chunk_copy(&c, out, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_and_data_are_the_bytes_of_protobuf_and_read_back_from_any_cut),
        cmocka_unit_test(a_message_cut_short_anywhere_is_refused_or_lacks_its_last_fields),
        cmocka_unit_test(what_is_no_chunk_is_refused),
        cmocka_unit_test(unknown_fields_any_order_and_repeats_are_read_as_protobuf_says),
        cmocka_unit_test(limits_hold_for_data_and_job_uid),
        cmocka_unit_test(a_chunk_in_shared_memory_carries_no_data_and_is_not_read_without_it),
        cmocka_unit_test(a_flipped_bit_in_the_data_is_found_by_the_checksum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
