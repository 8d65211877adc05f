#include "worker/pipe.h"
#include "base/clock.h"
#include "base/rng.h"
#include "unit/seed.h"
#include "unit/worker/fake.h"
#include "worker/params.h"

#define FLOATS 200u
#define PATIENCE (30 * KML_SECOND)

static uint64_t now(void)
{
    struct kml_clock clock = kml_clock_monotonic();
    return kml_now(&clock);
}

/* ---- Parameters ---- */

static const uint64_t cuts[] = {0, 64, 131, FLOATS};

static float value_of(uint64_t version, uint64_t at)
{
    return (float)(version * 1000 + at);
}

static void give(struct kml_params *p, uint64_t version, uint32_t shard, uint64_t from, uint64_t to)
{
    struct kml_err err;
    float *place = kml_params_place(p, version, shard, from, to);
    if (place != NULL) {
        for (uint64_t i = from; i < to; i++) {
            place[i - from] = value_of(version, i);
        }
        assert_int_equal(kml_params_put(p, version, shard, from, to, &err), 0);
    }
}

static void give_all(struct kml_params *p, uint64_t version)
{
    for (uint32_t k = 0; k < 3; k++) {
        give(p, version, k, cuts[k], cuts[k + 1]);
    }
}

static void check_whole(const struct kml_params *p, uint64_t version)
{
    const float *got = kml_params_get(p, version);
    assert_non_null(got);
    for (uint64_t i = 0; i < FLOATS; i++) {
        assert_true(got[i] == value_of(version, i));
    }
}

static void params_init(struct kml_params *p)
{
    struct kml_err err;
    assert_int_equal(kml_params_init(p, FLOATS, NULL, &err), 0);
    kml_params_cut(p, cuts, 3);
}

static void a_version_is_whole_when_pieces_in_any_order_cut_anyhow_among_older_ones_cover_it(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    struct kml_params p;
    params_init(&p);
    for (uint64_t run = 0; run < 1000; run++) {
        uint64_t wanted = 10 * run + 5;
        bool here[FLOATS] = {false};
        uint64_t missing = FLOATS;
        p.waiting = true;
        p.waited = wanted;
        while (missing > 0) {
            assert_null(kml_params_get(&p, wanted));
            uint64_t version = wanted - kml_rng_below(&rng, 3);
            uint32_t shard = (uint32_t)kml_rng_below(&rng, 3);
            uint64_t size = cuts[shard + 1] - cuts[shard];
            uint64_t from = kml_rng_below(&rng, size);
            uint64_t to = from + 1 + kml_rng_below(&rng, size - from);
            give(&p, version, shard, cuts[shard] + from, cuts[shard] + to);
            for (uint64_t i = cuts[shard] + from; i < cuts[shard] + to && version == wanted; i++) {
                missing -= here[i] ? 0 : 1;
                here[i] = true;
            }
        }
        check_whole(&p, wanted);
        give(&p, wanted, 1, cuts[1], cuts[2]); /* once more changes nothing */
        check_whole(&p, wanted);
    }
    kml_params_finish(&p);
}

static void what_is_computed_on_stays_while_newer_versions_come_in(void **state)
{
    (void)state;
    struct kml_params p;
    params_init(&p);
    give_all(&p, 1);
    p.computing = true;
    p.computed = 1;
    for (uint64_t v = 2; v < 6; v++) {
        give_all(&p, v);
        check_whole(&p, 1);
        check_whole(&p, v);
    }
    p.waiting = true;
    p.waited = 5;
    give_all(&p, 6); /* no room: both slots are wanted */
    assert_null(kml_params_get(&p, 6));
    check_whole(&p, 5);
    kml_params_finish(&p);
}

static void a_pinned_older_version_is_taken_and_late_pieces_do_not_hurt_the_newest(void **state)
{
    (void)state;
    struct kml_params p;
    params_init(&p);
    give_all(&p, 105);
    give_all(&p, 100);
    check_whole(&p, 100);
    give(&p, 99, 0, 0, 10);
    check_whole(&p, 105);
    give_all(&p, 100);
    check_whole(&p, 100);
    check_whole(&p, 105);
    kml_params_finish(&p);
}

static void after_a_new_cut_nothing_is_here(void **state)
{
    (void)state;
    struct kml_params p;
    params_init(&p);
    give_all(&p, 1);
    kml_params_cut(&p, cuts, 3);
    assert_null(kml_params_get(&p, 1));
    give_all(&p, 1);
    check_whole(&p, 1);
    kml_params_finish(&p);
}

