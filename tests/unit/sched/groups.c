#include "sched/groups.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tests/unit/seed.h"

#define M 8

struct field {
    struct kml_groups groups;
    struct kml_group_input in[M];
    struct kml_group_decision d;
    uint64_t now;
    uint32_t regroups; /* splits and merges */
};

static void begin(struct field *f, const struct kml_group_rule *rule)
{
    struct kml_err err;
    *f = (struct field){.now = 0};
    assert_int_equal(kml_groups_init(&f->groups, rule, M, &err), 0);
    for (uint32_t i = 0; i < M; i++) {
        f->in[i] = (struct kml_group_input){.present = i < 4, .time = 1};
    }
}

static void look(struct field *f)
{
    kml_groups_look(&f->groups, f->now++, f->in, &f->d);
    f->regroups += f->d.kind == KML_GROUPS_SPLIT || f->d.kind == KML_GROUPS_MERGED;
}

static void times(struct field *f, double a, double b, double c, double d)
{
    f->in[0].time = a;
    f->in[1].time = b;
    f->in[2].time = c;
    f->in[3].time = d;
}

static void must_be(const struct field *f, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    const uint32_t wanted[M] = {a, b, c, d, KML_GROUP_NONE, KML_GROUP_NONE, KML_GROUP_NONE, KML_GROUP_NONE};
    assert_memory_equal(f->groups.group, wanted, sizeof wanted);
}

static void the_first_look_cuts_at_once(void **state)
{
    (void)state;
    struct field f;
    struct kml_group_rule rule = kml_group_rule_default();
    begin(&f, &rule);
    times(&f, 4, 1, 1.2, 1.1);
    look(&f);
    assert_int_equal(f.d.kind, KML_GROUPS_FIRST);
    assert_true(f.d.applied);
    assert_int_equal(f.d.plan, 1);
    must_be(&f, 1, 0, 0, 0);
    kml_groups_finish(&f.groups);
}

static void jitter(struct field *f, struct kml_rng *rng, const double *base, double most)
{
    for (uint32_t i = 0; i < M; i++) {
        f->in[i].time = base[i] * (1 + most * (2 * kml_rng_unit(rng) - 1));
    }
}

static void jitter_regroups_nobody_and_a_slow_down_regroups_once_within_k_plus_one_windows(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 10; run++) {
        struct field f;
        struct kml_group_rule rule = kml_group_rule_default();
        double most = (rule.ratio - 1) / 4;
        double base[M] = {1, 1, 1, 1, 1, 1, 1, 1};
        begin(&f, &rule);
        for (uint32_t i = 0; i < M; i++) {
            f.in[i].present = true;
        }
        for (int w = 0; w < 1000; w++) {
            jitter(&f, &rng, base, most);
            look(&f);
        }
        assert_int_equal(f.regroups, 0);
        assert_int_equal(f.groups.count, 1);
        base[run % M] = 2;
        for (uint32_t w = 1; w <= 1000; w++) {
            jitter(&f, &rng, base, most);
            look(&f);
            assert_int_equal(f.regroups, w >= rule.dwell_windows);
        }
        assert_int_equal(f.groups.count, 2);
        kml_groups_finish(&f.groups);
    }
}

static void a_worker_that_recovers_is_taken_back_once(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    struct field f;
    struct kml_group_rule rule = kml_group_rule_default();
    double base[M] = {1, 1, 1, 2, 1, 1, 1, 1};
    begin(&f, &rule);
    for (int w = 0; w < 100; w++) {
        jitter(&f, &rng, base, 0.01);
        look(&f);
    }
    must_be(&f, 0, 0, 0, 1);
    base[3] = 1;
    for (int w = 0; w < 1000; w++) {
        jitter(&f, &rng, base, 0.01);
        look(&f);
    }
    assert_int_equal(f.regroups, 1);
    must_be(&f, 0, 0, 0, 0);
    kml_groups_finish(&f.groups);
}

static void a_short_slow_down_changes_nothing(void **state)
{
    (void)state;
    struct field f;
    struct kml_group_rule rule = kml_group_rule_default();
    begin(&f, &rule);
    look(&f);
    for (int burst = 0; burst < 50; burst++) {
        times(&f, 1, 1, 1, 9);
        for (uint32_t w = 1; w < rule.dwell_windows; w++) {
            look(&f);
            assert_int_equal(f.d.reason, KML_GROUPS_DWELLING);
        }
        times(&f, 1, 1, 1, 1);
        look(&f);
    }
    assert_int_equal(f.regroups, 0);
    kml_groups_finish(&f.groups);
}

