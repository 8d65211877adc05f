#include "sync/ledger.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tests/unit/sync/seed.h"

static void set_up(struct kml_ledger *l, enum kml_ledger_policy policy, uint64_t positions, uint32_t epochs,
                   uint32_t workers)
{
    struct kml_err err;
    assert_int_equal(kml_ledger_init(l, policy, false, positions, epochs, workers, workers, &err), 0);
}

static void gives(struct kml_ledger *l, uint32_t worker, uint64_t step, uint64_t want, uint32_t epoch,
                  uint64_t begin, uint64_t end)
{
    struct kml_lease lease;
    assert_int_equal(kml_ledger_lease(l, worker, step, want, &lease), KML_LEASE_GIVEN);
    assert_int_equal(lease.epoch, epoch);
    assert_int_equal(lease.count, 1);
    assert_int_equal(lease.range[0].begin, begin);
    assert_int_equal(lease.range[0].end, end);
    assert_int_equal(lease.samples, end - begin);
    assert_true(kml_ledger_sound(l));
}

static void answers(struct kml_ledger *l, uint32_t worker, enum kml_lease_answer expected)
{
    struct kml_lease lease;
    assert_int_equal(kml_ledger_lease(l, worker, 999, 1, &lease), expected);
    assert_int_equal(lease.count, 0);
}

static void static_workers_take_their_own_equal_shards(void **state)
{
    (void)state;
    struct kml_ledger l;
    set_up(&l, KML_LEDGER_STATIC, 10, 2, 3);
    gives(&l, 1, 1, 2, 0, 3, 5);
    gives(&l, 0, 1, 2, 0, 0, 2);
    gives(&l, 2, 1, 4, 0, 6, 10);
    gives(&l, 1, 2, 2, 0, 5, 6); /* a runt */
    answers(&l, 1, KML_LEASE_WAIT);
    kml_ledger_finish(&l);
}

static void leased_workers_take_from_one_queue(void **state)
{
    (void)state;
    struct kml_ledger l;
    set_up(&l, KML_LEDGER_LEASED, 10, 1, 3);
    gives(&l, 2, 1, 4, 0, 0, 4);
    gives(&l, 0, 1, 4, 0, 4, 8);
    gives(&l, 2, 2, 4, 0, 8, 10);
    answers(&l, 1, KML_LEASE_WAIT);
    kml_ledger_finish(&l);
}

static void a_lost_workers_ranges_are_dealt_before_fresh_ones(void **state)
{
    (void)state;
    struct kml_ledger l;
    set_up(&l, KML_LEDGER_LEASED, 100, 1, 3);
    gives(&l, 0, 1, 10, 0, 0, 10);
    gives(&l, 1, 1, 10, 0, 10, 20);
    gives(&l, 0, 2, 10, 0, 20, 30);
    assert_int_equal(kml_ledger_lost(&l, 0), 20);
    struct kml_lease lease;
    assert_int_equal(kml_ledger_lease(&l, 2, 1, 25, &lease), KML_LEASE_GIVEN);
    assert_int_equal(lease.count, 2);
    assert_int_equal(lease.range[0].begin, 0);
    assert_int_equal(lease.range[0].end, 10);
    assert_int_equal(lease.range[1].begin, 20);
    assert_int_equal(lease.range[1].end, 35); /* the returned rest and fresh ones, joined */
    assert_int_equal(kml_ledger_leased(&l, 2, 1), 25);
    assert_true(kml_ledger_sound(&l));
    kml_ledger_finish(&l);
}

static void an_abandoned_step_is_dealt_again_and_other_steps_stay(void **state)
{
    (void)state;
    struct kml_ledger l;
    set_up(&l, KML_LEDGER_LEASED, 100, 1, 2);
    gives(&l, 0, 1, 10, 0, 0, 10);
    gives(&l, 0, 2, 10, 0, 10, 20);
    assert_int_equal(kml_ledger_abandon(&l, 0, 1), 10);
    assert_int_equal(kml_ledger_abandon(&l, 0, 1), 0);
    assert_int_equal(kml_ledger_leased(&l, 0, 2), 10);
    gives(&l, 1, 1, 10, 0, 0, 10);
    kml_ledger_finish(&l);
}

