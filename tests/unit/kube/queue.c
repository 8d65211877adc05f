/* The queue of keys to look at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kube/queue.h"
#include "unit/seed.h"

#define MS KML_MILLISECOND

static void assert_next(struct kml_workqueue *q, uint64_t now, const char *key)
{
    const char *got = kml_workqueue_get(q, now);
    if (key == NULL) {
        assert_null(got);
    } else {
        assert_non_null(got);
        assert_string_equal(got, key);
    }
}

static void a_key_that_waits_is_not_added_twice(void **state)
{
    (void)state;
    struct kml_workqueue *q = kml_workqueue_create();
    for (int i = 0; i < 1000; i++) {
        kml_workqueue_add(q, "a", KML_WORK_LIVE, 0);
        kml_workqueue_add(q, "b", KML_WORK_LIVE, 0);
    }
    assert_next(q, 0, "a");
    assert_next(q, 0, "b");
    assert_next(q, 0, NULL);
    kml_workqueue_done(q, "a", 0);
    kml_workqueue_done(q, "b", 0);
    assert_next(q, 0, NULL);
    struct kml_workqueue_counts counts;
    kml_workqueue_counts(q, &counts);
    assert_int_equal(counts.adds, 2);
    assert_int_equal(counts.depth + counts.working + counts.waiting, 0);
    kml_workqueue_destroy(q);
}

static void a_key_added_while_worked_on_comes_once_more_and_never_at_the_same_time(void **state)
{
    (void)state;
    struct kml_workqueue *q = kml_workqueue_create();
    kml_workqueue_add(q, "a", KML_WORK_LIVE, 0);
    assert_next(q, 0, "a");
    for (int i = 0; i < 1000; i++) {
        kml_workqueue_add(q, "a", KML_WORK_LIVE, 0);
        assert_next(q, 0, NULL);
    }
    kml_workqueue_done(q, "a", 0);
    assert_next(q, 0, "a");
    kml_workqueue_done(q, "a", 0);
    assert_next(q, 0, NULL);
    kml_workqueue_destroy(q);
}

static void failures_wait_twice_as_long_each_time_up_to_a_thousand_seconds(void **state)
{
    (void)state;
    struct kml_workqueue *q = kml_workqueue_create();
    uint64_t now = 0;
    uint64_t wait = 5 * MS;
    kml_workqueue_add(q, "a", KML_WORK_LIVE, now);
    for (int i = 0; i < 25; i++) {
        assert_next(q, now, "a");
        kml_workqueue_add_failed(q, "a", now);
        kml_workqueue_done(q, "a", now);
        assert_int_equal(kml_workqueue_failures(q, "a"), i + 1);
        assert_int_equal(kml_workqueue_next_ns(q, now), now + wait);
        assert_next(q, now + wait - 1, NULL);
        now += wait;
        wait = wait * 2 > 1000 * KML_SECOND ? 1000 * KML_SECOND : wait * 2;
    }
    assert_int_equal(wait, 1000 * KML_SECOND);
    assert_next(q, now, "a");
    kml_workqueue_forget(q, "a");
    kml_workqueue_add_failed(q, "a", now);
    kml_workqueue_done(q, "a", now);
    assert_int_equal(kml_workqueue_next_ns(q, now), now + 5 * MS);
    kml_workqueue_destroy(q);
}

static void one_keys_failures_hold_up_nobody_else(void **state)
{
    (void)state;
    struct kml_workqueue *q = kml_workqueue_create();
    for (int i = 0; i < 10; i++) {
        kml_workqueue_add_failed(q, "bad", 0);
    }
    kml_workqueue_add(q, "good", KML_WORK_LIVE, 0);
    assert_next(q, 0, "good");
    assert_next(q, 0, NULL);
    kml_workqueue_add(q, "bad", KML_WORK_LIVE, 0); /* but a change of its own brings it forward */
    assert_next(q, 0, "bad");
    kml_workqueue_destroy(q);
}

static void live_changes_come_before_background_work(void **state)
{
    (void)state;
    struct kml_workqueue *q = kml_workqueue_create();
    char key[16];
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(key, sizeof key, "job-%d", i);
        kml_workqueue_add(q, key, KML_WORK_BACKGROUND, 0);
    }
    kml_workqueue_add(q, "new", KML_WORK_LIVE, 0);
    kml_workqueue_add(q, "job-999", KML_WORK_LIVE, 0); /* raised from where it stood */
    kml_workqueue_add(q, "job-0", KML_WORK_BACKGROUND, 0);
    assert_next(q, 0, "new");
    assert_next(q, 0, "job-999");
    assert_next(q, 0, "job-0");
    assert_next(q, 0, "job-1");
    kml_workqueue_destroy(q);
}

