#include "cli/restart.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "job/exitcode.h"

#define WORKERS 4

struct fixture {
    struct kml_restart r;
    struct kml_restart_seat seat[WORKERS];
};

static void begin(struct fixture *f, enum kml_job_restart policy, uint32_t limit)
{
    memset(f, 0, sizeof *f);
    kml_restart_init(&f->r, policy, limit, f->seat, WORKERS);
}

static void the_wait_doubles_from_200_ms_to_5_s(void **state)
{
    (void)state;
    static const uint64_t expected_ms[] = {200, 400, 800, 1600, 3200, 5000, 5000};
    struct fixture f;
    begin(&f, KML_JOB_RESTART_ONFAILURE, 100);
    for (size_t i = 0; i < sizeof expected_ms / sizeof expected_ms[0]; i++) {
        struct kml_restart_verdict v = kml_restart_ended(&f.r, 2, 137);
        assert_int_equal(v.what, KML_RESTART_AGAIN);
        assert_int_equal(v.wait_ns, expected_ms[i] * 1000000);
    }
    assert_int_equal(kml_restart_ended(&f.r, 0, 137).wait_ns, 200000000); /* each worker has its own */
}

static void the_limit_counts_failures_of_the_whole_job(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, KML_JOB_RESTART_ONFAILURE, 3);
    assert_int_equal(kml_restart_ended(&f.r, 0, 137).what, KML_RESTART_AGAIN);
    assert_int_equal(kml_restart_ended(&f.r, 1, 137).what, KML_RESTART_AGAIN);
    assert_int_equal(kml_restart_ended(&f.r, 2, 1).what, KML_RESTART_AGAIN);
    assert_int_equal(kml_restart_ended(&f.r, 3, 65).what, KML_RESTART_OVER_LIMIT);
    assert_int_equal(f.r.failures, 4);
    assert_int_equal(f.r.restarts, 3);
}

static void a_limit_of_zero_lets_nobody_come_back(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, KML_JOB_RESTART_ALWAYS, 0);
    assert_int_equal(kml_restart_ended(&f.r, 0, 137).what, KML_RESTART_OVER_LIMIT);
}

static void never_lets_the_others_go_on_until_nobody_is_left(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, KML_JOB_RESTART_NEVER, 3);
    for (uint32_t w = 0; w < WORKERS - 1; w++) {
        assert_int_equal(kml_restart_ended(&f.r, w, 137).what, KML_RESTART_GONE);
    }
    assert_int_equal(kml_restart_ended(&f.r, WORKERS - 1, 137).what, KML_RESTART_ALL_GONE);
    assert_int_equal(f.r.gone_failed, WORKERS);
}

static void exit_code_restarts_only_what_may_go_better(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, KML_JOB_RESTART_EXITCODE, 10);
    assert_int_equal(kml_restart_ended(&f.r, 0, 137).what, KML_RESTART_AGAIN);
    assert_int_equal(kml_restart_ended(&f.r, 1, 75).what, KML_RESTART_AGAIN);
    assert_int_equal(kml_restart_ended(&f.r, 2, 65).what, KML_RESTART_GONE);
    assert_int_equal(kml_restart_ended(&f.r, 3, 139).what, KML_RESTART_GONE);
}

static void always_restarts_a_good_end_without_counting_it(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, KML_JOB_RESTART_ALWAYS, 1);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(kml_restart_ended(&f.r, 0, 0).what, KML_RESTART_AGAIN);
    }
    assert_int_equal(f.r.failures, 0);
    begin(&f, KML_JOB_RESTART_ONFAILURE, 1);
    assert_int_equal(kml_restart_ended(&f.r, 0, 0).what, KML_RESTART_GONE);
}

/* A plain model beside it: counts of failures, of who is gone, and the answer that follows from them. */
static void the_counts_hold_over_random_ends(void **state)
{
    (void)state;
    static const unsigned codes[] = {0, 1, 65, 69, 75, 137, 139, 143};
    uint64_t seed = kml_random_secret();
    struct kml_rng rng;
    print_message("seed %llu\n", (unsigned long long)seed);
    kml_rng_init(&rng, seed);
    for (int round = 0; round < 5000; round++) {
        struct fixture f;
        enum kml_job_restart policy = (enum kml_job_restart)kml_rng_below(&rng, KML_JOB_RESTART_COUNT);
        uint32_t limit = (uint32_t)kml_rng_below(&rng, 6);
        uint32_t failures = 0;
        uint32_t gone = 0;
        begin(&f, policy, limit);
        while (gone < WORKERS && failures <= limit) {
            uint32_t w = (uint32_t)kml_rng_below(&rng, WORKERS);
            unsigned code = codes[kml_rng_below(&rng, 8)];
            if (f.seat[w].gone) {
                continue;
            }
            if (policy == KML_JOB_RESTART_ALWAYS && code == 0) {
                code = 1; /* else this might never end */
            }
            failures += code != 0;
            struct kml_restart_verdict v = kml_restart_ended(&f.r, w, code);
            bool again = kml_exit_restarts(policy, code);
            gone += !again || failures > limit;
            enum kml_restart_what expected = !again
                                                 ? (gone == WORKERS ? KML_RESTART_ALL_GONE : KML_RESTART_GONE)
                                             : failures > limit ? KML_RESTART_OVER_LIMIT
                                                                : KML_RESTART_AGAIN;
            assert_int_equal(v.what, expected);
            assert_int_equal(f.r.failures, failures);
            assert_int_equal(f.r.gone, gone);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_wait_doubles_from_200_ms_to_5_s),
        cmocka_unit_test(the_limit_counts_failures_of_the_whole_job),
        cmocka_unit_test(a_limit_of_zero_lets_nobody_come_back),
        cmocka_unit_test(never_lets_the_others_go_on_until_nobody_is_left),
        cmocka_unit_test(exit_code_restarts_only_what_may_go_better),
        cmocka_unit_test(always_restarts_a_good_end_without_counting_it),
        cmocka_unit_test(the_counts_hold_over_random_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
