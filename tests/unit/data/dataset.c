#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/dataset.h"
#include "tools/golden.h"

#define FASHION "/usr/share/datasets/fashion-mnist"
#define SEED 8

static void put(const char *folder, const char *name, const char *text)
{
    golden_write(folder, name, text, strlen(text));
}

static const char train_csv[] = "a,b,label\n1,10,0\n2,10,1\n3,10,2\n6,10,1\n";

static void fashion_mnist_is_found_and_read_whole(void **state)
{
    (void)state;
    struct kml_dataset d;
    struct kml_err err;
    struct kml_dataset_spec spec = {.path = FASHION};
    assert_int_equal(kml_dataset_open(&d, &spec, &err), 0);
    assert_int_equal(d.train.count, 60000);
    assert_int_equal(d.features, 784);
    assert_int_equal(d.classes, 10);
    assert_int_equal(d.standardize, KML_STANDARDIZE_SCALE255);
    assert_int_equal(d.test.count, 0);
    assert_int_equal(kml_dataset_open_test(&d, &err), 0);
    assert_int_equal(d.test.count, 10000);
    uint32_t per_class[10] = {0};
    for (uint32_t i = 0; i < 60000; i++) {
        per_class[d.train.table->label[i]]++;
    }
    for (int c = 0; c < 10; c++) {
        assert_int_equal(per_class[c], 6000); /* as its page says */
    }
    kml_dataset_finish(&d);
}

static void a_batch_holds_the_asked_rows_standardised(void **state)
{
    (void)state;
    print_message("seed %d\n", SEED);
    struct kml_dataset d;
    struct kml_err err;
    struct kml_rng r;
    kml_rng_init(&r, SEED);
    static const enum kml_standardize ways[] = {KML_STANDARDIZE_NONE, KML_STANDARDIZE_SCALE255,
                                                KML_STANDARDIZE_MEANSTD};
    for (size_t w = 0; w < KML_COUNT(ways); w++) {
        struct kml_dataset_spec spec = {.path = FASHION,
                                        .train = {"t10k-images-idx3-ubyte.gz", NULL},
                                        .standardize = ways[w],
                                        .validation_fraction = 0.25,
                                        .seed = 3};
        assert_int_equal(kml_dataset_open(&d, &spec, &err), 0);
        uint32_t index[33];
        uint32_t label[33];
        float *x = KML_NEW_ARRAY((size_t)33 * d.features, float);
        for (size_t i = 0; i < KML_COUNT(index); i++) {
            index[i] = (uint32_t)kml_rng_below(&r, d.validation.count);
        }
        kml_dataset_gather(&d, &d.validation, index, 33, &(struct kml_batch){x, label, NULL});
        for (size_t i = 0; i < KML_COUNT(index); i++) {
            size_t row = d.validation.row[index[i]];
            assert_int_equal(label[i], d.tables[0].label[row]);
            for (size_t j = 0; j < d.features; j++) {
                float wanted = ((float)d.tables[0].bytes[row * d.features + j] - d.mean[j]) * d.scale[j];
                assert_true(x[i * d.features + j] == wanted);
            }
        }
        kml_free(x);
        kml_dataset_finish(&d);
    }
}

