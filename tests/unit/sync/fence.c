#include "sync/fence.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tests/unit/sync/seed.h"

#define WORKERS 3
#define GENERATION 5

struct bench {
    struct kml_fence f;
    struct kml_fence_seat seat[WORKERS];
};

static void set_up(struct bench *t)
{
    kml_fence_init(&t->f, GENERATION, 100, t->seat, WORKERS);
}

static bool admit(struct bench *t, uint32_t worker, uint64_t incarnation)
{
    bool replaced = false;
    struct kml_err err;
    assert_int_equal(kml_fence_admit(&t->f, worker, incarnation, &replaced, &err), 0);
    return replaced;
}

static void judged(const struct bench *t, uint64_t incarnation, uint64_t step, uint64_t generation,
                   enum kml_verdict expected)
{
    assert_string_equal(kml_verdict_name(kml_fence_push(&t->f, 1, incarnation, step, generation)),
                        kml_verdict_name(expected));
}

static void a_push_counts_once_from_staging_to_commit(void **state)
{
    (void)state;
    struct bench t;
    set_up(&t);
    admit(&t, 1, 77);
    judged(&t, 77, 1, GENERATION, KML_VERDICT_CURRENT);
    kml_fence_staged(&t.f, 1, 1);
    judged(&t, 77, 1, GENERATION, KML_VERDICT_DUPLICATE);
    kml_fence_closed(&t.f, 1, 1);
    judged(&t, 77, 1, GENERATION, KML_VERDICT_LATE);
    judged(&t, 77, 2, GENERATION, KML_VERDICT_CURRENT);
    judged(&t, 77, 9, GENERATION, KML_VERDICT_CURRENT); /* numbers may skip */
}

static void the_rest_of_an_abandoned_step_is_late(void **state)
{
    (void)state;
    struct bench t;
    set_up(&t);
    admit(&t, 1, 77);
    kml_fence_closed(&t.f, 1, 4);
    judged(&t, 77, 4, GENERATION, KML_VERDICT_LATE);
    kml_fence_staged(&t.f, 1, 3);
    judged(&t, 77, 5, GENERATION, KML_VERDICT_CURRENT);
}

static void other_generations_and_incarnations_are_fenced(void **state)
{
    (void)state;
    struct bench t;
    set_up(&t);
    judged(&t, 0, 1, GENERATION, KML_VERDICT_FENCED); /* nobody sits there */
    admit(&t, 1, 77);
    judged(&t, 77, 1, GENERATION - 1, KML_VERDICT_FENCED);
    judged(&t, 77, 1, GENERATION + 1, KML_VERDICT_FENCED);
    judged(&t, 78, 1, GENERATION, KML_VERDICT_FENCED);
    judged(&t, 77, 0, GENERATION, KML_VERDICT_AHEAD);
}

static void a_new_process_replaces_the_old_one_for_ever(void **state)
{
    (void)state;
    struct bench t;
    struct kml_err err;
    bool replaced;
    set_up(&t);
    assert_false(admit(&t, 1, 77));
    kml_fence_staged(&t.f, 1, 6);
    assert_false(admit(&t, 1, 77)); /* the join came twice */
    judged(&t, 77, 6, GENERATION, KML_VERDICT_DUPLICATE);
    assert_true(admit(&t, 1, 78));
    judged(&t, 77, 7, GENERATION, KML_VERDICT_FENCED);
    judged(&t, 78, 1, GENERATION, KML_VERDICT_CURRENT);
    assert_int_equal(kml_fence_admit(&t.f, 1, 77, &replaced, &err), -1);
    assert_int_equal(err.code, KML_FENCED);
    assert_string_equal(err.text, "worker 1: this process was given up or replaced; start a new one");
    judged(&t, 78, 1, GENERATION, KML_VERDICT_CURRENT);
    assert_int_equal(kml_fence_admit(&t.f, 1, 0, &replaced, &err), -1);
    assert_int_equal(err.code, KML_INVALID);
}

