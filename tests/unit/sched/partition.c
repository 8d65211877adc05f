#include "sched/partition.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/unit/seed.h"

#define MOST 40

static uint32_t start[MOST + 1];

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void random_times(struct kml_rng *rng, double *t, uint32_t m)
{
    for (uint32_t i = 0; i < m; i++) {
        t[i] = kml_rng_below(rng, 3) == 0 ? 1 + (double)kml_rng_below(rng, 4) : exp(1.5 * kml_rng_unit(rng));
    }
    qsort(t, m, sizeof *t, ascending);
}

/* The fewest groups of any kind, contiguous or not: worker i joins a group that is there or opens one. */
static uint32_t fewest(const double *t, uint32_t m, double ratio, uint32_t i, double *fastest,
                       uint32_t groups, uint32_t bound)
{
    if (groups >= bound) {
        return bound;
    }
    if (i == m) {
        return groups;
    }
    for (uint32_t g = 0; g < groups; g++) {
        if (t[i] <= ratio * fastest[g]) { /* t ascends, so the first member is the fastest */
            bound = fewest(t, m, ratio, i + 1, fastest, groups, bound);
        }
    }
    fastest[groups] = t[i];
    return fewest(t, m, ratio, i + 1, fastest, groups + 1, bound);
}

static void the_cover_has_the_fewest_groups_of_all(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 1000; run++) {
        uint32_t m = 1 + (uint32_t)kml_rng_below(&rng, 10);
        double ratio = 1 + kml_rng_unit(&rng);
        double t[MOST];
        random_times(&rng, t, m);
        uint32_t parts = kml_partition_cover(t, m, ratio, start);
        double fastest[MOST];
        assert_int_equal(parts, fewest(t, m, ratio, 0, fastest, 0, m + 1));
        assert_int_equal(start[0], 0);
        assert_int_equal(start[parts], m);
        for (uint32_t g = 0; g < parts; g++) {
            assert_true(start[g] < start[g + 1]);
            assert_true(t[start[g + 1] - 1] <= ratio * t[start[g]]);
        }
    }
}

/* The smallest cost of x[from ..] in exactly `parts` parts. */
static double cheapest(const double *x, uint32_t from, uint32_t m, uint32_t parts, uint32_t least)
{
    if (parts == 1) {
        const uint32_t whole[] = {from, m};
        return m - from >= least ? kml_partition_cost(x, whole, 1) : (double)INFINITY;
    }
    double best = (double)INFINITY;
    for (uint32_t to = from + least; to < m; to++) {
        const uint32_t one[] = {from, to};
        best = fmin(best, kml_partition_cost(x, one, 1) + cheapest(x, to, m, parts - 1, least));
    }
    return best;
}

static void dynamic_programming_equals_brute_force(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 1000; run++) {
        uint32_t least = 1 + (uint32_t)kml_rng_below(&rng, 3);
        uint32_t parts = 1 + (uint32_t)kml_rng_below(&rng, 4);
        uint32_t m = least * parts + (uint32_t)kml_rng_below(&rng, 5);
        double x[MOST];
        random_times(&rng, x, m);
        for (uint32_t i = 0; i < m; i++) {
            x[i] = log(x[i]);
        }
        double room[5 * (MOST + 1)];
        uint32_t cut[5 * (MOST + 1)];
        kml_partition_best(x, m, parts, least, start, room, cut);
        assert_int_equal(start[0], 0);
        assert_int_equal(start[parts], m);
        for (uint32_t g = 0; g < parts; g++) {
            assert_true(start[g + 1] - start[g] >= least);
        }
        double wanted = cheapest(x, 0, m, parts, least);
        assert_true(fabs(kml_partition_cost(x, start, parts) - wanted) <= 1e-12 + 1e-9 * wanted);
    }
}

static void small_groups_join_the_nearer_neighbour(void **state)
{
    (void)state;
    const double t[] = {1, 1.1, 2, 3.9, 4};
    uint32_t parts = kml_partition_cover(t, 5, 1.3, start);
    assert_int_equal(parts, 3);
    parts = kml_partition_merge(t, start, parts, 2); /* 2 / 1.1 < 3.9 / 2 */
    assert_int_equal(parts, 2);
    assert_int_equal(start[1], 3);
    assert_int_equal(start[2], 5);
}

static void merging_leaves_no_small_group_while_there_are_two(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 2000; run++) {
        uint32_t m = 1 + (uint32_t)kml_rng_below(&rng, MOST);
        uint32_t least = 1 + (uint32_t)kml_rng_below(&rng, 6);
        double t[MOST];
        random_times(&rng, t, m);
        uint32_t parts = kml_partition_cover(t, m, 1.05, start);
        parts = kml_partition_merge(t, start, parts, least);
        assert_int_equal(start[0], 0);
        assert_int_equal(start[parts], m);
        for (uint32_t g = 0; parts > 1 && g < parts; g++) {
            assert_true(start[g + 1] - start[g] >= least);
        }
    }
}

static void the_rate_is_that_of_each_groups_slowest(void **state)
{
    (void)state;
    const double t[] = {1, 1, 1, 4};
    const uint32_t one[] = {0, 4};
    const uint32_t two[] = {0, 3, 4};
    assert_true(kml_partition_rate(t, one, 1) == 1);
    assert_true(kml_partition_rate(t, two, 2) == 3.25); /* 0.8125 of 4 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cover_has_the_fewest_groups_of_all),
        cmocka_unit_test(dynamic_programming_equals_brute_force),
        cmocka_unit_test(small_groups_join_the_nearer_neighbour),
        cmocka_unit_test(merging_leaves_no_small_group_while_there_are_two),
        cmocka_unit_test(the_rate_is_that_of_each_groups_slowest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
