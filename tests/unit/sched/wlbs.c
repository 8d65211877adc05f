#include "sched/wlbs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sched/speed.h"
#include "tests/unit/seed.h"

#define M 6

/* For claims about chance, which hold with probability near one: 3 of 4,000 runs need a third adjustment. */
static uint64_t fixed_seed(void)
{
    printf("seed 20\n");
    return 20;
}

struct field {
    struct kml_wlbs wlbs;
    struct kml_share_input in[M];
    struct kml_share_decision d;
    uint64_t total, now, steps;
    uint32_t adjustments; /* fine and rapid */
    uint32_t fine, rapid;
};

static void begin(struct field *f, const struct kml_wlbs_rule *rule, uint32_t crew)
{
    struct kml_err err;
    bool present[M] = {false};
    *f = (struct field){.total = 64 * crew};
    assert_int_equal(kml_wlbs_init(&f->wlbs, rule, M, &err), 0);
    for (uint32_t i = 0; i < crew; i++) {
        present[i] = f->in[i].present = true;
    }
    kml_wlbs_equal(&f->wlbs, f->total, present);
}

static void speeds(struct field *f, double a, double b, double c, double d)
{
    const double v[] = {a, b, c, d};
    for (uint32_t i = 0; i < 4; i++) {
        f->in[i].cost = (struct kml_cost){.per_sample = 0.001 / v[i]};
    }
}

static void must_be_sound(const struct field *f)
{
    uint64_t sum = 0;
    uint32_t crew = 0;
    for (uint32_t i = 0; i < M; i++) {
        assert_true(f->in[i].present || kml_wlbs_share(&f->wlbs, i) == 0);
        sum += kml_wlbs_share(&f->wlbs, i);
        crew += f->in[i].present;
    }
    assert_int_equal(sum, crew == 0 ? 0 : f->total);
}

static void look(struct field *f)
{
    f->steps += 20;
    kml_wlbs_look(&f->wlbs, f->now++, f->steps, f->total, f->in, &f->d);
    f->fine += f->d.kind == KML_SHARES_FINE;
    f->rapid += f->d.kind == KML_SHARES_RAPID;
    f->adjustments = f->fine + f->rapid;
    must_be_sound(f);
}

static void must_be(const struct field *f, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    const uint64_t wanted[] = {a, b, c, d};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(kml_wlbs_share(&f->wlbs, i), wanted[i]);
    }
}

static void shares_are_equal_until_the_warm_up_is_over(void **state)
{
    (void)state;
    struct field f;
    struct kml_wlbs_rule rule = kml_wlbs_rule_default();
    begin(&f, &rule, 4);
    must_be(&f, 64, 64, 64, 64);
    assert_false(kml_wlbs_due(&f.wlbs, 9));
    assert_true(kml_wlbs_due(&f.wlbs, 10));
    speeds(&f, 1, 1, 1, 1);
    f.steps = 0;
    look(&f); /* at 20 steps */
    assert_false(kml_wlbs_due(&f.wlbs, 39));
    assert_true(kml_wlbs_due(&f.wlbs, 40));
    kml_wlbs_finish(&f.wlbs);
}

static void the_initial_division_is_proportional_to_speed(void **state)
{
    (void)state;
    struct field f;
    struct kml_wlbs_rule rule = kml_wlbs_rule_default();
    begin(&f, &rule, 4);
    speeds(&f, 1, 0.8, 0.5, 0.25);
    look(&f);
    assert_int_equal(f.d.kind, KML_SHARES_INITIAL);
    must_be(&f, 101, 80, 50, 25); /* 256 / 2.55 = 100.39, 80.31, 50.20, 25.10 */
    /* equal shares take 0.256 s, these 0.101 s */
    assert_true(fabs(f.d.expected_gain - (1 - 0.101 / 0.256)) < 1e-9);
    assert_true(f.d.applied);
    assert_int_equal(f.d.line[3].before, 64);
    assert_int_equal(f.d.line[3].after, 25);
    kml_wlbs_finish(&f.wlbs);
}