static void a_dismissed_process_stays_out_and_a_fresh_one_comes_in(void **state)
{
    (void)state;
    struct bench t;
    struct kml_err err;
    bool replaced;
    set_up(&t);
    admit(&t, 1, 77);
    kml_fence_dismiss(&t.f, 1);
    kml_fence_dismiss(&t.f, 1);
    judged(&t, 77, 1, GENERATION, KML_VERDICT_FENCED);
    assert_int_equal(kml_fence_admit(&t.f, 1, 77, &replaced, &err), -1);
    assert_false(admit(&t, 1, 78));
    judged(&t, 78, 1, GENERATION, KML_VERDICT_CURRENT);
    assert_int_equal(kml_fence_admit(&t.f, 1, 77, &replaced, &err), -1);
}

static void commits_apply_in_order_without_a_gap_and_once(void **state)
{
    (void)state;
    struct bench t;
    set_up(&t);
    assert_int_equal(kml_fence_commit(&t.f, 101, GENERATION), KML_VERDICT_CURRENT);
    assert_int_equal(kml_fence_commit(&t.f, 101, GENERATION), KML_VERDICT_DUPLICATE);
    assert_int_equal(kml_fence_commit(&t.f, 100, GENERATION), KML_VERDICT_DUPLICATE);
    assert_int_equal(kml_fence_commit(&t.f, 103, GENERATION), KML_VERDICT_AHEAD);
    assert_int_equal(kml_fence_commit(&t.f, 102, GENERATION - 1), KML_VERDICT_FENCED);
    assert_int_equal(kml_fence_commit(&t.f, 102, GENERATION + 1), KML_VERDICT_FENCED);
    assert_int_equal(t.f.version, 101);
}

static void a_new_generation_ends_all_that_was_in_flight(void **state)
{
    (void)state;
    struct bench t;
    set_up(&t);
    admit(&t, 1, 77);
    kml_fence_staged(&t.f, 1, 3);
    kml_fence_raise(&t.f, GENERATION + 1, 90);
    assert_int_equal(t.f.version, 90);
    judged(&t, 77, 3, GENERATION, KML_VERDICT_FENCED);
    judged(&t, 77, 3, GENERATION + 1, KML_VERDICT_LATE);
    judged(&t, 77, 4, GENERATION + 1, KML_VERDICT_CURRENT);
    assert_int_equal(kml_fence_commit(&t.f, 91, GENERATION), KML_VERDICT_FENCED);
    assert_int_equal(kml_fence_commit(&t.f, 91, GENERATION + 1), KML_VERDICT_CURRENT);
}

/* Pushes that come lost, twice and out of order: every step of every process is staged once and committed
 * once. */
static void each_step_counts_once_under_repeats_and_reordering(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 2000; run++) {
        struct bench t;
        uint64_t incarnation[] = {11, 12, 13};
        uint32_t now = 0;
        bool staged[3][20] = {{false}}, closed[3][20] = {{false}};
        set_up(&t);
        admit(&t, 1, incarnation[0]);
        for (int event = 0; event < 300; event++) {
            uint32_t from = (uint32_t)kml_rng_below(&rng, 3);
            uint64_t step = 1 + kml_rng_below(&rng, 19);
            enum kml_verdict v = kml_fence_push(&t.f, 1, incarnation[from], step, GENERATION);
            assert_int_equal(v == KML_VERDICT_FENCED, from != now);
            if (v == KML_VERDICT_CURRENT) {
                assert_false(staged[from][step]);
                staged[from][step] = true;
                kml_fence_staged(&t.f, 1, step);
            } else if (v == KML_VERDICT_DUPLICATE && step == t.seat[1].staged &&
                       kml_rng_below(&rng, 3) == 0) {
                assert_false(closed[from][step]);
                closed[from][step] = true;
                kml_fence_closed(&t.f, 1, step);
            }
            assert_true(t.seat[1].closed <= t.seat[1].staged);
            if (now < 2 && kml_rng_below(&rng, 100) == 0) {
                now++;
                assert_true(admit(&t, 1, incarnation[now]));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_push_counts_once_from_staging_to_commit),
        cmocka_unit_test(the_rest_of_an_abandoned_step_is_late),
        cmocka_unit_test(other_generations_and_incarnations_are_fenced),
        cmocka_unit_test(a_new_process_replaces_the_old_one_for_ever),
        cmocka_unit_test(a_dismissed_process_stays_out_and_a_fresh_one_comes_in),
        cmocka_unit_test(commits_apply_in_order_without_a_gap_and_once),
        cmocka_unit_test(a_new_generation_ends_all_that_was_in_flight),
        cmocka_unit_test(each_step_counts_once_under_repeats_and_reordering),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
