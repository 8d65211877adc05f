#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"

static void *note_thread(void *self)
{
    sigset_t blocked;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    char *name = self;
    (void)pthread_getname_np(pthread_self(), name, 16);
    return sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGINT) == 1 ? self : NULL;
}

static void a_thread_starts_with_signals_blocked_and_the_starter_keeps_its_mask(void **state)
{
    (void)state;
    struct kml_err err;
    char name[16] = "";
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(kml_thread_start(&thread, "a-name-longer-than-fifteen", note_thread, name, &err), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, name);
    sigset_t mine;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mine);
    assert_int_equal(sigismember(&mine, SIGTERM), 0);
}

static void items_leave_in_the_order_in_which_they_came(void **state)
{
    (void)state;
    struct kml_queue q;
    int value[5];
    void *item;
    kml_queue_init(&q, 3);
    for (int round = 0; round < 5; round++) { /* the ring turns over */
        assert_true(kml_queue_put(&q, &value[0]));
        assert_true(kml_queue_try_put(&q, &value[1]));
        assert_true(kml_queue_get(&q, &item));
        assert_ptr_equal(item, &value[0]);
        assert_true(kml_queue_try_get(&q, &item));
        assert_ptr_equal(item, &value[1]);
    }
    assert_false(kml_queue_try_get(&q, &item));
    kml_queue_finish(&q);
}

static void a_full_queue_refuses_who_will_not_wait(void **state)
{
    (void)state;
    struct kml_queue q;
    int value;
    kml_queue_init(&q, 2);
    assert_true(kml_queue_try_put(&q, &value));
    assert_true(kml_queue_try_put(&q, &value));
    assert_false(kml_queue_try_put(&q, &value));
    kml_queue_finish(&q);
}

static void a_closed_queue_gives_what_is_left_and_takes_nothing(void **state)
{
    (void)state;
    struct kml_queue q;
    int value;
    void *item;
    kml_queue_init(&q, 2);
    assert_true(kml_queue_put(&q, &value));
    kml_queue_close(&q);
    assert_false(kml_queue_put(&q, &value));
    assert_false(kml_queue_try_put(&q, &value));
    assert_true(kml_queue_get(&q, &item));
    assert_false(kml_queue_get(&q, &item));
    kml_queue_close(&q);
    kml_queue_finish(&q);
}

#define SENDERS 4
#define RECEIVERS 3
#define EACH 3000

struct crew {
    struct kml_queue queue;
    unsigned char seen[SENDERS * EACH]; /* how often each item arrived; each is touched by one receiver */
};

struct sender {
    struct crew *crew;
    size_t first;
};

static void *send_all(void *self)
{
    struct sender *s = self;
    for (size_t i = 0; i < EACH; i++) {
        KML_BUG_ON(!kml_queue_put(&s->crew->queue, &s->crew->seen[s->first + i]));
    }
    return NULL;
}

static void *receive_all(void *self)
{
    struct crew *crew = self;
    void *item;
    while (kml_queue_get(&crew->queue, &item)) {
        ++*(unsigned char *)item;
    }
    return NULL;
}

static void between_many_senders_and_receivers_nothing_is_lost_or_doubled(void **state)
{
    (void)state;
    struct crew *crew = KML_NEW(struct crew);
    struct sender sender[SENDERS];
    pthread_t in[SENDERS];
    pthread_t out[RECEIVERS];
    struct kml_err err;
    kml_queue_init(&crew->queue, 5);
    for (size_t i = 0; i < RECEIVERS; i++) {
        assert_int_equal(kml_thread_start(&out[i], "receiver", receive_all, crew, &err), 0);
    }
    for (size_t i = 0; i < SENDERS; i++) {
        sender[i] = (struct sender){crew, i * EACH};
        assert_int_equal(kml_thread_start(&in[i], "sender", send_all, &sender[i], &err), 0);
    }
    for (size_t i = 0; i < SENDERS; i++) {
        assert_int_equal(pthread_join(in[i], NULL), 0);
    }
    kml_queue_close(&crew->queue);
    for (size_t i = 0; i < RECEIVERS; i++) {
        assert_int_equal(pthread_join(out[i], NULL), 0);
    }
    for (size_t i = 0; i < SENDERS * EACH; i++) {
        assert_int_equal(crew->seen[i], 1);
    }
    kml_queue_finish(&crew->queue);
    kml_free(crew);
}

static void *put_one(void *self)
{
    struct kml_queue *q = self;
    return kml_queue_put(q, q) ? q : NULL;
}

static void *get_one(void *self)
{
    void *item;
    return kml_queue_get(self, &item) ? self : NULL;
}

/* Whether the thread waits already or comes later, a close must let it go. */
static void a_close_frees_who_waits(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct kml_queue full;
        struct kml_queue empty;
        pthread_t putter;
        pthread_t getter;
        void *put_result = &full;
        void *get_result = &empty;
        kml_queue_init(&full, 1);
        kml_queue_init(&empty, 1);
        assert_true(kml_queue_put(&full, &full));
        assert_int_equal(kml_thread_start(&putter, "putter", put_one, &full, NULL), 0);
        assert_int_equal(kml_thread_start(&getter, "getter", get_one, &empty, NULL), 0);
        kml_queue_close(&full);
        kml_queue_close(&empty);
        assert_int_equal(pthread_join(putter, &put_result), 0);
        assert_int_equal(pthread_join(getter, &get_result), 0);
        assert_null(put_result);
        assert_null(get_result);
        kml_queue_finish(&full);
        kml_queue_finish(&empty);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_starts_with_signals_blocked_and_the_starter_keeps_its_mask),
        cmocka_unit_test(items_leave_in_the_order_in_which_they_came),
        cmocka_unit_test(a_full_queue_refuses_who_will_not_wait),
        cmocka_unit_test(a_closed_queue_gives_what_is_left_and_takes_nothing),
        cmocka_unit_test(between_many_senders_and_receivers_nothing_is_lost_or_doubled),
        cmocka_unit_test(a_close_frees_who_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
