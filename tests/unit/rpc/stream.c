#include "rpc/stream.h"

#include <pthread.h>
#include <stdio.h>

#include "peers.h"

/* A payload that counts how often it was released; gRPC may do so on a thread of its own. */
struct load {
    uint8_t *bytes;
    size_t size;
    atomic_uint released;
};

static void release(void *arg)
{
    struct load *l = arg;
    (void)atomic_fetch_add(&l->released, 1);
}

static void load_init(struct load *l, size_t size, uint8_t seed)
{
    l->bytes = kml_try_alloc(size);
    l->size = size;
    atomic_init(&l->released, 0);
    for (size_t i = 0; i < size; i++) {
        l->bytes[i] = (uint8_t)(i * 31 + seed);
    }
}

static struct kml_payload_ref load_ref(struct load *l)
{
    return (struct kml_payload_ref){l->bytes, l->size, release, l};
}

struct tally {
    struct probe *client;
    struct probe *server;
    unsigned want;
};

static bool both_have(void *self)
{
    const struct tally *t = self;
    return t->client->messages >= t->want && t->server->messages >= t->want;
}

static bool client_has(void *self)
{
    const struct tally *t = self;
    return t->client->messages >= t->want;
}

static bool server_has(void *self)
{
    const struct tally *t = self;
    return t->server->messages >= t->want;
}

static bool both_closed(void *self)
{
    const struct tally *t = self;
    return t->client->closed > 0 && t->server->closed > 0;
}

static bool was_writable(void *self)
{
    const struct probe *p = self;
    return p->writable > 0;
}

/* Ends a stream from the client's side and checks that both ends saw an orderly end, once. */
static void end_well(struct peers *p, struct probe *client)
{
    struct tally t = {client, &p->server_side, 0};
    kml_stream_close(client->stream, NULL);
    assert_true(await(p->loop, both_closed, &t));
    assert_int_equal(client->why.code, KML_OK);
    assert_int_equal(p->server_side.why.code, KML_OK);
    assert_int_equal(client->closed, 1);
    assert_int_equal(p->server_side.closed, 1);
}