static void after_a_regroup_comes_the_cool_down(void **state)
{
    (void)state;
    struct field f;
    struct kml_group_rule rule = kml_group_rule_default();
    begin(&f, &rule);
    look(&f);
    times(&f, 1, 1, 1, 3);
    for (uint32_t w = 0; w < rule.dwell_windows; w++) {
        look(&f);
    }
    assert_int_equal(f.regroups, 1);
    times(&f, 1, 1, 5, 3);
    for (uint32_t w = 0; w < rule.cool_down_windows; w++) {
        look(&f);
        assert_int_equal(f.d.reason, KML_GROUPS_COOLING);
    }
    look(&f);
    assert_int_equal(f.d.kind, KML_GROUPS_SPLIT);
    must_be(&f, 0, 0, 2, 1);
    kml_groups_finish(&f.groups);
}

static void the_record_says_what_was_expected_and_what_came(void **state)
{
    (void)state;
    struct field f;
    struct kml_group_rule rule = kml_group_rule_default();
    rule.dwell_windows = 1;
    begin(&f, &rule);
    look(&f);
    times(&f, 1, 1, 1, 4);
    look(&f);
    assert_int_equal(f.d.kind, KML_GROUPS_SPLIT);
    assert_int_equal(f.d.reason, KML_GROUPS_FASTER);
    assert_true(f.d.rate == 1 && f.d.candidate == 3.25);
    assert_true(fabs(f.d.expected_gain - 2.25) < 1e-12);
    assert_true(isnan(f.d.realised_gain));
    assert_int_equal(f.d.groups_before, 1);
    assert_int_equal(f.d.groups_after, 2);
    assert_int_equal(f.d.before[3], 0);
    assert_int_equal(f.d.after[3], 1);
    assert_true(f.d.time[3] == 4);
    look(&f);
    assert_true(fabs(f.d.realised_gain - 2.25) < 1e-12);
    look(&f);
    assert_true(isnan(f.d.realised_gain));
    kml_groups_finish(&f.groups);
}

static void who_comes_or_goes_regroups_at_once(void **state)
{
    (void)state;
    struct field f;
    struct kml_group_rule rule = kml_group_rule_default();
    begin(&f, &rule);
    times(&f, 1, 1, 3, 3);
    look(&f);
    must_be(&f, 0, 0, 1, 1);
    f.in[1].present = false;
    look(&f);
    assert_int_equal(f.d.kind, KML_GROUPS_CREW);
    must_be(&f, 0, KML_GROUP_NONE, 1, 1);
    f.in[1] = (struct kml_group_input){.present = true, .time = 0}; /* not measured yet: the median, 3 */
    look(&f);
    assert_int_equal(f.d.kind, KML_GROUPS_CREW);
    must_be(&f, 0, 1, 1, 1);
    for (uint32_t i = 0; i < M; i++) {
        f.in[i].present = false;
    }
    look(&f);
    assert_int_equal(f.groups.count, 0);
    look(&f);
    assert_int_equal(f.d.kind, KML_GROUPS_KEPT);
    kml_groups_finish(&f.groups);
}

static void the_limits_of_size_and_number_hold(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 500; run++) {
        struct field f;
        struct kml_group_rule rule = kml_group_rule_default();
        rule.min_members = 1 + (uint32_t)kml_rng_below(&rng, 3);
        rule.max_groups = 1 + (uint32_t)kml_rng_below(&rng, 3);
        begin(&f, &rule);
        uint32_t members[M] = {0};
        for (uint32_t i = 0; i < M; i++) {
            f.in[i] = (struct kml_group_input){.present = true, .time = exp(3 * kml_rng_unit(&rng))};
        }
        look(&f);
        for (uint32_t i = 0; i < M; i++) {
            members[f.groups.group[i]]++;
        }
        assert_true(f.groups.count <= rule.max_groups);
        for (uint32_t g = 0; f.groups.count > 1 && g < f.groups.count; g++) {
            assert_true(members[g] >= rule.min_members);
        }
        kml_groups_finish(&f.groups);
    }
}

static void one_group_is_everybody_and_ratio_one_is_each_alone(void **state)
{
    (void)state;
    struct field f;
    struct kml_group_rule rule = kml_group_rule_default();
    rule.max_groups = 1;
    begin(&f, &rule);
    times(&f, 1, 2, 4, 8);
    look(&f);
    must_be(&f, 0, 0, 0, 0);
    kml_groups_finish(&f.groups);
    rule.max_groups = M;
    rule.ratio = 1;
    begin(&f, &rule);
    times(&f, 4, 2, 1, 8);
    look(&f);
    must_be(&f, 2, 1, 0, 3);
    kml_groups_finish(&f.groups);
}

