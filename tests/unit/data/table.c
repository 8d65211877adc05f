#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/number.h"
#include "data/table.h"

#define SEED 555

/* ---- numbers ---- */
static bool reads(const char *text, double *out)
{
    return kml_number_read(kml_view_str(text), out);
}

static char *spelled(double value, int how)
{
    switch (how) {
    case 0:
        return kml_format("%.9g", value);
    case 1:
        return kml_format("%.17g", value);
    case 2:
        return kml_format("%.3f", value);
    case 3:
        return kml_format("%e", value);
    default:
        return kml_format("%+.12f", value);
    }
}

static void numbers_are_read_as_strtod_reads_them(void **state)
{
    (void)state;
    print_message("seed %d\n", SEED);
    struct kml_rng r;
    kml_rng_init(&r, SEED);
    for (int round = 0; round < 20000; round++) {
        double value = kml_rng_normal(&r) * pow(10, 40 * kml_rng_unit(&r) - 20);
        kml_auto_free char *text = spelled(value, round % 5);
        double got;
        assert_true(reads(text, &got));
        double wanted = strtod(text, NULL);
        assert_true(fabs(got - wanted) <= 1e-15 * fabs(wanted));
    }
}

static void odd_but_legal_numbers_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {
        {"0", 0},
        {"-0.0", 0},
        {" 7\t", 7},
        {"+1.5", 1.5},
        {".5", 0.5},
        {"5.", 5},
        {"1e3", 1000},
        {"1E-2", 0.01},
        {"00012", 12},
        {"1e-400", 0},
        {"0e999999999999", 0},
        {"123456789012345678901234567890", 123456789012345678901234567890.0},
        {"0.00000000000000000000000000000000000000000001", 1e-44},
        {"1e+5", 1e5},
    };
    for (size_t i = 0; i < KML_COUNT(good); i++) {
        double got;
        assert_true(reads(good[i].text, &got));
        assert_true(fabs(got - good[i].value) <= 1e-15 * fabs(good[i].value));
    }
    double big;
    assert_true(reads("1e400", &big));
    assert_true(isinf(big));
    assert_true(reads("-1e999999999999999999999", &big));
    assert_true(isinf(big));
}

static void what_is_no_number_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",  " ", "a",   "1a",  "1 2",  "--1", "+-1",  "e5",    "1e",   "1e+",
                                      ".", "-", "nan", "inf", "0x10", "1,5", "1..2", "1e5.5", "\"1\""};
    for (size_t i = 0; i < KML_COUNT(bad); i++) {
        double ignored;
        assert_false(reads(bad[i], &ignored));
    }
}

/* ---- text ---- */
static int read_text(struct kml_table *t, struct kml_view bytes, char separator, const char *label,
                     enum kml_target_kind targets, struct kml_err *err)
{
    struct kml_source *source = kml_source_of_view("x.csv", bytes);
    int code = kml_table_read_text(t, source, separator, label, targets, err);
    kml_source_close(source);
    return code;
}