/* ---- Addresses ---- */

static void only_addresses_of_this_machine_go_without_checksums(void **state)
{
    (void)state;
    static const char *const here[] = {"127.0.0.1:1", "unix:/tmp/x", "ipv4:127.1.2.3:4",
                                       "localhost:9", "[::1]:4",     "dns:///localhost:4"};
    static const char *const away[] = {"10.0.0.1:1",          "job-ps-0.job.ns.svc:4242",
                                       "localhost.example:1", "[::2]:4",
                                       "dns:///a:4",          "0.0.0.0:1"};
    for (size_t i = 0; i < KML_COUNT(here); i++) {
        assert_true(kml_address_is_local(here[i]));
        assert_false(kml_address_is_local(away[i]));
    }
}

/* ---- The pipe itself ---- */

struct bench {
    struct kml_loop *loop;
    struct kml_creds *creds;
    struct fake fake;
    struct kml_params params;
    struct kml_pipe pipe;
    bool open;
    struct kml_err why; /* of `lost` */
    uint32_t lost;
};

static void all_open(struct fake *f)
{
    ((struct bench *)f->test)->open = true;
}

static void on_lost(void *self, const struct kml_err *why)
{
    struct bench *b = self;
    b->lost++;
    b->why = *why;
}

static void bench_init(struct bench *b, uint64_t floats, uint32_t shards, uint32_t chunk)
{
    struct kml_err err;
    *b = (struct bench){.loop = kml_loop_create(), .creds = kml_creds_plaintext()};
    fake_init(&b->fake, b->loop, floats, shards, chunk);
    b->fake.joined = all_open;
    b->fake.test = b;
    assert_int_equal(kml_params_init(&b->params, floats, NULL, &err), 0);
    struct kml_pipe_config config = {.loop = b->loop,
                                     .creds = b->creds,
                                     .params = &b->params,
                                     .uid = "job",
                                     .index = 3,
                                     .incarnation = 77,
                                     .lost = on_lost,
                                     .self = b};
    kml_pipe_init(&b->pipe, &config);
}

static void bench_finish(struct bench *b)
{
    kml_pipe_finish(&b->pipe);
    fake_finish(&b->fake);
    kml_params_finish(&b->params);
    kml_creds_destroy(b->creds);
    kml_loop_destroy(b->loop);
}

static int open_pipe(struct bench *b, struct kml_err *err)
{
    Kunal__V1__ShardEntry entry[FAKE_SHARDS];
    Kunal__V1__ShardEntry *entries[FAKE_SHARDS];
    Kunal__V1__ShardTable table = KUNAL__V1__SHARD_TABLE__INIT;
    for (uint32_t k = 0; k < b->fake.shards; k++) {
        kunal__v1__shard_entry__init(&entry[k]);
        entry[k].shard = k;
        entry[k].address = b->fake.data_address;
        entry[k].begin = fake_cut(&b->fake, k);
        entry[k].end = fake_cut(&b->fake, k + 1);
        entries[k] = &entry[k];
    }
    table.n_shards = b->fake.shards;
    table.shards = entries;
    table.chunk_elements = b->fake.chunk;
    return kml_pipe_open(&b->pipe, &table, 7, err);
}

/* Runs the loop until a condition holds; fails the test after half a minute. */
#define AWAIT(b, condition)                                                                                  \
    for (uint64_t until_ = now() + PATIENCE; !(condition);) {                                                \
        assert_true(now() < until_);                                                                         \
        (void)kml_pipe_tick(&(b)->pipe, now());                                                              \
        (void)kml_loop_run((b)->loop, now() + KML_MILLISECOND, true);                                        \
    }

static void send_and_check(struct bench *b, struct kml_rng *rng, float *data)
{
    struct kml_err err;
    for (uint64_t step = 1; step <= 20; step++) {
        AWAIT(b, kml_pipe_free_to_write(&b->pipe));
        for (uint64_t i = 0; i < b->fake.floats; i++) {
            data[i] = (float)kml_rng_normal(rng);
        }
        kml_pipe_begin(&b->pipe, data, KML_PAYLOAD_GRADIENT, step);
        for (uint64_t low = b->fake.floats; low > 0;) {
            low -= 1 + kml_rng_below(rng, low);
            assert_int_equal(kml_pipe_ready(&b->pipe, low, &err), 0);
        }
        AWAIT(b, b->fake.step == step && b->fake.have == b->fake.floats);
        assert_memory_equal(b->fake.gradient, data, b->fake.floats * sizeof(float));
    }
}

