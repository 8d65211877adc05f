#include <math.h>
#include <stdint.h>

#include "base/mem.h"
#include "data/table.h"

/* The first byte chooses separator, kind of targets and label column; the rest is the file, gzipped or not.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const labels[] = {NULL, "label", "0", "b"};
    if (size < 1) {
        return 0;
    }
    char separator = data[0] & 1 ? '\t' : ',';
    enum kml_target_kind targets = data[0] & 2 ? KML_TARGET_REAL : KML_TARGET_CLASS;
    struct kml_source *source = kml_source_of_view("input", kml_view_of(data + 1, size - 1));
    struct kml_table t;
    struct kml_err err = {.code = KML_OK};
    if (kml_table_read_text(&t, source, separator, labels[data[0] >> 2 & 3], targets, &err) == 0) {
        KML_BUG_ON(t.rows == 0 || t.features == 0);
        for (size_t i = 0; i < (size_t)t.rows * t.features; i++) {
            KML_BUG_ON(!isfinite(t.reals[i]));
        }
        for (uint32_t i = 0; targets == KML_TARGET_CLASS && i < t.rows; i++) {
            KML_BUG_ON(t.label[i] >= t.classes);
        }
        kml_table_finish(&t);
    } else {
        KML_BUG_ON(err.code == KML_OK || t.reals != NULL);
    }
    kml_source_close(source);
    return 0;
}
