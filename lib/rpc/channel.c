#include "rpc/channel.h"

#include <grpc/grpc.h>

#include "base/mem.h"
#include "rpc/core.h"

int kml_channel_create(struct kml_loop *loop, const char *address, struct kml_creds *creds,
                       struct kml_channel **out, struct kml_err *err)
{
    if (address == NULL || address[0] == '\0') {
        return kml_fail(err, KML_INVALID, "the address of the server is empty");
    }
    struct kml_rpc_args args;
    kml_rpc_channel_args(&args, KML_RPC_DEFAULT_MAX);
    struct kml_channel *c = KML_NEW(struct kml_channel);
    c->loop = loop;
    c->address = kml_strdup(address);
    c->channel = grpc_channel_create(address, kml_creds_channel(creds), &args.list);
    loop->live++;
    *out = c;
    return 0;
}

void kml_channel_destroy(struct kml_channel *c)
{
    if (c == NULL) {
        return;
    }
    KML_BUG_ON(c->live > 0);
    grpc_channel_destroy(c->channel);
    c->loop->live--;
    kml_free(c->address);
    kml_free(c);
}

/* ---- Unary calls: a stream of one message each way ---- */

struct call {
    kml_reply_fn *done;
    void *self;
    struct kml_buf reply;
    bool replied;
    struct kml_err failed; /* the reply did not fit */
};

static void on_reply(void *self, struct kml_stream *s, const struct kml_slices *m)
{
    (void)s;
    struct call *call = self;
    if (call->replied) {
        return;
    }
    call->replied = true;
    for (size_t i = 0; i < m->count && call->failed.code == KML_OK; i++) {
        if (kml_buf_append(&call->reply, m->part[i].data, m->part[i].size, &call->failed) != 0) {
            (void)kml_wrap(&call->failed, "reply");
        }
    }
}

static void on_closed(void *self, struct kml_stream *s, const struct kml_err *why)
{
    struct call *call = self;
    struct kml_err outcome = why->code != KML_OK ? *why : call->failed;
    if (outcome.code == KML_OK && !call->replied) {
        (void)kml_fail(&outcome, KML_INTERNAL, "%s: the call ended without a reply",
                       kml_stream_peer(s)->address);
    }
    struct kml_view bytes = kml_buf_view(&call->reply);
    struct kml_slices reply = kml_slices_of(&bytes);
    call->done(call->self, outcome.code == KML_OK ? &reply : NULL, &outcome);
    kml_buf_finish(&call->reply);
    kml_free(call);
}

static const struct kml_stream_ops call_ops = {.message = on_reply, .closed = on_closed};

static gpr_timespec deadline_in(uint64_t timeout_ns)
{
    int64_t ns = timeout_ns > INT64_MAX ? INT64_MAX : (int64_t)timeout_ns;
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(ns, GPR_TIMESPAN));
}

int kml_call(struct kml_channel *c, const char *method, struct kml_view request, uint64_t timeout_ns,
             kml_reply_fn *done, void *self, struct kml_err *err)
{
    if (method[0] != '/') {
        return kml_fail(err, KML_INVALID, "the method '%s' does not start with '/'", method);
    }
    if (request.size > KML_RPC_DEFAULT_MAX) {
        return kml_fail(err, KML_TOO_LARGE, "%s: a request of %zu bytes", c->address, request.size);
    }
    struct call *call = KML_NEW(struct call);
    call->done = done;
    call->self = self;
    kml_buf_init(&call->reply, KML_RPC_DEFAULT_MAX);
    struct kml_stream_limits limits = {KML_RPC_DEFAULT_MAX, KML_RPC_DEFAULT_MAX};
    struct kml_stream *s = kml_stream_open(c, method, deadline_in(timeout_ns), &call_ops, call, &limits);
    kml_stream_cork(s);
    int refused = kml_stream_send_view(s, request, NULL);
    KML_BUG_ON(refused != 0); /* the queue is empty and the size was checked */
    kml_stream_close(s, NULL);
    kml_stream_uncork(s);
    return 0;
}

struct waiter {
    bool done;
    struct kml_buf *reply;
    struct kml_err why;
};

static void on_waited(void *self, const struct kml_slices *reply, const struct kml_err *why)
{
    struct waiter *w = self;
    w->done = true;
    w->why = *why;
    if (reply == NULL) {
        return;
    }
    kml_buf_clear(w->reply);
    for (size_t i = 0; i < reply->count && w->why.code == KML_OK; i++) {
        (void)!kml_buf_append(w->reply, reply->part[i].data, reply->part[i].size, &w->why);
    }
}

int kml_call_wait(struct kml_channel *c, const char *method, struct kml_view request, uint64_t timeout_ns,
                  struct kml_buf *reply, struct kml_err *err)
{
    struct waiter w = {.reply = reply};
    if (kml_call(c, method, request, timeout_ns, on_waited, &w, err) != 0) {
        return -1;
    }
    while (!w.done) {
        (void)kml_loop_run(c->loop, UINT64_MAX, true);
    }
    return w.why.code == KML_OK ? 0 : kml_fail(err, w.why.code, "%s", w.why.text);
}