static void faster_never_means_fewer(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 200; run++) {
        struct field f;
        struct kml_wlbs_rule rule = kml_wlbs_rule_default();
        begin(&f, &rule, 4);
        speeds(&f, exp(3 * kml_rng_unit(&rng)), exp(3 * kml_rng_unit(&rng)), exp(3 * kml_rng_unit(&rng)), 1);
        look(&f);
        for (uint32_t i = 0; i < 4; i++) {
            for (uint32_t j = 0; j < 4; j++) {
                assert_true(f.in[i].cost.per_sample >= f.in[j].cost.per_sample ||
                            kml_wlbs_share(&f.wlbs, i) >= kml_wlbs_share(&f.wlbs, j));
            }
        }
        kml_wlbs_finish(&f.wlbs);
    }
}

/* Real workers with fixed costs, measured by kml_speed: the warm-up with one batch size cannot see those. */
static void constant_speeds_need_two_adjustments_at_most_and_end_balanced(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 300; run++) {
        struct field f;
        struct kml_speed speed[4];
        struct kml_cost real[4];
        struct kml_wlbs_rule rule = kml_wlbs_rule_default();
        begin(&f, &rule, 4);
        for (uint32_t i = 0; i < 4; i++) {
            kml_speed_init(&speed[i], 64);
            real[i].per_sample = 0.001 * exp(1.4 * kml_rng_unit(&rng));
            real[i].fixed = 0.03 * kml_rng_unit(&rng);
        }
        for (int w = 0; w < 40; w++) {
            for (uint32_t i = 0; i < 4; i++) {
                uint64_t n = kml_wlbs_share(&f.wlbs, i);
                for (int k = 0; k < 20; k++) {
                    assert_true(kml_speed_add(&speed[i], n, real[i].fixed + real[i].per_sample * (double)n));
                }
                f.in[i].cost = (struct kml_cost){speed[i].fixed, speed[i].per_sample};
            }
            look(&f);
        }
        assert_true(f.adjustments <= 2);
        /* a hair more: the look goes by the smoothed costs */
        assert_true(f.d.imbalance <= 1.02 * rule.fine_threshold || f.d.reason == KML_SHARES_SMALL_GAIN);
        kml_wlbs_finish(&f.wlbs);
    }
}

static void adjustments_end_when_the_imbalance_is_fine(void **state)
{
    (void)state;
    struct field f;
    struct kml_wlbs_rule rule = kml_wlbs_rule_default();
    begin(&f, &rule, 4);
    speeds(&f, 1, 1, 1, 1);
    for (int w = 0; w < 10; w++) {
        look(&f);
    }
    speeds(&f, 1, 1, 1, 0.85);
    for (int w = 0; w < 30; w++) {
        look(&f);
    }
    assert_int_equal(f.fine, 2);
    assert_int_equal(f.rapid, 0);
    assert_int_equal(f.d.reason, KML_SHARES_BALANCED);
    assert_true(f.d.imbalance <= rule.fine_threshold);
    kml_wlbs_finish(&f.wlbs);
}

static void the_first_fine_step_is_half_of_the_way_and_the_second_all_of_it(void **state)
{
    (void)state;
    struct field f;
    struct kml_wlbs_rule rule = kml_wlbs_rule_default();
    rule.smoothing = 1;
    begin(&f, &rule, 4);
    speeds(&f, 1, 1, 1, 1);
    for (int w = 0; w < 10; w++) {
        look(&f);
    }
    speeds(&f, 1, 1, 1, 0.8); /* best: 67.4, 67.4, 67.4, 53.9 */
    look(&f);
    assert_int_equal(f.d.reason, KML_SHARES_HALF);
    must_be(&f, 66, 66, 65, 59);
    look(&f);
    assert_int_equal(f.d.reason, KML_SHARES_WHOLE);
    must_be(&f, 68, 67, 67, 54);
    kml_wlbs_finish(&f.wlbs);
}

