/* The data streams of a shard over the real transport, with a worker's side that this file plays: floats in
 * messages, floats in shared memory, and workers that offer nonsense or die. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/shared.h"
#include "ps/host.h"
#include "rpc/channel.h"
#include "rpc/creds.h"
#include "rpc/loop.h"
#include "wire/chunk.h"

#define FLOATS 5000u
#define WORKER 1u
#define INCARNATION 77u
#define GENERATION 3u
#define RATE 0.5
#define PATIENCE (30 * KML_SECOND)

struct bench {
    struct kml_loop *loop;
    struct kml_creds *creds;
    struct kml_server *server;
    struct kml_channel *channel;
    struct kml_stream *stream; /* the worker's end; NULL: ended */
    struct kml_job job;
    struct kml_start start;
    struct kml_host *host;
    uint32_t floats;
    struct kml_shared memory;
    uint32_t staged; /* how often a step was said to be whole */
    uint64_t step;
    bool failed;
    uint32_t pieces; /* that came down */
    struct kml_chunk last;
    bool closed;
    struct kml_err why;
};

static uint64_t now(void)
{
    struct kml_clock clock = kml_clock_monotonic();
    return kml_now(&clock);
}

#define AWAIT(b, condition)                                                                                  \
    for (uint64_t until_ = now() + PATIENCE; !(condition);) {                                                \
        assert_true(now() < until_);                                                                         \
        (void)kml_loop_run((b)->loop, now() + KML_MILLISECOND, true);                                        \
    }

/* ---- What the host tells, and what comes down ---- */

static void on_staged(void *self, uint32_t worker, uint64_t incarnation, uint64_t step, double square_sum,
                      bool non_finite)
{
    struct bench *b = self;
    (void)square_sum;
    assert_int_equal(worker, WORKER);
    assert_int_equal(incarnation, INCARNATION);
    assert_false(non_finite);
    b->staged++;
    b->step = step;
}

static void on_failed(void *self, const struct kml_err *err)
{
    (void)err;
    ((struct bench *)self)->failed = true;
}

static int opened(void *self, struct kml_stream *s, const struct kml_peer *peer,
                  const struct kml_stream_ops **ops, void **stream_self, struct kml_err *err)
{
    return kml_host_opened(((struct bench *)self)->host, s, peer, ops, stream_self, err);
}

static void message(void *self, struct kml_stream *s, const struct kml_slices *m)
{
    struct bench *b = self;
    struct kml_err err;
    (void)s;
    assert_int_equal(kml_chunk_parse(m, &b->last, &err), 0);
    b->pieces++;
}

static void closed(void *self, struct kml_stream *s, const struct kml_err *why)
{
    struct bench *b = self;
    (void)s;
    b->stream = NULL;
    b->closed = true;
    b->why = *why;
}

static const struct kml_stream_ops ops = {.message = message, .closed = closed};

/* ---- Life ---- */

static void bench_start(struct bench *b, bool shared, uint32_t floats)
{
    struct kml_err err;
    static struct kml_method method = {.name = "/kunal.v1.Data/Exchange", .opened = opened};
    method.limits = kml_host_limits;
    *b = (struct bench){.loop = kml_loop_create(), .creds = kml_creds_plaintext(), .floats = floats};
    kml_job_init(&b->job);
    b->job.worker.replicas = 2;
    b->job.ps.replicas = 1;
    b->job.training.optimizer.kind = KML_JOB_OPTIMIZER_SGD;
    b->start = (struct kml_start){.uid = "job", .shared = shared};
    struct kml_host_events events = {.self = b, .staged = on_staged, .failed = on_failed};
    b->host = kml_host_create(&b->job, &b->start, &events);
    assert_int_equal(kml_server_create(b->loop, "127.0.0.1:0", b->creds, &method, 1, b, &b->server, &err), 0);
    char address[64];
    (void)snprintf(address, sizeof address, "127.0.0.1:%d", kml_server_port(b->server));
    assert_int_equal(kml_channel_create(b->loop, address, b->creds, &b->channel, &err), 0);
    struct kml_shardmap map;
    assert_int_equal(kml_shardmap_init(&map, floats, 1, KML_CHUNK_FLOATS, &err), 0);
    kml_host_setup(b->host, &map, 0, GENERATION);
    kml_host_admit(b->host, WORKER, INCARNATION);
}

