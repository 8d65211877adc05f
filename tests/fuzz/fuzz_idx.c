#include <stdint.h>

#include "base/mem.h"
#include "data/table.h"

/*
 * An IDX pair out of one input: two bytes say how long the samples' file is, the rest is the labels'. Either
 * may be gzipped.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    size_t cut = (size_t)data[0] << 8 | data[1];
    data += 2;
    size -= 2;
    cut = cut > size ? size : cut;
    struct kml_source *images = kml_source_of_view("images", kml_view_of(data, cut));
    struct kml_source *labels = kml_source_of_view("labels", kml_view_of(data + cut, size - cut));
    struct kml_table t;
    struct kml_err err = {.code = KML_OK};
    if (kml_table_read_idx(&t, images, labels, KML_TARGET_CLASS, &err) == 0) {
        KML_BUG_ON(t.rows == 0 || t.features == 0 || t.classes == 0 || t.classes > 256);
        KML_BUG_ON(t.label[t.rows - 1] >= t.classes);
        kml_table_finish(&t);
    } else {
        KML_BUG_ON(err.code == KML_OK || t.bytes != NULL);
    }
    kml_source_close(images);
    kml_source_close(labels);
    return 0;
}
