#include "sync/shardmap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tests/unit/sync/seed.h"

static struct kml_shardmap map_of(uint64_t floats, uint32_t shards, uint32_t chunk_floats)
{
    struct kml_shardmap m;
    struct kml_err err;
    assert_int_equal(kml_shardmap_init(&m, floats, shards, chunk_floats, &err), 0);
    return m;
}

/* Walks all chunks and shards in order and holds the lookups against the walk. */
static void check_whole(const struct kml_shardmap *m, bool each_float)
{
    uint64_t position = 0;
    uint32_t chunk = 0, fewest = UINT32_MAX, most = 0;
    for (uint32_t s = 0; s < m->shards; s++) {
        struct kml_span chunks = kml_shardmap_shard_chunks(m, s);
        struct kml_span floats = kml_shardmap_shard(m, s);
        assert_int_equal(chunks.begin, chunk);
        assert_int_equal(floats.begin, position);
        for (; chunk < chunks.end; chunk++) {
            struct kml_span span = kml_shardmap_chunk(m, chunk);
            assert_int_equal(span.begin, position);
            assert_true(span.end > span.begin && span.end - span.begin <= m->chunk_floats);
            assert_int_equal(kml_shardmap_shard_of(m, chunk), s);
            assert_int_equal(kml_shardmap_chunk_of(m, span.begin), chunk);
            assert_int_equal(kml_shardmap_chunk_of(m, span.end - 1), chunk);
            for (uint64_t p = span.begin; each_float && p < span.end; p++) {
                assert_int_equal(kml_shardmap_chunk_of(m, p), chunk);
            }
            position = span.end;
        }
        uint32_t held = (uint32_t)(chunks.end - chunks.begin);
        fewest = held < fewest ? held : fewest;
        most = held > most ? held : most;
        assert_int_equal(floats.end, position);
    }
    assert_int_equal(position, m->floats);
    assert_int_equal(chunk, m->chunks);
    assert_true(fewest >= 1 && most - fewest <= 1);
}

static void small_models_are_mapped_whole_by_brute_force(void **state)
{
    (void)state;
    for (uint64_t floats = 1; floats <= 400; floats++) {
        for (uint32_t shards = 1; shards <= 12 && shards <= floats; shards++) {
            for (uint32_t wish = 16; wish <= 64; wish += 16) {
                struct kml_shardmap m = map_of(floats, shards, wish);
                assert_true(m.chunk_floats <= wish);
                assert_true(m.chunk_floats % 16 == 0 || floats <= 16 * (uint64_t)(shards - 1));
                check_whole(&m, true);
            }
        }
    }
}

static void random_models_are_mapped_whole(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 2000; run++) {
        uint32_t shards = 1 + (uint32_t)kml_rng_below(&rng, KML_SHARDS_MAX);
        uint64_t floats = shards + kml_rng_below(&rng, UINT64_C(1) << (1 + kml_rng_below(&rng, 26)));
        uint32_t wish = 16 * (1 + (uint32_t)kml_rng_below(&rng, KML_CHUNK_FLOATS_MAX / 16));
        if (floats / wish > 20000) {
            continue; /* many tiny chunks: right, but slow to walk */
        }
        struct kml_shardmap m = map_of(floats, shards, wish);
        check_whole(&m, false);
    }
}

static void the_default_chunk_is_kept_where_it_fits(void **state)
{
    (void)state;
    struct kml_shardmap one = map_of(10 * 1000 * 1000, 4, KML_CHUNK_FLOATS);
    assert_int_equal(one.chunk_floats, KML_CHUNK_FLOATS);
    assert_int_equal(one.chunks, 153);
    struct kml_shardmap two =
        map_of(101770, 2, KML_CHUNK_FLOATS); /* an MLP with 128 hidden units on 28x28 images */
    struct kml_span first = kml_shardmap_shard(&two, 0);
    assert_int_equal(two.chunks, 2);
    assert_int_equal(first.end, 50896); /* about the half, not 65,536 */
}

static void the_largest_model_is_mapped_without_overflow(void **state)
{
    (void)state;
    struct kml_shardmap m = map_of(KML_FLOATS_MAX, 1000, KML_CHUNK_FLOATS_MAX);
    check_whole(&m, false);
}

static void what_cannot_be_mapped_is_refused_in_one_line(void **state)
{
    (void)state;
    static const struct {
        uint64_t floats;
        uint32_t shards, chunk;
        const char *says;
    } bad[] = {
        {100, 0, 64, "0 shards: there can be 1 to 1024"},
        {100000, 1025, 64, "1025 shards: there can be 1 to 1024"},
        {2, 3, 64, "2 parameters cannot be spread over 3 shards; use fewer PS replicas"},
        {KML_FLOATS_MAX + 1, 1, 64, "a model of 2147483648 parameters: the largest is 2147483647"},
        {100, 1, 0, "chunks of 0 floats: a multiple of 16 up to 262144 is needed"},
        {100, 1, 24, "chunks of 24 floats: a multiple of 16 up to 262144 is needed"},
        {100, 1, 262160, "chunks of 262160 floats: a multiple of 16 up to 262144 is needed"},
    };
    for (size_t i = 0; i < KML_COUNT(bad); i++) {
        struct kml_shardmap m;
        struct kml_err err = {.code = KML_OK};
        assert_int_equal(kml_shardmap_init(&m, bad[i].floats, bad[i].shards, bad[i].chunk, &err), -1);
        assert_int_equal(err.code, KML_INVALID);
        assert_string_equal(err.text, bad[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_models_are_mapped_whole_by_brute_force),
        cmocka_unit_test(random_models_are_mapped_whole),
        cmocka_unit_test(the_default_chunk_is_kept_where_it_fits),
        cmocka_unit_test(the_largest_model_is_mapped_without_overflow),
        cmocka_unit_test(what_cannot_be_mapped_is_refused_in_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
