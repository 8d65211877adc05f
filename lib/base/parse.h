#ifndef KML_BASE_PARSE_H
#define KML_BASE_PARSE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Strict readers of one whole string: no leading or trailing rubbish, no silent overflow, never
 * locale-dependent. */
int kml_parse_u64(const char *text, uint64_t *out, struct kml_err *err) KML_MUST_CHECK;
int kml_parse_i64(const char *text, int64_t *out, struct kml_err *err) KML_MUST_CHECK;
int kml_parse_real(const char *text, double *out, struct kml_err *err) KML_MUST_CHECK; /* finite only */

/* "90" (seconds), "1.5s", "250ms", "2m", "1h30m": h, m, s, ms, us, ns, from large to small, each at most
 * once. */
int kml_parse_duration(const char *text, uint64_t *ns, struct kml_err *err) KML_MUST_CHECK;

/* A Kubernetes quantity: "250m", "1.5", "64Mi", "2G", "1e3"; a sign is allowed, as Kubernetes allows it. */
int kml_parse_quantity(const char *text, double *out, struct kml_err *err) KML_MUST_CHECK;

/*
 * Length of the UTF-8 character at `c`, which a zero byte ends somewhere; 0 when there is none (RFC 3629:
 * cut, overlong, a surrogate, past U+10FFFF).
 */
size_t kml_utf8_length(const char *c);

/* Edit distance for "did you mean"; the nearest of `names` within 2 edits (and less than half the length), or
 * NULL. */
const char *kml_nearest(const char *word, const char *const *names, uint32_t count);

#endif
