#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "data/order.h"

#define N 1000

static void expect_every_sample_once(const uint32_t *order, uint32_t from, uint32_t to)
{
    uint8_t seen[N] = {0};
    for (uint32_t i = from; i < to; i++) {
        assert_true(order[i] >= from && order[i] < to);
        assert_int_equal(seen[order[i]]++, 0);
    }
}

static uint32_t fixed_points(const uint32_t *order)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < N; i++) {
        count += order[i] == i;
    }
    return count;
}

static void a_global_order_is_a_permutation_that_seed_and_epoch_decide(void **state)
{
    (void)state;
    uint32_t a[N];
    uint32_t b[N];
    kml_order_fill(a, N, KML_SHUFFLE_GLOBAL, 7, 3, NULL, 0);
    kml_order_fill(b, N, KML_SHUFFLE_GLOBAL, 7, 3, NULL, 0);
    expect_every_sample_once(a, 0, N);
    assert_memory_equal(a, b, sizeof(a));
    assert_true(fixed_points(a) < 10);
    kml_order_fill(b, N, KML_SHUFFLE_GLOBAL, 7, 4, NULL, 0);
    assert_memory_not_equal(a, b, sizeof(a));
    kml_order_fill(b, N, KML_SHUFFLE_GLOBAL, 8, 3, NULL, 0);
    assert_memory_not_equal(a, b, sizeof(a));
}

static void shards_are_shuffled_inside_and_nowhere_else(void **state)
{
    (void)state;
    static const uint32_t cut[] = {0, 250, 250, 251, N};
    static const uint32_t other[] = {0, 100, 250, 251, N};
    uint32_t a[N];
    uint32_t b[N];
    kml_order_fill(a, N, KML_SHUFFLE_SHARD, 7, 3, cut, 4);
    for (uint32_t k = 0; k < 4; k++) {
        expect_every_sample_once(a, cut[k], cut[k + 1]);
    }
    assert_true(fixed_points(a) < 20);
    /* Moving one cut leaves the shards behind it as they were. */
    kml_order_fill(b, N, KML_SHUFFLE_SHARD, 7, 3, other, 4);
    assert_memory_equal(a + 250, b + 250, (N - 250) * sizeof(*a));
    assert_memory_not_equal(a, b, 250 * sizeof(*a));
}

static void without_shuffle_the_order_is_the_files(void **state)
{
    (void)state;
    uint32_t a[N];
    kml_order_fill(a, N, KML_SHUFFLE_NONE, 7, 3, NULL, 0);
    assert_int_equal(fixed_points(a), N);
}

static void an_order_of_nothing_is_nothing(void **state)
{
    (void)state;
    static const uint32_t cut[] = {0, 0};
    uint32_t a[1] = {77};
    kml_order_fill(a, 0, KML_SHUFFLE_GLOBAL, 7, 3, NULL, 0);
    kml_order_fill(a, 0, KML_SHUFFLE_SHARD, 7, 3, cut, 1);
    assert_int_equal(a[0], 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_global_order_is_a_permutation_that_seed_and_epoch_decide),
        cmocka_unit_test(shards_are_shuffled_inside_and_nowhere_else),
        cmocka_unit_test(without_shuffle_the_order_is_the_files),
        cmocka_unit_test(an_order_of_nothing_is_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
