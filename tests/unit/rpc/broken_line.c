/* What happens when the line between two peers breaks, hangs or is silent. A relay stands between them. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

#include "peers.h"

enum order { FORWARD, HANG, BREAK };

struct relay {
    pthread_t thread;
    int listener;
    int target_port;
    int port;
    int wake[2]; /* a byte: look at `order` again */
    atomic_int order;
    int side[2]; /* accepted from the client, connected to the server */
};

static int loopback_socket(struct sockaddr_in *at, int port)
{
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static bool pass_on(int from, int to)
{
    char data[65536];
    ssize_t got = recv(from, data, sizeof data, 0);
    for (ssize_t sent = 0; sent < got;) {
        ssize_t now = send(to, data + sent, (size_t)(got - sent), MSG_NOSIGNAL);
        if (now <= 0) {
            return false;
        }
        sent += now;
    }
    return got > 0;
}

/* Serves one connection until it is told to break it. */
static void *serve(void *self)
{
    struct relay *r = self;
    struct sockaddr_in at;
    r->side[0] = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
    r->side[1] = loopback_socket(&at, r->target_port);
    bool alive = r->side[0] >= 0 && connect(r->side[1], (struct sockaddr *)&at, sizeof at) == 0;
    while (alive && atomic_load(&r->order) != BREAK) {
        short mask = atomic_load(&r->order) == FORWARD ? POLLIN : 0;
        struct pollfd fds[3] = {{r->side[0], mask, 0}, {r->side[1], mask, 0}, {r->wake[0], POLLIN, 0}};
        nfds_t first = mask != 0 ? 0 : 2; /* hanging: only an order counts */
        if (poll(fds + first, 3 - first, -1) < 0 && errno != EINTR) {
            break;
        }
        if ((fds[2].revents & POLLIN) != 0) {
            char byte;
            (void)!read(r->wake[0], &byte, 1);
            continue;
        }
        for (int i = 0; i < 2 && mask != 0; i++) {
            if (fds[i].revents != 0 && !pass_on(r->side[i], r->side[1 - i])) {
                alive = false;
            }
        }
    }
    (void)close(r->side[0]);
    (void)close(r->side[1]);
    return NULL;
}

static void relay_start(struct relay *r, struct peers *p)
{
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    *r = (struct relay){.target_port = kml_server_port(p->server)};
    atomic_init(&r->order, FORWARD);
    assert_int_equal(pipe(r->wake), 0);
    r->listener = loopback_socket(&at, 0);
    assert_int_equal(bind(r->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(r->listener, 1), 0);
    assert_int_equal(getsockname(r->listener, (struct sockaddr *)&at, &length), 0);
    assert_int_equal(pthread_create(&r->thread, NULL, serve, r), 0);
    kml_channel_destroy(p->channel);
    struct kml_creds *creds = kml_creds_plaintext();
    (void)snprintf(p->address, sizeof p->address, "127.0.0.1:%d", ntohs(at.sin_port));
    assert_int_equal(kml_channel_create(p->loop, p->address, creds, &p->channel, NULL), 0);
    kml_creds_destroy(creds);
}

static void relay_order(struct relay *r, enum order order)
{
    atomic_store(&r->order, order);
    assert_int_equal(write(r->wake[1], "", 1), 1);
}

static void relay_stop(struct relay *r)
{
    relay_order(r, BREAK);
    assert_int_equal(pthread_join(r->thread, NULL), 0);
    (void)close(r->listener);
    (void)close(r->wake[0]);
    (void)close(r->wake[1]);
}

struct pair {
    struct probe *client;
    struct probe *server;
    unsigned want;
};

static bool both_have(void *self)
{
    const struct pair *t = self;
    return t->client->messages >= t->want && t->server->messages >= t->want;
}

static bool both_closed(void *self)
{
    const struct pair *t = self;
    return t->client->closed > 0 && t->server->closed > 0;
}

static void exchange_one(struct peers *p, struct probe *client)
{
    struct pair t = {client, &p->server_side, client->messages + 1};
    assert_int_equal(kml_stream_send(client->stream, "hello", 5, NULL, NULL), 0);
    assert_true(await(p->loop, both_have, &t));
}

static void a_broken_connection_closes_both_ends_as_unavailable(void **state)
{
    (void)state;
    struct peers p;
    struct relay r;
    struct probe client = {0};
    peers_start(&p);
    relay_start(&r, &p);
    p.server_side.echo = true;
    peers_open(&p, ECHO, &client);
    exchange_one(&p, &client);
    relay_order(&r, BREAK);
    struct pair t = {&client, &p.server_side, 0};
    assert_true(await(p.loop, both_closed, &t));
    assert_int_equal(client.why.code, KML_UNAVAILABLE);
    assert_int_equal(p.server_side.why.code, KML_UNAVAILABLE);
    assert_int_equal(client.closed, 1);
    assert_int_equal(p.server_side.closed, 1);
    relay_stop(&r);
    peers_stop(&p);
}

/* The sockets stay open and nothing comes through any more: only keepalive can tell. */
static void a_line_that_hangs_is_noticed_by_both_ends(void **state)
{
    (void)state;
    struct peers p;
    struct relay r;
    struct probe client = {0};
    peers_start(&p);
    relay_start(&r, &p);
    p.server_side.echo = true;
    peers_open(&p, ECHO, &client);
    exchange_one(&p, &client);
    relay_order(&r, HANG);
    struct pair t = {&client, &p.server_side, 0};
    assert_true(await(p.loop, both_closed, &t));
    assert_int_equal(client.why.code, KML_UNAVAILABLE);
    assert_int_equal(p.server_side.why.code, KML_UNAVAILABLE);
    relay_stop(&r);
    peers_stop(&p);
}

/*
 * Unless it was told otherwise the library takes the fourth ping without data as an attack, and a client
 * sends at most one a second: so this cannot be shown in less than four seconds.
 */
static void an_idle_stream_outlives_many_keepalives(void **state)
{
    (void)state;
    struct peers p;
    struct probe client = {0};
    peers_start(&p);
    p.server_side.echo = true;
    peers_open(&p, ECHO, &client);
    exchange_one(&p, &client);
    struct kml_clock clock = kml_clock_monotonic();
    uint64_t until = kml_now(&clock) + 4 * KML_SECOND;
    (void)kml_loop_run(p.loop, until, false);
    assert_int_equal(client.closed, 0);
    exchange_one(&p, &client);
    kml_stream_close(client.stream, NULL);
    struct pair t = {&client, &p.server_side, 0};
    assert_true(await(p.loop, both_closed, &t));
    assert_int_equal(client.why.code, KML_OK);
    peers_stop(&p);
}

static int short_keepalive(void **state)
{
    (void)setenv("KUNAL_KEEPALIVE_MS", "100", 1);
    return group_init(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_broken_connection_closes_both_ends_as_unavailable),
        cmocka_unit_test(a_line_that_hangs_is_noticed_by_both_ends),
        cmocka_unit_test(an_idle_stream_outlives_many_keepalives),
    };
    return cmocka_run_group_tests(tests, short_keepalive, group_finish);
}
