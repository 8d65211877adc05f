#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "store/safetensors.h"
#include "tools/golden.h"

#define SEED 99

static float weight[12];
static const float bias[3] = {1.5f, -2.25f, 1e-30f};
static const struct kml_metadata metadata[] = {{"format", "pt"}, {"na\"me", "a\\b\xc3\xa9\n"}};

static void fill(struct kml_tensor tensors[2])
{
    for (int i = 0; i < 12; i++) {
        weight[i] = (float)i / 8 - 0.5f;
    }
    tensors[0] =
        (struct kml_tensor){"layer.0.weight", KML_F32, 2, {3, 4}, kml_view_of(weight, sizeof(weight))};
    tensors[1] = (struct kml_tensor){"layer.0.bias", KML_F32, 1, {3}, kml_view_of(bias, sizeof(bias))};
}

static void check_content(const struct kml_safetensors *s)
{
    const struct kml_tensor *w = kml_safetensors_find(s, "layer.0.weight");
    const struct kml_tensor *b = kml_safetensors_find(s, "layer.0.bias");
    assert_non_null(w);
    assert_non_null(b);
    assert_int_equal(w->dims, 2);
    assert_int_equal(w->dim[0], 3);
    assert_int_equal(w->dim[1], 4);
    assert_int_equal(w->dtype, KML_F32);
    assert_int_equal(w->data.size, sizeof(weight));
    assert_memory_equal(w->data.data, weight, sizeof(weight));
    assert_int_equal(b->dims, 1);
    assert_memory_equal(b->data.data, bias, sizeof(bias));
    assert_null(kml_safetensors_find(s, "layer.1.bias"));
    assert_string_equal(kml_safetensors_metadata(s, "format"), "pt");
    assert_string_equal(kml_safetensors_metadata(s, "na\"me"), "a\\b\xc3\xa9\n");
    assert_null(kml_safetensors_metadata(s, "none"));
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    char *folder = golden_folder();
    kml_auto_free char *path = kml_format("%s/model.safetensors", folder);
    struct kml_tensor tensors[2];
    struct kml_safetensors s;
    struct kml_err err;
    fill(tensors);
    assert_int_equal(kml_safetensors_write(path, tensors, 2, metadata, 2, &err), 0);
    assert_int_equal(kml_safetensors_read(&s, path, &err), 0);
    assert_int_equal(s.count, 2);
    assert_string_equal(s.tensor[0].name, "layer.0.weight");
    check_content(&s);
    kml_safetensors_finish(&s);
    golden_remove(folder);
}

static void numpy_reads_ours_and_we_read_numpys(void **state)
{
    (void)state;
    char *folder = golden_folder();
    kml_auto_free char *ours = kml_format("%s/ours.safetensors", folder);
    kml_auto_free char *theirs = kml_format("%s/theirs.safetensors", folder);
    struct kml_tensor tensors[2];
    struct kml_safetensors s;
    struct kml_err err;
    fill(tensors);
    assert_int_equal(kml_safetensors_write(ours, tensors, 2, metadata, 2, &err), 0);
    assert_int_equal(golden_python("tests/tools/golden_safetensors.py", "read", folder), 0);
    assert_int_equal(golden_python("tests/tools/golden_safetensors.py", "write", folder), 0);
    assert_int_equal(kml_safetensors_read(&s, theirs, &err), 0);
    check_content(&s);
    assert_int_equal(s.count, 4);
    assert_int_equal(kml_safetensors_find(&s, "step")->dims, 0);
    assert_int_equal(kml_safetensors_find(&s, "step")->data.data[0], 7);
    assert_int_equal(kml_safetensors_find(&s, "nothing")->data.size, 0);
    kml_safetensors_finish(&s);
    golden_remove(folder);
}

/* A file of this header and `data` zero bytes. */
static struct kml_view make_file(uint8_t *room, const char *header, size_t data)
{
    size_t length = strlen(header);
    memset(room, 0, 8 + length + data);
    room[0] = (uint8_t)length;
    room[1] = (uint8_t)(length >> 8);
    memcpy(room + 8, header, length);
    return kml_view_of(room, 8 + length + data);
}

static const struct {
    const char *header;
    size_t data;
    const char *says;
} bad[] = {
    {"", 0, "byte 0 of the header: expected '{'"},
    {"[]", 0, "expected '{'"},
    {"{", 0, "expected '\"'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, "do not agree with shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "truncated"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,4]}}", 8, "outside the file"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8, "4 bytes behind the last tensor"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "leaves a hole"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
     4, "overlaps"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
     8, "two tensors are named \"a\""},
    {"{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "expected a whole number"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[01],\"data_offsets\":[0,4]}}", 4, "leading 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[18446744073709551616],\"data_offsets\":[0,4]}}", 4,
     "beyond 64 bits"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
     "beyond 64 bits"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
     "too many dimensions"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, "a tensor has dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "each once"},
    {"{\"a\":{\"colour\":\"red\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     "nothing else"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}} x", 4, "behind the header's end"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},}", 4, "expected '\"'"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "expected '\"'"},
    {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "two metadata are named \"a\""},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "a second time"},
    {"{\"__metadata__\":{\"a\":\"\\ud800\"}}", 0, "surrogate"},
    {"{\"__metadata__\":{\"a\":\"\\u0000\"}}", 0, "zero character"},
    {"{\"__metadata__\":{\"a\":\"\\x\"}}", 0, "unknown escape"},
    {"{\"__metadata__\":{\"a\":\"\n\"}}", 0, "control character"},
    {"{\"__metadata__\":{\"a\":\"", 0, "does not end"},
    {"{\"__metadata__\":{\"a\":\"\\", 0, "unknown escape"},
};

