#ifndef KML_WIRE_SLICES_H
#define KML_WIRE_SLICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * One received message as it lies in memory: scattered over parts of any length (0 too), with no alignment.
 * Borrowed for the length of the callback that brought it.
 */
struct kml_slices {
    const struct kml_view *part; /* [count] */
    size_t count;
    size_t size; /* bytes of all parts */
};

/* A reading position. Copyable: a copy reads the same bytes again. */
struct kml_cursor {
    const struct kml_view *part;
    const struct kml_view *end;
    size_t at;   /* inside *part */
    size_t left; /* bytes until the end */
};

struct kml_slices kml_slices_of(const struct kml_view *one); /* a message of one part */
struct kml_cursor kml_cursor_of(const struct kml_slices *s);
bool kml_cursor_copy(struct kml_cursor *c, void *to,
                     size_t size); /* false, nothing moved, when fewer bytes are left */
bool kml_cursor_skip(struct kml_cursor *c, size_t size);
/* The next run of contiguous bytes, at most `most`; moves past it. Size 0 at the end. */
struct kml_view kml_cursor_run(struct kml_cursor *c, size_t most);

#endif