static void mean_and_deviation_come_from_the_training_rows_alone(void **state)
{
    (void)state;
    char *folder = golden_folder();
    put(folder, "train.csv", train_csv);
    put(folder, "test.csv", "a,b,label\n100,7,2\n");
    put(folder, "validation.csv", "a,b,label\n3,10,0\n");
    struct kml_dataset d;
    struct kml_err err;
    struct kml_dataset_spec spec = {.path = folder};
    assert_int_equal(kml_dataset_open(&d, &spec, &err), 0);
    assert_int_equal(kml_dataset_open_test(&d, &err), 0);
    assert_int_equal(d.standardize, KML_STANDARDIZE_MEANSTD);
    assert_int_equal(d.validation.count, 1);
    assert_true(d.mean[0] == 3.0f);
    assert_true(fabsf(d.scale[0] - 1 / sqrtf(3.5f)) < 1e-6f);
    assert_true(d.mean[1] == 10.0f && d.scale[1] == 1.0f); /* a constant feature becomes 0, not NaN */
    float x[2];
    uint32_t label;
    kml_dataset_gather(&d, &d.test, &(uint32_t){0}, 1, &(struct kml_batch){x, &label, NULL});
    assert_true(fabsf(x[0] - 97 / sqrtf(3.5f)) < 1e-4f);
    assert_true(x[1] == -3.0f);
    assert_int_equal(label, 2);
    kml_dataset_finish(&d);
    golden_remove(folder);
}

static void a_validation_fraction_cuts_by_seed_and_loses_no_row(void **state)
{
    (void)state;
    struct kml_dataset a;
    struct kml_dataset b;
    struct kml_err err;
    struct kml_dataset_spec spec = {
        .path = FASHION, .train = {"t10k-images-idx3-ubyte.gz", NULL}, .validation_fraction = 0.1, .seed = 1};
    assert_int_equal(kml_dataset_open(&a, &spec, &err), 0);
    spec.seed = 2;
    assert_int_equal(kml_dataset_open(&b, &spec, &err), 0);
    assert_int_equal(a.validation.count, 1000);
    assert_int_equal(a.train.count, 9000);
    assert_memory_not_equal(a.validation.row, b.validation.row, 1000 * sizeof(uint32_t));
    uint8_t *seen = KML_NEW_ARRAY(10000, uint8_t);
    for (uint32_t i = 0; i < a.train.count; i++) {
        seen[a.train.row[i]]++;
        assert_true(i == 0 || a.train.row[i - 1] < a.train.row[i]);
    }
    for (uint32_t i = 0; i < a.validation.count; i++) {
        seen[a.validation.row[i]]++;
    }
    for (uint32_t i = 0; i < 10000; i++) {
        assert_int_equal(seen[i], 1);
    }
    assert_true(kml_dataset_digest(&a, 0) != kml_dataset_digest(&b, 0));
    kml_free(seen);
    kml_dataset_finish(&a);
    kml_dataset_finish(&b);
}

static uint64_t digest_of(const char *folder, const struct kml_dataset_spec *like)
{
    struct kml_dataset d;
    struct kml_err err;
    struct kml_dataset_spec spec = *like;
    spec.path = folder;
    assert_int_equal(kml_dataset_open(&d, &spec, &err), 0);
    assert_int_equal(kml_dataset_open_test(&d, &err), 0);
    uint64_t digest = kml_dataset_digest(&d, 1);
    kml_dataset_finish(&d);
    return digest;
}

static void the_digest_follows_what_is_trained_on_and_nothing_else(void **state)
{
    (void)state;
    static const struct kml_dataset_spec plain = {.standardize = KML_STANDARDIZE_NONE};
    char *folder = golden_folder();
    put(folder, "train.csv", train_csv);
    uint64_t first = digest_of(folder, &plain);
    put(folder, "train.csv", "\"a\",b,label\r\n1.0,10,0\r\n2,1e1,1\r\n3,10,2\r\n6,10,1");
    assert_true(digest_of(folder, &plain) == first); /* spelled differently, the same samples */
    put(folder, "train.csv", "a,b,label\n1,10,0\n2,10,1\n3,10,2\n6,10.5,1\n");
    assert_true(digest_of(folder, &plain) != first); /* a value */
    put(folder, "train.csv", "a,b,label\n1,10,0\n2,10,1\n3,10,2\n6,10,2\n");
    assert_true(digest_of(folder, &plain) != first); /* a label */
    put(folder, "train.csv", train_csv);
    assert_true(digest_of(folder, &(struct kml_dataset_spec){.standardize = KML_STANDARDIZE_SCALE255}) !=
                first);
    put(folder, "test.csv", "1,2,0\n");
    assert_true(digest_of(folder, &plain) != first);
    golden_remove(folder);
}

