#include "rpc/server.h"

#include <errno.h>
#include <grpc/grpc.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "rpc/core.h"

/* One accepting request to the library, re-armed as soon as it was answered. */
struct acceptor {
    struct kml_server *server;
    const struct kml_method *method; /* NULL: catches the calls of methods that nobody has */
    void *registered;
    struct kml_tag tag;
    grpc_call *call;
    grpc_metadata_array metadata;
    grpc_call_details details;
    gpr_timespec deadline;
};

struct kml_server {
    struct kml_loop *loop;
    grpc_server *server;
    void *self;
    int port;
    struct acceptor *acceptor; /* [count], the last one for unknown methods */
    uint32_t count;
    uint32_t armed; /* acceptors whose tag is out */
    unsigned live;  /* streams and calls */
    bool closing;
    struct kml_tag down_tag;
    bool down;
};

/* ---- Unary methods: a stream of one message each way ---- */

static void on_request(void *self, struct kml_stream *s, const struct kml_slices *m)
{
    const struct acceptor *a = self;
    struct kml_buf reply;
    struct kml_err why = {KML_OK, ""};
    kml_buf_init(&reply, KML_RPC_DEFAULT_MAX);
    if (a->method->call(a->server->self, kml_stream_peer(s), m, &reply, &why) == 0) {
        kml_stream_cork(s);
        why = (struct kml_err){KML_OK, ""};
        (void)!kml_stream_send_view(s, kml_buf_view(&reply),
                                    &why); /* too large for the method's queue, at worst */
        kml_stream_close(s, &why);
        kml_stream_uncork(s);
    } else {
        kml_stream_close(s, &why);
    }
    kml_buf_finish(&reply);
}

static const struct kml_stream_ops unary_ops = {.message = on_request};

/* ---- Accepting ---- */

static void open_stream(struct acceptor *a, struct kml_stream *s)
{
    const struct kml_stream_ops *ops = NULL;
    void *self = NULL;
    struct kml_err why = {KML_INTERNAL, "refused"};
    if (a->method->opened(a->server->self, s, kml_stream_peer(s), &ops, &self, &why) == 0) {
        kml_stream_attach(s, ops, self);
    } else {
        kml_stream_refuse(s, &why);
    }
}

static void refuse_unknown(const struct acceptor *a, struct kml_stream *s)
{
    struct kml_err why;
    (void)kml_fail(&why, KML_UNSUPPORTED, "this server has no method %.*s",
                   (int)GRPC_SLICE_LENGTH(a->details.method),
                   (const char *)GRPC_SLICE_START_PTR(a->details.method));
    kml_stream_refuse(s, &why);
}

static void arm(struct acceptor *a)
{
    struct kml_server *server = a->server;
    grpc_completion_queue *cq = server->loop->cq;
    grpc_call_error refused;
    grpc_metadata_array_init(&a->metadata);
    if (a->method == NULL) {
        grpc_call_details_init(&a->details);
        refused =
            grpc_server_request_call(server->server, &a->call, &a->details, &a->metadata, cq, cq, &a->tag);
    } else {
        refused = grpc_server_request_registered_call(server->server, a->registered, &a->call, &a->deadline,
                                                      &a->metadata, NULL, cq, cq, &a->tag);
    }
    KML_BUG_ON(refused != GRPC_CALL_OK);
    server->armed++;
}

static void on_call(void *self, bool ok)
{
    struct acceptor *a = self;
    struct kml_server *server = a->server;
    server->armed--;
    grpc_metadata_array_destroy(&a->metadata);
    if (ok) {
        static const struct kml_stream_limits small = {1024, 1024};
        struct kml_stream *s = kml_stream_accept(
            server->loop, a->call, a->method == NULL ? &small : &a->method->limits, &server->live);
        if (a->method == NULL) {
            refuse_unknown(a, s);
        } else if (a->method->call != NULL) {
            kml_stream_expect_message(s);
            kml_stream_attach(s, &unary_ops, a);
        } else {
            open_stream(a, s);
        }
    }
    if (a->method == NULL) {
        grpc_call_details_destroy(&a->details);
    }
    if (ok && !server->closing) {
        arm(a);
    }
}

/* ---- Life ---- */

static void on_down(void *self, bool ok)
{
    (void)ok;
    struct kml_server *s = self;
    s->down = true;
}

