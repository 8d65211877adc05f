#ifndef KML_DATA_FIND_H
#define KML_DATA_FIND_H

#include <stdbool.h>

#include "base/err.h"
#include "data/dataset.h"

/* Where the files of a split are, and in what format. Strings are owned. */
struct kml_found {
    enum kml_data_format format; /* never AUTO when found */
    char *file;                  /* NULL: there is no such split */
    char *labels;                /* IDX only */
};

enum kml_split_kind { KML_SPLIT_TRAIN, KML_SPLIT_VALIDATION, KML_SPLIT_TEST };

/*
 * Looks for one split under `path`, by the name given or by the names of data/dataset.h. A named file that is
 * not there is an error; an unnamed one only for the training split.
 */
int kml_data_find(struct kml_found *found, const char *path, enum kml_split_kind split, const char *name,
                  enum kml_data_format format, struct kml_err *err) KML_MUST_CHECK;
void kml_found_finish(struct kml_found *found);

#endif
