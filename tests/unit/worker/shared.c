/* A worker's data plane through shared memory, against a shard that this file plays. */
#include "base/shared.h"
#include "base/clock.h"
#include "unit/worker/fake.h"
#include "worker/params.h"
#include "worker/pipe.h"

#include <unistd.h>

#define FLOATS 3000u
#define SHARDS 2u
#define PATIENCE (30 * KML_SECOND)

struct bench {
    struct kml_loop *loop;
    struct kml_creds *creds;
    struct kml_server *server;
    struct kml_shared memory; /* the worker's */
    struct kml_params params;
    struct kml_pipe pipe;
    struct kml_shared seen[SHARDS]; /* the same, as each shard sees it */
    struct kml_stream *lane[SHARDS];
    uint32_t open, messages;
    uint64_t told[SHARDS]; /* floats of the gradient that a shard was told of */
    uint32_t lost;
    struct kml_err why;
};

static uint64_t now(void)
{
    struct kml_clock clock = kml_clock_monotonic();
    return kml_now(&clock);
}

static uint64_t cut(uint32_t shard)
{
    return FLOATS * (uint64_t)shard / SHARDS;
}

/* ---- The shards' side ---- */

static void take(struct bench *b, struct kml_stream *s, const struct kml_chunk *c)
{
    struct kml_err err;
    assert_true(c->shard < SHARDS);
    if (c->has_open) {
        b->lane[c->shard] = s;
        b->open++;
        assert_false(c->open.checksum); /* nothing can be damaged on the way */
        assert_int_equal(kml_shared_open(&b->seen[c->shard], c->open.shared_pid, c->open.shared_fd,
                                         KML_AREAS * kml_area_bytes(FLOATS), &err),
                         0);
        return;
    }
    assert_true(c->shared);
    assert_int_equal(c->offset, cut(c->shard)); /* one message a shard, whatever the table's chunk */
    b->told[c->shard] += c->elements;
    b->messages++;
}

static void message(void *self, struct kml_stream *s, const struct kml_slices *m)
{
    struct kml_chunk c;
    struct kml_err err;
    assert_int_equal(kml_chunk_parse(m, &c, &err), 0);
    take(self, s, &c);
}

static void closed(void *self, struct kml_stream *s, const struct kml_err *why)
{
    struct bench *b = self;
    (void)why;
    for (uint32_t k = 0; k < SHARDS; k++) {
        b->lane[k] = b->lane[k] == s ? NULL : b->lane[k];
    }
}

static const struct kml_stream_ops ops = {.message = message, .closed = closed};

static int opened(void *self, struct kml_stream *s, const struct kml_peer *peer,
                  const struct kml_stream_ops **stream_ops, void **stream_self, struct kml_err *err)
{
    (void)s;
    (void)peer;
    (void)err;
    *stream_ops = &ops;
    *stream_self = self;
    return 0;
}

static void say(struct bench *b, uint32_t shard, const struct kml_chunk *c, const float *data)
{
    uint8_t message_bytes[KML_CHUNK_HEADER_MAX + 64];
    size_t size;
    struct kml_err err;
    assert_int_equal(kml_chunk_header(c, message_bytes, &size, &err), 0);
    if (data != NULL) {
        memcpy(message_bytes + size, data, c->elements * sizeof *data);
        size += c->elements * sizeof *data;
    }
    assert_int_equal(kml_stream_send_view(b->lane[shard], kml_view_of(message_bytes, size), &err), 0);
}

static void say_version(struct bench *b, uint32_t shard, uint64_t version)
{
    float *area = kml_area_parameters(b->seen[shard].at, FLOATS, version);
    for (uint64_t i = cut(shard); i < cut(shard + 1); i++) {
        area[i] = (float)(version * 10000 + i);
    }
    struct kml_chunk c = {.version = version,
                          .shard = shard,
                          .offset = cut(shard),
                          .payload = KML_PAYLOAD_PARAMETERS,
                          .shared = true,
                          .elements = cut(shard + 1) - cut(shard)};
    say(b, shard, &c, NULL);
}

/* ---- The worker's side ---- */

static void on_lost(void *self, const struct kml_err *why)
{
    struct bench *b = self;
    b->lost++;
    b->why = *why;
}

#define AWAIT(b, condition)                                                                                  \
    for (uint64_t until_ = now() + PATIENCE; !(condition);) {                                                \
        assert_true(now() < until_);                                                                         \
        (void)kml_pipe_tick(&(b)->pipe, now());                                                              \
        (void)kml_loop_run((b)->loop, now() + KML_MILLISECOND, true);                                        \
    }

static void open_pipe(struct bench *b)
{
    char address[64];
    struct kml_err err;
    Kunal__V1__ShardEntry entry[SHARDS];
    Kunal__V1__ShardEntry *entries[SHARDS];
    Kunal__V1__ShardTable table = KUNAL__V1__SHARD_TABLE__INIT;
    (void)snprintf(address, sizeof address, "127.0.0.1:%d", kml_server_port(b->server));
    for (uint32_t k = 0; k < SHARDS; k++) {
        kunal__v1__shard_entry__init(&entry[k]);
        entry[k].shard = k;
        entry[k].address = address;
        entry[k].begin = cut(k);
        entry[k].end = cut(k + 1);
        entries[k] = &entry[k];
    }
    table.n_shards = SHARDS;
    table.shards = entries;
    table.chunk_elements = 64;
    assert_int_equal(kml_pipe_open(&b->pipe, &table, 7, &err), 0);
    AWAIT(b, b->open == SHARDS);
}