static size_t largest_message(const struct kml_method *methods, uint32_t count)
{
    size_t most = 1024;
    for (uint32_t i = 0; i < count; i++) {
        size_t one = methods[i].limits.receive_max == 0 ? KML_RPC_DEFAULT_MAX : methods[i].limits.receive_max;
        most = one > most ? one : most;
    }
    return most;
}

/* The library says only that it could not; the reason is in what it logs meanwhile. */
static int listen_at(struct kml_server *s, const char *address, struct kml_creds *creds, struct kml_err *err)
{
    char log[4096];
    kml_rpc_capture_log(log, sizeof log);
    int port = grpc_server_add_http2_port(s->server, address, kml_creds_server(creds));
    kml_rpc_capture_log(NULL, 0);
    if (port == 0 && strstr(log, strerror(EADDRINUSE)) != NULL) {
        return kml_fail(err, KML_EXISTS, "cannot listen on %s: the port is in use by another program",
                        address);
    }
    if (port == 0 && strstr(log, strerror(EACCES)) != NULL) {
        return kml_fail(err, KML_DENIED, "cannot listen on %s: not allowed", address);
    }
    if (port == 0) {
        log[strcspn(log, "\n")] = '\0';
        return kml_fail(err, KML_INVALID, "cannot listen on %s: not an address of this machine: %.200s",
                        address, log);
    }
    s->port = strncmp(address, "unix", 4) == 0 ? 0 : port; /* unix: and unix-abstract: */
    return 0;
}

static void prepare(struct kml_server *s, const struct kml_method *methods, uint32_t count)
{
    s->count = count + 1;
    s->acceptor = KML_NEW_ARRAY(s->count, struct acceptor);
    for (uint32_t i = 0; i < s->count; i++) {
        struct acceptor *a = &s->acceptor[i];
        a->server = s;
        a->tag = (struct kml_tag){on_call, a};
        if (i < count) {
            a->method = &methods[i];
            a->registered =
                grpc_server_register_method(s->server, methods[i].name, NULL, GRPC_SRM_PAYLOAD_NONE, 0);
            KML_BUG_ON(a->registered == NULL); /* the same name twice */
        }
    }
}

/* Also for a server that never listened: the library wants one that was started to be shut down, in this
 * order. */
static void take_down(struct kml_server *s, uint64_t grace_ns)
{
    struct kml_clock clock = kml_clock_monotonic();
    uint64_t now = kml_now(&clock);
    uint64_t until = grace_ns > UINT64_MAX - now ? UINT64_MAX : now + grace_ns;
    s->closing = true;
    grpc_server_shutdown_and_notify(s->server, s->loop->cq, &s->down_tag);
    while ((!s->down || s->live > 0) && kml_now(&clock) < until) {
        (void)kml_loop_run(s->loop, until, true);
    }
    grpc_server_cancel_all_calls(s->server);
    while (!s->down || s->live > 0 || s->armed > 0) {
        (void)kml_loop_run(s->loop, UINT64_MAX, true);
    }
}

int kml_server_create(struct kml_loop *loop, const char *address, struct kml_creds *creds,
                      const struct kml_method *methods, uint32_t count, void *self, struct kml_server **out,
                      struct kml_err *err)
{
    struct kml_rpc_args args;
    kml_rpc_server_args(&args, largest_message(methods, count));
    struct kml_server *s = KML_NEW(struct kml_server);
    s->loop = loop;
    s->self = self;
    s->down_tag = (struct kml_tag){on_down, s};
    s->server = grpc_server_create(&args.list, NULL);
    loop->live++;
    grpc_server_register_completion_queue(s->server, loop->cq, NULL);
    prepare(s, methods, count);
    if (listen_at(s, address, creds, err) != 0) {
        kml_server_destroy(s, 0);
        return -1;
    }
    grpc_server_start(s->server);
    for (uint32_t i = 0; i < s->count; i++) {
        arm(&s->acceptor[i]);
    }
    *out = s;
    return 0;
}

int kml_server_port(const struct kml_server *s)
{
    return s->port;
}

void kml_server_destroy(struct kml_server *s, uint64_t grace_ns)
{
    if (s == NULL) {
        return;
    }
    take_down(s, grace_ns);
    grpc_server_destroy(s->server);
    s->loop->live--;
    kml_free(s->acceptor);
    kml_free(s);
}
