#include "rpc/stream.h"

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/support/alloc.h>
#include <string.h>

#include "base/mem.h"
#include "rpc/core.h"
#include "rpc/outbox.h"

#define HEADER_MAX ((size_t)64 << 10)
#define IDENTITY_PREFIX "kunal://"

/*
 * One gRPC call. At most four tags are out at a time: `start` (client: metadata), `read`, `write` and `end`.
 * `end` is out from the first moment and comes back when the call is over on both sides; when it has, and no
 * other tag is out, the stream closes. Each tag, and each callback that runs, holds a reference, so a
 * callback may run the loop.
 */
struct kml_stream {
    struct kml_loop *loop;
    grpc_call *call;
    unsigned *owner_live; /* of the channel or the server */
    const struct kml_stream_ops *ops;
    void *self;
    struct kml_stream_limits limits;
    struct kml_peer peer;
    char *address;
    char *identity;
    unsigned refs;
    struct kml_tag start;
    struct kml_tag read;
    struct kml_tag write;
    struct kml_tag end;
    bool is_server;
    bool ended; /* `end` came back */

    grpc_byte_buffer *incoming;
    bool reading;
    bool paused;
    bool read_ended; /* the peer sends no more */
    bool muted;      /* messages that still come are dropped */
    bool expecting;  /* a peer that closes now has forgotten its request */

    struct kml_outbox outbox;
    grpc_byte_buffer *outgoing; /* in the batch that is out */
    size_t outgoing_size;
    bool writing;
    bool corked;
    bool refused; /* a send was, so `writable` is due */
    bool closing; /* after what is queued: status (server) or half-close (client) */
    bool close_sent;
    bool initial_sent; /* server: metadata, which goes out with the first batch */
    bool broken;       /* a write failed: no more */

    grpc_metadata_array initial;
    grpc_metadata_array trailing;
    grpc_status_code status; /* client: what the server said */
    grpc_slice status_text;
    int cancelled; /* server: the call ended before its status was out */
    bool cancelled_here;
    struct kml_err verdict; /* decided on this side; server: also the status that is sent */
};

static void settle(struct kml_stream *s);
static void keep_reading(struct kml_stream *s);
static void keep_writing(struct kml_stream *s);

static void begin(struct kml_stream *s, const grpc_op *ops, size_t count, struct kml_tag *tag)
{
    s->refs++;
    kml_rpc_start(s->call, ops, count, tag);
}

/* ---- The end ---- */

static void judge(const struct kml_stream *s, struct kml_err *why)
{
    *why = s->verdict;
    if (why->code != KML_OK) {
        return;
    }
    if (!s->is_server) {
        kml_status_read(s->status, s->status_text, s->address, why);
    } else if (s->cancelled != 0 && !s->cancelled_here) {
        (void)kml_fail(why, KML_UNAVAILABLE, "%s: the peer went away", s->address);
    }
    if (s->cancelled_here && (why->code == KML_CANCELLED || (s->is_server && s->cancelled != 0))) {
        (void)kml_fail(why, KML_CANCELLED, "%s: cancelled on this side", s->address);
    }
}

static void finish(struct kml_stream *s)
{
    struct kml_err why;
    judge(s, &why);
    kml_outbox_finish(&s->outbox);
    grpc_metadata_array_destroy(&s->initial);
    grpc_metadata_array_destroy(&s->trailing);
    grpc_slice_unref(s->status_text);
    grpc_call_unref(s->call);
    (*s->owner_live)--;
    s->loop->live--;
    if (s->ops != NULL && s->ops->closed != NULL) {
        s->ops->closed(s->self, s, &why);
    }
    kml_free(s->address);
    kml_free(s->identity);
    kml_free(s);
}

static void settle(struct kml_stream *s)
{
    s->refs--;
    if (s->refs == 0 && s->ended) {
        finish(s);
    }
}

static void on_end(void *self, bool ok)
{
    (void)ok; /* always succeeds; what counts is the status */
    struct kml_stream *s = self;
    s->ended = true;
    kml_outbox_clear(&s->outbox);
    settle(s);
}

