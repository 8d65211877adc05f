#include "sync/coverage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tests/unit/sync/seed.h"

#define LENGTH 160u

static struct kml_err err;

/* The intervals are those of the bitmap: disjoint, ascending, not touching, and nothing else. */
static void must_equal(const struct kml_coverage *c, const bool *bit)
{
    bool from_intervals[LENGTH] = {false};
    for (uint32_t i = 0; i < c->count; i++) {
        assert_true(c->interval[i].begin < c->interval[i].end);
        assert_true(i == 0 || c->interval[i - 1].end < c->interval[i].begin);
        for (uint64_t p = c->interval[i].begin; p < c->interval[i].end; p++) {
            from_intervals[p] = true;
        }
    }
    assert_memory_equal(from_intervals, bit, LENGTH);
}

static bool all(const bool *bit, uint64_t begin, uint64_t end)
{
    for (uint64_t i = 0; i < LENGTH; i++) {
        if (bit[i] != (i >= begin && i < end)) {
            return false;
        }
    }
    return true;
}

static void any_pieces_cover_what_a_bitmap_says(void **state)
{
    (void)state;
    struct kml_rng rng;
    struct kml_coverage c = {.count = 0};
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 3000; run++) {
        bool bit[LENGTH] = {false};
        uint64_t longest = 1 + kml_rng_below(&rng, LENGTH); /* of the pieces of this run */
        kml_coverage_clear(&c);
        for (int piece = 0; piece < 60; piece++) {
            uint64_t begin = kml_rng_below(&rng, LENGTH);
            uint64_t most = LENGTH - begin < longest ? LENGTH - begin : longest;
            uint64_t end = begin + 1 + kml_rng_below(&rng, most);
            memset(bit + begin, true, end - begin);
            assert_int_equal(kml_coverage_add(&c, begin, end, &err), 0);
            must_equal(&c, bit);
            assert_int_equal(kml_coverage_is(&c, 0, LENGTH), all(bit, 0, LENGTH));
            uint64_t a = kml_rng_below(&rng, LENGTH);
            assert_int_equal(kml_coverage_is(&c, a, LENGTH), all(bit, a, LENGTH));
        }
    }
    kml_coverage_finish(&c);
}

static void an_empty_one_covers_nothing(void **state)
{
    (void)state;
    struct kml_coverage c = {.count = 0};
    assert_false(kml_coverage_is(&c, 0, 1));
    assert_int_equal(kml_coverage_add(&c, 0, 5, &err), 0);
    assert_true(kml_coverage_is(&c, 0, 5));
    assert_false(kml_coverage_is(&c, 0, 4));
    kml_coverage_clear(&c);
    assert_false(kml_coverage_is(&c, 0, 5));
    kml_coverage_finish(&c);
}

static void too_many_holes_are_refused_and_change_nothing(void **state)
{
    (void)state;
    struct kml_coverage c = {.count = 0};
    for (uint64_t i = 0; i < KML_COVERAGE_MAX; i++) {
        assert_int_equal(kml_coverage_add(&c, 2 * i, 2 * i + 1, &err), 0);
    }
    assert_int_equal(
        kml_coverage_add(&c, 3 * (uint64_t)KML_COVERAGE_MAX, 3 * (uint64_t)KML_COVERAGE_MAX + 1, &err), -1);
    assert_int_equal(err.code, KML_EXHAUSTED);
    assert_int_equal(c.count, KML_COVERAGE_MAX);
    assert_int_equal(kml_coverage_add(&c, 1, 2, &err), 0); /* what closes a hole is welcome */
    assert_int_equal(c.count, KML_COVERAGE_MAX - 1);
    assert_int_equal(kml_coverage_add(&c, 0, 2 * (uint64_t)KML_COVERAGE_MAX, &err), 0);
    assert_true(kml_coverage_is(&c, 0, 2 * (uint64_t)KML_COVERAGE_MAX));
    kml_coverage_finish(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_pieces_cover_what_a_bitmap_says),
        cmocka_unit_test(an_empty_one_covers_nothing),
        cmocka_unit_test(too_many_holes_are_refused_and_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
