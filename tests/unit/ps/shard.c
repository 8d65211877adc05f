/* One shard: staging whatever comes in whatever order, commits, versions that stay readable, blocks that are
 * used again. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "base/rng.h"
#include "ps/shard.h"
#include "tests/unit/seed.h"

#define FLOATS 200u
#define CHUNK 16u
#define GENERATION 5u

static struct kml_shard *shard;
static struct kml_err err;
static struct kml_shard_staged staged;
static struct kml_span floats; /* of the shard */
static float vector[FLOATS];

static int set_up(void **state)
{
    (void)state;
    struct kml_shard_setup setup = {.shard = 1, .workers = 3, .generation = GENERATION, .square_sums = true};
    setup.optimizer.kind = KML_OPTIMIZER_SGD;
    assert_int_equal(kml_shardmap_init(&setup.map, FLOATS, 2, CHUNK, &err), 0);
    floats = kml_shardmap_shard(&setup.map, 1);
    assert_true(floats.begin > 0 && floats.end == FLOATS);
    assert_int_equal(kml_shard_create(&setup, &shard, &err), 0);
    for (uint32_t i = 0; i < FLOATS; i++) {
        vector[i] = (float)i;
    }
    return 0;
}

static int finish(void **state)
{
    (void)state;
    kml_shard_destroy(shard);
    return 0;
}

/* A piece as it comes out of the framing: parsed from real bytes. */
static int push_as(uint32_t worker, uint64_t incarnation, enum kml_payload payload, uint64_t step,
                   uint64_t begin, uint64_t end, const float *from, bool crc, uint32_t spoil)
{
    static uint8_t bytes[KML_CHUNK_HEADER_MAX + (FLOATS + 64) * sizeof(float)];
    struct kml_chunk c = {
        .step = step, .shard = 1, .offset = begin, .payload = payload, .elements = end - begin};
    size_t size;
    c.has_crc = crc;
    c.crc32c = kml_crc32c(0, from, (end - begin) * sizeof(float)) ^ spoil;
    assert_int_equal(kml_chunk_header(&c, bytes, &size, &err), 0);
    if (end > begin) {
        memcpy(bytes + size, from, (end - begin) * sizeof(float));
    }
    struct kml_view part = kml_view_of(bytes, size + (end - begin) * sizeof(float));
    struct kml_slices message = kml_slices_of(&part);
    struct kml_chunk parsed;
    assert_int_equal(kml_chunk_parse(&message, &parsed, &err), 0);
    return kml_shard_stage(shard, worker, incarnation, &parsed, &staged, &err);
}

static int push(uint32_t worker, uint64_t incarnation, uint64_t step, uint64_t begin, uint64_t end)
{
    const float *from = begin <= end && end <= FLOATS ? vector + begin : vector;
    return push_as(worker, incarnation, KML_PAYLOAD_GRADIENT, step, begin, end, from, true, 0);
}

static void admit(uint32_t worker, uint64_t incarnation)
{
    assert_int_equal(kml_shard_admit(shard, worker, incarnation, &err), 0);
}

/* Parameters are all 1000; workers 0 and 1 are 10 and 11. */
static void start(void)
{
    float ones[FLOATS];
    for (uint32_t i = 0; i < FLOATS; i++) {
        ones[i] = 1000;
    }
    admit(0, 10);
    admit(1, 11);
    assert_false(kml_shard_ready(shard));
    assert_int_equal(push_as(0, 10, KML_PAYLOAD_PARAMETERS, 0, floats.begin, FLOATS, ones, true, 0), 0);
    assert_true(staged.complete && kml_shard_ready(shard));
}

static int commit(uint64_t version, uint32_t worker, uint64_t incarnation, uint64_t step)
{
    struct kml_shard_member m = {worker, incarnation, step, 1};
    struct kml_shard_commit c = {.version = version, .member = &m, .count = 1, .learning_rate = 1};
    return kml_shard_commit(shard, &c, &err);
}

static float value_at(uint64_t version, uint64_t position)
{
    uint32_t chunk = (uint32_t)((position - floats.begin) / CHUNK);
    struct kml_block *block = kml_shard_block(shard, version, chunk);
    assert_non_null(block);
    float value = kml_block_data(block)[position - kml_shard_span(shard, chunk).begin];
    kml_block_drop(block);
    return value;
}

