#ifndef KML_STORE_SCAN_H
#define KML_STORE_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * A cursor over the small part of JSON that a safetensors header is made of: objects, arrays, strings, whole
 * numbers. The caller asks for what must come next, so nothing recurses and nothing is kept. Errors say at
 * which byte.
 */
struct kml_scan {
    const uint8_t *start;
    const uint8_t *at;
    const uint8_t *end;
};

void kml_scan_init(struct kml_scan *s, struct kml_view text);
int kml_scan_expect(struct kml_scan *s, char wanted,
                    struct kml_err *err) KML_MUST_CHECK; /* blanks before it are skipped */
bool kml_scan_accept(struct kml_scan *s, char wanted);   /* takes it if it is there */
bool kml_scan_ended(struct kml_scan *s);                 /* nothing but blanks left */
int kml_scan_uint(struct kml_scan *s, uint64_t *out, struct kml_err *err) KML_MUST_CHECK;
int kml_scan_string(struct kml_scan *s, char **out,
                    struct kml_err *err) KML_MUST_CHECK; /* UTF-8; the caller frees */
int kml_scan_fail(const struct kml_scan *s, struct kml_err *err, const char *what); /* "byte N: what" */

#endif