/* Files of a made-up folder, what is asked, and what the error says. */
static const struct {
    const char *file[2];
    const char *text[2];
    struct kml_dataset_spec spec;
    enum kml_code code;
    const char *says;
} bad[] = {
    {{NULL}, {NULL}, {0}, KML_NOT_FOUND, "holds no training set"},
    {{NULL}, {NULL}, {.train = {"data.csv", NULL}}, KML_NOT_FOUND, "data.csv is not there"},
    {{NULL}, {NULL}, {.path = "/no/such/folder"}, KML_NOT_FOUND, "cannot open the data set /no/such/folder"},
    {{"train-images-idx3-ubyte"}, {"x"}, {0}, KML_NOT_FOUND, "train-labels-idx1-ubyte.gz"},
    {{"digits"}, {"\1\2\0\3"}, {.train = {"digits", NULL}}, KML_INVALID, "wrong magic number"},
    {{"digits"}, {""}, {.train = {"digits", NULL}}, KML_INVALID, "the file is empty"},
    {{"digits"},
     {"1,2\n"},
     {.train = {"digits", NULL}, .format = KML_FORMAT_IDX},
     KML_INVALID,
     "\"images\" in its name"},
    {{"train.csv"}, {"1,2,0\n"}, {.format = KML_FORMAT_TSV}, KML_NOT_FOUND, "holds no training set"},
    {{"train.csv"}, {"1,2,0\n"}, {.validation_fraction = 1.5}, KML_INVALID, "a validation fraction of 1.5"},
    {{"train.csv"}, {"1,2,0\n"}, {.validation_fraction = -0.1}, KML_INVALID, "a validation fraction of -0.1"},
    {{"train.csv"},
     {"1,2,0\n"},
     {.validation_fraction = 0.1},
     KML_INVALID,
     "leaves the validation set empty"},
    {{"train.csv"}, {"1,2,0\n"}, {.validation_fraction = 0.9}, KML_INVALID, "leaves the training set empty"},
    {{"train.csv"},
     {"1,2,0\n"},
     {.validation_fraction = 0.5, .validation = {"v.csv", NULL}},
     KML_INVALID,
     "not both"},
    {{"train.csv", "validation.csv"},
     {"1,2,0\n", "1,0\n"},
     {0},
     KML_INVALID,
     "validation.csv has 1 features, the training set has 2"},
    {{"train.csv", "validation.csv"},
     {"1,2,1\n", "1,2,0\n3,4,2\n"},
     {0},
     KML_INVALID,
     "validation.csv: sample 1 has label 2, which is out of range: the training set has the classes 0 to 1"},
    {{"train.csv"}, {"1,2,1\n"}, {.validation = {"v.csv", NULL}}, KML_NOT_FOUND, "v.csv is not there"},
};

static void every_bad_folder_is_refused_with_one_clear_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < KML_COUNT(bad); i++) {
        char *folder = golden_folder();
        for (int f = 0; f < 2 && bad[i].file[f] != NULL; f++) {
            size_t size = strcmp(bad[i].says, "wrong magic number") == 0 ? 4 : strlen(bad[i].text[f]);
            golden_write(folder, bad[i].file[f], bad[i].text[f], size);
        }
        struct kml_dataset d;
        struct kml_err err = {.code = KML_OK};
        struct kml_dataset_spec spec = bad[i].spec;
        spec.path = spec.path == NULL ? folder : spec.path;
        assert_int_equal(kml_dataset_open(&d, &spec, &err), -1);
        if (err.code != bad[i].code || strstr(err.text, bad[i].says) == NULL) {
            fail_msg("case %zu: %s \"%s\" does not say \"%s\"", i, kml_code_name(err.code), err.text,
                     bad[i].says);
        }
        golden_remove(folder);
    }
}

