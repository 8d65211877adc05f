#ifndef KML_RPC_STREAM_H
#define KML_RPC_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/slices.h"

/*
 * One bidirectional stream, the same object on both sides. Messages arrive one at a time, in order, through
 * `message`; the next is read when the callback has returned, unless reading is paused. Sends are queued up
 * to a hard maximum and leave in order.
 *
 * Life: a client gets a stream from kml_stream_call, a server from its method's `opened`. `closed` runs
 * exactly once for every stream whose ops are attached, last of all; after it returns the stream is gone.
 * Until then the stream is alive, also after kml_stream_close. Not thread-safe: the loop's thread owns it. A
 * callback may run the loop.
 *
 * When a client has closed its side, the server's stream closes by itself: what is queued is sent, then the
 * status OK. Our error codes cross the wire: the gRPC code of the table, and a status message "FENCED: what
 * happened", of which the receiver takes the name off again. Peers that are not ours may send any text; then
 * the gRPC code alone counts.
 */
struct kml_stream;
struct kml_channel;

struct kml_stream_ops {
    void (*message)(void *self, struct kml_stream *s,
                    const struct kml_slices *m); /* m: borrowed for the call */
    /* The send queue fell to half or less after a refused send; NULL allowed. */
    void (*writable)(void *self, struct kml_stream *s);
    /*
     * `why->code` KML_OK: the peer closed in an orderly way. Otherwise the status it gave, or
     * KML_UNAVAILABLE. On a server that closed with a status, or on either side that refused a message, that
     * status.
     */
    void (*closed)(void *self, struct kml_stream *s, const struct kml_err *why);
};

/* Bytes that are sent from where they lie. `release` runs exactly once, when they are no longer needed,
 * perhaps on one of gRPC's own threads: it must not block, lock for long, or call into lib/rpc. NULL: the
 * bytes outlive the stream. */
struct kml_payload_ref {
    const void *data;
    size_t size;
    void (*release)(void *arg);
    void *arg;
};

/* Who is at the other end. */
struct kml_peer {
    const char *address; /* gRPC's name of it, "ipv4:127.0.0.1:4242" */
    const char
        *identity; /* mTLS: the URI of its certificate that starts with "kunal://"; NULL in plaintext */
};

/*
 * Sends header (copied, at most 64 KiB) followed by payload (NULL allowed) as one message. On error nothing
 * was taken and release never runs. KML_EXHAUSTED: the queue is full, wait for `writable`; KML_UNAVAILABLE:
 * closing or closed.
 */
int kml_stream_send(struct kml_stream *s, const void *header, size_t header_size,
                    const struct kml_payload_ref *payload, struct kml_err *err) KML_MUST_CHECK;

/* Sends an owned, larger control message (copied). */
int kml_stream_send_view(struct kml_stream *s, struct kml_view message, struct kml_err *err) KML_MUST_CHECK;

size_t
kml_stream_queued(const struct kml_stream *s); /* bytes not yet given to the transport's flow control */
void kml_stream_pause(struct kml_stream *s);   /* no message after the running one ... */
void kml_stream_resume(
    struct kml_stream *s); /* ... until here. Nor does a paused stream see an orderly end */

/*
 * Server: sends what is queued, then the status (`why` NULL or KML_OK: success). Client: half-closes after
 * what is queued. Either way `closed` still comes.
 */
void kml_stream_close(struct kml_stream *s, const struct kml_err *why);
/* At once; queued messages are dropped. `closed` still comes, with KML_CANCELLED unless the peer was faster.
 */
void kml_stream_cancel(struct kml_stream *s);

const struct kml_peer *kml_stream_peer(const struct kml_stream *s); /* client: identity NULL */
void kml_stream_set_self(struct kml_stream *s, void *self);
void *kml_stream_self(const struct kml_stream *s);

struct kml_stream_limits {
    /* 0 means 4 MiB for both; a client receives at most 4 MiB whatever stands here */
    size_t receive_max; /* bytes of one message; a larger one ends the stream with KML_TOO_LARGE */
    size_t queue_max;   /* bytes waiting to be sent; a message larger than that is KML_TOO_LARGE */
};

/* Client: opens a stream. Never waits: an unreachable peer shows in `closed`. */
int kml_stream_call(struct kml_channel *channel, const char *method, const struct kml_stream_ops *ops,
                    void *self, const struct kml_stream_limits *limits, struct kml_stream **out,
                    struct kml_err *err) KML_MUST_CHECK;

#endif