static void pieces_may_come_twice_overlap_and_in_any_order(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    start();
    for (uint64_t step = 1; step <= 300; step++) {
        bool here[FLOATS] = {false};
        uint32_t missing = (uint32_t)(FLOATS - floats.begin);
        while (missing > 0) {
            uint64_t a = floats.begin + kml_rng_below(&rng, FLOATS - floats.begin);
            uint64_t z = a + 1 + kml_rng_below(&rng, FLOATS - a);
            for (uint64_t i = a; i < z; i++) {
                missing -= !here[i];
                here[i] = true;
            }
            assert_int_equal(push(0, 10, step, a, z), 0);
            assert_int_equal(staged.complete, missing == 0); /* exactly when nothing is missing */
        }
        double square = 0;
        for (uint64_t i = floats.begin; i < FLOATS; i++) {
            square += (double)i * (double)i;
        }
        assert_true(staged.square_sum == square && !staged.non_finite);
        assert_int_equal(push(0, 10, step, floats.begin, floats.begin + 1), 0);
        assert_true(staged.complete && staged.square_sum == square); /* a repeat is answered again */
        assert_int_equal(commit(step, 0, 10, step), 0);
        assert_true(value_at(step, 150) == 1000.0f - 150.0f * (float)step);
    }
}

static void what_is_out_of_range_or_damaged_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    start();
    assert_int_equal(push(0, 10, 1, floats.begin, FLOATS - 1), 0);
    assert_int_equal(push(0, 10, 1, floats.begin - 1, FLOATS), -1);
    assert_int_equal(err.code, KML_INVALID);
    assert_non_null(strstr(err.text, "outside shard 1"));
    assert_int_equal(push(0, 10, 1, FLOATS - 1, FLOATS + 1), -1);
    assert_int_equal(push(0, 10, 1, UINT64_MAX - 1, UINT64_MAX), -1);
    assert_int_equal(push(0, 10, 1, FLOATS, FLOATS), -1);
    assert_int_equal(push_as(0, 10, KML_PAYLOAD_GRADIENT, 1, FLOATS - 1, FLOATS, vector, true, 1), -1);
    assert_int_equal(err.code, KML_INVALID);
    assert_int_equal(push_as(0, 10, KML_PAYLOAD_GRADIENT, 0, FLOATS - 1, FLOATS, vector, true, 0),
                     -1); /* steps start at 1 */
    assert_int_equal(push_as(0, 10, KML_PAYLOAD_PARAMETERS, 3, floats.begin, FLOATS, vector, true, 0), -1);
    assert_int_equal(commit(1, 0, 10, 1), -1);
    assert_int_equal(err.code, KML_CONFLICT);
    assert_int_equal(kml_shard_version(shard), 0);
    assert_int_equal(push(0, 10, 1, FLOATS - 1, FLOATS), 0);
    assert_true(staged.complete);
    assert_int_equal(commit(1, 0, 10, 1), 0);
}

/* Two programs may have other initial values: a shard holds those of one, and a whole set of them. */
static void before_the_first_commit_another_uploader_starts_from_nothing(void **state)
{
    (void)state;
    float late[FLOATS];
    for (uint32_t i = 0; i < FLOATS; i++) {
        late[i] = 2000;
    }
    admit(0, 10);
    admit(1, 11);
    uint64_t half = (floats.begin + FLOATS) / 2;
    assert_int_equal(push_as(0, 10, KML_PAYLOAD_PARAMETERS, 0, floats.begin, half, vector, true, 0), 0);
    assert_int_equal(push_as(1, 11, KML_PAYLOAD_PARAMETERS, 0, half, FLOATS, late, true, 0), 0);
    assert_false(kml_shard_ready(shard)); /* the other half was worker 0's */
    assert_int_equal(push_as(1, 11, KML_PAYLOAD_PARAMETERS, 0, floats.begin, half, late, true, 0), 0);
    assert_true(staged.complete && kml_shard_ready(shard));
    assert_true(value_at(0, floats.begin) == 2000 && value_at(0, FLOATS - 1) == 2000);
    assert_int_equal(push_as(0, 10, KML_PAYLOAD_PARAMETERS, 0, floats.begin, FLOATS, vector, true, 0), 0);
    assert_true(staged.complete && value_at(0, floats.begin) == vector[0]);
    assert_int_equal(push(0, 10, 1, floats.begin, FLOATS), 0);
    assert_int_equal(commit(1, 0, 10, 1), 0);
    float version_1 = value_at(1, FLOATS - 1);
    assert_int_equal(push_as(1, 11, KML_PAYLOAD_PARAMETERS, 0, floats.begin, FLOATS, late, true, 0), 0);
    assert_true(kml_shard_ready(shard) && value_at(1, FLOATS - 1) == version_1);
}

