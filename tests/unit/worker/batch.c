#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "unit/seed.h"
#include "worker/batch.h"

static int add(struct kml_work *w, uint64_t begin, uint64_t end, uint32_t samples)
{
    struct kml_err err;
    return kml_work_add(w, begin, end, samples, &err);
}

static void a_lease_of_several_ranges_is_walked_in_order_and_in_any_steps(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    uint32_t order[100];
    uint32_t index[100];
    for (uint32_t i = 0; i < 100; i++) {
        order[i] = 1000 + i;
    }
    struct kml_work w;
    kml_work_init(&w);
    for (int run = 0; run < 2000; run++) {
        kml_work_clear(&w);
        uint32_t expected[100];
        uint32_t count = 0;
        for (uint32_t at = 0; at < 95;) {
            uint32_t end = at + 1 + (uint32_t)kml_rng_below(&rng, 5);
            if (kml_rng_below(&rng, 2) == 0) {
                assert_int_equal(add(&w, at, end, 100), 0);
                for (uint32_t i = at; i < end; i++) {
                    expected[count++] = 1000 + i;
                }
            }
            at = end;
        }
        assert_int_equal(w.samples, count);
        uint32_t got = 0;
        for (uint32_t n;
             (n = kml_work_take(&w, order, index + got, 1 + (uint32_t)kml_rng_below(&rng, 7))) > 0;) {
            got += n;
        }
        assert_int_equal(got, count);
        assert_memory_equal(index, expected, count * sizeof(*index));
    }
    kml_work_finish(&w);
}

static void ranges_outside_the_epoch_are_refused(void **state)
{
    (void)state;
    static const uint64_t bad[][2] = {{5, 5}, {6, 5}, {0, 101}, {100, 101}, {UINT64_MAX - 1, UINT64_MAX}};
    struct kml_work w;
    kml_work_init(&w);
    for (size_t i = 0; i < KML_COUNT(bad); i++) {
        struct kml_err err = {0};
        assert_int_equal(kml_work_add(&w, bad[i][0], bad[i][1], 100, &err), -1);
        assert_int_equal(err.code, KML_PROTOCOL);
    }
    assert_int_equal(add(&w, 0, 60, 100), 0);
    assert_int_equal(add(&w, 30, 90, 100), -1); /* together more than an epoch */
    assert_int_equal(w.samples, 60);
    kml_work_finish(&w);
}

static void two_epochs_are_kept_and_any_other_is_made_again_the_same(void **state)
{
    (void)state;
    struct kml_orders o;
    uint32_t first[50];
    kml_orders_init(&o, 50, KML_SHUFFLE_GLOBAL, 7);
    const uint32_t *zero = kml_orders_get(&o, 0);
    memcpy(first, zero, sizeof(first));
    const uint32_t *one = kml_orders_get(&o, 1);
    assert_ptr_not_equal(zero, one);
    assert_ptr_equal(kml_orders_get(&o, 0), zero);
    assert_memory_not_equal(zero, one, sizeof(first));
    assert_ptr_equal(kml_orders_get(&o, 2), zero); /* in place of the oldest */
    assert_ptr_equal(kml_orders_get(&o, 1), one);
    assert_memory_equal(kml_orders_get(&o, 0), first, sizeof(first));
    kml_orders_finish(&o);
}

static void shards_are_shuffled_inside_and_cut_by_the_number_of_workers(void **state)
{
    (void)state;
    struct kml_orders o;
    kml_orders_init(&o, 10, KML_SHUFFLE_SHARD, 7);
    kml_orders_cut(&o, 3);
    const uint32_t *order = kml_orders_get(&o, 0);
    static const uint32_t cut[] = {0, 3, 6, 10};
    for (uint32_t s = 0; s < 3; s++) {
        for (uint32_t i = cut[s]; i < cut[s + 1]; i++) {
            assert_in_range(order[i], cut[s], cut[s + 1] - 1);
        }
    }
    kml_orders_cut(&o, 1);
    assert_int_equal(o.cut[1], 10);
    kml_orders_finish(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_of_several_ranges_is_walked_in_order_and_in_any_steps),
        cmocka_unit_test(ranges_outside_the_epoch_are_refused),
        cmocka_unit_test(two_epochs_are_kept_and_any_other_is_made_again_the_same),
        cmocka_unit_test(shards_are_shuffled_inside_and_cut_by_the_number_of_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