static void on_start(void *self, bool ok)
{
    (void)ok; /* a failure shows in the status */
    settle(self);
}

/* ---- Reading ---- */

/* The peer broke a rule: it is told, and `closed` will say the same. What is queued is not worth sending any
 * more. */
static void reject(struct kml_stream *s, const struct kml_err *why)
{
    s->muted = true;
    if (s->verdict.code == KML_OK) {
        s->verdict = *why;
    }
    kml_outbox_clear(&s->outbox);
    if (s->is_server) {
        kml_stream_close(s, why);
    } else {
        (void)grpc_call_cancel_with_status(s->call, (grpc_status_code)kml_code_grpc(why->code), why->text,
                                           NULL);
    }
}

static int check(const struct kml_stream *s, const grpc_byte_buffer *m, struct kml_err *err)
{
    if (m->data.raw.compression != GRPC_COMPRESS_NONE) {
        return kml_fail(err, KML_UNSUPPORTED, "%s: compressed messages are not accepted", s->address);
    }
    size_t size = m->data.raw.slice_buffer.length;
    if (size > s->limits.receive_max) {
        return kml_fail(err, KML_TOO_LARGE, "%s: a message of %zu bytes, at most %zu are accepted",
                        s->address, size, s->limits.receive_max);
    }
    return 0;
}

/* Somebody cut the message into a great many parts: one copy instead of an array without a bound. */
static int deliver_joined(struct kml_stream *s, const grpc_slice_buffer *from, struct kml_err *err)
{
    uint8_t *joined = kml_try_alloc(from->length);
    if (joined == NULL) {
        return kml_fail(err, KML_NO_MEMORY, "%s: no memory for a message of %zu bytes", s->address,
                        from->length);
    }
    size_t at = 0;
    for (size_t i = 0; i < from->count; i++) {
        memcpy(joined + at, GRPC_SLICE_START_PTR(from->slices[i]), GRPC_SLICE_LENGTH(from->slices[i]));
        at += GRPC_SLICE_LENGTH(from->slices[i]);
    }
    struct kml_view one = {joined, at};
    struct kml_slices message = kml_slices_of(&one);
    s->ops->message(s->self, s, &message);
    kml_free(joined);
    return 0;
}

static int deliver(struct kml_stream *s, const grpc_byte_buffer *m, struct kml_err *err)
{
    const grpc_slice_buffer *from = &m->data.raw.slice_buffer;
    if (check(s, m, err) != 0) {
        return -1;
    }
    s->expecting = false;
    if (from->count > KML_LOOP_VIEWS) {
        return deliver_joined(s, from, err);
    }
    struct kml_view *views = kml_loop_lend_views(s->loop);
    for (size_t i = 0; i < from->count; i++) {
        views[i] =
            (struct kml_view){GRPC_SLICE_START_PTR(from->slices[i]), GRPC_SLICE_LENGTH(from->slices[i])};
    }
    struct kml_slices message = {views, from->count, from->length};
    s->ops->message(s->self, s, &message);
    kml_loop_return_views(s->loop, views);
    return 0;
}

/* A client that has closed its side gets what is queued for it, and then the status. */
static void peer_is_done(struct kml_stream *s, bool ok)
{
    s->read_ended = true;
    if (!s->is_server || s->muted) {
        return;
    }
    struct kml_err why = {KML_OK, ""};
    if (!ok) {
        (void)kml_fail(&why, KML_TOO_LARGE,
                       "%s: a message over the limit of %zu bytes, or one that is not gRPC", s->address,
                       s->limits.receive_max);
        reject(s, &why);
        return;
    }
    if (s->expecting) {
        (void)kml_fail(&why, KML_INVALID, "%s: a call without a request", s->address);
    }
    kml_stream_close(s, &why);
}

