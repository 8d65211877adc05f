#ifndef KML_KUBE_REFLECTOR_H
#define KML_KUBE_REFLECTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "kube/status.h"

/*
 * What to ask the API server next so that a copy of its objects stays right: list, then watch from the list's
 * version.
 *
 *   - The first list is a consistent one (no resourceVersion): a server that lags never takes us back in
 * time.
 *   - A watch that ends in order goes on from the last version seen, without a list and without a word. One
 * that ends within a second with nothing to say counts as a failure, so that a server that closes at once is
 * not stormed.
 *   - Version gone (410, as an answer or inside a stream): list again, first not older than what we saw, and
 * if that fails too, consistently. A page token that is gone: the list starts over.
 *   - The server has not seen our version yet (504 ResourceVersionTooLarge): once more, then consistently.
 *   - A frame that cannot be read: list again. All other failures: the same again.
 *   - After a failure: a uniform time from 0 to min(30 s, 0.8 s * 2^n), never less than Retry-After; n starts
 * over after two minutes without a failure.
 *   - Watches end after 5 to 10 minutes, at random, so that many clients do not come back in step.
 *
 * Pure: time comes in, requests come out; the driver is kube/watcher.h. Not thread-safe.
 */
#define KML_KUBE_VERSION 64
#define KML_KUBE_TOKEN 4096
#define KML_KUBE_PAGE 500

enum kml_reflect_phase { KML_REFLECT_LIST, KML_REFLECT_WATCH };

struct kml_reflector {
    struct kml_rng rng;
    enum kml_reflect_phase phase;
    char version[KML_KUBE_VERSION]; /* the last one seen; "" before the first list */
    char token[KML_KUBE_TOKEN];     /* of the next page; "" on the first */
    bool asked;                     /* a request is under way */
    bool consistent;                /* this list asks for no version */
    bool too_large_before;          /* the server lagged behind at the last try */
    bool synced;                    /* one list was complete */
    bool events;                    /* this watch said something */
    uint32_t failures;              /* in a row, for the waiting time */
    uint64_t failed_ns;             /* when the last one was */
    uint64_t not_before_ns;         /* nothing is asked earlier */
    uint64_t started_ns;            /* the request under way */
};

enum kml_reflect_act { KML_REFLECT_DO_LIST, KML_REFLECT_DO_WATCH, KML_REFLECT_DO_WAIT };
struct kml_reflect_want {
    enum kml_reflect_act act;
    uint64_t until_ns;        /* of DO_WAIT; UINT64_MAX: until the request under way ends */
    const char *version;      /* NULL: none; borrowed from the reflector */
    const char *token;        /* NULL: the first page; then the caller begins a new list */
    bool not_older_than;      /* with version, of a list */
    uint32_t timeout_seconds; /* of a watch */
};

void kml_reflector_init(struct kml_reflector *r, uint64_t seed);

/* What to ask now. A request that is handed out is under way until one of the calls below ends it. */
void kml_reflector_next(struct kml_reflector *r, uint64_t now_ns, struct kml_reflect_want *want);

/* A page came whole. True: it was the last one, so what was not listed is gone. `token` NULL or "": no more
 * pages. */
bool kml_reflector_page(struct kml_reflector *r, const char *version, const char *token, uint64_t now_ns);

/* An event of the watch, a bookmark included. "" keeps the version (an object without one). */
void kml_reflector_event(struct kml_reflector *r, const char *version);

void kml_reflector_ended(struct kml_reflector *r, uint64_t now_ns); /* the watch, in order */
/* The request failed, or the watch carried an ERROR. http 0: no answer or a broken stream. */
void kml_reflector_failed(struct kml_reflector *r, const struct kml_kube_status *status, uint64_t now_ns);
void kml_reflector_garbled(struct kml_reflector *r, uint64_t now_ns); /* what came cannot be read */

#endif