static void send_text(struct kml_stream *s, const char *text)
{
    struct kml_err err = {0};
    if (kml_stream_send(s, text, strlen(text), NULL, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static void chunks_of_any_size_come_back_whole_and_each_payload_is_released_once(void **state)
{
    (void)state;
    static const size_t size[] = {0, 1, 23, 24, 4096, 65536, 262144 + 3, 1 << 20};
    static const unsigned count[] = {1, 2, 7, 64};
    struct peers p;
    peers_start(&p);
    for (size_t n = 0; n < KML_COUNT(count); n++) {
        struct load loads[64];
        struct probe client = {0};
        uint64_t bytes = 0;
        p.server_side = (struct probe){.echo = true};
        peers_open(&p, ECHO, &client);
        for (unsigned i = 0; i < count[n]; i++) {
            load_init(&loads[i], size[(i + n * 3) % KML_COUNT(size)], (uint8_t)i);
            struct kml_payload_ref ref = load_ref(&loads[i]);
            uint8_t header[3] = {(uint8_t)i, 0xab, 0xcd};
            assert_int_equal(kml_stream_send(client.stream, header, sizeof header, &ref, NULL), 0);
            bytes += sizeof header + loads[i].size;
        }
        struct tally t = {&client, &p.server_side, count[n]};
        assert_true(await(p.loop, both_have, &t));
        assert_int_equal(client.bytes, bytes);
        assert_int_equal(p.server_side.bytes, bytes);
        struct load *last = &loads[count[n] - 1];
        assert_int_equal(client.first[0], count[n] - 1);
        size_t seen = last->size < 61 ? last->size : 61;
        assert_memory_equal(client.first + 3, last->bytes, seen);
        assert_int_equal(kml_stream_queued(client.stream), 0);
        end_well(&p, &client);
        for (unsigned i = 0; i < count[n]; i++) {
            assert_int_equal(atomic_load(&loads[i].released), 1);
            kml_free(loads[i].bytes);
        }
    }
    peers_stop(&p);
}

static void a_full_queue_refuses_and_says_when_there_is_room_again(void **state)
{
    (void)state;
    struct peers p;
    struct probe client = {0};
    struct kml_err err = {0};
    peers_start(&p);
    struct kml_stream_limits tight = {roomy.receive_max, 3 << 20};
    assert_int_equal(kml_stream_call(p.channel, ECHO, &probe_ops, &client, &tight, &client.stream, NULL), 0);
    struct load load;
    load_init(&load, 1 << 20, 1);
    struct kml_payload_ref ref = load_ref(&load);
    unsigned sent = 0;
    while (kml_stream_send(client.stream, NULL, 0, &ref, &err) == 0) {
        sent++;
        assert_true(sent <= 3);
    }
    assert_int_equal(sent, 3);
    assert_int_equal(err.code, KML_EXHAUSTED);
    assert_int_equal(client.writable, 0);
    assert_true(await(p.loop, was_writable, &client));
    assert_true(kml_stream_queued(client.stream) <= tight.queue_max / 2);
    assert_int_equal(kml_stream_send(client.stream, NULL, 0, &ref, &err), 0);
    struct load huge = {load.bytes, (3 << 20) + 1, 0};
    struct kml_payload_ref too_much = load_ref(&huge);
    assert_int_equal(kml_stream_send(client.stream, NULL, 0, &too_much, &err), -1);
    assert_int_equal(err.code, KML_TOO_LARGE);
    struct tally t = {&client, &p.server_side, sent + 1};
    assert_true(await(p.loop, server_has, &t));
    end_well(&p, &client);
    assert_int_equal(client.writable, 1);
    assert_int_equal(atomic_load(&load.released), sent + 1);
    assert_int_equal(atomic_load(&huge.released), 0);
    kml_free(load.bytes);
    peers_stop(&p);
}

static void a_paused_reader_gets_nothing_until_it_resumes(void **state)
{
    (void)state;
    struct peers p;
    struct probe client = {0};
    peers_start(&p);
    p.server_side.pause_each = true;
    peers_open(&p, ECHO, &client);
    for (int i = 0; i < 5; i++) {
        send_text(client.stream, "hello");
    }
    struct tally t = {&client, &p.server_side, 1};
    assert_true(await(p.loop, server_has, &t));
    /* A second stream's whole life passes on the same connection; the paused one stays where it is. */
    struct probe paused = p.server_side;
    struct probe other = {0};
    p.server_side = (struct probe){.echo = true};
    peers_open(&p, ECHO, &other);
    kml_stream_set_self(paused.stream, &paused);
    send_text(other.stream, "me too");
    struct tally o = {&other, &p.server_side, 1};
    assert_true(await(p.loop, both_have, &o));
    end_well(&p, &other);
    assert_int_equal(paused.messages, 1);
    for (unsigned want = 2; want <= 5; want++) {
        kml_stream_resume(paused.stream);
        t = (struct tally){&client, &paused, want};
        assert_true(await(p.loop, server_has, &t));
        assert_int_equal(paused.messages, want);
    }
    paused.pause_each = false;
    kml_stream_resume(paused.stream);
    kml_stream_close(client.stream, NULL);
    t = (struct tally){&client, &paused, 0};
    assert_true(await(p.loop, both_closed, &t));
    peers_stop(&p);
}

static void a_message_over_the_streams_limit_ends_it_on_both_sides(void **state)
{
    (void)state;
    struct peers p;
    struct probe client = {0};
    struct load load;
    peers_start(&p);
    load_init(&load, 2000, 3);
    peers_open(&p, "/kunal.test.Echo/Small", &client);
    struct kml_payload_ref ref = load_ref(&load);
    assert_int_equal(kml_stream_send(client.stream, NULL, 0, &ref, NULL), 0);
    struct tally t = {&client, &p.server_side, 0};
    assert_true(await(p.loop, both_closed, &t));
    assert_int_equal(client.why.code, KML_TOO_LARGE);
    assert_non_null(strstr(client.why.text, "at most 1000"));
    assert_int_equal(p.server_side.why.code, KML_TOO_LARGE);
    assert_int_equal(p.server_side.messages, 0);
    assert_int_equal(atomic_load(&load.released), 1);
    kml_free(load.bytes);
    peers_stop(&p);
}

static void a_message_over_the_transports_limit_ends_it_on_both_sides(void **state)
{
    (void)state;
    struct peers p;
    struct probe client = {0};
    struct load load;
    peers_start(&p);
    load_init(&load, 6 << 20, 3);
    peers_open(&p, ECHO, &client);
    struct kml_payload_ref ref = load_ref(&load);
    assert_int_equal(kml_stream_send(client.stream, NULL, 0, &ref, NULL), 0);
    struct tally t = {&client, &p.server_side, 0};
    assert_true(await(p.loop, both_closed, &t));
    assert_int_equal(client.why.code, KML_TOO_LARGE);
    assert_int_equal(p.server_side.why.code, KML_TOO_LARGE);
    assert_int_equal(p.server_side.messages, 0);
    kml_free(load.bytes);
    peers_stop(&p);
}

static void a_client_refuses_a_message_over_its_limit_and_the_server_sees_it_go(void **state)
{
    (void)state;
    struct peers p;
    struct probe client = {0};
    struct kml_stream_limits small = {100, 1 << 20};
    char text[200];
    memset(text, 'x', sizeof text);
    peers_start(&p);
    p.server_side.echo = true;
    assert_int_equal(kml_stream_call(p.channel, ECHO, &probe_ops, &client, &small, &client.stream, NULL), 0);
    assert_int_equal(kml_stream_send(client.stream, text, sizeof text, NULL, NULL), 0);
    struct tally t = {&client, &p.server_side, 0};
    assert_true(await(p.loop, both_closed, &t));
    assert_int_equal(client.why.code, KML_TOO_LARGE);
    assert_int_equal(client.messages, 0);
    assert_int_equal(p.server_side.why.code, KML_UNAVAILABLE);
    peers_stop(&p);
}

static void a_refused_stream_tells_the_client_why_in_our_own_code(void **state)
{
    (void)state;
    static const enum kml_code codes[] = {KML_FENCED, KML_PROTOCOL, KML_CONFLICT,
                                          KML_DENIED, KML_AGAIN,    KML_UNAVAILABLE};
    struct peers p;
    peers_start(&p);
    for (size_t i = 0; i < KML_COUNT(codes); i++) {
        struct probe client = {0};
        (void)kml_fail(&p.refuse, codes[i], "worker %zu was replaced: näher", i);
        peers_open(&p, ECHO, &client);
        assert_true(await(p.loop, is_closed, &client));
        assert_int_equal(client.why.code, codes[i]);
        assert_string_equal(client.why.text, p.refuse.text);
    }
    assert_int_equal(p.server_side.closed, 0);
    peers_stop(&p);
}

static void an_unknown_method_is_refused_at_once(void **state)
{
    (void)state;
    struct peers p;
    struct probe client = {0};
    peers_start(&p);
    peers_open(&p, "/kunal.test.Echo/Nothing", &client);
    assert_true(await(p.loop, is_closed, &client));
    assert_int_equal(client.why.code, KML_UNSUPPORTED);
    assert_non_null(strstr(client.why.text, "/kunal.test.Echo/Nothing"));
    peers_stop(&p);
}

static void a_server_that_closes_sends_what_is_queued_first(void **state)
{
    (void)state;
    struct peers p;
    struct probe client = {0};
    struct kml_err why;
    peers_start(&p);
    peers_open(&p, ECHO, &client);
    send_text(client.stream, "start");
    struct tally t = {&client, &p.server_side, 1};
    assert_true(await(p.loop, server_has, &t));
    for (int i = 0; i < 20; i++) {
        send_text(p.server_side.stream, "last words");
    }
    (void)kml_fail(&why, KML_FENCED, "generation 4 is over");
    kml_stream_close(p.server_side.stream, &why);
    assert_int_equal(kml_stream_send(p.server_side.stream, "x", 1, NULL, &why), -1);
    assert_int_equal(why.code, KML_UNAVAILABLE);
    assert_true(await(p.loop, both_closed, &t));
    assert_int_equal(client.messages, 20);
    assert_int_equal(client.why.code, KML_FENCED);
    assert_string_equal(client.why.text, "generation 4 is over");
    assert_int_equal(p.server_side.why.code, KML_FENCED);
    peers_stop(&p);
}

static void a_client_that_closes_still_gets_what_the_server_had_queued(void **state)
{
    (void)state;
    struct peers p;
    struct probe client = {0};
    peers_start(&p);
    p.server_side.echo = true;
    peers_open(&p, ECHO, &client);
    for (int i = 0; i < 50; i++) {
        send_text(client.stream, "request");
    }
    end_well(&p, &client);
    assert_int_equal(p.server_side.messages, 50);
    assert_int_equal(client.messages, 50);
    peers_stop(&p);
}

static void a_cancelled_stream_drops_its_queue_and_both_ends_learn_of_it(void **state)
{
    (void)state;
    struct peers p;
    struct load load;
    peers_start(&p);
    load_init(&load, 1 << 20, 9);
    for (int side = 0; side < 2; side++) {
        struct probe client = {0};
        p.server_side = (struct probe){0};
        atomic_store(&load.released, 0);
        peers_open(&p, ECHO, &client);
        send_text(client.stream, "start");
        struct tally t = {&client, &p.server_side, 1};
        assert_true(await(p.loop, server_has, &t));
        struct probe *one = side == 0 ? &client : &p.server_side;
        for (int i = 0; i < 16; i++) {
            struct kml_payload_ref ref = load_ref(&load);
            assert_int_equal(kml_stream_send(one->stream, NULL, 0, &ref, NULL), 0);
        }
        kml_stream_cancel(one->stream);
        kml_stream_cancel(one->stream);
        assert_true(await(p.loop, both_closed, &t));
        assert_int_equal(one->why.code, KML_CANCELLED);
        assert_int_equal(p.server_side.why.code, side == 0 ? KML_UNAVAILABLE : KML_CANCELLED);
        assert_int_equal(client.why.code, KML_CANCELLED);
        assert_int_equal(client.closed + p.server_side.closed, 2);
    }
    peers_stop(&p);
    assert_int_equal(atomic_load(&load.released), 16);
    kml_free(load.bytes);
}

static void a_server_is_destroyed_with_streams_in_flight(void **state)
{
    (void)state;
    struct peers p;
    struct probe client[4] = {{0}};
    struct load load;
    load_init(&load, 1 << 20, 9);
    peers_start(&p);
    for (int i = 0; i < 4; i++) {
        peers_open(&p, ECHO, &client[i]);
        for (int k = 0; k < 8; k++) {
            struct kml_payload_ref ref = load_ref(&load);
            assert_int_equal(kml_stream_send(client[i].stream, NULL, 0, &ref, NULL), 0);
        }
    }
    struct tally t = {&client[0], &p.server_side, 1};
    assert_true(await(p.loop, server_has, &t));
    kml_server_destroy(p.server, 5 * KML_MILLISECOND);
    p.server = NULL;
    for (int i = 0; i < 4; i++) {
        assert_true(await(p.loop, is_closed, &client[i]));
        assert_int_equal(client[i].closed, 1);
        assert_int_equal(client[i].why.code, KML_UNAVAILABLE);
    }
    kml_channel_destroy(p.channel);
    kml_loop_destroy(p.loop);
    assert_int_equal(atomic_load(&load.released), 32);
    kml_free(load.bytes);
}

static void an_unreachable_server_closes_the_stream_as_unavailable(void **state)
{
    (void)state;
    struct peers p;
    struct probe client = {0};
    struct load load;
    load_init(&load, 100, 1);
    peers_start(&p);
    kml_server_destroy(p.server, 0);
    p.server = NULL;
    peers_open(&p, ECHO, &client);
    struct kml_payload_ref ref = load_ref(&load);
    assert_int_equal(kml_stream_send(client.stream, NULL, 0, &ref, NULL), 0);
    assert_true(await(p.loop, is_closed, &client));
    assert_int_equal(client.why.code, KML_UNAVAILABLE);
    assert_non_null(strstr(client.why.text, p.address));
    assert_int_equal(atomic_load(&load.released), 1);
    kml_free(load.bytes);
    peers_stop(&p);
}

static void a_channel_finds_a_server_that_comes_later(void **state)
{
    (void)state;
    struct peers p;
    peers_start(&p);
    kml_server_destroy(p.server, 0);
    struct probe lost = {0};
    peers_open(&p, ECHO, &lost);
    assert_true(await(p.loop, is_closed, &lost));
    struct kml_creds *creds = kml_creds_plaintext();
    peers_listen(&p, p.address, creds);
    kml_creds_destroy(creds);
    struct kml_clock clock = kml_clock_monotonic();
    uint64_t until = kml_now(&clock) + PATIENCE;
    bool found = false;
    while (!found && kml_now(&clock) < until) {
        struct probe client = {0};
        p.server_side = (struct probe){.echo = true};
        peers_open(&p, ECHO, &client);
        send_text(client.stream, "anybody?");
        kml_stream_close(client.stream, NULL);
        assert_true(await(p.loop, is_closed, &client));
        found = client.why.code == KML_OK && client.messages == 1;
    }
    assert_true(found);
    peers_stop(&p);
}

static void a_callback_may_run_the_loop_while_its_stream_ends(void **state)
{
    (void)state;
    struct peers p;
    struct probe client = {0};
    peers_start(&p);
    p.server_side.run_inside = p.loop;
    peers_open(&p, ECHO, &client);
    send_text(client.stream, "one");
    kml_stream_cancel(client.stream);
    struct probe second = {.run_inside = p.loop};
    p.server_side.echo = true;
    peers_open(&p, ECHO, &second);
    send_text(second.stream, "two");
    struct tally t = {&second, &p.server_side, 1};
    assert_true(await(p.loop, client_has, &t));
    kml_stream_cancel(second.stream);
    assert_true(await(p.loop, is_closed, &client));
    assert_true(await(p.loop, both_closed, &t));
    peers_stop(&p);
}

static void a_port_in_use_is_an_error_that_names_the_address(void **state)
{
    (void)state;
    struct peers p;
    struct kml_server *second = NULL;
    struct kml_err err = {0};
    peers_start(&p);
    struct kml_creds *creds = kml_creds_plaintext();
    assert_int_equal(kml_server_create(p.loop, p.address, creds, peers_methods, 3, &p, &second, &err), -1);
    assert_int_equal(err.code, KML_EXISTS);
    assert_non_null(strstr(err.text, p.address));
    assert_null(second);
    assert_int_equal(kml_server_create(p.loop, "no port here", creds, peers_methods, 3, &p, &second, &err),
                     -1);
    assert_int_equal(err.code, KML_INVALID);
    struct kml_channel *channel = NULL;
    assert_int_equal(kml_channel_create(p.loop, "", creds, &channel, &err), -1);
    assert_int_equal(err.code, KML_INVALID);
    kml_creds_destroy(creds);
    peers_stop(&p);
}

static void a_unix_socket_carries_streams_too(void **state)
{
    (void)state;
    struct peers p = {.loop = kml_loop_create()};
    char folder[] = "/tmp/kml-rpc-XXXXXX";
    assert_non_null(mkdtemp(folder));
    (void)snprintf(p.address, sizeof p.address, "unix:%s/socket", folder);
    struct kml_creds *creds = kml_creds_plaintext();
    peers_listen(&p, p.address, creds);
    assert_int_equal(kml_server_port(p.server), 0);
    assert_int_equal(kml_channel_create(p.loop, p.address, creds, &p.channel, NULL), 0);
    kml_creds_destroy(creds);
    struct probe client = {0};
    p.server_side.echo = true;
    peers_open(&p, ECHO, &client);
    send_text(client.stream, "hello");
    struct tally t = {&client, &p.server_side, 1};
    assert_true(await(p.loop, both_have, &t));
    end_well(&p, &client);
    peers_stop(&p);
    (void)unlink(p.address + 5);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_of_any_size_come_back_whole_and_each_payload_is_released_once),
        cmocka_unit_test(a_full_queue_refuses_and_says_when_there_is_room_again),
        cmocka_unit_test(a_paused_reader_gets_nothing_until_it_resumes),
        cmocka_unit_test(a_message_over_the_streams_limit_ends_it_on_both_sides),
        cmocka_unit_test(a_message_over_the_transports_limit_ends_it_on_both_sides),
        cmocka_unit_test(a_client_refuses_a_message_over_its_limit_and_the_server_sees_it_go),
        cmocka_unit_test(a_refused_stream_tells_the_client_why_in_our_own_code),
        cmocka_unit_test(an_unknown_method_is_refused_at_once),
        cmocka_unit_test(a_server_that_closes_sends_what_is_queued_first),
        cmocka_unit_test(a_client_that_closes_still_gets_what_the_server_had_queued),
        cmocka_unit_test(a_cancelled_stream_drops_its_queue_and_both_ends_learn_of_it),
        cmocka_unit_test(a_server_is_destroyed_with_streams_in_flight),
        cmocka_unit_test(an_unreachable_server_closes_the_stream_as_unavailable),
        cmocka_unit_test(a_channel_finds_a_server_that_comes_later),
        cmocka_unit_test(a_callback_may_run_the_loop_while_its_stream_ends),
        cmocka_unit_test(a_port_in_use_is_an_error_that_names_the_address),
        cmocka_unit_test(a_unix_socket_carries_streams_too),
    };
    return cmocka_run_group_tests(tests, group_init, group_finish);
}