static void on_read(void *self, bool ok)
{
    struct kml_stream *s = self;
    grpc_byte_buffer *m = s->incoming;
    s->incoming = NULL;
    s->reading = false;
    if (!ok || m == NULL) {
        peer_is_done(s, ok);
    } else if (!s->muted) {
        struct kml_err why;
        s->reading = true; /* the callback may resume: the next message must wait until it has returned */
        int failed = deliver(s, m, &why);
        s->reading = false;
        if (failed) {
            reject(s, &why);
        }
    }
    grpc_byte_buffer_destroy(m);
    keep_reading(s);
    settle(s);
}

static void keep_reading(struct kml_stream *s)
{
    if (s->reading || s->read_ended || s->paused || s->ops == NULL || (s->is_server && s->ended)) {
        return;
    }
    s->reading = true;
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &s->incoming};
    begin(s, &op, 1, &s->read);
}

void kml_stream_pause(struct kml_stream *s)
{
    s->paused = true;
}

void kml_stream_resume(struct kml_stream *s)
{
    s->paused = false;
    keep_reading(s);
}

/* ---- Writing ---- */

static void on_write(void *self, bool ok)
{
    struct kml_stream *s = self;
    s->writing = false;
    grpc_byte_buffer_destroy(s->outgoing);
    s->outgoing = NULL;
    s->outgoing_size = 0;
    if (!ok) {
        s->broken = true;
        kml_outbox_clear(&s->outbox);
    }
    keep_writing(s);
    bool room = kml_stream_queued(s) <= s->limits.queue_max / 2;
    if (s->refused && room && !s->broken && !s->closing && !s->ended) {
        s->refused = false;
        if (s->ops != NULL && s->ops->writable != NULL) {
            s->ops->writable(s->self, s);
        }
    }
    settle(s);
}