static void a_large_slow_down_is_met_at_once_within_the_largest_change(void **state)
{
    (void)state;
    struct field f;
    struct kml_wlbs_rule rule = kml_wlbs_rule_default();
    rule.maximum_change = 0.3;
    begin(&f, &rule, 4);
    speeds(&f, 1, 1, 1, 1);
    for (int w = 0; w < 10; w++) {
        look(&f);
    }
    speeds(&f, 1, 1, 1, 0.1);
    look(&f);
    assert_int_equal(f.d.kind, KML_SHARES_RAPID);
    assert_int_equal(f.d.reason, KML_SHARES_FAR);
    assert_int_equal(kml_wlbs_share(&f.wlbs, 3), 26); /* 64 * (1 - 2 * 0.3) = 25.6 */
    for (uint32_t w = 0; w < rule.cool_down; w++) {
        uint64_t before = kml_wlbs_share(&f.wlbs, 3);
        look(&f);
        assert_int_not_equal(f.d.kind, KML_SHARES_RAPID);
        assert_true((double)kml_wlbs_share(&f.wlbs, 3) >= 0.7 * (double)before - 1);
    }
    look(&f);
    assert_true(f.d.kind == KML_SHARES_RAPID || f.d.imbalance <= rule.rapid_threshold);
    kml_wlbs_finish(&f.wlbs);
}

static void no_second_rapid_step_within_the_cool_down_whatever_the_speeds_do(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    struct field f;
    struct kml_wlbs_rule rule = kml_wlbs_rule_default();
    begin(&f, &rule, 4);
    int64_t last = -100;
    double v[4] = {1, 1, 1, 1};
    for (int w = 0; w < 5000; w++) {
        if (kml_rng_below(&rng, 10) == 0) {
            v[kml_rng_below(&rng, 4)] = exp(2 * kml_rng_unit(&rng));
        }
        speeds(&f, v[0], v[1], v[2], v[3]);
        uint64_t before[M];
        for (uint32_t i = 0; i < M; i++) {
            before[i] = kml_wlbs_share(&f.wlbs, i);
        }
        look(&f);
        if (f.d.kind == KML_SHARES_RAPID) {
            assert_true(w - last > rule.cool_down);
            last = w;
        }
        double most = f.d.kind == KML_SHARES_RAPID ? 2 * rule.maximum_change : rule.maximum_change;
        for (uint32_t i = 0; w > 0 && i < 4; i++) {
            double change = fabs((double)kml_wlbs_share(&f.wlbs, i) - (double)before[i]);
            assert_true(change <= fmax(1, most * (double)before[i]));
        }
    }
    assert_true(f.rapid > 10);
    kml_wlbs_finish(&f.wlbs);
}

/* Each step's time is 7.5 % off at most, a look sees the median of twenty. */
static void equal_workers_with_jitter_are_adjusted_twice_at_most_in_a_thousand_windows(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, fixed_seed());
    for (int run = 0; run < 20; run++) {
        struct field f;
        struct kml_speed speed[4];
        struct kml_wlbs_rule rule = kml_wlbs_rule_default();
        begin(&f, &rule, 4);
        for (uint32_t i = 0; i < 4; i++) {
            kml_speed_init(&speed[i], 64);
        }
        for (int w = 0; w < 1000; w++) {
            for (uint32_t i = 0; i < 4; i++) {
                uint64_t n = kml_wlbs_share(&f.wlbs, i);
                for (int k = 0; k < 20; k++) {
                    double seconds = 0.001 * (double)n * (1 + 0.075 * (2 * kml_rng_unit(&rng) - 1));
                    assert_true(kml_speed_add(&speed[i], n, seconds));
                }
                f.in[i].cost = (struct kml_cost){speed[i].fixed, speed[i].per_sample};
            }
            look(&f);
        }
        assert_true(f.adjustments <= 2);
        kml_wlbs_finish(&f.wlbs);
    }
}

