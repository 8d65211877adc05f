#ifndef KML_BASE_BUF_H
#define KML_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Borrowed bytes. Whoever made them frees them; a view never does. */
struct kml_view {
    const uint8_t *data;
    size_t size;
};

struct kml_view kml_view_of(const void *data, size_t size);
struct kml_view kml_view_str(const char *text); /* without the terminating zero */

/*
 * A growing byte buffer with a hard maximum given at creation: nothing in the project grows without a bound.
 * The bytes are always followed by a zero that does not count, so text can be used as a C string.
 */
struct kml_buf {
    uint8_t *data; /* NULL until the first byte */
    size_t size;
    size_t room;
    size_t max; /* bytes; an append past it fails with KML_TOO_LARGE and changes nothing */
};

void kml_buf_init(struct kml_buf *b, size_t max);
void kml_buf_finish(struct kml_buf *b);
void kml_buf_clear(struct kml_buf *b); /* size 0, keeps the memory */

int kml_buf_append(struct kml_buf *b, const void *data, size_t size, struct kml_err *err) KML_MUST_CHECK;
int kml_buf_puts(struct kml_buf *b, const char *text, struct kml_err *err) KML_MUST_CHECK;
int kml_buf_printf(struct kml_buf *b, struct kml_err *err, const char *format, ...) KML_MUST_CHECK
    KML_PRINTF(3, 4);

/* Room for `size` more bytes; returns where they go, NULL on failure. kml_buf_added says how many were
 * written. */
uint8_t *kml_buf_reserve(struct kml_buf *b, size_t size, struct kml_err *err) KML_MUST_CHECK;
void kml_buf_added(struct kml_buf *b, size_t size);

const char *kml_buf_text(const struct kml_buf *b); /* "" when empty; borrowed until the next call */
struct kml_view kml_buf_view(const struct kml_buf *b);
uint8_t *kml_buf_take(struct kml_buf *b,
                      size_t *size); /* the caller frees with kml_free; the buffer is empty again */

#endif