static grpc_op close_op(const struct kml_stream *s, grpc_slice *text)
{
    if (!s->is_server) {
        return (grpc_op){.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    }
    grpc_op op = {.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
    op.data.send_status_from_server.status = (grpc_status_code)kml_code_grpc(s->verdict.code);
    if (s->verdict.code != KML_OK) {
        *text = kml_status_text(&s->verdict);
        op.data.send_status_from_server.status_details = text;
    }
    return op;
}

/* One batch at a time: the next message, with the metadata before and the end behind it where they are due.
 */
static void keep_writing(struct kml_stream *s)
{
    if (s->writing || s->broken || s->corked || s->close_sent || s->ended) {
        return;
    }
    struct kml_parcel next = {NULL, 0};
    bool message = kml_outbox_take(&s->outbox, &next);
    bool last = s->closing && s->outbox.count == 0;
    if (!message && !last) {
        return;
    }
    grpc_op ops[3];
    size_t n = 0;
    if (s->is_server && !s->initial_sent) {
        ops[n++] = (grpc_op){.op = GRPC_OP_SEND_INITIAL_METADATA};
        s->initial_sent = true;
    }
    if (message) {
        ops[n++] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = next.bytes};
        s->outgoing = next.bytes;
        s->outgoing_size = next.size;
    }
    grpc_slice text = grpc_empty_slice();
    if (last) {
        ops[n++] = close_op(s, &text);
        s->close_sent = true;
    }
    s->writing = true;
    begin(s, ops, n, &s->write);
    grpc_slice_unref(text);
}

size_t kml_stream_queued(const struct kml_stream *s)
{
    return s->outbox.bytes + s->outgoing_size;
}

static int may_send(struct kml_stream *s, size_t size, struct kml_err *err)
{
    if (s->closing || s->broken || s->ended || s->cancelled_here || s->muted) {
        return kml_fail(err, KML_UNAVAILABLE, "%s: the stream is closed", s->address);
    }
    if (size > s->limits.queue_max) {
        return kml_fail(err, KML_TOO_LARGE, "%s: a message of %zu bytes for a queue of %zu", s->address, size,
                        s->limits.queue_max);
    }
    if (kml_stream_queued(s) > s->limits.queue_max - size ||
        s->outbox.count >= 16 + s->limits.queue_max / 64) {
        s->refused = true;
        return kml_fail(err, KML_EXHAUSTED, "%s: the send queue of %zu bytes is full", s->address,
                        s->limits.queue_max);
    }
    return 0;
}

static void send_slices(struct kml_stream *s, grpc_slice *parts, size_t count, size_t size)
{
    struct kml_parcel parcel = {grpc_raw_byte_buffer_create(parts, count), size};
    for (size_t i = 0; i < count; i++) {
        grpc_slice_unref(parts[i]);
    }
    kml_outbox_put(&s->outbox, parcel);
    keep_writing(s);
}

static grpc_slice payload_slice(const struct kml_payload_ref *p)
{
    union {
        const void *in;
        void *out;
    } data = {p->data}; /* the library only reads it */
    if (p->release == NULL) {
        return grpc_slice_from_static_buffer(data.out, p->size);
    }
    return grpc_slice_new_with_user_data(data.out, p->size, p->release, p->arg);
}

int kml_stream_send(struct kml_stream *s, const void *header, size_t header_size,
                    const struct kml_payload_ref *payload, struct kml_err *err)
{
    if (header_size > HEADER_MAX) {
        return kml_fail(err, KML_TOO_LARGE, "%s: a header of %zu bytes", s->address, header_size);
    }
    size_t size = header_size + (payload == NULL ? 0 : payload->size);
    if (may_send(s, size, err) != 0) {
        return -1;
    }
    grpc_slice parts[2];
    size_t n = 0;
    parts[n++] = grpc_slice_from_copied_buffer(header_size == 0 ? "" : header, header_size);
    if (payload != NULL && payload->size > 0) {
        parts[n++] = payload_slice(payload);
    }
    send_slices(s, parts, n, size);
    if (payload != NULL && payload->size == 0 && payload->release != NULL) {
        payload->release(payload->arg);
    }
    return 0;
}

int kml_stream_send_view(struct kml_stream *s, struct kml_view message, struct kml_err *err)
{
    if (may_send(s, message.size, err) != 0) {
        return -1;
    }
    grpc_slice part =
        grpc_slice_from_copied_buffer(message.size == 0 ? "" : (const char *)message.data, message.size);
    send_slices(s, &part, 1, message.size);
    return 0;
}

void kml_stream_cork(struct kml_stream *s)
{
    s->corked = true;
}

void kml_stream_uncork(struct kml_stream *s)
{
    s->corked = false;
    keep_writing(s);
}

void kml_stream_close(struct kml_stream *s, const struct kml_err *why)
{
    if (s->closing || s->ended) {
        return;
    }
    s->closing = true;
    if (s->is_server) {
        s->muted = true;
        if (why != NULL) {
            s->verdict = *why;
        }
    }
    keep_writing(s);
}

void kml_stream_cancel(struct kml_stream *s)
{
    if (s->ended || s->cancelled_here) {
        return;
    }
    s->cancelled_here = true;
    s->muted = true;
    kml_outbox_clear(&s->outbox);
    (void)grpc_call_cancel(s->call, NULL);
}

const struct kml_peer *kml_stream_peer(const struct kml_stream *s)
{
    return &s->peer;
}

void kml_stream_set_self(struct kml_stream *s, void *self)
{
    s->self = self;
}

void *kml_stream_self(const struct kml_stream *s)
{
    return s->self;
}

/* ---- The beginning ---- */

static struct kml_stream *make(struct kml_loop *loop, grpc_call *call, const struct kml_stream_limits *limits,
                               unsigned *owner_live)
{
    struct kml_stream *s = KML_NEW(struct kml_stream);
    s->loop = loop;
    s->call = call;
    s->owner_live = owner_live;
    s->limits.receive_max = limits->receive_max == 0 ? KML_RPC_DEFAULT_MAX : limits->receive_max;
    s->limits.queue_max = limits->queue_max == 0 ? KML_RPC_DEFAULT_MAX : limits->queue_max;
    s->start = (struct kml_tag){on_start, s};
    s->read = (struct kml_tag){on_read, s};
    s->write = (struct kml_tag){on_write, s};
    s->end = (struct kml_tag){on_end, s};
    s->status_text = grpc_empty_slice();
    grpc_metadata_array_init(&s->initial);
    grpc_metadata_array_init(&s->trailing);
    loop->live++;
    (*owner_live)++;
    return s;
}

struct kml_stream *kml_stream_open(struct kml_channel *c, const char *method, gpr_timespec deadline,
                                   const struct kml_stream_ops *ops, void *self,
                                   const struct kml_stream_limits *limits)
{
    grpc_slice name = grpc_slice_from_copied_string(method);
    grpc_call *call = grpc_channel_create_call(c->channel, NULL, 0, c->loop->cq, name, NULL, deadline, NULL);
    grpc_slice_unref(name);
    struct kml_stream *s = make(c->loop, call, limits, &c->live);
    s->ops = ops;
    s->self = self;
    s->address = kml_strdup(c->address);
    s->peer.address = s->address;
    grpc_op end = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    end.data.recv_status_on_client.trailing_metadata = &s->trailing;
    end.data.recv_status_on_client.status = &s->status;
    end.data.recv_status_on_client.status_details = &s->status_text;
    begin(s, &end, 1, &s->end);
    grpc_op start[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}, {.op = GRPC_OP_RECV_INITIAL_METADATA}};
    start[1].data.recv_initial_metadata.recv_initial_metadata = &s->initial;
    begin(s, start, 2, &s->start);
    keep_reading(s);
    return s;
}