static const struct {
    const char *text;
    const char *label;
    char separator;
    enum kml_target_kind targets;
    const char *says;
} bad_text[] = {
    {"", NULL, ',', KML_TARGET_CLASS, "x.csv: the file is empty"},
    {"\n\r\n\n", NULL, ',', KML_TARGET_CLASS, "x.csv: the file is empty"},
    {"a,b,label\n", NULL, ',', KML_TARGET_CLASS, "x.csv: a header, but no samples"},
    {"1\n2\n", NULL, ',', KML_TARGET_CLASS, "x.csv: line 1: only one column"},
    {"1\t2\n", NULL, ',', KML_TARGET_CLASS, "separated by commas"},
    {"1,2,0\n1,2\n", NULL, ',', KML_TARGET_CLASS, "x.csv: line 2 has 2 columns, the first line has 3"},
    {"a,b,c\n1,2,0\n\n1,2,3,4\n", NULL, ',', KML_TARGET_CLASS,
     "x.csv: line 4 has more than 3 columns, the first line has 3"},
    {"1,2,0\n1,two,0\n", NULL, ',', KML_TARGET_CLASS, "x.csv: line 2, column 2: \"two\" is not a number"},
    {"1,2,0\n1,,0\n", NULL, ',', KML_TARGET_CLASS, "x.csv: line 2, column 2: \"\" is not a number"},
    {"1,2,0\n1,nan,0\n", NULL, ',', KML_TARGET_CLASS, "x.csv: line 2, column 2: \"nan\" is not a number"},
    {"1,2,0\n1,1e39,0\n", NULL, ',', KML_TARGET_CLASS, "x.csv: line 2, column 2: \"1e39\" is too large"},
    {"1,2,0\n1,2,-1\n", NULL, ',', KML_TARGET_CLASS, "x.csv: line 2, column 3: label -1 is out of range"},
    {"1,2,0\n1,2,1.5\n", NULL, ',', KML_TARGET_CLASS, "x.csv: line 2, column 3: label 1.5 is out of range"},
    {"1,2,0\n1,2,65536\n", NULL, ',', KML_TARGET_CLASS, "whole numbers from 0 to 65535"},
    {"1,2,0\n1,2,1e60\n", NULL, ',', KML_TARGET_REAL, "x.csv: line 2, column 3: \"1e60\" is too large"},
    {"1,\"2,0\n", NULL, ',', KML_TARGET_CLASS, "x.csv: line 1: a quoted field does not end"},
    {"1,2,0\n\"1\"x,2,0\n", NULL, ',', KML_TARGET_CLASS, "x.csv: line 2: a quoted field does not end"},
    {"a,b\n1,2\n", "colour", ',', KML_TARGET_CLASS,
     "there is no label column \"colour\" among its 2 columns (the first line"},
    {"1,2\n", "colour", ',', KML_TARGET_CLASS, "(it has no header"},
    {"1,2\n", "2", ',', KML_TARGET_CLASS, "there is no label column \"2\""},
    {"1,2\n", "-1", ',', KML_TARGET_CLASS, "there is no label column \"-1\""},
    {"1,2,0\n1,2,0,", NULL, ',', KML_TARGET_CLASS, "x.csv: line 2 has more than 3 columns"},
};

static void every_bad_text_is_refused_with_file_line_and_column(void **state)
{
    (void)state;
    for (size_t i = 0; i < KML_COUNT(bad_text); i++) {
        struct kml_table t;
        struct kml_err err = {.code = KML_OK};
        int code = read_text(&t, kml_view_str(bad_text[i].text), bad_text[i].separator, bad_text[i].label,
                             bad_text[i].targets, &err);
        assert_int_equal(code, -1);
        assert_int_equal(err.code, KML_INVALID);
        if (strstr(err.text, bad_text[i].says) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", err.text, bad_text[i].says);
        }
        assert_null(strchr(err.text, '\n'));
    }
}

static void check_two_rows(const struct kml_table *t)
{
    static const float wanted[] = {1.5f, -2, 3, 4e2f};
    static const uint32_t label[] = {1, 0};
    assert_int_equal(t->rows, 2);
    assert_int_equal(t->features, 2);
    assert_int_equal(t->classes, 2);
    assert_null(t->bytes);
    assert_memory_equal(t->reals, wanted, sizeof(wanted));
    assert_memory_equal(t->label, label, sizeof(label));
}

static void the_same_samples_in_every_spelling(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *label;
        char separator;
    } good[] = {
        {"1.5,-2,1\n3,4e2,0\n", NULL, ','},
        {"1.5,-2,1\n3,4e2,0", NULL, ','},
        {"1.5,-2,1\r\n3,4e2,0\r\n\r\n", NULL, ','},
        {"\xef\xbb\xbf"
         "a,b,c\n1.5,-2,1\n3,4e2,0\n",
         NULL, ','},
        {"\n\na,b,c\n\n1.5,-2,1\n\n3,4e2,0\n", "c", ','},
        {"label,a,b\n1,1.5,-2\n0,3,4e2\n", NULL, ','},
        {"\"label\",\"a,b\",\"c \"\"d\"\"\"\n\"1\",\"1.5\",-2\n0,\"3\",\"4e2\"\n", NULL, ','},
        {"a,y,b\n1.5,1,-2\n3,0,4e2\n", "y", ','},
        {"1.5,1,-2\n3,0,4e2\n", "1", ','},
        {"a,b,c\n1.5,1,-2\n3,0,4e2\n", "1", ','},
        {"1.5\t-2\t1\n3\t4e2\t0\n", NULL, '\t'},
        {" 1.5 , -2 , 1 \n3,4e2,0\n", NULL, ','},
        {"0,1,label\n1.5,-2,1\n3,4e2,0\n", "label", ','},
    };
    for (size_t i = 0; i < KML_COUNT(good); i++) {
        struct kml_table t;
        struct kml_err err;
        assert_int_equal(read_text(&t, kml_view_str(good[i].text), good[i].separator, good[i].label,
                                   KML_TARGET_CLASS, &err),
                         0);
        check_two_rows(&t);
        kml_table_finish(&t);
    }
}

