#ifndef KML_DATA_SOURCE_H
#define KML_DATA_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * A stream of bytes out of a file or out of memory, unpacked on the way when it begins with gzip's magic
 * number. Reads straight into the caller's buffer; only the packed side is buffered.
 */
struct kml_source;

int kml_source_open(struct kml_source **out, const char *path, struct kml_err *err) KML_MUST_CHECK;
struct kml_source *kml_source_of_view(const char *name, struct kml_view bytes); /* both borrowed */
void kml_source_close(struct kml_source *s);

/*
 * All that is left, when that is exactly `size` bytes and lies unpacked in memory: a block of its own, for
 * kml_free. NULL otherwise: read it. Saves a second copy of a large data set.
 */
uint8_t *kml_source_take(struct kml_source *s, size_t size);

const char *kml_source_name(const struct kml_source *s);

/*
 * Reads until `size` bytes are there or the stream ends; *got says how many. A damaged or cut gzip stream is
 * KML_INVALID.
 */
int kml_source_read(struct kml_source *s, void *to, size_t size, size_t *got,
                    struct kml_err *err) KML_MUST_CHECK;

#endif
