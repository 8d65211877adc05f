#ifndef KML_DATA_TABLE_H
#define KML_DATA_TABLE_H

#include <stdint.h>

#include "base/err.h"
#include "data/source.h"

/*
 * One file's samples in memory. Values stay in their smallest form: uint8 for images, float32 for text. The
 * readers take a source of bytes, so the same code reads a file, a gzipped file and a fuzzer's input; errors
 * begin with the source's name.
 */
#define KML_DATA_MAX_ROWS UINT32_C(0x7fffffff)
#define KML_DATA_MAX_FEATURES UINT32_C(1048576)
#define KML_DATA_MAX_BYTES (UINT64_C(8) << 30) /* of one table in memory */
#define KML_DATA_MAX_LINE (UINT32_C(16) << 20)
#define KML_DATA_MAX_CLASSES UINT32_C(65536)

enum kml_data_format { KML_FORMAT_AUTO, KML_FORMAT_IDX, KML_FORMAT_CSV, KML_FORMAT_TSV };
enum kml_target_kind { KML_TARGET_CLASS, KML_TARGET_REAL };

struct kml_table {
    uint32_t rows;
    uint32_t features;
    uint8_t *bytes;   /* [rows, features], or NULL */
    float *reals;     /* [rows, features], or NULL */
    uint32_t *label;  /* [rows] for KML_TARGET_CLASS, else NULL */
    float *target;    /* [rows] for KML_TARGET_REAL, else NULL */
    uint32_t classes; /* largest label + 1 */
};

/* Images and labels of the MNIST kind: uint8, magic 0x0000 08 dd, sizes big-endian, rows first. */
int kml_table_read_idx(struct kml_table *t, struct kml_source *images, struct kml_source *labels,
                       enum kml_target_kind targets, struct kml_err *err) KML_MUST_CHECK;

/*
 * Comma or tab separated numbers, one sample a line. The first line is a header when any of its fields is not
 * a number. Fields may stand in double quotes (RFC 4180), lines end with LF or CRLF, empty lines are skipped,
 * a BOM too. Classes are whole numbers from 0. label_column as in kml_data_file.
 */
int kml_table_read_text(struct kml_table *t, struct kml_source *source, char separator,
                        const char *label_column, enum kml_target_kind targets,
                        struct kml_err *err) KML_MUST_CHECK;

void kml_table_finish(struct kml_table *t);

#endif