static void another_incarnation_is_fenced(void **state)
{
    (void)state;
    start();
    assert_int_equal(push(0, 9, 1, floats.begin, FLOATS), -1);
    assert_int_equal(err.code, KML_FENCED);
    assert_int_equal(push(2, 12, 1, floats.begin, FLOATS), -1); /* never admitted */
    assert_int_equal(err.code, KML_FENCED);
    assert_int_equal(push(0, 10, 1, floats.begin, FLOATS), 0);
    admit(0, 20); /* a new process: what the old one staged is gone */
    assert_int_equal(commit(1, 0, 10, 1), -1);
    assert_int_equal(commit(1, 0, 20, 1), -1);
    assert_int_equal(push(0, 10, 1, floats.begin, FLOATS), -1);
    assert_int_equal(push(0, 20, 2, floats.begin, FLOATS), 0);
    assert_int_equal(commit(1, 0, 20, 2), 0);
    kml_shard_dismiss(shard, 0, 10); /* old news */
    assert_true(kml_shard_admitted(shard, 0, 20));
    kml_shard_dismiss(shard, 0, 20);
    assert_int_equal(push(0, 20, 3, floats.begin, FLOATS), -1);
    assert_int_equal(kml_shard_admit(shard, 0, 20, &err), -1);
    assert_int_equal(err.code, KML_FENCED);
    assert_false(kml_shard_admitted(shard, 77, 1));
}

static void a_newer_step_takes_the_place_of_an_older_one(void **state)
{
    (void)state;
    start();
    assert_int_equal(push(0, 10, 1, floats.begin, 150), 0);
    assert_int_equal(push(0, 10, 3, 150, FLOATS), 0);
    assert_false(staged.complete);
    assert_int_equal(push(0, 10, 1, floats.begin, 150), 0); /* late, no error, no effect */
    assert_false(staged.complete);
    assert_int_equal(push(0, 10, 3, floats.begin, 150), 0);
    assert_true(staged.complete);
    assert_int_equal(commit(1, 0, 10, 3), 0);
    assert_int_equal(push(0, 10, 3, floats.begin, FLOATS), 0); /* committed: late */
    assert_false(staged.complete);
    kml_shard_forget(shard, 0, 10, 7);
    assert_int_equal(push(0, 10, 7, floats.begin, FLOATS), 0);
    assert_false(staged.complete);
    assert_int_equal(push(0, 10, 8, floats.begin, FLOATS), 0);
    assert_true(staged.complete);
}

static void a_commit_counts_once_and_in_order(void **state)
{
    (void)state;
    start();
    assert_int_equal(push(0, 10, 1, floats.begin, FLOATS), 0);
    assert_int_equal(commit(2, 0, 10, 1), -1);
    assert_int_equal(err.code, KML_CONFLICT);
    assert_int_equal(commit(1, 0, 10, 1), 0);
    float once = value_at(1, 199);
    assert_int_equal(commit(1, 0, 10, 1), 0); /* a repeat */
    assert_true(value_at(1, 199) == once && once == 1000.0f - 199);
    assert_int_equal(commit(2, 0, 10, 1), -1); /* its step is closed */
    assert_int_equal(commit(2, 9, 10, 1), -1); /* no such worker */
    assert_int_equal(kml_shard_version(shard), 1);
}

static void refused_gradients_make_a_version_without_a_change(void **state)
{
    (void)state;
    start();
    float bad[FLOATS];
    memcpy(bad, vector, sizeof bad);
    bad[190] = NAN;
    assert_int_equal(
        push_as(0, 10, KML_PAYLOAD_GRADIENT, 1, floats.begin, FLOATS, bad + floats.begin, false, 0), 0);
    assert_true(staged.complete && staged.non_finite);
    struct kml_shard_member m = {0, 10, 1, 0};
    struct kml_shard_commit c = {.version = 1, .member = &m, .count = 1, .learning_rate = 1};
    assert_int_equal(kml_shard_commit(shard, &c, &err), 0);
    assert_true(value_at(1, 190) == 1000 && kml_shard_version(shard) == 1);
    assert_int_equal(push(0, 10, 1, floats.begin, FLOATS), 0);
    assert_false(staged.complete); /* its step is closed all the same */
}