static void bench_finish(struct bench *b)
{
    if (b->stream != NULL) {
        kml_stream_cancel(b->stream);
        AWAIT(b, b->closed);
    }
    kml_channel_destroy(b->channel);
    kml_server_destroy(b->server, 0);
    kml_host_destroy(b->host);
    kml_shared_finish(&b->memory);
    kml_job_finish(&b->job);
    kml_creds_destroy(b->creds);
    kml_loop_destroy(b->loop);
}

static size_t memory_size(const struct bench *b)
{
    return KML_AREAS * kml_area_bytes(b->floats);
}

/* ---- The worker's side ---- */

static void send(struct bench *b, const struct kml_chunk *c, const float *data)
{
    uint8_t header[KML_CHUNK_HEADER_MAX];
    size_t size;
    struct kml_err err;
    struct kml_payload_ref payload = {.data = data, .size = c->elements * sizeof *data};
    assert_int_equal(kml_chunk_header(c, header, &size, &err), 0);
    assert_int_equal(kml_stream_send(b->stream, header, size, data == NULL ? NULL : &payload, &err), 0);
}

static void open_lane(struct bench *b, uint32_t pid, uint32_t fd)
{
    struct kml_err err;
    struct kml_stream_limits limits = {KML_CHUNK_MESSAGE_MAX, (size_t)64 << 20};
    struct kml_chunk c = {.has_open = true,
                          .open = {.protocol = KML_PROTOCOL_VERSION,
                                   .job_uid = "job",
                                   .role = KML_ROLE_WORKER,
                                   .index = WORKER,
                                   .incarnation = INCARNATION,
                                   .generation = GENERATION,
                                   .shared_pid = pid,
                                   .shared_fd = fd}};
    b->closed = false;
    assert_int_equal(
        kml_stream_call(b->channel, "/kunal.v1.Data/Exchange", &ops, b, &limits, &b->stream, &err), 0);
    send(b, &c, NULL);
}

static void open_shared(struct bench *b)
{
    struct kml_err err;
    assert_int_equal(kml_shared_make(&b->memory, memory_size(b), &err), 0);
    open_lane(b, (uint32_t)getpid(), (uint32_t)b->memory.fd);
}

static void push_shared(struct bench *b, enum kml_payload payload, uint64_t step, uint64_t offset,
                        uint64_t elements)
{
    struct kml_chunk c = {
        .step = step, .offset = offset, .payload = payload, .elements = elements, .shared = true};
    send(b, &c, NULL);
}

static void fill_gradient(struct bench *b, float factor)
{
    float *g = kml_area_gradient(b->memory.at);
    for (uint32_t i = 0; i < b->floats; i++) {
        g[i] = factor * (float)i;
    }
}

static void commit(struct bench *b, uint64_t version, uint64_t step)
{
    const struct kml_shard_member member = {WORKER, INCARNATION, step, 1};
    const struct kml_shard_commit c = {
        .version = version, .member = &member, .count = 1, .learning_rate = RATE};
    uint32_t release = WORKER;
    kml_host_commit(b->host, &c, &release, 1);
}

static void must_be_refused(struct bench *b, enum kml_code code, const char *words)
{
    AWAIT(b, b->closed);
    assert_int_equal(b->why.code, code);
    if (strstr(b->why.text, words) == NULL) {
        fail_msg("'%s' is not in: %s", words, b->why.text);
    }
    assert_int_equal(b->staged, 0);
    assert_false(b->failed);
}