static void a_repeated_commit_changes_nothing(void **state)
{
    (void)state;
    struct kml_ledger l;
    set_up(&l, KML_LEDGER_LEASED, 100, 1, 2);
    gives(&l, 0, 1, 10, 0, 0, 10);
    assert_int_equal(kml_ledger_done(&l, 0, 1), 10);
    assert_int_equal(kml_ledger_done(&l, 0, 1), 0);
    assert_int_equal(kml_ledger_lost(&l, 0), 0);
    assert_int_equal(l.committed[0], 10);
    assert_true(kml_ledger_progress(&l) == 0.1);
    kml_ledger_finish(&l);
}

static void a_lost_static_worker_takes_up_its_shard_when_it_returns(void **state)
{
    (void)state;
    struct kml_ledger l;
    set_up(&l, KML_LEDGER_STATIC, 100, 1, 2);
    gives(&l, 0, 1, 10, 0, 0, 10);
    assert_int_equal(kml_ledger_lost(&l, 0), 10);
    gives(&l, 1, 1, 50, 0, 50, 100);
    answers(&l, 1, KML_LEASE_WAIT); /* the shard of worker 0 is not for it */
    assert_false(kml_ledger_has_work(&l, 1));
    gives(&l, 0, 1, 10, 0, 0, 10);
    kml_ledger_finish(&l);
}

static void a_static_worker_lost_for_good_leaves_its_rest_to_the_others(void **state)
{
    (void)state;
    struct kml_ledger l;
    set_up(&l, KML_LEDGER_STATIC, 90, 2, 3);
    gives(&l, 0, 1, 10, 0, 0, 10);
    assert_int_equal(kml_ledger_done(&l, 0, 1), 10);
    gives(&l, 0, 2, 10, 0, 10, 20);
    gives(&l, 1, 1, 30, 0, 30, 60);
    gives(&l, 2, 1, 30, 0, 60, 90);
    assert_false(kml_ledger_has_work(&l, 1));
    assert_int_equal(kml_ledger_forfeit(&l, 0), 10);
    assert_true(kml_ledger_has_work(&l, 1));
    gives(&l, 1, 2, 15, 0, 10, 25);
    gives(&l, 2, 2, 15, 0, 25, 30);
    for (uint32_t w = 1; w < 3; w++) {
        kml_ledger_done(&l, w, 1);
        kml_ledger_done(&l, w, 2);
    }
    assert_int_equal(l.closed, 1);
    gives(&l, 1, 3, 30, 1, 30, 60); /* its own first */
    gives(&l, 1, 4, 30, 1, 0, 30);  /* then the shard that nobody owns now */
    kml_ledger_finish(&l);
}

static void a_worker_that_returns_after_all_owns_its_shard_from_the_next_epoch(void **state)
{
    (void)state;
    struct kml_ledger l;
    set_up(&l, KML_LEDGER_STATIC, 20, 2, 2);
    kml_ledger_forfeit(&l, 0); /* before anything is open */
    gives(&l, 1, 1, 10, 0, 10, 20);
    gives(&l, 1, 2, 10, 0, 0, 10);
    answers(&l, 0, KML_LEASE_WAIT); /* back, too late for this epoch */
    kml_ledger_done(&l, 1, 1);
    kml_ledger_done(&l, 1, 2);
    assert_int_equal(l.closed, 1);
    gives(&l, 1, 3, 20, 1, 10, 20);
    gives(&l, 0, 1, 20, 1, 0, 10);
    kml_ledger_finish(&l);
}

static void static_waits_until_all_of_an_epoch_is_committed(void **state)
{
    (void)state;
    struct kml_ledger l;
    set_up(&l, KML_LEDGER_STATIC, 20, 2, 2);
    gives(&l, 0, 1, 10, 0, 0, 10);
    gives(&l, 1, 1, 10, 0, 10, 20);
    assert_int_equal(kml_ledger_done(&l, 0, 1), 10);
    answers(&l, 0, KML_LEASE_WAIT);
    assert_false(kml_ledger_has_work(&l, 0));
    assert_int_equal(l.closed, 0);
    kml_ledger_done(&l, 1, 1);
    assert_int_equal(l.closed, 1);
    assert_true(kml_ledger_has_work(&l, 0));
    gives(&l, 0, 2, 10, 1, 0, 10);
    gives(&l, 1, 2, 10, 1, 10, 20);
    kml_ledger_done(&l, 0, 2);
    kml_ledger_done(&l, 1, 2);
    assert_true(kml_ledger_over(&l));
    answers(&l, 0, KML_LEASE_OVER);
    kml_ledger_finish(&l);
}