int kml_stream_call(struct kml_channel *channel, const char *method, const struct kml_stream_ops *ops,
                    void *self, const struct kml_stream_limits *limits, struct kml_stream **out,
                    struct kml_err *err)
{
    if (method[0] != '/') {
        return kml_fail(err, KML_INVALID, "the method '%s' does not start with '/'", method);
    }
    *out = kml_stream_open(channel, method, gpr_inf_future(GPR_CLOCK_MONOTONIC), ops, self, limits);
    return 0;
}

/* The first "kunal://" URI of the certificate; NULL without one. A zero inside would make two names look like
 * one. */
static char *identity_of(grpc_call *call)
{
    char *found = NULL;
    grpc_auth_context *context = grpc_call_auth_context(call);
    if (context == NULL) {
        return NULL;
    }
    grpc_auth_property_iterator it =
        grpc_auth_context_find_properties_by_name(context, GRPC_PEER_URI_PROPERTY_NAME);
    const grpc_auth_property *p;
    while (found == NULL && (p = grpc_auth_property_iterator_next(&it)) != NULL) {
        size_t prefix = strlen(IDENTITY_PREFIX);
        if (p->value_length > prefix && memcmp(p->value, IDENTITY_PREFIX, prefix) == 0 &&
            memchr(p->value, '\0', p->value_length) == NULL) {
            found = kml_strndup(p->value, p->value_length);
        }
    }
    grpc_auth_context_release(context);
    return found;
}

struct kml_stream *kml_stream_accept(struct kml_loop *loop, grpc_call *call,
                                     const struct kml_stream_limits *limits, unsigned *live)
{
    struct kml_stream *s = make(loop, call, limits, live);
    s->is_server = true;
    char *peer = grpc_call_get_peer(call);
    s->address = kml_strdup(peer);
    gpr_free(peer);
    s->identity = identity_of(call);
    s->peer = (struct kml_peer){s->address, s->identity};
    grpc_op end = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &s->cancelled};
    begin(s, &end, 1, &s->end);
    return s;
}

void kml_stream_attach(struct kml_stream *s, const struct kml_stream_ops *ops, void *self)
{
    s->ops = ops;
    s->self = self;
    keep_reading(s);
}

void kml_stream_refuse(struct kml_stream *s, const struct kml_err *why)
{
    kml_outbox_clear(&s->outbox);
    kml_stream_close(s, why);
}

void kml_stream_expect_message(struct kml_stream *s)
{
    s->expecting = true;
}