static void gradients_arrive_whole_however_they_become_ready(void **state)
{
    (void)state;
    struct kml_rng rng;
    struct kml_err err;
    struct bench b;
    kml_rng_init(&rng, test_seed());
    bench_init(&b, 100001, 3, 5000);
    float *data = KML_NEW_ARRAY(b.fake.floats, float);
    assert_int_equal(open_pipe(&b, &err), 0);
    AWAIT(&b, b.open);
    assert_int_equal(b.fake.open[2].index, 3);
    assert_int_equal(b.fake.open[2].incarnation, 77);
    assert_int_equal(b.fake.open[2].generation, 7);
    assert_string_equal(b.fake.open[2].job_uid, "job");
    assert_false(b.fake.open[2].checksum);
    send_and_check(&b, &rng, data);
    assert_int_equal(b.fake.bad_chunks, 0);
    AWAIT(&b, kml_pipe_free_to_write(&b.pipe));
    bench_finish(&b);
    kml_free(data);
}

static void beyond_this_machine_every_chunk_is_checksummed_both_ways(void **state)
{
    (void)state;
    struct kml_rng rng;
    struct kml_err err;
    struct bench b;
    kml_rng_init(&rng, test_seed());
    bench_init(&b, 5000, 2, 1000);
    (void)snprintf(b.fake.data_address, sizeof(b.fake.data_address), "0.0.0.0:%d",
                   kml_server_port(b.fake.server));
    float *data = KML_NEW_ARRAY(b.fake.floats, float);
    assert_int_equal(open_pipe(&b, &err), 0);
    AWAIT(&b, b.open);
    assert_true(b.fake.open[0].checksum);
    send_and_check(&b, &rng, data);
    assert_int_equal(b.fake.bad_chunks, 0);
    fake_parameters(&b.fake, 4, data);
    AWAIT(&b, kml_params_get(&b.params, 4) != NULL);
    assert_memory_equal(kml_params_get(&b.params, 4), data, b.fake.floats * sizeof(float));
    /* and without its checksum a piece is not believed; that may get better */
    b.fake.open[0].checksum = false;
    fake_piece(&b.fake, 5, data, 0, 10);
    AWAIT(&b, b.lost == 1);
    assert_int_equal(b.why.code, KML_UNAVAILABLE);
    bench_finish(&b);
    kml_free(data);
}

static void floats_of_another_shard_are_a_breach_of_the_protocol(void **state)
{
    (void)state;
    struct kml_err err;
    struct bench b;
    float data[100] = {0};
    bench_init(&b, 100, 2, 16);
    assert_int_equal(open_pipe(&b, &err), 0);
    AWAIT(&b, b.open);
    fake_piece(&b.fake, 1, data, 40, 51); /* one too many */
    AWAIT(&b, b.lost == 1);
    assert_int_equal(b.why.code, KML_PROTOCOL);
    assert_true(kml_pipe_hopeless(b.why.code));
    assert_non_null(strstr(b.why.text, "shard 0"));
    AWAIT(&b, b.pipe.state == KML_PIPE_DOWN);
    bench_finish(&b);
}

static void tables_that_do_not_cut_the_vector_are_refused(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 100, 2, 16);
    struct {
        uint32_t shard;
        uint64_t begin, end;
    } bad[][2] = {
        {{0, 0, 50}, {1, 50, 99}},  {{0, 0, 50}, {1, 51, 100}}, {{0, 0, 50}, {1, 49, 100}},
        {{0, 0, 50}, {0, 50, 100}}, {{0, 0, 50}, {2, 50, 100}}, {{0, 0, 0}, {1, 0, 100}},
        {{0, 0, 50}, {1, 50, 101}}, {{1, 0, 50}, {0, 50, 100}},
    };
    for (size_t i = 0; i < KML_COUNT(bad) + 2; i++) {
        Kunal__V1__ShardEntry entry[2];
        Kunal__V1__ShardEntry *entries[2] = {&entry[0], &entry[1]};
        Kunal__V1__ShardTable table = KUNAL__V1__SHARD_TABLE__INIT;
        struct kml_err err = {0};
        for (int k = 0; k < 2; k++) {
            kunal__v1__shard_entry__init(&entry[k]);
            size_t row = i < KML_COUNT(bad) ? i : 0;
            entry[k].shard = bad[row][k].shard;
            entry[k].address = b.fake.address;
            entry[k].begin = bad[row][k].begin;
            entry[k].end = bad[row][k].end;
        }
        table.n_shards = i == KML_COUNT(bad) ? 0 : 2;
        table.shards = entries;
        table.chunk_elements = i == KML_COUNT(bad) + 1 ? 262145 : 16;
        assert_int_equal(kml_pipe_open(&b.pipe, &table, 1, &err), -1);
        assert_int_equal(err.code, KML_PROTOCOL);
    }
    bench_finish(&b);
}