/* The whole window's speed is 7.5 % off at most: nothing is averaged out before it comes. */
static void windows_with_jitter_are_adjusted_twice_at_most_too(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, fixed_seed());
    for (int run = 0; run < 20; run++) {
        struct field f;
        struct kml_wlbs_rule rule = kml_wlbs_rule_default();
        begin(&f, &rule, 4);
        for (int w = 0; w < 1000; w++) {
            double v[4];
            for (int i = 0; i < 4; i++) {
                v[i] = 1 + 0.075 * (2 * kml_rng_unit(&rng) - 1);
            }
            speeds(&f, v[0], v[1], v[2], v[3]);
            look(&f);
        }
        assert_true(f.adjustments <= 2);
        kml_wlbs_finish(&f.wlbs);
    }
}

static void a_slow_down_is_seen_through_the_jitter(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, fixed_seed());
    for (int run = 0; run < 50; run++) {
        struct field f;
        struct kml_wlbs_rule rule = kml_wlbs_rule_default();
        begin(&f, &rule, 4);
        for (int w = 0; w < 60; w++) {
            double v[4];
            for (int i = 0; i < 4; i++) {
                v[i] = 1 + 0.04 * (2 * kml_rng_unit(&rng) - 1);
            }
            speeds(&f, v[0], v[1], v[2], w < 30 ? v[3] : v[3] / 2);
            look(&f);
            assert_true(w != 30 || f.d.kind == KML_SHARES_RAPID);
        }
        /* 256 * 0.5 / 3.5 = 36.6 */
        assert_true(kml_wlbs_share(&f.wlbs, 3) >= 33 && kml_wlbs_share(&f.wlbs, 3) <= 40);
        kml_wlbs_finish(&f.wlbs);
    }
}

static void shares_depend_on_ratios_of_speeds_only_and_repeat_exactly(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    struct field a;
    struct field b;
    struct kml_wlbs_rule rule = kml_wlbs_rule_default();
    begin(&a, &rule, 4);
    begin(&b, &rule, 4);
    double v[4] = {1, 1, 1, 1};
    for (int w = 0; w < 2000; w++) {
        v[kml_rng_below(&rng, 4)] = exp(kml_rng_unit(&rng));
        speeds(&a, v[0], v[1], v[2], v[3]);
        speeds(&b, 16 * v[0], 16 * v[1], 16 * v[2], 16 * v[3]);
        look(&a);
        look(&b);
        for (uint32_t i = 0; i < M; i++) {
            assert_int_equal(kml_wlbs_share(&a.wlbs, i), kml_wlbs_share(&b.wlbs, i));
        }
    }
    assert_true(a.adjustments > 20);
    kml_wlbs_finish(&a.wlbs);
    kml_wlbs_finish(&b.wlbs);
}

static void nobody_falls_below_the_minimum_share(void **state)
{
    (void)state;
    struct field f;
    struct kml_wlbs_rule rule = kml_wlbs_rule_default();
    rule.minimum_share = 0.05;
    begin(&f, &rule, 4);
    speeds(&f, 1, 1, 1, 1e-5);
    for (int w = 0; w < 20; w++) {
        look(&f);
        assert_true(kml_wlbs_share(&f.wlbs, 3) >= 12); /* 5 % of 256 */
    }
    must_be(&f, 82, 81, 81, 12);
    kml_wlbs_finish(&f.wlbs);
}

static void who_comes_or_goes_is_divided_anew(void **state)
{
    (void)state;
    struct field f;
    struct kml_wlbs_rule rule = kml_wlbs_rule_default();
    begin(&f, &rule, 4);
    speeds(&f, 2, 1, 1, 1);
    look(&f);
    f.in[0].present = false;
    f.total = 192;
    look(&f);
    assert_int_equal(f.d.kind, KML_SHARES_CREW);
    assert_int_equal(f.d.reason, KML_SHARES_MEMBERS);
    must_be(&f, 0, 64, 64, 64);
    f.total = 96;
    look(&f);
    assert_int_equal(f.d.reason, KML_SHARES_TOTAL);
    must_be(&f, 0, 32, 32, 32);
    f.in[0] = (struct kml_share_input){.present = true}; /* not measured yet: as the others */
    f.total = 256;
    look(&f);
    must_be(&f, 64, 64, 64, 64);
    for (uint32_t i = 0; i < M; i++) {
        f.in[i].present = false;
    }
    look(&f);
    look(&f);
    kml_wlbs_finish(&f.wlbs);
}