static void bench_start(struct bench *b)
{
    static const struct kml_method method = {
        .name = "/kunal.v1.Data/Exchange", .limits = {KML_CHUNK_MESSAGE_MAX, 1u << 20}, .opened = opened};
    struct kml_err err;
    *b = (struct bench){.loop = kml_loop_create(), .creds = kml_creds_plaintext()};
    assert_int_equal(kml_server_create(b->loop, "127.0.0.1:0", b->creds, &method, 1, b, &b->server, &err), 0);
    assert_int_equal(kml_shared_make(&b->memory, KML_AREAS * kml_area_bytes(FLOATS), &err), 0);
    assert_int_equal(kml_params_init(&b->params, FLOATS, b->memory.at, &err), 0);
    struct kml_pipe_config config = {.loop = b->loop,
                                     .creds = b->creds,
                                     .params = &b->params,
                                     .uid = "job",
                                     .incarnation = 77,
                                     .shared = &b->memory,
                                     .lost = on_lost,
                                     .self = b};
    kml_pipe_init(&b->pipe, &config);
    open_pipe(b);
}

static void bench_finish(struct bench *b)
{
    kml_pipe_finish(&b->pipe);
    kml_server_destroy(b->server, 0);
    kml_params_finish(&b->params);
    kml_shared_finish(&b->memory);
    for (uint32_t k = 0; k < SHARDS; k++) {
        kml_shared_finish(&b->seen[k]);
    }
    kml_creds_destroy(b->creds);
    kml_loop_destroy(b->loop);
}

static void check_version(const struct bench *b, uint64_t version)
{
    const float *got = kml_params_get(&b->params, version);
    assert_non_null(got);
    for (uint64_t i = 0; i < FLOATS; i++) {
        assert_true(got[i] == (float)(version * 10000 + i));
    }
}

/* ---- Tests ---- */

static void a_gradient_goes_up_as_one_message_a_shard(void **state)
{
    (void)state;
    struct bench b;
    struct kml_err err;
    bench_start(&b);
    float *gradient = kml_area_gradient(b.memory.at);
    for (uint64_t i = 0; i < FLOATS; i++) {
        gradient[i] = (float)i;
    }
    kml_pipe_begin(&b.pipe, gradient, KML_PAYLOAD_GRADIENT, 1);
    assert_int_equal(kml_pipe_ready(&b.pipe, cut(1) + 1, &err), 0); /* no shard's part is whole */
    assert_int_equal(b.pipe.unsent, SHARDS);
    assert_int_equal(kml_pipe_ready(&b.pipe, 0, &err), 0);
    AWAIT(&b, b.messages == SHARDS);
    for (uint32_t k = 0; k < SHARDS; k++) {
        assert_int_equal(b.told[k], cut(k + 1) - cut(k));
        assert_memory_equal(kml_area_gradient(b.seen[k].at), gradient, FLOATS * sizeof *gradient);
    }
    bench_finish(&b);
}

static void a_version_is_whole_when_every_shard_has_said_so(void **state)
{
    (void)state;
    struct bench b;
    bench_start(&b);
    say_version(&b, 0, 4);
    say_version(&b, 1, 4);
    AWAIT(&b, kml_params_get(&b.params, 4) != NULL);
    check_version(&b, 4);
    say_version(&b, 0, 5);
    AWAIT(&b, b.params.slot[1].full == 1);
    assert_null(kml_params_get(&b.params, 5));
    check_version(&b, 4); /* the one before it stays */
    say_version(&b, 1, 5);
    AWAIT(&b, kml_params_get(&b.params, 5) != NULL);
    check_version(&b, 5);
    check_version(&b, 4);
    say_version(&b, 0, 6); /* takes the place of version 4 */
    AWAIT(&b, b.params.slot[0].version == 6);
    assert_null(kml_params_get(&b.params, 4));
    assert_int_equal(b.lost, 0);
    bench_finish(&b);
}

static void must_lose(const struct kml_chunk *c, const float *data, const char *words)
{
    struct bench b;
    bench_start(&b);
    say(&b, c->shard, c, data);
    AWAIT(&b, b.lost == 1);
    assert_int_equal(b.why.code, KML_PROTOCOL);
    if (strstr(b.why.text, words) == NULL) {
        fail_msg("'%s' is not in: %s", words, b.why.text);
    }
    bench_finish(&b);
}

static void what_was_not_agreed_is_a_breach_of_the_protocol(void **state)
{
    (void)state;
    static const float some[4] = {1, 2, 3, 4};
    must_lose(&(struct kml_chunk){.payload = KML_PAYLOAD_PARAMETERS, .elements = 4}, some, "not agreed");
    must_lose(&(struct kml_chunk){.payload = KML_PAYLOAD_PARAMETERS, .shared = true, .elements = FLOATS},
              NULL, "it holds");
    must_lose(&(struct kml_chunk){.payload = KML_PAYLOAD_PARAMETERS,
                                  .shared = true,
                                  .shard = 1,
                                  .offset = FLOATS - 1,
                                  .elements = UINT64_MAX},
              NULL, "it holds");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gradient_goes_up_as_one_message_a_shard),
        cmocka_unit_test(a_version_is_whole_when_every_shard_has_said_so),
        cmocka_unit_test(what_was_not_agreed_is_a_breach_of_the_protocol),
    };
    kml_rpc_init();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kml_rpc_shutdown();
    return failed;
}