static void real_targets_are_kept_as_they_are(void **state)
{
    (void)state;
    struct kml_table t;
    struct kml_err err;
    assert_int_equal(read_text(&t, kml_view_str("1,-3.25\n2,1e9\n"), ',', NULL, KML_TARGET_REAL, &err), 0);
    assert_null(t.label);
    assert_int_equal(t.classes, 0);
    assert_true(t.target[0] == -3.25f && t.target[1] == 1e9f);
    kml_table_finish(&t);
}

/* Long lines and many rows: room grows, values stay. */
static void a_large_text_is_read_whole(void **state)
{
    (void)state;
    struct kml_buf text;
    struct kml_err err;
    kml_buf_init(&text, 1 << 24);
    uint32_t rows = 300;
    uint32_t columns = 2001;
    for (uint32_t i = 0; i < rows; i++) {
        for (uint32_t j = 0; j < columns; j++) {
            assert_int_equal(kml_buf_printf(&text, &err, "%u%c", j + 1 < columns ? (i * 7 + j) % 1000 : i % 3,
                                            j + 1 < columns ? ',' : '\n'),
                             0);
        }
    }
    struct kml_table t;
    assert_int_equal(read_text(&t, kml_buf_view(&text), ',', NULL, KML_TARGET_CLASS, &err), 0);
    assert_int_equal(t.rows, rows);
    assert_int_equal(t.features, columns - 1);
    assert_int_equal(t.classes, 3);
    for (uint32_t i = 0; i < rows; i++) {
        for (uint32_t j = 0; j + 1 < columns; j++) {
            assert_true(t.reals[(size_t)i * t.features + j] == (float)((i * 7 + j) % 1000));
        }
    }
    kml_table_finish(&t);
    kml_buf_finish(&text);
}

static void a_line_beyond_the_limit_is_refused(void **state)
{
    (void)state;
    size_t size = (size_t)KML_DATA_MAX_LINE + 2;
    char *text = kml_alloc(size);
    memset(text, '1', size);
    struct kml_table t;
    struct kml_err err;
    assert_int_equal(read_text(&t, kml_view_of(text, size), ',', NULL, KML_TARGET_CLASS, &err), -1);
    assert_int_equal(err.code, KML_TOO_LARGE);
    kml_free(text);
}

/* ---- gzip ---- */
static struct kml_view packed(const char *text, uint8_t *room, size_t size)
{
    z_stream z = {0};
    KML_BUG_ON(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK);
    char *copy = kml_strdup(text);
    z.next_in = (Bytef *)copy;
    z.avail_in = (uInt)strlen(text);
    z.next_out = room;
    z.avail_out = (uInt)size;
    KML_BUG_ON(deflate(&z, Z_FINISH) != Z_STREAM_END);
    size_t used = size - z.avail_out;
    KML_BUG_ON(deflateEnd(&z) != Z_OK);
    kml_free(copy);
    return kml_view_of(room, used);
}

static void gzip_is_transparent_and_members_follow_one_another(void **state)
{
    (void)state;
    uint8_t room[512];
    struct kml_table t;
    struct kml_err err;
    struct kml_view first = packed("1.5,-2,1\n3,", room, 256);
    struct kml_view second = packed("4e2,0\n", room + first.size, 256);
    struct kml_view both = kml_view_of(room, first.size + second.size);
    assert_int_equal(read_text(&t, both, ',', NULL, KML_TARGET_CLASS, &err), 0);
    check_two_rows(&t);
    kml_table_finish(&t);
}

