#ifndef KML_DATA_LINES_H
#define KML_DATA_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "data/source.h"

/* The lines of a source, and the fields of a line. Lines are read in large pieces and borrowed, never copied.
 */
struct kml_lines {
    struct kml_source *source; /* borrowed */
    uint8_t *room;
    size_t size;  /* of room */
    size_t begin; /* unread bytes are room[begin .. end) */
    size_t end;
    bool ended;
    uint64_t number; /* of the line that was given last, from 1 */
};

void kml_lines_init(struct kml_lines *l, struct kml_source *source);
void kml_lines_finish(struct kml_lines *l);

/*
 * The next line that is not empty, without its LF or CRLF, valid until the next call. Success with line->data
 * NULL: the end.
 */
int kml_lines_next(struct kml_lines *l, struct kml_view *line, struct kml_err *err) KML_MUST_CHECK;

/*
 * The fields of one line (RFC 4180, but for line breaks inside quotes). A quoted field is given without its
 * quotes; a doubled quote inside stays doubled.
 */
struct kml_fields {
    const uint8_t *at;
    const uint8_t *end;
    char separator;
    bool more;      /* another field follows, perhaps an empty one */
    bool malformed; /* a quote that does not close, or text behind a closing quote; fields end there */
};

void kml_fields_init(struct kml_fields *f, struct kml_view line, char separator);
bool kml_fields_next(struct kml_fields *f, struct kml_view *field); /* false: no more, or malformed */

#endif