static uint32_t refusals;

static int refuse_twice(void *self, struct kml_stream *s, const struct kml_peer *peer,
                        const struct kml_stream_ops **ops, void **stream_self, struct kml_err *err)
{
    if (refusals < 2) {
        refusals++;
        return kml_fail(err, KML_AGAIN, "not admitted yet");
    }
    return fake_open_lane(self, s, peer, ops, stream_self, err);
}

static void a_shard_that_does_not_know_us_yet_is_asked_again(void **state)
{
    (void)state;
    const struct kml_method methods[] = {{.name = "/kunal.v1.Data/Exchange",
                                          .limits = {KML_CHUNK_MESSAGE_MAX, 64u << 20},
                                          .opened = refuse_twice}};
    struct kml_err err;
    struct bench b;
    bench_init(&b, 100, 1, 16);
    struct kml_server *server;
    assert_int_equal(kml_server_create(b.loop, "127.0.0.1:0", b.creds, methods, 1, &b.fake, &server, &err),
                     0);
    (void)snprintf(b.fake.data_address, sizeof(b.fake.data_address), "127.0.0.1:%d", kml_server_port(server));
    refusals = 0;
    assert_int_equal(open_pipe(&b, &err), 0);
    AWAIT(&b, b.open);
    assert_int_equal(refusals, 2);
    assert_int_equal(b.lost, 0);
    kml_pipe_finish(&b.pipe);
    kml_server_destroy(server, 0);
    bench_finish(&b);
}

static void a_lane_that_breaks_after_use_takes_the_pipe_down_once(void **state)
{
    (void)state;
    struct kml_err err;
    struct bench b;
    float data[300] = {0};
    bench_init(&b, 300, 3, 16);
    assert_int_equal(open_pipe(&b, &err), 0);
    AWAIT(&b, b.open);
    fake_parameters(&b.fake, 1, data);
    AWAIT(&b, kml_params_get(&b.params, 1) != NULL);
    kml_stream_cancel(b.fake.lane[0]);
    kml_stream_cancel(b.fake.lane[1]);
    AWAIT(&b, b.pipe.state == KML_PIPE_DOWN);
    assert_int_equal(b.lost, 1);
    assert_false(kml_pipe_hopeless(b.why.code));
    assert_int_equal(kml_pipe_ready(&b.pipe, 0, &err), -1);
    /* and can be opened again */
    b.open = false;
    assert_int_equal(open_pipe(&b, &err), 0);
    AWAIT(&b, b.open);
    bench_finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_is_whole_when_pieces_in_any_order_cut_anyhow_among_older_ones_cover_it),
        cmocka_unit_test(what_is_computed_on_stays_while_newer_versions_come_in),
        cmocka_unit_test(a_pinned_older_version_is_taken_and_late_pieces_do_not_hurt_the_newest),
        cmocka_unit_test(after_a_new_cut_nothing_is_here),
        cmocka_unit_test(only_addresses_of_this_machine_go_without_checksums),
        cmocka_unit_test(gradients_arrive_whole_however_they_become_ready),
        cmocka_unit_test(beyond_this_machine_every_chunk_is_checksummed_both_ways),
        cmocka_unit_test(floats_of_another_shard_are_a_breach_of_the_protocol),
        cmocka_unit_test(tables_that_do_not_cut_the_vector_are_refused),
        cmocka_unit_test(a_shard_that_does_not_know_us_yet_is_asked_again),
        cmocka_unit_test(a_lane_that_breaks_after_use_takes_the_pipe_down_once),
    };
    kml_rpc_init();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kml_rpc_shutdown();
    return failed;
}