static void every_cut_and_every_flipped_byte_of_a_gzip_file_is_refused(void **state)
{
    (void)state;
    uint8_t room[256];
    uint32_t silent = 0;
    struct kml_view whole = packed("1.5,-2,1\n3,4e2,0\n5,6,1\n", room, sizeof(room));
    for (size_t size = 2; size < whole.size; size++) {
        struct kml_table t;
        struct kml_err err;
        assert_int_equal(read_text(&t, kml_view_of(room, size), ',', NULL, KML_TARGET_CLASS, &err), -1);
        assert_non_null(strstr(err.text, "x.csv: "));
    }
    for (size_t at = 10; at < whole.size;
         at++) { /* the first ten hold time and system, which nobody checks */
        struct kml_table t;
        struct kml_err err;
        room[at] ^= 0x55;
        if (read_text(&t, whole, ',', NULL, KML_TARGET_CLASS, &err) == 0) {
            kml_table_finish(&t);
            silent++;
        }
        room[at] ^= 0x55;
    }
    assert_int_equal(silent, 0);
}

static void bytes_behind_a_gzip_member_are_refused(void **state)
{
    (void)state;
    uint8_t room[256];
    struct kml_table t;
    struct kml_err err;
    struct kml_view v = packed("1,2,1\n", room, sizeof(room) - 1);
    room[v.size] = 'x';
    assert_int_equal(read_text(&t, kml_view_of(room, v.size + 1), ',', NULL, KML_TARGET_CLASS, &err), -1);
    assert_non_null(strstr(err.text, "bytes after the end of the gzip data"));
}

/* ---- IDX ---- */
static int read_idx(struct kml_table *t, struct kml_view images, struct kml_view labels, struct kml_err *err)
{
    struct kml_source *a = kml_source_of_view("images", images);
    struct kml_source *b = kml_source_of_view("labels", labels);
    int code = kml_table_read_idx(t, a, b, KML_TARGET_CLASS, err);
    kml_source_close(a);
    kml_source_close(b);
    return code;
}

#define V(text)                                                                                              \
    {                                                                                                        \
        (const uint8_t *)(text), sizeof(text) - 1                                                            \
    }
#define LABELS "\0\0\x08\x01\0\0\0\x02\x07\x03"
#define IMAGES                                                                                               \
    "\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x03"                                                             \
    "abcdef"

static const struct {
    struct kml_view images;
    struct kml_view labels;
    enum kml_code code;
    const char *says;
} bad_idx[] = {
    {V(""), V(LABELS), KML_INVALID, "images: the file is empty"},
    {V("\0\0\x08"), V(LABELS), KML_INVALID, "images: not an IDX file"},
    {V("\x89PNG...."), V(LABELS), KML_INVALID, "images: not an IDX file"},
    {V("\0\0\x0d\x02\0\0\0\x02\0\0\0\x01"), V(LABELS), KML_INVALID, "images: IDX values of type 0x0d"},
    {V(LABELS), V(LABELS), KML_INVALID, "images: wrong magic number: 1 dimension"},
    {V("\0\0\x08\x05\0\0\0\x02"), V(LABELS), KML_INVALID, "images: wrong magic number: 5 dimensions"},
    {V("\0\0\x08\x03\0\0\0\x02\0\0"), V(LABELS), KML_INVALID,
     "images: truncated: 6 of 12 bytes of its header"},
    {V("\0\0\x08\x03\0\0\0\0\0\0\0\x01\0\0\0\x03"), V(LABELS), KML_INVALID, "images: dimension 0 is 0"},
    {V("\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x03"
       "abcde"),
     V(LABELS), KML_INVALID, "images: truncated: 5 of 6 bytes of its values"},
    {V(IMAGES "g"), V(LABELS), KML_INVALID, "images: trailing bytes"},
    {V("\0\0\x08\x03\xff\xff\xff\xff\0\0\0\x01\0\0\0\x03"), V(LABELS), KML_TOO_LARGE,
     "images: 4294967295 samples"},
    {V("\0\0\x08\x04\0\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), V(LABELS), KML_TOO_LARGE,
     "more than is read"},
    {V(IMAGES), V(""), KML_INVALID, "labels: the file is empty"},
    {V(IMAGES), V(IMAGES), KML_INVALID, "labels: wrong magic number: 3 dimensions"},
    {V(IMAGES),
     V("\0\0\x08\x01\0\0\0\x03"
       "abc"),
     KML_INVALID, "labels has 3 labels, but images has 2 samples"},
    {V(IMAGES),
     V("\0\0\x08\x01\0\0\0\x02"
       "a"),
     KML_INVALID, "labels: truncated: 1 of 2 bytes of its values"},
    {V(IMAGES), V(LABELS "x"), KML_INVALID, "labels: trailing bytes"},
};

static void every_bad_idx_file_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < KML_COUNT(bad_idx); i++) {
        struct kml_table t;
        struct kml_err err = {.code = KML_OK};
        assert_int_equal(read_idx(&t, bad_idx[i].images, bad_idx[i].labels, &err), -1);
        assert_int_equal(err.code, bad_idx[i].code);
        if (strstr(err.text, bad_idx[i].says) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", err.text, bad_idx[i].says);
        }
    }
}