static void leased_in_lockstep_waits_at_the_end_too(void **state)
{
    (void)state;
    struct kml_ledger l;
    struct kml_err err;
    assert_int_equal(kml_ledger_init(&l, KML_LEDGER_LEASED, true, 10, 2, 2, 2, &err), 0);
    gives(&l, 0, 1, 10, 0, 0, 10);
    answers(&l, 1, KML_LEASE_WAIT);
    kml_ledger_done(&l, 0, 1);
    gives(&l, 1, 1, 10, 1, 0, 10);
    kml_ledger_finish(&l);
}

static void an_empty_queue_opens_the_next_epoch_but_not_a_third(void **state)
{
    (void)state;
    struct kml_ledger l;
    set_up(&l, KML_LEDGER_LEASED, 10, 3, 3);
    gives(&l, 0, 1, 10, 0, 0, 10);
    gives(&l, 1, 1, 10, 1, 0, 10);
    assert_false(kml_ledger_has_work(&l, 2));
    answers(&l, 2, KML_LEASE_WAIT);
    assert_int_equal(kml_ledger_done(&l, 1, 1), 10);
    assert_int_equal(l.closed, 0); /* epoch 1 is finished, epoch 0 is not: they close in order */
    assert_true(kml_ledger_epoch_progress(&l, 1) == 1.0);
    kml_ledger_done(&l, 0, 1);
    assert_int_equal(l.closed, 2);
    gives(&l, 2, 1, 10, 2, 0, 10);
    kml_ledger_done(&l, 2, 1);
    assert_true(kml_ledger_progress(&l) == 1.0);
    answers(&l, 2, KML_LEASE_OVER);
    kml_ledger_finish(&l);
}

static void ranges_of_the_older_epoch_come_back_first(void **state)
{
    (void)state;
    struct kml_ledger l;
    set_up(&l, KML_LEDGER_LEASED, 10, 3, 3);
    gives(&l, 0, 1, 10, 0, 0, 10);
    gives(&l, 1, 1, 4, 1, 0, 4);
    kml_ledger_lost(&l, 0);
    gives(&l, 1, 2, 4, 0, 0, 4);
    gives(&l, 2, 1, 40, 0, 4, 10);
    gives(&l, 2, 2, 40, 1, 4, 10);
    kml_ledger_finish(&l);
}

static void more_workers_than_samples_leaves_some_without_a_shard(void **state)
{
    (void)state;
    struct kml_ledger l;
    set_up(&l, KML_LEDGER_STATIC, 2, 2, 5);
    uint32_t busy = 0;
    for (uint32_t w = 0; w < 5; w++) {
        struct kml_lease lease;
        bool expected = kml_ledger_has_work(&l, w);
        assert_int_equal(kml_ledger_lease(&l, w, 1, 8, &lease) == KML_LEASE_GIVEN, expected);
        busy += expected;
    }
    assert_int_equal(busy, 2);
    kml_ledger_finish(&l);
}

static void a_worker_beyond_the_shards_lives_on_the_common_queue(void **state)
{
    (void)state;
    struct kml_ledger l;
    struct kml_err err;
    assert_int_equal(kml_ledger_init(&l, KML_LEDGER_STATIC, true, 20, 1, 2, 4, &err), 0);
    answers(&l, 3, KML_LEASE_WAIT);
    kml_ledger_forfeit(&l, 0);
    gives(&l, 3, 1, 5, 0, 0, 5);
    kml_ledger_finish(&l);
}

static void a_ledger_of_nothing_is_refused(void **state)
{
    (void)state;
    struct kml_ledger l;
    static const uint64_t bad[][4] = {{0, 1, 1, 1}, {1, 0, 1, 1}, {1, 1, 0, 1}, {1, 1, 2, 1}};
    for (size_t i = 0; i < KML_COUNT(bad); i++) {
        struct kml_err err = {.code = KML_OK};
        assert_int_equal(kml_ledger_init(&l, KML_LEDGER_LEASED, false, bad[i][0], (uint32_t)bad[i][1],
                                         (uint32_t)bad[i][2], (uint32_t)bad[i][3], &err),
                         -1);
        assert_int_equal(err.code, KML_INVALID);
    }
}

