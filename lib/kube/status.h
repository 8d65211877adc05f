#ifndef KML_KUBE_STATUS_H
#define KML_KUBE_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "doc/doc.h"

/*
 * What the API server said about a call, and what follows from it. Pure.
 *
 *   400 422 INVALID        401 UNAUTHENTICATED   403 DENIED (a quota: EXHAUSTED)    404 NOT_FOUND
 *   409 EXISTS when its reason is AlreadyExists, else CONFLICT                      410 FENCED   413
 * TOO_LARGE 429 EXHAUSTED          500 AGAIN             503 UNAVAILABLE                    504 TIMEOUT
 * others PROTOCOL
 */
#define KML_KUBE_REASON 64
#define KML_KUBE_MESSAGE 400
struct kml_kube_status {
    int http;                       /* 0: there was no answer */
    char reason[KML_KUBE_REASON];   /* "AlreadyExists"; "" when none was given */
    char message[KML_KUBE_MESSAGE]; /* for people, with the first causes' fields; cut */
    uint32_t retry_after;           /* seconds; 0: not said */
    bool version_too_large;         /* the server has not seen the resourceVersion that was asked for yet */
};

/* `retry_after`: of the header, 0 when there was none. `body` may be a Status object or anything else. */
void kml_kube_status_read(struct kml_kube_status *s, int http, uint32_t retry_after, struct kml_view body);
/* The same of a parsed Status, as in an ERROR event; `http` is its code. */
void kml_kube_status_of(struct kml_kube_status *s, const struct kml_node *status);

enum kml_code kml_kube_status_code(const struct kml_kube_status *s);
/* The error for a status that is no success: "409 AlreadyExists: pods "a" already exists". Returns -1. */
int kml_kube_status_fail(const struct kml_kube_status *s, struct kml_err *err);

/*
 * May the same request be sent again, and when? 429, and 5xx that say Retry-After: the server did nothing
 * with them. `tries` so far, 1..; after KML_KUBE_TRIES the answer is the caller's.
 */
#define KML_KUBE_TRIES 10
bool kml_kube_status_retry(const struct kml_kube_status *s, uint32_t tries, uint64_t *wait_ns);

/* The value of a Retry-After header in seconds (at most a day); a date or rubbish is 1. */
uint32_t kml_kube_retry_after(const char *value);

#endif
