#include "sched/split.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tests/unit/seed.h"

#define MOST 64

static double real[MOST];
static struct kml_split_room room[MOST];

static uint64_t sum_of(const uint64_t *share, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += share[i];
    }
    return sum;
}

static void proportional_shares_lie_within_one_of_the_exact_ones(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 5000; run++) {
        uint32_t m = 1 + (uint32_t)kml_rng_below(&rng, MOST);
        uint64_t total = kml_rng_below(&rng, 100000);
        double weight[MOST];
        double sum = 0;
        for (uint32_t i = 0; i < m; i++) {
            weight[i] = 1e-3 + kml_rng_exponential(&rng, 1);
            sum += weight[i];
        }
        uint64_t share[MOST];
        kml_split_proportional(weight, m, total, 0, share, real, room);
        assert_int_equal(sum_of(share, m), total);
        for (uint32_t i = 0; i < m; i++) {
            assert_true(fabs((double)share[i] - (double)total * weight[i] / sum) < 1 + 1e-6);
        }
    }
}

static void nobody_gets_less_than_the_minimum_and_the_rest_stays_proportional(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 5000; run++) {
        uint32_t m = 1 + (uint32_t)kml_rng_below(&rng, 16);
        uint64_t minimum = kml_rng_below(&rng, 20);
        uint64_t total = minimum * m + kml_rng_below(&rng, 1000);
        double weight[MOST];
        for (uint32_t i = 0; i < m; i++) {
            weight[i] = 1e-3 + kml_rng_exponential(&rng, 1);
        }
        uint64_t share[MOST];
        kml_split_proportional(weight, m, total, minimum, share, real, room);
        assert_int_equal(sum_of(share, m), total);
        double free_weight = 0;
        double free_real = 0;
        for (uint32_t i = 0; i < m; i++) {
            assert_true(share[i] >= minimum);
            free_weight += real[i] > (double)minimum ? weight[i] : 0;
            free_real += real[i] > (double)minimum ? real[i] : 0;
        }
        for (uint32_t i = 0; i < m; i++) {
            if (real[i] > (double)minimum) {
                assert_true(fabs(real[i] - free_real * weight[i] / free_weight) < 1e-6);
                assert_true(fabs((double)share[i] - real[i]) < 1 + 1e-6);
            }
        }
    }
}

static void equal_weights_give_the_odd_tasks_to_the_lowest_workers(void **state)
{
    (void)state;
    double weight[] = {2, 2, 2, 2};
    uint64_t share[4];
    uint64_t wanted[] = {3, 3, 2, 2};
    kml_split_proportional(weight, 4, 10, 1, share, real, room);
    assert_memory_equal(share, wanted, sizeof wanted);
}

static void random_costs(struct kml_rng *rng, struct kml_cost *cost, uint32_t m)
{
    for (uint32_t i = 0; i < m; i++) {
        cost[i].fixed = kml_rng_below(rng, 2) == 0 ? 0 : kml_rng_exponential(rng, 0.5);
        /* small whole numbers, so that ties come */
        cost[i].per_sample = kml_rng_below(rng, 2) == 0 ? 1 + (double)kml_rng_below(rng, 4)
                                                        : 0.05 + kml_rng_exponential(rng, 1);
    }
}

/* The smallest makespan over all divisions of `left` tasks over workers i .. m - 1. */
static double brute_force(const struct kml_cost *cost, uint32_t m, uint32_t i, uint64_t left,
                          uint64_t minimum)
{
    if (i == m) {
        return left == 0 ? 0 : INFINITY;
    }
    double best = INFINITY;
    for (uint64_t n = minimum; n <= left; n++) {
        double own = n > 0 ? cost[i].fixed + cost[i].per_sample * (double)n : 0;
        double all = fmax(own, brute_force(cost, m, i + 1, left - n, minimum));
        best = fmin(best, all);
    }
    return best;
}

static void the_division_has_the_smallest_makespan_of_all(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 1000; run++) {
        uint32_t m = 1 + (uint32_t)kml_rng_below(&rng, 4);
        uint64_t minimum = kml_rng_below(&rng, 3);
        uint64_t total = minimum * m + kml_rng_below(&rng, 14);
        struct kml_cost cost[4];
        random_costs(&rng, cost, m);
        uint64_t share[4];
        kml_split_optimal(cost, m, total, minimum, share, real, room);
        assert_int_equal(sum_of(share, m), total);
        for (uint32_t i = 0; i < m; i++) {
            assert_true(share[i] >= minimum);
        }
        double wanted = brute_force(cost, m, 0, total, minimum);
        assert_true(fabs(kml_split_makespan(cost, share, m) - wanted) <= 1e-9 * wanted);
    }
}