static void a_dry_run_records_and_leaves_all_in_one_group(void **state)
{
    (void)state;
    struct field f;
    struct kml_group_rule rule = kml_group_rule_default();
    rule.dry_run = true;
    begin(&f, &rule);
    times(&f, 1, 1, 1, 4);
    for (uint32_t w = 0; w < 1 + rule.dwell_windows; w++) {
        look(&f);
        must_be(&f, 0, 0, 0, 0);
        assert_false(f.d.applied);
    }
    assert_int_equal(f.d.kind, KML_GROUPS_SPLIT);
    assert_int_equal(f.d.after[3], 1);
    assert_int_equal(f.d.plan, 1);
    kml_groups_finish(&f.groups);
}

/* The same story twice, once with all times eight times as long: the same groups at each look. */
static void decisions_depend_on_ratios_only_and_repeat_exactly(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    struct field a;
    struct field b;
    struct kml_group_rule rule = kml_group_rule_default();
    begin(&a, &rule);
    begin(&b, &rule);
    double base[M] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (int w = 0; w < 3000; w++) {
        if (kml_rng_below(&rng, 30) == 0) {
            base[kml_rng_below(&rng, M)] = exp(2 * kml_rng_unit(&rng));
        }
        jitter(&a, &rng, base, 0.1);
        for (uint32_t i = 0; i < M; i++) {
            a.in[i].present = kml_rng_below(&rng, 200) == 0 ? !a.in[i].present : a.in[i].present;
            b.in[i] = (struct kml_group_input){.present = a.in[i].present, .time = 8 * a.in[i].time};
        }
        look(&a);
        look(&b);
        assert_int_equal(a.d.kind, b.d.kind);
        assert_memory_equal(a.groups.group, b.groups.group, M * sizeof(uint32_t));
    }
    assert_true(a.regroups > 3);
    kml_groups_finish(&a.groups);
    kml_groups_finish(&b.groups);
}

/* Paced workers, 5 % of jitter: each group's steps last as long as its slowest member's. */
static void the_predicted_rate_is_that_of_paced_workers_within_five_percent(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    struct field f;
    struct kml_group_rule rule = kml_group_rule_default();
    begin(&f, &rule);
    times(&f, 1, 1.25, 2, 4);
    look(&f);
    assert_int_equal(f.groups.count, 3);
    double done = 0;
    for (uint32_t g = 0; g < f.groups.count; g++) {
        for (double now = 0; now < 2000;) {
            double step = 0;
            double members = 0;
            for (uint32_t i = 0; i < 4; i++) {
                if (f.groups.group[i] == g) {
                    step = fmax(step, f.in[i].time * (1 + 0.05 * (2 * kml_rng_unit(&rng) - 1)));
                    members++;
                }
            }
            now += step;
            done += members;
        }
    }
    assert_true(fabs(done / 2000 / f.d.candidate - 1) < 0.05);
    kml_groups_finish(&f.groups);
}

static void a_rule_that_cannot_be_is_refused_by_name(void **state)
{
    (void)state;
    struct kml_groups g;
    struct kml_err err;
    struct kml_group_rule rule = kml_group_rule_default();
    rule.ratio = 0.9;
    assert_int_equal(kml_groups_init(&g, &rule, M, &err), -1);
    assert_non_null(strstr(err.text, "grouping.ratio"));
    rule = kml_group_rule_default();
    rule.max_groups = 0;
    assert_int_equal(kml_groups_init(&g, &rule, M, &err), -1);
    assert_non_null(strstr(err.text, "maxGroups"));
    rule = kml_group_rule_default();
    rule.hysteresis = (double)NAN;
    assert_int_equal(kml_groups_init(&g, &rule, M, &err), -1);
    assert_non_null(strstr(err.text, "hysteresis"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_look_cuts_at_once),
        cmocka_unit_test(jitter_regroups_nobody_and_a_slow_down_regroups_once_within_k_plus_one_windows),
        cmocka_unit_test(a_worker_that_recovers_is_taken_back_once),
        cmocka_unit_test(a_short_slow_down_changes_nothing),
        cmocka_unit_test(after_a_regroup_comes_the_cool_down),
        cmocka_unit_test(the_record_says_what_was_expected_and_what_came),
        cmocka_unit_test(who_comes_or_goes_regroups_at_once),
        cmocka_unit_test(the_limits_of_size_and_number_hold),
        cmocka_unit_test(one_group_is_everybody_and_ratio_one_is_each_alone),
        cmocka_unit_test(a_dry_run_records_and_leaves_all_in_one_group),
        cmocka_unit_test(decisions_depend_on_ratios_only_and_repeat_exactly),
        cmocka_unit_test(the_predicted_rate_is_that_of_paced_workers_within_five_percent),
        cmocka_unit_test(a_rule_that_cannot_be_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