/* ---- Tests ---- */

static void floats_go_through_shared_memory_both_ways(void **state)
{
    (void)state;
    struct bench b;
    bench_start(&b, true, FLOATS);
    open_shared(&b);
    fill_gradient(&b, 1);
    push_shared(&b, KML_PAYLOAD_PARAMETERS, 0, 0, FLOATS);
    AWAIT(&b, b.staged == 1);
    assert_int_equal(b.step, 0);
    uint32_t release = WORKER;
    kml_host_release(b.host, 0, &release, 1);
    AWAIT(&b, b.pieces == 1);
    assert_true(b.last.shared);
    assert_int_equal(b.last.version, 0);
    assert_int_equal(b.last.elements, FLOATS);
    fill_gradient(&b, 4);
    push_shared(&b, KML_PAYLOAD_GRADIENT, 1, 0, 1000); /* two pieces, as of a model of two layers */
    push_shared(&b, KML_PAYLOAD_GRADIENT, 1, 1000, FLOATS - 1000);
    AWAIT(&b, b.staged == 2);
    fill_gradient(&b, 0); /* what is staged is a copy */
    commit(&b, 1, 1);
    AWAIT(&b, b.pieces == 2);
    assert_int_equal(b.last.version, 1);
    const float *even = kml_area_parameters(b.memory.at, FLOATS, 0);
    const float *odd = kml_area_parameters(b.memory.at, FLOATS, 1);
    for (uint32_t i = 0; i < FLOATS; i++) {
        assert_true(even[i] == (float)i); /* version 0 stays while version 1 comes */
        assert_true(odd[i] == (float)i - (float)RATE * 4 * (float)i);
    }
    bench_finish(&b);
}

static void pieces_outside_of_the_memory_end_the_stream(void **state)
{
    (void)state;
    static const uint64_t bad[][2] = {{0, FLOATS + 1}, {FLOATS, 1},     {1, FLOATS},
                                      {UINT64_MAX, 2}, {2, UINT64_MAX}, {UINT64_MAX / 4, 1}};
    for (size_t i = 0; i < KML_COUNT(bad); i++) {
        struct bench b;
        bench_start(&b, true, FLOATS);
        open_shared(&b);
        push_shared(&b, KML_PAYLOAD_GRADIENT, 1, bad[i][0], bad[i][1]);
        must_be_refused(&b, KML_INVALID, "not in its shared memory");
        bench_finish(&b);
    }
}

static void memory_of_the_wrong_size_process_or_descriptor_ends_the_stream(void **state)
{
    (void)state;
    struct bench b;
    struct kml_err err;
    bench_start(&b, true, FLOATS);
    assert_int_equal(kml_shared_make(&b.memory, memory_size(&b) + 4096, &err), 0);
    open_lane(&b, (uint32_t)getpid(), (uint32_t)b.memory.fd);
    must_be_refused(&b, KML_INVALID, "worker 1");
    open_lane(&b, (uint32_t)getpid(), 900000);
    must_be_refused(&b, KML_NOT_FOUND, "worker 1");
    open_lane(&b, (uint32_t)getpid(), 0);
    must_be_refused(&b, KML_DENIED, "not shared memory");
    open_lane(&b, INT32_MAX, 0);
    must_be_refused(&b, KML_NOT_FOUND, "worker 1");
    bench_finish(&b);
}

static void shared_memory_is_taken_only_where_the_driver_said_so(void **state)
{
    (void)state;
    struct bench b;
    bench_start(&b, false, FLOATS);
    open_shared(&b);
    must_be_refused(&b, KML_INVALID, "KUNAL_SHARED");
    open_lane(&b, 0, 0);
    push_shared(&b, KML_PAYLOAD_GRADIENT, 1, 0, FLOATS); /* and a stream that shares nothing has none */
    must_be_refused(&b, KML_INVALID, "shared memory");
    bench_finish(&b);
}