static void shard_cuts_are_exact_for_huge_numbers(void **state)
{
    (void)state;
    assert_int_equal(kml_shard_cut(10, 3, 1), 3);
    assert_int_equal(kml_shard_cut(10, 3, 2), 6);
    assert_true(kml_shard_cut(UINT64_MAX, UINT32_MAX, UINT32_MAX) == UINT64_MAX);
    for (uint64_t n = 1; n < 60; n++) {
        for (uint32_t m = 1; m < 20; m++) {
            for (uint32_t i = 0; i <= m; i++) {
                assert_int_equal(kml_shard_cut(n, m, i), n * i / m);
            }
        }
    }
}

/* ---- Oracle 9: exactly once per epoch, whatever happens ---- */

#define WORKERS 6
#define POSITIONS 240
#define EPOCHS 4
#define OPEN 3 /* leases a worker may hold */

/* The test's own book: who holds what, and how often each position of each epoch was committed. */
struct book {
    struct kml_lease held[WORKERS][OPEN];
    uint64_t step_of[WORKERS][OPEN]; /* 0: this place is empty */
    uint64_t next_step[WORKERS];
    uint8_t count[EPOCHS][POSITIONS];
    uint64_t committed[WORKERS];
};

static void note_commit(struct book *b, uint32_t worker, const struct kml_lease *lease)
{
    for (uint32_t r = 0; r < lease->count; r++) {
        for (uint64_t p = lease->range[r].begin; p < lease->range[r].end; p++) {
            b->count[lease->epoch][p]++;
        }
    }
    b->committed[worker] += lease->samples;
}

static bool try_lease(struct kml_ledger *l, struct book *b, uint32_t w, uint64_t want)
{
    for (int k = 0; k < OPEN; k++) {
        if (b->step_of[w][k] != 0) {
            continue;
        }
        struct kml_lease *lease = &b->held[w][k];
        bool expected = kml_ledger_has_work(l, w);
        enum kml_lease_answer answer = kml_ledger_lease(l, w, ++b->next_step[w], want, lease);
        assert_int_equal(answer == KML_LEASE_GIVEN, expected);
        if (answer == KML_LEASE_GIVEN) {
            assert_true(lease->samples >= 1 && lease->samples <= want && lease->count <= KML_LEASE_RANGES);
            assert_int_equal(kml_ledger_leased(l, w, b->next_step[w]), lease->samples);
            b->step_of[w][k] = b->next_step[w];
        }
        return answer == KML_LEASE_GIVEN;
    }
    return false;
}

static void commit_one(struct kml_ledger *l, struct book *b, uint32_t w, int k)
{
    if (b->step_of[w][k] == 0) {
        return;
    }
    assert_int_equal(kml_ledger_done(l, w, b->step_of[w][k]), b->held[w][k].samples);
    note_commit(b, w, &b->held[w][k]);
    b->step_of[w][k] = 0;
}

static void storm_event(struct kml_ledger *l, struct book *b, struct kml_rng *rng)
{
    uint32_t w = (uint32_t)kml_rng_below(rng, WORKERS);
    int k = (int)kml_rng_below(rng, OPEN);
    uint64_t chance = kml_rng_below(rng, 100);
    if (chance < 50) {
        try_lease(l, b, w, 1 + kml_rng_below(rng, 20));
    } else if (chance < 85) {
        commit_one(l, b, w, k);
    } else if (chance < 90) {
        kml_ledger_abandon(l, w, b->step_of[w][k]);
        b->step_of[w][k] = 0;
    } else if (chance < 97) {
        kml_ledger_lost(l, w);
        memset(b->step_of[w], 0, sizeof b->step_of[w]);
    } else {
        kml_ledger_forfeit(l, w);
        memset(b->step_of[w], 0, sizeof b->step_of[w]);
    }
}

/* What is closed was committed exactly once, what is open at most once; no more pieces than a small number a
 * worker. */
static void check_book(const struct kml_ledger *l, const struct book *b)
{
    assert_true(kml_ledger_sound(l));
    for (uint32_t e = 0; e < EPOCHS; e++) {
        uint64_t done = 0;
        for (int p = 0; p < POSITIONS; p++) {
            assert_true(b->count[e][p] <= 1);
            done += b->count[e][p];
        }
        assert_int_equal(done == POSITIONS && e < l->closed, e < l->closed);
        assert_true(kml_ledger_epoch_progress(l, e) == (double)done / POSITIONS);
    }
    assert_memory_equal(l->committed, b->committed, sizeof b->committed);
}

