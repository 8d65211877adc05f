#include "rpc/loop.h"

#include <pthread.h>

#include "peers.h"

static void looking_at_an_empty_loop_finds_nothing(void **state)
{
    (void)state;
    struct kml_loop *loop = kml_loop_create();
    assert_int_equal(kml_loop_run(loop, 0, false), 0);
    assert_int_equal(kml_loop_run(loop, 0, true), 0);
    kml_loop_destroy(loop);
    kml_loop_destroy(NULL);
}

static void a_deadline_ends_a_wait_and_not_before(void **state)
{
    (void)state;
    struct kml_loop *loop = kml_loop_create();
    struct kml_clock clock = kml_clock_monotonic();
    uint64_t until = kml_now(&clock) + 20 * KML_MILLISECOND;
    assert_int_equal(kml_loop_run(loop, until, true), 0);
    assert_true(kml_now(&clock) >= until);
    kml_loop_destroy(loop);
}

static void a_wake_before_the_wait_is_not_lost_and_wakes_add_up_to_one(void **state)
{
    (void)state;
    struct kml_loop *loop = kml_loop_create();
    for (int i = 0; i < 3; i++) {
        kml_loop_wake(loop);
        kml_loop_wake(loop);
        assert_int_equal(kml_loop_run(loop, UINT64_MAX, true), 1);
    }
    kml_loop_wake(loop); /* left behind */
    kml_loop_destroy(loop);
}

struct ringer {
    struct kml_loop *loop;
    atomic_uint asked; /* by the loop's thread */
    unsigned rounds;
};

/* Wakes once for each round that was asked for. */
static void *ring(void *self)
{
    struct ringer *r = self;
    for (unsigned i = 1; i <= r->rounds; i++) {
        while (atomic_load(&r->asked) < i) {
            (void)sched_yield();
        }
        kml_loop_wake(r->loop);
    }
    return NULL;
}

static void another_thread_wakes_a_waiting_loop(void **state)
{
    (void)state;
    struct ringer r = {.loop = kml_loop_create(), .rounds = 300};
    pthread_t thread;
    atomic_init(&r.asked, 0);
    assert_int_equal(pthread_create(&thread, NULL, ring, &r), 0);
    for (unsigned i = 1; i <= r.rounds; i++) {
        atomic_store(&r.asked, i);
        assert_int_equal(kml_loop_run(r.loop, UINT64_MAX, true), 1);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    kml_loop_destroy(r.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looking_at_an_empty_loop_finds_nothing),
        cmocka_unit_test(a_deadline_ends_a_wait_and_not_before),
        cmocka_unit_test(a_wake_before_the_wait_is_not_lost_and_wakes_add_up_to_one),
        cmocka_unit_test(another_thread_wakes_a_waiting_loop),
    };
    return cmocka_run_group_tests(tests, group_init, group_finish);
}