/* A process with memory for us, which then waits for its end. */
static pid_t start_maker(size_t size, int *fd)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t maker = _Fork();
    if (maker == 0) {
        struct kml_shared mine;
        if (kml_shared_make(&mine, size, NULL) == 0) {
            ((float *)(void *)mine.at)[1] = 5;
            (void)!write(ends[1], &mine.fd, sizeof mine.fd);
        }
        for (;;) {
            (void)pause();
        }
    }
    assert_int_equal(read(ends[0], fd, sizeof *fd), sizeof *fd);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return maker;
}

static void a_worker_that_is_killed_takes_nothing_down(void **state)
{
    (void)state;
    struct bench b;
    int fd;
    bench_start(&b, true, FLOATS);
    pid_t maker = start_maker(memory_size(&b), &fd);
    open_lane(&b, (uint32_t)maker, (uint32_t)fd);
    push_shared(&b, KML_PAYLOAD_PARAMETERS, 0, 0, FLOATS);
    AWAIT(&b, b.staged == 1);
    assert_int_equal(kill(maker, SIGKILL), 0);
    assert_int_equal(waitpid(maker, NULL, 0), maker);
    push_shared(&b, KML_PAYLOAD_GRADIENT, 1, 0, FLOATS); /* was on its way */
    AWAIT(&b, b.staged == 2);
    commit(&b, 1, 1);
    AWAIT(&b, b.pieces == 1); /* into memory that nobody else sees any more */
    assert_false(b.failed);
    struct kml_block *block = kml_shard_block(kml_host_shard(b.host), 1, 0);
    assert_true(kml_block_data(block)[1] == 5 - (float)RATE * 5);
    kml_block_drop(block);
    kml_stream_cancel(b.stream);
    AWAIT(&b, b.closed);
    kml_host_dismiss(b.host, WORKER, INCARNATION);
    bench_finish(&b);
}

/* Not in shared memory: a stream's queue would keep every version alive that it holds. */
static void a_worker_that_does_not_read_is_given_up(void **state)
{
    (void)state;
    struct bench b;
    uint32_t floats = 2u << 20;
    bench_start(&b, false, floats);
    open_lane(&b, 0, 0);
    kml_stream_pause(b.stream);
    float *zero = KML_NEW_ARRAY(KML_CHUNK_FLOATS_MAX, float);
    for (uint64_t at = 0; at < floats; at += KML_CHUNK_FLOATS_MAX) {
        struct kml_chunk c = {
            .offset = at, .payload = KML_PAYLOAD_PARAMETERS, .elements = KML_CHUNK_FLOATS_MAX};
        send(&b, &c, zero);
    }
    AWAIT(&b, b.staged == 1);
    uint32_t release = WORKER;
    for (int i = 0; i < 40; i++) {
        kml_host_release(b.host, 0, &release, 1);
        (void)kml_loop_run(b.loop, now() + KML_MILLISECOND, true);
    }
    kml_stream_resume(b.stream); /* only who reads hears how it ended */
    AWAIT(&b, b.closed);
    assert_int_equal(b.why.code, KML_CANCELLED);
    assert_true(b.pieces < 40 * floats / KML_CHUNK_FLOATS_MAX);
    kml_free(zero);
    bench_finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_go_through_shared_memory_both_ways),
        cmocka_unit_test(pieces_outside_of_the_memory_end_the_stream),
        cmocka_unit_test(memory_of_the_wrong_size_process_or_descriptor_ends_the_stream),
        cmocka_unit_test(shared_memory_is_taken_only_where_the_driver_said_so),
        cmocka_unit_test(a_worker_that_is_killed_takes_nothing_down),
        cmocka_unit_test(a_worker_that_does_not_read_is_given_up),
    };
    kml_rpc_init();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kml_rpc_shutdown();
    return failed;
}