/* One worker alone takes all that is left: the others are declared lost. It always comes to the end. */
static void finish_alone(struct kml_ledger *l, struct book *b)
{
    for (uint32_t w = 1; w < WORKERS; w++) {
        kml_ledger_forfeit(l, w);
        memset(b->step_of[w], 0, sizeof b->step_of[w]);
    }
    for (int turn = 0; !kml_ledger_over(l); turn++) {
        assert_true(turn < EPOCHS * POSITIONS + OPEN);
        for (int k = 0; k < OPEN; k++) {
            commit_one(l, b, 0, k);
        }
        assert_true(kml_ledger_over(l) || try_lease(l, b, 0, 7));
    }
}

static void every_position_is_committed_once_an_epoch_in_a_storm(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    uint32_t most = 0;
    for (int run = 0; run < 3000; run++) {
        struct kml_ledger l;
        struct kml_err err;
        static struct book b;
        memset(&b, 0, sizeof b);
        enum kml_ledger_policy policy = run % 2 == 0 ? KML_LEDGER_STATIC : KML_LEDGER_LEASED;
        uint32_t shards = 1 + (uint32_t)kml_rng_below(&rng, WORKERS);
        assert_int_equal(kml_ledger_init(&l, policy, kml_rng_below(&rng, 2) == 0, POSITIONS, EPOCHS, shards,
                                         WORKERS, &err),
                         0);
        int events = (int)kml_rng_below(&rng, 800);
        for (int event = 0; event < events; event++) {
            storm_event(&l, &b, &rng);
            most = l.row[0].count > most ? l.row[0].count : most;
            if (event % 16 == 0) {
                check_book(&l, &b);
            }
        }
        finish_alone(&l, &b);
        check_book(&l, &b);
        assert_int_equal(l.closed, EPOCHS);
        kml_ledger_finish(&l);
    }
    assert_true(most <=
                2 * (WORKERS * OPEN * 2) + WORKERS); /* pieces are joined: memory follows the open leases */
}

static void the_shares_of_static_are_equal_whatever_the_speeds(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 200; run++) {
        struct kml_ledger l;
        set_up(&l, KML_LEDGER_STATIC, POSITIONS + 1, 3, WORKERS);
        uint64_t step = 0;
        while (!kml_ledger_over(&l)) {
            uint32_t w = (uint32_t)(kml_rng_below(&rng, WORKERS * 2) % (1 + kml_rng_below(&rng, WORKERS)));
            struct kml_lease lease;
            step++;
            if (kml_ledger_lease(&l, w, step, 9, &lease) == KML_LEASE_GIVEN) {
                kml_ledger_done(&l, w, step);
            }
        }
        for (uint32_t w = 0; w < WORKERS; w++) {
            assert_int_equal(l.committed[w], 3 * (l.cut[w + 1] - l.cut[w]));
        }
        kml_ledger_finish(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(static_workers_take_their_own_equal_shards),
        cmocka_unit_test(leased_workers_take_from_one_queue),
        cmocka_unit_test(a_lost_workers_ranges_are_dealt_before_fresh_ones),
        cmocka_unit_test(an_abandoned_step_is_dealt_again_and_other_steps_stay),
        cmocka_unit_test(a_repeated_commit_changes_nothing),
        cmocka_unit_test(a_lost_static_worker_takes_up_its_shard_when_it_returns),
        cmocka_unit_test(a_static_worker_lost_for_good_leaves_its_rest_to_the_others),
        cmocka_unit_test(a_worker_that_returns_after_all_owns_its_shard_from_the_next_epoch),
        cmocka_unit_test(static_waits_until_all_of_an_epoch_is_committed),
        cmocka_unit_test(leased_in_lockstep_waits_at_the_end_too),
        cmocka_unit_test(an_empty_queue_opens_the_next_epoch_but_not_a_third),
        cmocka_unit_test(ranges_of_the_older_epoch_come_back_first),
        cmocka_unit_test(more_workers_than_samples_leaves_some_without_a_shard),
        cmocka_unit_test(a_worker_beyond_the_shards_lives_on_the_common_queue),
        cmocka_unit_test(a_ledger_of_nothing_is_refused),
        cmocka_unit_test(shard_cuts_are_exact_for_huge_numbers),
        cmocka_unit_test(every_position_is_committed_once_an_epoch_in_a_storm),
        cmocka_unit_test(the_shares_of_static_are_equal_whatever_the_speeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