/* One task after the other, as the header defines it. */
static void task_by_task(const struct kml_cost *cost, uint32_t m, uint64_t total, uint64_t minimum,
                         uint64_t *share)
{
    for (uint32_t i = 0; i < m; i++) {
        share[i] = minimum;
    }
    for (uint64_t left = total - minimum * m; left > 0; left--) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < m; i++) {
            if (cost[i].fixed + (double)(share[i] + 1) * cost[i].per_sample <
                cost[best].fixed + (double)(share[best] + 1) * cost[best].per_sample) {
                best = i;
            }
        }
        share[best]++;
    }
}

static void the_short_cut_gives_what_dealing_task_by_task_gives(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 1000; run++) {
        uint32_t m = 1 + (uint32_t)kml_rng_below(&rng, 12);
        uint64_t minimum = kml_rng_below(&rng, 5);
        uint64_t total = minimum * m + kml_rng_below(&rng, 500);
        struct kml_cost cost[MOST];
        random_costs(&rng, cost, m);
        uint64_t share[MOST];
        uint64_t wanted[MOST];
        kml_split_optimal(cost, m, total, minimum, share, real, room);
        task_by_task(cost, m, total, minimum, wanted);
        assert_memory_equal(share, wanted, m * sizeof *share);
    }
}

static void the_largest_remainder_is_within_one_task_of_the_best_makespan(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 1000; run++) {
        uint32_t m = 2 + (uint32_t)kml_rng_below(&rng, 10);
        uint64_t total = 20 + kml_rng_below(&rng, 500);
        struct kml_cost cost[MOST];
        double weight[MOST];
        double slowest = 0;
        for (uint32_t i = 0; i < m; i++) {
            cost[i] = (struct kml_cost){.per_sample = 0.1 + kml_rng_unit(&rng)};
            weight[i] = 1 / cost[i].per_sample;
            slowest = fmax(slowest, cost[i].per_sample);
        }
        uint64_t best[MOST];
        uint64_t share[MOST];
        kml_split_optimal(cost, m, total, 0, best, real, room);
        kml_split_proportional(weight, m, total, 0, share, real, room);
        double least = kml_split_makespan(cost, best, m);
        double most = kml_split_makespan(cost, share, m);
        assert_true(most >= least - 1e-9);
        assert_true(most <= least + slowest);
    }
}

static void at_the_water_level_all_end_together_or_hold_the_minimum(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 2000; run++) {
        uint32_t m = 1 + (uint32_t)kml_rng_below(&rng, 12);
        uint64_t minimum = kml_rng_below(&rng, 10);
        uint64_t total = minimum * m + 1 + kml_rng_below(&rng, 300);
        struct kml_cost cost[MOST];
        random_costs(&rng, cost, m);
        double level = kml_split_level(cost, m, total, minimum, real);
        double sum = 0;
        for (uint32_t i = 0; i < m; i++) {
            double time = cost[i].fixed + cost[i].per_sample * real[i];
            sum += real[i];
            assert_true(real[i] == (double)minimum ? time >= level - 1e-9 * level
                                                   : fabs(time - level) <= 1e-9 * level);
        }
        assert_true(fabs(sum - (double)total) <= 1e-9 * (double)total);
    }
}

static void absurdly_unlike_costs_still_give_a_whole_division(void **state)
{
    (void)state;
    struct kml_cost cost[] = {{1e6, 1e-12}, {0, 1e6}, {0, 1e-12}, {1e6, 1e6}};
    uint64_t share[4];
    kml_split_optimal(cost, 4, 1000000, 1, share, real, room);
    assert_int_equal(sum_of(share, 4), 1000000);
    assert_int_equal(share[1], 1);
    assert_int_equal(share[3], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proportional_shares_lie_within_one_of_the_exact_ones),
        cmocka_unit_test(nobody_gets_less_than_the_minimum_and_the_rest_stays_proportional),
        cmocka_unit_test(equal_weights_give_the_odd_tasks_to_the_lowest_workers),
        cmocka_unit_test(the_division_has_the_smallest_makespan_of_all),
        cmocka_unit_test(the_short_cut_gives_what_dealing_task_by_task_gives),
        cmocka_unit_test(the_largest_remainder_is_within_one_task_of_the_best_makespan),
        cmocka_unit_test(at_the_water_level_all_end_together_or_hold_the_minimum),
        cmocka_unit_test(absurdly_unlike_costs_still_give_a_whole_division),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