static void of_two_times_the_earlier_one_counts(void **state)
{
    (void)state;
    struct kml_workqueue *q = kml_workqueue_create();
    kml_workqueue_add_at(q, "a", 100);
    kml_workqueue_add_at(q, "a", 50);
    kml_workqueue_add_at(q, "a", 70);
    kml_workqueue_add_at(q, "b", 60);
    assert_int_equal(kml_workqueue_next_ns(q, 0), 50);
    assert_next(q, 50, "a");
    assert_next(q, 59, NULL);
    assert_next(q, 60, "b");
    kml_workqueue_add_at(q, "a", 80); /* asked for while it is worked on */
    kml_workqueue_done(q, "a", 61);
    kml_workqueue_done(q, "b", 61);
    assert_int_equal(kml_workqueue_next_ns(q, 61), 80);
    assert_next(q, 80, "a");
    kml_workqueue_done(q, "a", 80);
    assert_int_equal(kml_workqueue_next_ns(q, 80), UINT64_MAX);
    kml_workqueue_destroy(q);
}

#define KEYS 40

/* Against a model that only remembers what must come: nothing is lost, nothing runs twice at a time. */
static void nothing_is_lost_and_nothing_runs_twice_over_random_interleavings(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    struct kml_workqueue *q = kml_workqueue_create();
    bool owed[KEYS] = {false};
    bool working[KEYS] = {false};
    char name[KEYS][16];
    for (int i = 0; i < KEYS; i++) {
        (void)snprintf(name[i], sizeof name[i], "k-%d", i);
    }
    uint64_t now = 0;
    for (int step = 0; step < 20000; step++) {
        uint32_t i = (uint32_t)kml_rng_below(&rng, KEYS);
        now += kml_rng_below(&rng, 3 * MS);
        switch (kml_rng_below(&rng, 5)) {
        case 0:
            kml_workqueue_add(q, name[i], kml_rng_below(&rng, 2) == 0 ? KML_WORK_LIVE : KML_WORK_BACKGROUND,
                              now);
            owed[i] = true;
            break;
        case 1:
            kml_workqueue_add_at(q, name[i], now + kml_rng_below(&rng, 50 * MS));
            owed[i] = true;
            break;
        case 2:
            if (working[i] && kml_rng_below(&rng, 2) == 0) {
                kml_workqueue_add_failed(q, name[i], now);
                owed[i] = true;
            } else {
                kml_workqueue_forget(q, name[i]);
            }
            break;
        case 3: {
            const char *key = kml_workqueue_get(q, now);
            for (int k = 0; key != NULL && k < KEYS; k++) {
                if (strcmp(key, name[k]) == 0) {
                    assert_false(working[k]);
                    assert_true(owed[k]);
                    working[k] = true;
                    owed[k] = false;
                }
            }
            break;
        }
        default:
            if (working[i]) {
                working[i] = false;
                kml_workqueue_done(q, name[i], now);
            }
        }
    }
    for (int i = 0; i < KEYS; i++) {
        if (working[i]) {
            kml_workqueue_done(q, name[i], now);
        }
    }
    now += 2000 * KML_SECOND;
    for (const char *key = kml_workqueue_get(q, now); key != NULL; key = kml_workqueue_get(q, now)) {
        for (int k = 0; k < KEYS; k++) {
            owed[k] = owed[k] && strcmp(key, name[k]) != 0;
        }
        kml_workqueue_done(q, key, now);
    }
    for (int i = 0; i < KEYS; i++) {
        assert_false(owed[i]);
    }
    kml_workqueue_destroy(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_that_waits_is_not_added_twice),
        cmocka_unit_test(a_key_added_while_worked_on_comes_once_more_and_never_at_the_same_time),
        cmocka_unit_test(failures_wait_twice_as_long_each_time_up_to_a_thousand_seconds),
        cmocka_unit_test(one_keys_failures_hold_up_nobody_else),
        cmocka_unit_test(live_changes_come_before_background_work),
        cmocka_unit_test(of_two_times_the_earlier_one_counts),
        cmocka_unit_test(nothing_is_lost_and_nothing_runs_twice_over_random_interleavings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