static void every_bad_header_is_refused_with_one_clear_line(void **state)
{
    (void)state;
    uint8_t room[512];
    for (size_t i = 0; i < KML_COUNT(bad); i++) {
        struct kml_safetensors s;
        struct kml_err err = {.code = KML_OK};
        struct kml_view file = make_file(room, bad[i].header, bad[i].data);
        assert_int_equal(kml_safetensors_parse(&s, file, &err), -1);
        assert_int_equal(err.code, KML_INVALID);
        if (strstr(err.text, bad[i].says) == NULL) {
            fail_msg("%s: \"%s\" does not say \"%s\"", bad[i].header, err.text, bad[i].says);
        }
    }
}

static void a_header_larger_than_the_file_or_the_limit_is_refused(void **state)
{
    (void)state;
    struct kml_safetensors s;
    struct kml_err err;
    uint8_t file[16] = {9};
    assert_int_equal(kml_safetensors_parse(&s, kml_view_of(file, 16), &err), -1);
    assert_int_equal(err.code, KML_INVALID);
    memset(file, 0xff, sizeof(file));
    assert_int_equal(kml_safetensors_parse(&s, kml_view_of(file, 16), &err), -1);
    assert_int_equal(err.code, KML_TOO_LARGE);
    assert_int_equal(kml_safetensors_parse(&s, kml_view_of(file, 7), &err), -1);
    assert_int_equal(err.code, KML_INVALID);
}

static void escapes_become_utf8(void **state)
{
    (void)state;
    uint8_t room[256];
    struct kml_safetensors s;
    struct kml_err err;
    struct kml_view file =
        make_file(room, "{\"__metadata__\":{\"k\":\"\\u00e9\\u20ac\\ud83d\\ude00\\t\\/\"}}", 0);
    assert_int_equal(kml_safetensors_parse(&s, file, &err), 0);
    assert_string_equal(kml_safetensors_metadata(&s, "k"), "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\t/");
    kml_safetensors_finish(&s);
}

static void a_cut_or_flipped_file_is_read_or_refused_but_never_breaks(void **state)
{
    (void)state;
    print_message("seed %d\n", SEED);
    struct kml_rng r;
    kml_rng_init(&r, SEED);
    struct kml_tensor tensors[2];
    struct kml_buf file;
    struct kml_err err;
    fill(tensors);
    kml_buf_init(&file, 4096);
    assert_int_equal(kml_safetensors_header(&file, tensors, 2, metadata, 2, &err), 0);
    assert_int_equal(kml_buf_append(&file, weight, sizeof(weight), &err), 0);
    assert_int_equal(kml_buf_append(&file, bias, sizeof(bias), &err), 0);
    uint32_t refused = 0;
    for (int round = 0; round < 5000; round++) {
        size_t size = round % 2 == 0 ? file.size : kml_rng_below(&r, file.size);
        uint8_t *copy = kml_alloc(size + 1);
        memcpy(copy, file.data, size);
        for (uint64_t flips = kml_rng_below(&r, 4); size > 0 && flips > 0; flips--) {
            copy[kml_rng_below(&r, size)] ^= (uint8_t)(1U << kml_rng_below(&r, 8));
        }
        struct kml_safetensors s;
        if (kml_safetensors_parse(&s, kml_view_of(copy, size), &err) == 0) {
            kml_safetensors_finish(&s);
        } else {
            refused++;
        }
        kml_free(copy);
    }
    assert_true(refused > 2500); /* every cut one at least */
    kml_buf_finish(&file);
}

static void a_folder_that_is_not_there_is_named_in_the_error(void **state)
{
    (void)state;
    char *folder = golden_folder();
    kml_auto_free char *path = kml_format("%s/none/model.safetensors", folder);
    struct kml_tensor tensors[2];
    struct kml_err err;
    fill(tensors);
    assert_int_equal(kml_safetensors_write(path, tensors, 2, NULL, 0, &err), -1);
    assert_non_null(strstr(err.text, "none/model.safetensors"));
    golden_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(numpy_reads_ours_and_we_read_numpys),
        cmocka_unit_test(every_bad_header_is_refused_with_one_clear_line),
        cmocka_unit_test(a_header_larger_than_the_file_or_the_limit_is_refused),
        cmocka_unit_test(escapes_become_utf8),
        cmocka_unit_test(a_cut_or_flipped_file_is_read_or_refused_but_never_breaks),
        cmocka_unit_test(a_folder_that_is_not_there_is_named_in_the_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
