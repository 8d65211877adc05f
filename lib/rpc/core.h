#ifndef KML_RPC_CORE_H
#define KML_RPC_CORE_H

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "rpc/channel.h"
#include "rpc/creds.h"
#include "rpc/loop.h"
#include "rpc/server.h"
#include "rpc/stream.h"

/* What the files of lib/rpc share; nobody outside includes it. */

#define KML_RPC_DEFAULT_MAX                                                                                  \
    ((size_t)4 << 20) /* a limit of 0 means this; equal to KML_CONTROL_MAX of lib/wire */

/*
 * What a completion queue hands back: embedded in the object that started the operation. The object holds one
 * reference for each tag that is out.
 */
struct kml_tag {
    void (*fn)(void *self, bool ok);
    void *self;
};

struct kml_loop {
    grpc_completion_queue *cq;
    unsigned live; /* servers, channels and streams */
    struct kml_view
        *views; /* [KML_LOOP_VIEWS], lent to the stream that delivers a message; NULL while lent */
    grpc_channel *wake_channel;
    grpc_call *wake_call; /* never sent; empty batches on it put a tag into the queue from any thread */
    struct kml_tag wake_tag;
    _Atomic bool woken; /* a wake tag is in the queue already */
};

#define KML_LOOP_VIEWS 4096 /* a message in more parts than this is copied together first */

/* The loop's array of views, or a new one when a callback that runs the loop has it. */
struct kml_view *kml_loop_lend_views(struct kml_loop *loop);
void kml_loop_return_views(struct kml_loop *loop, struct kml_view *views);

/* Starts a batch; a refusal is a bug of lib/rpc, as peers cannot cause one. */
void kml_rpc_start(grpc_call *call, const grpc_op *ops, size_t count, struct kml_tag *tag);

/* ---- args.c: the settings of both sides ---- */
#define KML_RPC_ARGS 32
struct kml_rpc_args {
    grpc_arg arg[KML_RPC_ARGS];
    grpc_channel_args list;
};
void kml_rpc_server_args(struct kml_rpc_args *a, size_t receive_max);
void kml_rpc_channel_args(struct kml_rpc_args *a, size_t receive_max);

/* ---- status.c: errors across the wire ---- */
grpc_slice kml_status_text(const struct kml_err *why); /* "CODE: text"; the caller unrefs */
/* `from` names the peer in errors that it did not word itself. A status of OK gives KML_OK. */
void kml_status_read(grpc_status_code status, grpc_slice text, const char *from, struct kml_err *why);

/* ---- log.c ---- */
/* What gRPC says to this thread goes into `text` ("" first) until it is called with NULL. */
void kml_rpc_capture_log(char *text, size_t room);
void kml_rpc_route_log(void);

/* ---- creds.c: borrowed ---- */
grpc_channel_credentials *kml_creds_channel(struct kml_creds *c);
grpc_server_credentials *kml_creds_server(struct kml_creds *c);

/* ---- channel.c ---- */
struct kml_channel {
    struct kml_loop *loop;
    grpc_channel *channel;
    char *address;
    unsigned live; /* streams and calls */
};

/* ---- stream.c ---- */
struct kml_stream *kml_stream_open(struct kml_channel *c, const char *method, gpr_timespec deadline,
                                   const struct kml_stream_ops *ops, void *self,
                                   const struct kml_stream_limits *limits);

/* Takes `call`. `live` is counted down just before `closed`. Nothing is read before kml_stream_attach. */
struct kml_stream *kml_stream_accept(struct kml_loop *loop, grpc_call *call,
                                     const struct kml_stream_limits *limits, unsigned *live);
void kml_stream_attach(struct kml_stream *s, const struct kml_stream_ops *ops, void *self);
/* No callback, no reading: ends with the status. */
void kml_stream_refuse(struct kml_stream *s, const struct kml_err *why);
/* The peer must send a message before it closes its side (unary calls). */
void kml_stream_expect_message(struct kml_stream *s);
/* Between these, sends and close are gathered so that they leave as one batch. */
void kml_stream_cork(struct kml_stream *s);
void kml_stream_uncork(struct kml_stream *s);

#endif
