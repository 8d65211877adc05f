#include "wire/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "kunal/v1/control.pb-c.h"

static struct kml_slices two_parts(const struct kml_buf *b, size_t at, struct kml_view parts[2])
{
    parts[0] = (struct kml_view){b->data, at};
    parts[1] = (struct kml_view){b->data + at, b->size - at};
    return (struct kml_slices){parts, 2, b->size};
}

static void pack_join(struct kml_buf *out, char *uid, char *tensor)
{
    Kunal__V1__ToConductor up;
    kunal__v1__to_conductor__init(&up);
    Kunal__V1__Join join;
    kunal__v1__join__init(&join);
    Kunal__V1__Layout layout;
    kunal__v1__layout__init(&layout);
    Kunal__V1__Tensor one;
    kunal__v1__tensor__init(&one);
    Kunal__V1__Tensor *tensors[1] = {&one};
    uint32_t shape[2] = {784, 10};
    one.name = tensor;
    one.shape = shape;
    one.n_shape = 2;
    layout.tensors = tensors;
    layout.n_tensors = 1;
    join.job_uid = uid;
    join.layout = &layout;
    join.incarnation = UINT64_MAX;
    up.message_case = KUNAL__V1__TO_CONDUCTOR__MESSAGE_JOIN;
    up.join = &join;
    struct kml_err err = {0};
    if (kml_message_pack(&up.base, out, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static char *text(const char *literal)
{
    return kml_strdup(literal);
}

static void a_message_reads_back_from_one_part_and_from_two(void **state)
{
    (void)state;
    struct kml_buf b;
    kml_auto_free char *uid = text("uid-1 n\xc3\xa4her \xf0\x9f\x9a\x80");
    kml_auto_free char *tensor = text("layer1.weight");
    kml_buf_init(&b, KML_CONTROL_MAX);
    pack_join(&b, uid, tensor);
    for (size_t at = 0; at <= b.size; at++) {
        struct kml_view parts[2];
        struct kml_slices s = two_parts(&b, at, parts);
        if (at == b.size) {
            s = kml_slices_of(&parts[0]);
        }
        ProtobufCMessage *m = NULL;
        assert_int_equal(kml_message_unpack(&kunal__v1__to_conductor__descriptor, &s, &m, NULL), 0);
        const Kunal__V1__ToConductor *up = (const Kunal__V1__ToConductor *)m;
        assert_int_equal(up->message_case, KUNAL__V1__TO_CONDUCTOR__MESSAGE_JOIN);
        assert_string_equal(up->join->job_uid, uid);
        assert_string_equal(up->join->layout->tensors[0]->name, tensor);
        assert_int_equal(up->join->incarnation, UINT64_MAX);
        kml_message_free(m);
    }
    kml_message_free(NULL);
    kml_buf_finish(&b);
}

static void strings_that_are_not_utf8_are_refused_wherever_they_hide(void **state)
{
    (void)state;
    static const char *const bad[] = {"\xff",     "a\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "\xe2\x82", "\x80"};
    struct kml_buf b;
    kml_buf_init(&b, KML_CONTROL_MAX);
    for (size_t i = 0; i < 2 * KML_COUNT(bad); i++) {
        kml_auto_free char *uid = text(i % 2 == 0 ? bad[i / 2] : "fine");
        kml_auto_free char *tensor = text(i % 2 == 1 ? bad[i / 2] : "fine");
        pack_join(&b, uid, tensor);
        struct kml_view v = kml_buf_view(&b);
        struct kml_slices s = kml_slices_of(&v);
        ProtobufCMessage *m = NULL;
        struct kml_err err = {0};
        assert_int_equal(kml_message_unpack(&kunal__v1__to_conductor__descriptor, &s, &m, &err), -1);
        assert_int_equal(err.code, KML_INVALID);
        assert_non_null(strstr(err.text, i % 2 == 0 ? "job_uid" : "name"));
        assert_null(m);
    }
    kml_buf_finish(&b);
}

static void bytes_that_are_no_message_are_refused(void **state)
{
    (void)state;
    static const uint8_t junk[] = {0x0a, 0x7f, 1, 2, 3};
    struct kml_view v = {junk, sizeof junk};
    struct kml_slices s = kml_slices_of(&v);
    ProtobufCMessage *m = NULL;
    struct kml_err err = {0};
    assert_int_equal(kml_message_unpack(&kunal__v1__to_conductor__descriptor, &s, &m, &err), -1);
    assert_int_equal(err.code, KML_INVALID);
    assert_non_null(strstr(err.text, "kunal.v1.ToConductor"));
}

static void a_small_message_cannot_unpack_into_a_huge_one(void **state)
{
    (void)state;
    struct kml_buf b;
    kml_buf_init(&b, KML_CONTROL_MAX);
    while (b.size < KML_CONTROL_MAX) {
        assert_int_equal(kml_buf_append(&b, "\xa2\x01\x00",
                                        b.size + 3 <= KML_CONTROL_MAX ? 3 : KML_CONTROL_MAX - b.size, NULL),
                         0);
    }
    struct kml_view v = {b.data, b.size - b.size % 3}; /* 1.4 million empty WorkerStatus */
    struct kml_slices s = kml_slices_of(&v);
    ProtobufCMessage *m = NULL;
    struct kml_err err = {0};
    assert_int_equal(kml_message_unpack(&kunal__v1__job_status__descriptor, &s, &m, &err), -1);
    assert_int_equal(err.code, KML_INVALID);
    v.size = 3 * 10000;
    s = kml_slices_of(&v);
    assert_int_equal(kml_message_unpack(&kunal__v1__job_status__descriptor, &s, &m, &err), 0);
    assert_int_equal(((Kunal__V1__JobStatus *)m)->n_workers, 10000);
    kml_message_free(m);
    kml_buf_finish(&b);
}

static void sizes_over_the_maximum_are_refused_both_ways(void **state)
{
    (void)state;
    Kunal__V1__ModelPart part;
    kunal__v1__model_part__init(&part);
    struct kml_buf b;
    struct kml_err err = {0};
    kml_buf_init(&b, 16 << 20);
    part.data.len = KML_CONTROL_MAX;
    part.data.data = kml_alloc(part.data.len);
    assert_int_equal(kml_message_pack(&part.base, &b, &err), -1);
    assert_int_equal(err.code, KML_TOO_LARGE);
    part.data.len -= 16;
    assert_int_equal(kml_message_pack(&part.base, &b, &err), 0);
    struct kml_view v = {part.data.data, KML_CONTROL_MAX + (size_t)1};
    struct kml_slices s = kml_slices_of(&v);
    ProtobufCMessage *m = NULL;
    assert_int_equal(kml_message_unpack(&kunal__v1__model_part__descriptor, &s, &m, &err), -1);
    assert_int_equal(err.code, KML_TOO_LARGE);
    struct kml_view parts[2];
    s = two_parts(&b, 7, parts);
    kml_test_fail_alloc(1);
    assert_int_equal(kml_message_unpack(&kunal__v1__model_part__descriptor, &s, &m, &err), -1);
    assert_int_equal(err.code, KML_NO_MEMORY);
    kml_test_fail_alloc(0);
    kml_free(part.data.data);
    kml_buf_finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_reads_back_from_one_part_and_from_two),
        cmocka_unit_test(strings_that_are_not_utf8_are_refused_wherever_they_hide),
        cmocka_unit_test(bytes_that_are_no_message_are_refused),
        cmocka_unit_test(a_small_message_cannot_unpack_into_a_huge_one),
        cmocka_unit_test(sizes_over_the_maximum_are_refused_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