static void images_and_labels_are_read_as_bytes(void **state)
{
    (void)state;
    struct kml_table t;
    struct kml_err err;
    struct kml_view images = V(IMAGES);
    struct kml_view labels = V(LABELS);
    assert_int_equal(read_idx(&t, images, labels, &err), 0);
    assert_int_equal(t.rows, 2);
    assert_int_equal(t.features, 3);
    assert_int_equal(t.classes, 8);
    assert_memory_equal(t.bytes, "abcdef", 6);
    assert_int_equal(t.label[0], 7);
    assert_int_equal(t.label[1], 3);
    kml_table_finish(&t);
}

static int read_small_idx(struct kml_table *t, struct kml_err *err)
{
    struct kml_view images = V(IMAGES);
    struct kml_view labels = V(LABELS);
    return read_idx(t, images, labels, err);
}

static int read_small_text(struct kml_table *t, struct kml_err *err)
{
    return read_text(t, kml_view_str("1,2,3\n4,5,6\n"), ',', NULL, KML_TARGET_CLASS, err);
}

static void a_failed_allocation_is_an_error_and_nothing_leaks(void **state)
{
    (void)state;
    int (*const readers[])(struct kml_table *, struct kml_err *) = {read_small_idx, read_small_text};
    for (size_t i = 0; i < KML_COUNT(readers); i++) {
        uint64_t nth = 0;
        int code = -1;
        while (code != 0) {
            struct kml_table t;
            struct kml_err err;
            kml_test_fail_alloc(++nth);
            code = readers[i](&t, &err);
            kml_test_fail_alloc(0);
            if (code == 0) {
                kml_table_finish(&t);
            } else {
                assert_int_equal(err.code, KML_NO_MEMORY);
            }
        }
        assert_true(nth > 2); /* values and labels at least */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_read_as_strtod_reads_them),
        cmocka_unit_test(odd_but_legal_numbers_are_read),
        cmocka_unit_test(what_is_no_number_is_refused),
        cmocka_unit_test(every_bad_text_is_refused_with_file_line_and_column),
        cmocka_unit_test(the_same_samples_in_every_spelling),
        cmocka_unit_test(real_targets_are_kept_as_they_are),
        cmocka_unit_test(a_large_text_is_read_whole),
        cmocka_unit_test(a_line_beyond_the_limit_is_refused),
        cmocka_unit_test(gzip_is_transparent_and_members_follow_one_another),
        cmocka_unit_test(every_cut_and_every_flipped_byte_of_a_gzip_file_is_refused),
        cmocka_unit_test(bytes_behind_a_gzip_member_are_refused),
        cmocka_unit_test(every_bad_idx_file_is_refused_by_name),
        cmocka_unit_test(images_and_labels_are_read_as_bytes),
        cmocka_unit_test(a_failed_allocation_is_an_error_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