static double absurd(struct kml_rng *rng)
{
    const double bad[] = {0, -1, (double)NAN, (double)INFINITY, -(double)INFINITY, 1e300, 1e-300, 1e6, 1e-12};
    return kml_rng_below(rng, 2) == 0 ? exp(kml_rng_unit(rng)) : bad[kml_rng_below(rng, KML_COUNT(bad))];
}

static void shares_add_up_in_a_storm_of_absurd_costs_and_changing_crews(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    struct field f;
    struct kml_wlbs_rule rule = kml_wlbs_rule_default();
    begin(&f, &rule, 4);
    for (int w = 0; w < 20000; w++) {
        uint32_t i = (uint32_t)kml_rng_below(&rng, M);
        f.in[i].cost = (struct kml_cost){absurd(&rng), absurd(&rng)};
        f.in[i].present = kml_rng_below(&rng, 10) == 0 ? !f.in[i].present : f.in[i].present;
        f.total = kml_rng_below(&rng, 20) == 0 ? kml_rng_below(&rng, 1000) : f.total;
        look(&f);
        assert_true(isfinite(f.d.expected_gain));
    }
    kml_wlbs_finish(&f.wlbs);
}

static void costs_that_nobody_knows_change_nothing(void **state)
{
    (void)state;
    struct field f;
    struct kml_wlbs_rule rule = kml_wlbs_rule_default();
    begin(&f, &rule, 4);
    look(&f);
    assert_int_equal(f.d.reason, KML_SHARES_UNKNOWN);
    must_be(&f, 64, 64, 64, 64);
    speeds(&f, 1, 1, 1, 0.5);
    look(&f);
    assert_int_equal(f.d.kind, KML_SHARES_INITIAL);
    kml_wlbs_finish(&f.wlbs);
}

static void the_realised_gain_of_a_change_stands_in_the_next_record(void **state)
{
    (void)state;
    struct field f;
    struct kml_wlbs_rule rule = kml_wlbs_rule_default();
    begin(&f, &rule, 4);
    speeds(&f, 1, 1, 1, 0.25);
    look(&f);
    double expected = f.d.expected_gain;
    assert_true(expected > 0.6 && isnan(f.d.realised_gain));
    look(&f);
    assert_true(fabs(f.d.realised_gain - expected) < 1e-9);
    look(&f);
    assert_true(isnan(f.d.realised_gain));
    kml_wlbs_finish(&f.wlbs);
}

static void a_dry_run_records_and_leaves_the_shares_equal(void **state)
{
    (void)state;
    struct field f;
    struct kml_wlbs_rule rule = kml_wlbs_rule_default();
    rule.dry_run = true;
    begin(&f, &rule, 4);
    speeds(&f, 1, 1, 1, 0.25);
    look(&f);
    assert_int_equal(f.d.kind, KML_SHARES_INITIAL);
    assert_false(f.d.applied);
    assert_int_equal(f.d.line[3].after, 19);
    must_be(&f, 64, 64, 64, 64);
    f.in[3].present = false;
    f.total = 192;
    look(&f);
    must_be(&f, 64, 64, 64, 0);
    kml_wlbs_finish(&f.wlbs);
}

/* Shard form: fixed batches, so the fixed part is paid once for each nominal batch. */
static void in_shard_form_all_end_their_shards_together(void **state)
{
    (void)state;
    struct field f;
    struct kml_wlbs_rule rule = kml_wlbs_rule_default();
    begin(&f, &rule, 4);
    f.total = 60000;
    const struct kml_cost batch[] = {{0.02, 0.001}, {0, 0.002}, {0.1, 0.001}, {0.01, 0.004}};
    for (uint32_t i = 0; i < 4; i++) {
        f.in[i].cost = kml_cost_in_shards(batch[i], 64);
    }
    look(&f);
    double least = (double)INFINITY;
    double most = 0;
    for (uint32_t i = 0; i < 4; i++) {
        double steps = (double)kml_wlbs_share(&f.wlbs, i) / 64;
        double time = steps * (batch[i].fixed + 64 * batch[i].per_sample);
        least = fmin(least, time);
        most = fmax(most, time);
    }
    assert_true(most - least <= 0.005); /* one sample of the slowest takes 0.0042 s */
    kml_wlbs_finish(&f.wlbs);
}

