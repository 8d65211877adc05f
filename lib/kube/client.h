#ifndef KML_KUBE_CLIENT_H
#define KML_KUBE_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "doc/doc.h"
#include "kube/config.h"
#include "kube/request.h"
#include "kube/status.h"

/*
 * The conversation with one API server: many calls at once over one HTTP/2 connection (curl multi).
 *
 *   - One thread owns a client: it calls everything below but kml_kube_client_wake, and all callbacks run on
 * it, inside kml_kube_client_step (or kml_kube_client_cancel, or kml_kube_client_destroy). A callback may
 * send, cancel and set timers; it may not step or destroy.
 *   - Each call has a deadline, 30 s unless said otherwise, streams excepted. 429, and 5xx with Retry-After,
 * are sent again after the time asked for, as long as that lies before the deadline; nothing else is: what
 * else to do about a failure is the caller's to decide.
 *   - At most 64 calls are under way at a time, streams aside; more wait for their turn, inside their
 * deadlines.
 *   - Files of tokens, certificates and CAs are looked at for each call and read again when they changed,
 * tokens once a minute in any case; a 401 reads them at once and sends the call once more. New ones that
 * cannot be read leave the old ones in use. An exec command runs when its credential is over, or was answered
 * with a 401; it blocks.
 *   - Over http:// no credential is sent.
 *   - A dead connection is found in three ways: TCP (keepalive 15 s, nothing unacknowledged longer than 30
 * s); a call that ran into its time while nothing at all came from the server; a stream that was silent for
 * 30 s makes the client ask for /version, which has 10 s. In the last two cases all connections are closed
 * and every call under way ends with KML_UNAVAILABLE.
 *
 * Lease renewal should have a client of its own: another connection, another fate.
 */
struct kml_kube_client;
struct kml_kube_call;

struct kml_kube_client_options {
    const char *user_agent; /* NULL: "kunal-ml/<version>" */
    struct kml_clock clock; /* now_ns NULL: the monotonic clock */
    uint64_t silence_ns;    /* of a stream before the client asks; 0: 30 s */
    uint64_t probe_ns;      /* time for that question; 0: 10 s */
};

/* `config` must outlive the client (many may use one). `options` may be NULL and is copied. Nothing is
 * connected yet. */
int kml_kube_client_create(struct kml_kube_client **out, const struct kml_kube_config *config,
                           const struct kml_kube_client_options *options, struct kml_err *err) KML_MUST_CHECK;
/* Ends every call with KML_CANCELLED. NULL accepted. */
void kml_kube_client_destroy(struct kml_kube_client *c);

/* How a call ended. */
struct kml_kube_answer {
    const struct kml_err *err;     /* NULL: a 2xx that came whole */
    struct kml_kube_status status; /* status.http 0: no answer, so nobody knows whether the server acted */
    struct kml_view body;          /* of a 2xx without `bytes`; until the callback returns */
};

struct kml_kube_sink {
    /* A 2xx body's bytes as they come. NULL: collected. An error ends the call with it. */
    int (*bytes)(void *self, struct kml_view bytes, struct kml_err *err);
    /* Exactly once for each send that returned 0. The call is gone when it returns. */
    void (*done)(void *self, const struct kml_kube_answer *answer);
    void *self;
};

#define KML_KUBE_DEADLINE (30 * KML_SECOND)
struct kml_kube_send {
    uint64_t deadline_ns; /* from now; 0: KML_KUBE_DEADLINE; more than that is for streams */
    bool stream;          /* no deadline (unless given), watched for silence */
    size_t body_max;      /* of a collected answer; 0: 8 MiB; more is KML_TOO_LARGE */
    bool no_retry;        /* a 429 is the caller's, as for a lease */
};

/* Takes the request, also when it fails. `how` and `call` may be NULL. */
int kml_kube_client_send(struct kml_kube_client *c, struct kml_kube_request *request,
                         const struct kml_kube_send *how, const struct kml_kube_sink *sink,
                         struct kml_kube_call **call, struct kml_err *err) KML_MUST_CHECK;

/* Ends it: `done` runs with KML_CANCELLED before this returns. */
void kml_kube_client_cancel(struct kml_kube_client *c, struct kml_kube_call *call);

/* Something to do at a time of the client's clock. Embedded in whoever needs it; `fire` runs once. */
struct kml_kube_timer {
    void (*fire)(void *self);
    void *self;
    uint64_t at_ns;
    bool set;
    struct kml_kube_timer *next;
};
void kml_kube_timer_set(struct kml_kube_client *c, struct kml_kube_timer *timer,
                        uint64_t at_ns); /* moves a set one */
void kml_kube_timer_stop(struct kml_kube_client *c, struct kml_kube_timer *timer);

/* Waits for something to happen, `wait_ns` at most, and handles it. */
void kml_kube_client_step(struct kml_kube_client *c, uint64_t wait_ns);
void kml_kube_client_run(struct kml_kube_client *c, uint64_t until_ns,
                         const bool *stop);           /* steps until then or *stop */
void kml_kube_client_wake(struct kml_kube_client *c); /* any thread: ends the wait of a step */
uint64_t kml_kube_client_now(const struct kml_kube_client *c);

/*
 * Sends and steps until the answer is there; other calls of the client go on meanwhile. Takes the request.
 * `doc` is initialised and empty, or NULL; `status` may be NULL and is set in either case. KML_… as in
 * status.h.
 */
int kml_kube_call(struct kml_kube_client *c, struct kml_kube_request *request, struct kml_doc *doc,
                  struct kml_kube_status *status, struct kml_err *err) KML_MUST_CHECK;

/* Counted since creation, for /metrics and tests. */
struct kml_kube_client_counts {
    uint64_t requests; /* sent, repeats included */
    uint64_t retries;
    uint64_t answers;     /* of any status, whole or not */
    uint64_t failures;    /* calls that ended with an error, cancelled ones not */
    uint64_t connections; /* opened */
    uint64_t resets;      /* times that all connections were given up as dead */
    uint64_t token_reads;
};
void kml_kube_client_counts(const struct kml_kube_client *c, struct kml_kube_client_counts *out);

#endif