static void a_pinned_version_stays_readable_while_commits_go_on(void **state)
{
    (void)state;
    start();
    assert_int_equal(kml_shard_pin(shard, 1, &err), -1);
    assert_int_equal(err.code, KML_NOT_FOUND);
    assert_int_equal(kml_shard_pin(shard, 0, &err), 0);
    for (uint64_t v = 1; v <= 5; v++) {
        assert_int_equal(push(1, 11, v, floats.begin, FLOATS), 0);
        assert_int_equal(commit(v, 1, 11, v), 0);
        assert_true(value_at(0, 199) == 1000 && value_at(v, 199) == 1000.0f - 199.0f * (float)v);
        assert_int_equal(kml_shard_pin(shard, 0, &err), 0); /* a repeat */
        if (v > 1) {
            assert_null(kml_shard_block(shard, v - 1, 0));
        }
    }
    assert_int_equal(kml_shard_pin(shard, 5, &err), 0); /* in its place */
    assert_null(kml_shard_block(shard, 0, 0));
    assert_int_equal(push(1, 11, 6, floats.begin, FLOATS), 0);
    assert_int_equal(commit(6, 1, 11, 6), 0);
    assert_true(value_at(5, 199) == 1000.0f - 5 * 199);
    kml_shard_unpin(shard);
    assert_null(kml_shard_block(shard, 5, 0));
    kml_shard_unpin(shard);
}

static void a_block_is_written_again_only_when_nobody_reads_it(void **state)
{
    (void)state;
    start();
    struct kml_block *read = kml_shard_block(shard, 0, 2);
    const float *data = kml_block_data(read);
    const float *seen[64];
    uint32_t different = 0;
    for (uint64_t v = 1; v <= 60; v++) {
        assert_int_equal(push(1, 11, v, floats.begin, FLOATS), 0);
        assert_int_equal(commit(v, 1, 11, v), 0);
        struct kml_block *now = kml_shard_block(shard, v, 2);
        const float *at = kml_block_data(now);
        kml_block_drop(now);
        assert_ptr_not_equal(at, data);
        for (uint32_t i = 0; i < CHUNK; i++) {
            assert_true(data[i] == 1000);
        }
        bool known = false;
        for (uint32_t i = 0; i < different; i++) {
            known |= seen[i] == at;
        }
        if (!known) {
            seen[different++] = at;
        }
    }
    assert_true(different < 20); /* 60 versions of a chunk in a few buffers */
    kml_block_drop(read);
}

static void members_are_summed_in_their_order_with_their_coefficients(void **state)
{
    (void)state;
    start();
    float other[FLOATS];
    for (uint32_t i = 0; i < FLOATS; i++) {
        other[i] = 1.0f / (float)(i + 1);
    }
    assert_int_equal(push(0, 10, 1, floats.begin, FLOATS), 0);
    assert_int_equal(
        push_as(1, 11, KML_PAYLOAD_GRADIENT, 4, floats.begin, FLOATS, other + floats.begin, true, 0), 0);
    struct kml_shard_member m[2] = {{0, 10, 1, 0.25}, {1, 11, 4, 0.75}};
    struct kml_shard_commit c = {.version = 1, .member = m, .count = 2, .learning_rate = 0.5};
    assert_int_equal(kml_shard_commit(shard, &c, &err), 0);
    for (uint64_t i = floats.begin; i < FLOATS; i++) {
        assert_true(
            fabs((double)value_at(1, i) - (1000 - 0.5 * (0.25 * (double)i + 0.75 / (double)(i + 1)))) < 1e-3);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, finish)
    const struct CMUnitTest tests[] = {
        CASE(pieces_may_come_twice_overlap_and_in_any_order),
        CASE(what_is_out_of_range_or_damaged_is_refused_and_changes_nothing),
        CASE(before_the_first_commit_another_uploader_starts_from_nothing),
        CASE(another_incarnation_is_fenced),
        CASE(a_newer_step_takes_the_place_of_an_older_one),
        CASE(a_commit_counts_once_and_in_order),
        CASE(refused_gradients_make_a_version_without_a_change),
        CASE(a_pinned_version_stays_readable_while_commits_go_on),
        CASE(a_block_is_written_again_only_when_nobody_reads_it),
        CASE(members_are_summed_in_their_order_with_their_coefficients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
