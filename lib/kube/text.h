#ifndef KML_KUBE_TEXT_H
#define KML_KUBE_TEXT_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* The two encodings that Kubernetes bodies are full of: base64 (Secrets, kubeconfig) and RFC 3339 times.
 * Pure. */

/* Appends the standard alphabet with padding, no line breaks. */
int kml_base64_write(struct kml_buf *out, struct kml_view bytes, struct kml_err *err) KML_MUST_CHECK;

/* Appends the decoded bytes. Line breaks and blanks are skipped; anything else is KML_INVALID and appends
 * nothing. */
int kml_base64_read(struct kml_buf *out, const char *text, struct kml_err *err) KML_MUST_CHECK;

/* "2026-01-31T12:00:00Z", with any fraction, "Z" or "+02:00", into ns since 1970. Before 1970 is KML_INVALID.
 */
int kml_kube_time_read(const char *text, uint64_t *wall_ns, struct kml_err *err) KML_MUST_CHECK;

#define KML_KUBE_TIME 32
void kml_kube_time(uint64_t wall_ns, char out[KML_KUBE_TIME]); /* Time: "2026-01-31T12:00:00Z" */
void kml_kube_time_micro(uint64_t wall_ns,
                         char out[KML_KUBE_TIME]); /* MicroTime: "2026-01-31T12:00:00.123456Z" */

#endif
