#ifndef KML_DATA_DATASET_H
#define KML_DATA_DATASET_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "data/table.h"

/*
 * A data set in memory: a training split and, where there are, a validation and a test split, read from local
 * files (IDX, CSV, TSV, each also gzipped), with what the data alone decides: features, classes,
 * standardisation.
 *
 * Feature counts of all splits agree; every class label of every split is < classes, which comes from the
 * training file. Immutable after it is open, so any thread may gather from it. Splits point into the struct:
 * it is not moved.
 */
enum kml_standardize {
    KML_STANDARDIZE_AUTO, /* Scale255 for IDX, MeanStd for CSV and TSV */
    KML_STANDARDIZE_NONE,
    KML_STANDARDIZE_SCALE255,
    KML_STANDARDIZE_MEANSTD,
};

struct kml_data_file {
    const char *file; /* under the folder; NULL: found by name, or absent */
    const char
        *label_column; /* CSV, TSV: a name of the header, or a number from 0; NULL: "label", else the last */
};

struct kml_dataset_spec {
    const char *path; /* a folder, or one file that is the training set */
    enum kml_data_format format;
    struct kml_data_file train;
    struct kml_data_file validation;
    struct kml_data_file test;
    double validation_fraction; /* of train, cut by seed, in (0, 1); 0: none. Not together with
                                   validation.file */
    enum kml_standardize standardize;
    enum kml_target_kind targets; /* classes, or real numbers (Linear) */
    uint64_t seed;
};

/* Some rows of a table; sample numbers 0 .. count-1 are what orders, leases and gathers speak of. */
struct kml_split {
    const struct kml_table *table;
    uint32_t *row;  /* [count] rows of the table, NULL: all of them, in order */
    uint32_t count; /* 0: there is no such split */
};

struct kml_dataset {
    uint32_t features;
    uint32_t classes; /* 0 for real targets */
    enum kml_target_kind targets;
    enum kml_standardize standardize; /* never AUTO once open */
    float *mean;                      /* [features]: x = (value - mean) * scale */
    float *scale;                     /* [features] */
    struct kml_split train;
    struct kml_split validation;
    struct kml_split test;
    struct kml_table tables[3];     /* of train, validation, test */
    struct kml_data_file test_file; /* for kml_dataset_open_test; borrowed from the spec */
    const char *path;
    enum kml_data_format format;      /* of the training file, once open */
    enum kml_data_format test_format; /* as asked for */
};

/*
 * Reads the training set and the validation set. The names that are looked for when none are given:
 *   IDX        train-images-idx3-ubyte, train-labels-idx1-ubyte; t10k-... (test), each also with .gz;
 *              a given file is the images', its labels stand beside it ("images" -> "labels",
 *              "idx3" -> "idx1")
 *   CSV, TSV   train.csv, validation.csv, test.csv (.tsv), each also with .gz
 *
 * A missing file is KML_NOT_FOUND, bad content KML_INVALID with file and, for text, line and column. Strings
 * of `spec` are borrowed until kml_dataset_open_test has been called or will not be.
 */
int kml_dataset_open(struct kml_dataset *d, const struct kml_dataset_spec *spec,
                     struct kml_err *err) KML_MUST_CHECK;

/*
 * Reads the test set, apart, because the first step of a training does not need it. Success with test.count 0
 * when there is none and none was named. Touches nothing but `test`: one other thread may do it while the
 * rest is in use.
 */
int kml_dataset_open_test(struct kml_dataset *d, struct kml_err *err) KML_MUST_CHECK;

void kml_dataset_finish(struct kml_dataset *d);

/* One batch: rows of standardised float32 with what is to be predicted. The arrays are the caller's. */
struct kml_batch {
    float *x;        /* [n, features] */
    uint32_t *label; /* [n], classes */
    float *target;   /* [n], real targets */
};

/*
 * Fills the first n rows of `out` with samples index[0..n-1] of the split, each < count (else it aborts: who
 * takes numbers from a peer checks them first). The array of the other target kind may be NULL.
 */
void kml_dataset_gather(const struct kml_dataset *d, const struct kml_split *split, const uint32_t *index,
                        uint32_t n, const struct kml_batch *out);

/*
 * Calls `part` with every byte that decides what a worker trains on: shapes, values, labels, the rows of each
 * split, the standardisation. `with_test` 0 leaves the test split out. Same data, same bytes, however it was
 * compressed.
 */
void kml_dataset_digest_parts(const struct kml_dataset *d, int with_test,
                              void (*part)(void *self, struct kml_view bytes), void *self);

/* CRC-32C of the values (low half) and of everything else (high half). Finds mistakes, not attacks. Never 0.
 */
uint64_t kml_dataset_digest(const struct kml_dataset *d, int with_test);

#endif