static void a_cost_at_a_predicted_speed_is_scaled_as_a_whole(void **state)
{
    (void)state;
    struct kml_cost cost = {0.5, 0.25};
    struct kml_cost half = kml_cost_at_speed(cost, 100, 50);
    assert_true(half.fixed == 1 && half.per_sample == 0.5);
    struct kml_cost same = kml_cost_at_speed(cost, 0, 50);
    assert_true(same.fixed == 0.5 && same.per_sample == 0.25);
    same = kml_cost_at_speed(cost, 100, (double)NAN);
    assert_true(same.fixed == 0.5 && same.per_sample == 0.25);
}

static void a_rule_that_cannot_be_is_refused_by_name(void **state)
{
    (void)state;
    struct kml_wlbs w;
    struct kml_err err;
    struct kml_wlbs_rule rule = kml_wlbs_rule_default();
    rule.minimum_share = (double)NAN;
    assert_int_equal(kml_wlbs_init(&w, &rule, M, &err), -1);
    assert_non_null(strstr(err.text, "minimumShare"));
    rule = kml_wlbs_rule_default();
    rule.rapid_threshold = 0.01;
    assert_int_equal(kml_wlbs_init(&w, &rule, M, &err), -1);
    assert_non_null(strstr(err.text, "rapidThreshold"));
    rule = kml_wlbs_rule_default();
    rule.maximum_change = 0;
    assert_int_equal(kml_wlbs_init(&w, &rule, M, &err), -1);
    assert_non_null(strstr(err.text, "maximumChange"));
    rule = kml_wlbs_rule_default();
    assert_int_equal(kml_wlbs_init(&w, &rule, 0, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_equal_until_the_warm_up_is_over),
        cmocka_unit_test(the_initial_division_is_proportional_to_speed),
        cmocka_unit_test(faster_never_means_fewer),
        cmocka_unit_test(constant_speeds_need_two_adjustments_at_most_and_end_balanced),
        cmocka_unit_test(adjustments_end_when_the_imbalance_is_fine),
        cmocka_unit_test(the_first_fine_step_is_half_of_the_way_and_the_second_all_of_it),
        cmocka_unit_test(a_large_slow_down_is_met_at_once_within_the_largest_change),
        cmocka_unit_test(no_second_rapid_step_within_the_cool_down_whatever_the_speeds_do),
        cmocka_unit_test(equal_workers_with_jitter_are_adjusted_twice_at_most_in_a_thousand_windows),
        cmocka_unit_test(windows_with_jitter_are_adjusted_twice_at_most_too),
        cmocka_unit_test(a_slow_down_is_seen_through_the_jitter),
        cmocka_unit_test(shares_depend_on_ratios_of_speeds_only_and_repeat_exactly),
        cmocka_unit_test(nobody_falls_below_the_minimum_share),
        cmocka_unit_test(who_comes_or_goes_is_divided_anew),
        cmocka_unit_test(shares_add_up_in_a_storm_of_absurd_costs_and_changing_crews),
        cmocka_unit_test(costs_that_nobody_knows_change_nothing),
        cmocka_unit_test(the_realised_gain_of_a_change_stands_in_the_next_record),
        cmocka_unit_test(a_dry_run_records_and_leaves_the_shares_equal),
        cmocka_unit_test(in_shard_form_all_end_their_shards_together),
        cmocka_unit_test(a_cost_at_a_predicted_speed_is_scaled_as_a_whole),
        cmocka_unit_test(a_rule_that_cannot_be_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