static void a_bad_test_set_is_refused_and_the_rest_stays_usable(void **state)
{
    (void)state;
    char *folder = golden_folder();
    put(folder, "train.csv", train_csv);
    put(folder, "test.csv", "1,2,3,0\n");
    struct kml_dataset d;
    struct kml_err err;
    struct kml_dataset_spec spec = {.path = folder};
    assert_int_equal(kml_dataset_open(&d, &spec, &err), 0);
    assert_int_equal(kml_dataset_open_test(&d, &err), -1);
    assert_non_null(strstr(err.text, "test.csv has 3 features, the training set has 2"));
    assert_int_equal(d.train.count, 4);
    assert_int_equal(d.test.count, 0);
    kml_dataset_finish(&d);
    golden_remove(folder);
}

static void an_unreadable_folder_is_said_to_be_so(void **state)
{
    (void)state;
    if (geteuid() == 0) {
        /* Root reads everything; a file in place of the folder is as near as one comes. */
        char *folder = golden_folder();
        put(folder, "file", "1,0\n");
        kml_auto_free char *path = kml_format("%s/file/below", folder);
        struct kml_dataset d;
        struct kml_err err;
        struct kml_dataset_spec spec = {.path = path};
        assert_int_equal(kml_dataset_open(&d, &spec, &err), -1);
        assert_non_null(strstr(err.text, "file/below"));
        golden_remove(folder);
        return;
    }
    char *folder = golden_folder();
    put(folder, "train.csv", train_csv);
    assert_int_equal(chmod(folder, 0), 0);
    struct kml_dataset d;
    struct kml_err err;
    struct kml_dataset_spec spec = {.path = folder};
    assert_int_equal(kml_dataset_open(&d, &spec, &err), -1);
    assert_int_equal(err.code, KML_DENIED);
    assert_non_null(strstr(err.text, folder));
    golden_remove(folder);
}

static void one_file_is_a_data_set_with_real_targets_too(void **state)
{
    (void)state;
    char *folder = golden_folder();
    put(folder, "houses", "size\tprice\n10\t1.5\n20\t2.5\n");
    kml_auto_free char *path = kml_format("%s/houses", folder);
    struct kml_dataset d;
    struct kml_err err;
    struct kml_dataset_spec spec = {
        .path = path, .targets = KML_TARGET_REAL, .standardize = KML_STANDARDIZE_NONE};
    assert_int_equal(kml_dataset_open(&d, &spec, &err), 0);
    assert_int_equal(kml_dataset_open_test(&d, &err), 0);
    assert_int_equal(d.test.count, 0);
    assert_int_equal(d.format, KML_FORMAT_TSV);
    float x[2];
    float target[2];
    kml_dataset_gather(&d, &d.train, (const uint32_t[]){1, 0}, 2, &(struct kml_batch){x, NULL, target});
    assert_true(x[0] == 20 && x[1] == 10 && target[0] == 2.5f && target[1] == 1.5f);
    kml_dataset_finish(&d);
    golden_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fashion_mnist_is_found_and_read_whole),
        cmocka_unit_test(a_batch_holds_the_asked_rows_standardised),
        cmocka_unit_test(mean_and_deviation_come_from_the_training_rows_alone),
        cmocka_unit_test(a_validation_fraction_cuts_by_seed_and_loses_no_row),
        cmocka_unit_test(the_digest_follows_what_is_trained_on_and_nothing_else),
        cmocka_unit_test(every_bad_folder_is_refused_with_one_clear_line),
        cmocka_unit_test(a_bad_test_set_is_refused_and_the_rest_stays_usable),
        cmocka_unit_test(an_unreadable_folder_is_said_to_be_so),
        cmocka_unit_test(one_file_is_a_data_set_with_real_targets_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
