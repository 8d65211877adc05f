#ifndef KML_TESTS_RPC_PEERS_H
#define KML_TESTS_RPC_PEERS_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "rpc/channel.h"
#include "rpc/creds.h"
#include "rpc/loop.h"
#include "rpc/server.h"
#include "rpc/stream.h"

/* A server and a client on one loop, and streams that note what happens to them. Tests await conditions,
 * never time. */

#define PATIENCE (30 * KML_SECOND) /* how long a condition may take before the test has failed */
#define ECHO "/kunal.test.Echo/Stream"

static const struct kml_stream_limits roomy = {(1u << 20) + 1024, 64u << 20};

struct probe {
    struct kml_stream *stream; /* NULL once closed */
    unsigned messages;
    uint64_t bytes;
    uint8_t first[64]; /* of the last message */
    size_t first_size;
    unsigned writable;
    unsigned closed;
    struct kml_err why;
    char identity[128];
    bool echo;                   /* sends every message back */
    bool pause_each;             /* pauses after each message */
    struct kml_loop *run_inside; /* the message callback runs this loop once */
};

struct peers {
    struct kml_loop *loop;
    struct kml_server *server;
    struct kml_channel *channel;
    char address[64];
    struct probe server_side; /* of the newest stream */
    struct kml_err refuse;    /* code other than KML_OK: `opened` refuses with it */
    struct kml_err fail_call; /* the same for unary calls */
    unsigned calls;
    unsigned opened;
};

static inline bool await(struct kml_loop *loop, bool (*met)(void *self), void *self)
{
    struct kml_clock clock = kml_clock_monotonic();
    uint64_t until = kml_now(&clock) + PATIENCE;
    while (!met(self)) {
        if (kml_now(&clock) >= until) {
            return false;
        }
        (void)kml_loop_run(loop, until, true);
    }
    return true;
}

static inline bool is_closed(void *self)
{
    const struct probe *p = self;
    return p->closed > 0;
}

static inline void probe_message(void *self, struct kml_stream *s, const struct kml_slices *m)
{
    struct probe *p = self;
    struct kml_cursor c = kml_cursor_of(m);
    p->messages++;
    p->bytes += m->size;
    p->first_size = m->size < sizeof p->first ? m->size : sizeof p->first;
    assert_true(kml_cursor_copy(&c, p->first, p->first_size));
    if (p->echo) {
        uint8_t *copy = kml_try_alloc(m->size);
        c = kml_cursor_of(m);
        assert_true(kml_cursor_copy(&c, copy, m->size));
        struct kml_payload_ref payload = {copy, m->size, kml_free, copy};
        assert_int_equal(kml_stream_send(s, NULL, 0, &payload, NULL), 0);
    }
    if (p->pause_each) {
        kml_stream_pause(s);
    }
    if (p->run_inside != NULL) {
        (void)kml_loop_run(p->run_inside, 0, false);
    }
}

static inline void probe_writable(void *self, struct kml_stream *s)
{
    struct probe *p = self;
    (void)s;
    p->writable++;
}

static inline void probe_closed(void *self, struct kml_stream *s, const struct kml_err *why)
{
    struct probe *p = self;
    assert_ptr_equal(kml_stream_self(s), self);
    p->closed++;
    p->why = *why;
    p->stream = NULL;
}

static const struct kml_stream_ops probe_ops = {probe_message, probe_writable, probe_closed};

static inline int peers_opened(void *self, struct kml_stream *s, const struct kml_peer *peer,
                               const struct kml_stream_ops **ops, void **stream_self, struct kml_err *err)
{
    struct peers *p = self;
    p->opened++;
    if (p->refuse.code != KML_OK) {
        return kml_fail(err, p->refuse.code, "%s", p->refuse.text);
    }
    p->server_side.stream = s;
    if (peer->identity != NULL) {
        (void)snprintf(p->server_side.identity, sizeof p->server_side.identity, "%s", peer->identity);
    }
    *ops = &probe_ops;
    *stream_self = &p->server_side;
    return 0;
}

/* The answer is the request, backwards. */
static inline int peers_reverse(void *self, const struct kml_peer *peer, const struct kml_slices *request,
                                struct kml_buf *reply, struct kml_err *err)
{
    struct peers *p = self;
    (void)peer;
    p->calls++;
    if (p->fail_call.code != KML_OK) {
        return kml_fail(err, p->fail_call.code, "%s", p->fail_call.text);
    }
    struct kml_cursor c = kml_cursor_of(request);
    uint8_t *to = kml_buf_reserve(reply, request->size, err);
    if (to == NULL || !kml_cursor_copy(&c, to, request->size)) {
        return -1;
    }
    for (size_t i = 0; i < request->size / 2; i++) {
        uint8_t swap = to[i];
        to[i] = to[request->size - 1 - i];
        to[request->size - 1 - i] = swap;
    }
    kml_buf_added(reply, request->size);
    return 0;
}

static const struct kml_method peers_methods[] = {
    {ECHO, {(1u << 20) + 1024, 64u << 20}, peers_opened, NULL},
    {"/kunal.test.Echo/Small", {1000, 1000}, peers_opened, NULL},
    {"/kunal.test.Echo/Reverse", {0, 0}, NULL, peers_reverse},
};

static inline void peers_listen(struct peers *p, const char *address, struct kml_creds *creds)
{
    struct kml_err err = {0};
    if (kml_server_create(p->loop, address, creds, peers_methods, KML_COUNT(peers_methods), p, &p->server,
                          &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static inline void peers_start(struct peers *p)
{
    struct kml_creds *creds = kml_creds_plaintext();
    *p = (struct peers){.loop = kml_loop_create()};
    peers_listen(p, "127.0.0.1:0", creds);
    (void)snprintf(p->address, sizeof p->address, "127.0.0.1:%d", kml_server_port(p->server));
    assert_int_equal(kml_channel_create(p->loop, p->address, creds, &p->channel, NULL), 0);
    kml_creds_destroy(creds);
}

/* Opens a stream that is noted in `probe`. */
static inline void peers_open(struct peers *p, const char *method, struct probe *probe)
{
    assert_int_equal(kml_stream_call(p->channel, method, &probe_ops, probe, &roomy, &probe->stream, NULL), 0);
}

static inline void peers_stop(struct peers *p)
{
    kml_channel_destroy(p->channel);
    kml_server_destroy(p->server, 0);
    kml_loop_destroy(p->loop);
}

static inline int group_init(void **state)
{
    (void)state;
    kml_rpc_init();
    return 0;
}

static inline int group_finish(void **state)
{
    (void)state;
    kml_rpc_shutdown();
    return 0;
}

#endif
