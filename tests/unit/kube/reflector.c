/* What is asked of the API server next, and when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kube/reflector.h"
#include "unit/seed.h"

static struct kml_reflect_want next(struct kml_reflector *r, uint64_t now_ns)
{
    struct kml_reflect_want want;
    kml_reflector_next(r, now_ns, &want);
    return want;
}

/* Waits as told until it wants something, and says what. */
static struct kml_reflect_want later(struct kml_reflector *r, uint64_t *now_ns)
{
    struct kml_reflect_want want = next(r, *now_ns);
    if (want.act == KML_REFLECT_DO_WAIT) {
        assert_true(want.until_ns != UINT64_MAX);
        *now_ns = want.until_ns;
        want = next(r, *now_ns);
    }
    return want;
}

static void assert_first_list(struct kml_reflect_want want)
{
    assert_int_equal(want.act, KML_REFLECT_DO_LIST);
    assert_null(want.token);
    assert_null(want.version);
}

/* A reflector that watches from version "100" at second 10. */
static void watching(struct kml_reflector *r)
{
    kml_reflector_init(r, 1);
    assert_first_list(next(r, 10 * KML_SECOND));
    assert_true(kml_reflector_page(r, "100", "", 10 * KML_SECOND));
    struct kml_reflect_want want = next(r, 10 * KML_SECOND);
    assert_int_equal(want.act, KML_REFLECT_DO_WATCH);
    assert_string_equal(want.version, "100");
}

static void it_lists_page_by_page_and_then_watches_from_the_lists_version(void **state)
{
    (void)state;
    struct kml_reflector r;
    kml_reflector_init(&r, 1);
    assert_first_list(next(&r, 0));
    assert_int_equal(next(&r, 0).act, KML_REFLECT_DO_WAIT); /* one request at a time */
    assert_false(kml_reflector_page(&r, "5", "page-2", 0));
    assert_false(r.synced);
    struct kml_reflect_want want = next(&r, 0);
    assert_int_equal(want.act, KML_REFLECT_DO_LIST);
    assert_string_equal(want.token, "page-2");
    assert_true(kml_reflector_page(&r, "5", NULL, 0));
    assert_true(r.synced);
    want = next(&r, 0);
    assert_int_equal(want.act, KML_REFLECT_DO_WATCH);
    assert_string_equal(want.version, "5");
}

static void a_watch_that_ends_in_order_goes_on_without_a_list(void **state)
{
    (void)state;
    struct kml_reflector r;
    watching(&r);
    uint64_t now = 10 * KML_SECOND;
    for (int i = 0; i < 30; i++) {
        now += 2 * KML_SECOND;
        kml_reflector_ended(&r, now);
        assert_int_equal(next(&r, now).act, KML_REFLECT_DO_WATCH);
    }
    assert_int_equal(r.failures, 0);
}

static void bookmarks_move_the_version_from_which_it_goes_on(void **state)
{
    (void)state;
    struct kml_reflector r;
    watching(&r);
    kml_reflector_event(&r, "150");
    kml_reflector_event(&r, ""); /* keeps it */
    kml_reflector_ended(&r, 10 * KML_SECOND);
    struct kml_reflect_want want = next(&r, 10 * KML_SECOND);
    assert_int_equal(want.act, KML_REFLECT_DO_WATCH);
    assert_string_equal(want.version, "150");
}

static void a_server_that_closes_at_once_is_not_stormed(void **state)
{
    (void)state;
    struct kml_reflector r;
    watching(&r);
    uint64_t now = 10 * KML_SECOND;
    uint64_t start = now;
    for (int i = 0; i < 40; i++) {
        kml_reflector_ended(&r, now);
        assert_int_equal(later(&r, &now).act, KML_REFLECT_DO_WATCH);
    }
    assert_true(now - start > 60 * KML_SECOND);
}

static void watches_last_five_to_ten_minutes_at_random(void **state)
{
    (void)state;
    struct kml_reflector r;
    kml_reflector_init(&r, test_seed());
    (void)next(&r, 0);
    (void)kml_reflector_page(&r, "1", "", 0);
    uint32_t least = 1000, most = 0;
    for (int i = 0; i < 2000; i++) {
        struct kml_reflect_want want = next(&r, 0);
        assert_in_range(want.timeout_seconds, 300, 600);
        least = want.timeout_seconds < least ? want.timeout_seconds : least;
        most = want.timeout_seconds > most ? want.timeout_seconds : most;
        kml_reflector_event(&r, "");
        kml_reflector_ended(&r, 0);
    }
    assert_true(least < 310 && most > 590);
}

static void a_version_that_is_gone_is_listed_again_not_older_first_and_then_in_full(void **state)
{
    (void)state;
    static const struct kml_kube_status gone = {.http = 410, .reason = "Expired"};
    struct kml_reflector r;
    watching(&r);
    uint64_t now = 10 * KML_SECOND;
    kml_reflector_failed(&r, &gone, now);
    struct kml_reflect_want want = next(&r, now); /* at once */
    assert_int_equal(want.act, KML_REFLECT_DO_LIST);
    assert_string_equal(want.version, "100");
    assert_true(want.not_older_than);
    kml_reflector_failed(&r, &gone, now);
    assert_first_list(later(&r, &now));
    assert_true(kml_reflector_page(&r, "900", "", now));
    assert_string_equal(next(&r, now).version, "900");
}

static void a_page_token_that_is_gone_starts_the_list_over(void **state)
{
    (void)state;
    static const struct kml_kube_status gone = {.http = 410};
    struct kml_reflector r;
    uint64_t now = 0;
    kml_reflector_init(&r, 1);
    (void)next(&r, now);
    (void)kml_reflector_page(&r, "5", "page-2", now);
    (void)next(&r, now);
    kml_reflector_failed(&r, &gone, now);
    assert_first_list(later(&r, &now));
}

static void a_page_that_failed_is_asked_for_again(void **state)
{
    (void)state;
    static const struct kml_kube_status down = {.http = 503};
    struct kml_reflector r;
    uint64_t now = 0;
    kml_reflector_init(&r, 1);
    (void)next(&r, now);
    (void)kml_reflector_page(&r, "5", "page-2", now);
    (void)next(&r, now);
    kml_reflector_failed(&r, &down, now);
    assert_string_equal(later(&r, &now).token, "page-2");
}

static void a_server_that_lags_behind_is_tried_again_and_then_asked_for_what_it_has(void **state)
{
    (void)state;
    static const struct kml_kube_status lags = {.http = 504, .version_too_large = true, .retry_after = 1};
    struct kml_reflector r;
    watching(&r);
    uint64_t now = 10 * KML_SECOND;
    kml_reflector_failed(&r, &lags, now);
    assert_int_equal(next(&r, now).act, KML_REFLECT_DO_WAIT);
    struct kml_reflect_want want = later(&r, &now);
    assert_true(now >= 11 * KML_SECOND);
    assert_int_equal(want.act, KML_REFLECT_DO_LIST);
    assert_true(want.not_older_than);
    kml_reflector_failed(&r, &lags, now);
    assert_first_list(later(&r, &now));
    assert_true(r.synced); /* it never took the failure for an empty list */
}

static void other_failures_do_the_same_again_without_a_list(void **state)
{
    (void)state;
    static const struct kml_kube_status statuses[] = {
        {.http = 0}, {.http = 500}, {.http = 429}, {.http = 403}};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        struct kml_reflector r;
        watching(&r);
        uint64_t now = 20 * KML_SECOND;
        kml_reflector_failed(&r, &statuses[i], now);
        struct kml_reflect_want want = later(&r, &now);
        assert_int_equal(want.act, KML_REFLECT_DO_WATCH);
        assert_string_equal(want.version, "100");
    }
}

static void a_frame_that_cannot_be_read_is_followed_by_a_consistent_list(void **state)
{
    (void)state;
    struct kml_reflector r;
    watching(&r);
    uint64_t now = 20 * KML_SECOND;
    kml_reflector_garbled(&r, now);
    assert_first_list(later(&r, &now));
}

static void a_list_without_a_version_or_with_an_endless_token_is_not_believed(void **state)
{
    (void)state;
    char token[KML_KUBE_TOKEN + 1];
    memset(token, 'x', sizeof token - 1);
    token[sizeof token - 1] = '\0';
    struct kml_reflector r;
    uint64_t now = 0;
    kml_reflector_init(&r, 1);
    (void)next(&r, now);
    assert_false(kml_reflector_page(&r, "", "", now));
    assert_false(r.synced);
    assert_first_list(later(&r, &now));
    assert_false(kml_reflector_page(&r, "5", token, now));
    assert_first_list(later(&r, &now));
}

static void waiting_grows_to_thirty_seconds_and_starts_over_after_two_good_minutes(void **state)
{
    (void)state;
    static const struct kml_kube_status down = {.http = 0};
    struct kml_reflector r;
    kml_reflector_init(&r, test_seed());
    uint64_t now = KML_SECOND;
    uint64_t longest_late = 0;
    for (int i = 0; i < 400; i++) {
        uint64_t before = now;
        (void)later(&r, &now);
        uint64_t most = i < 7 ? (800 * KML_MILLISECOND) << (i == 0 ? 0 : i - 1) : 30 * KML_SECOND;
        most = most > 30 * KML_SECOND ? 30 * KML_SECOND : most;
        assert_true(i == 0 || now - before <= most);
        longest_late = i > 10 && now - before > longest_late ? now - before : longest_late;
        kml_reflector_failed(&r, &down, now);
    }
    assert_true(longest_late > 25 * KML_SECOND);
    assert_true(now / 400 > 4 * KML_SECOND); /* at most 0.25 requests a second over all */
    now += 150 * KML_SECOND;
    (void)later(&r, &now);
    kml_reflector_failed(&r, &down, now);
    assert_int_equal(r.failures, 1);
    assert_true(r.not_before_ns - now <= 800 * KML_MILLISECOND);
}

static void retry_after_is_the_least_time_to_wait(void **state)
{
    (void)state;
    static const struct kml_kube_status busy = {.http = 429, .retry_after = 7};
    struct kml_reflector r;
    watching(&r);
    kml_reflector_failed(&r, &busy, 20 * KML_SECOND);
    assert_true(r.not_before_ns >= 27 * KML_SECOND);
}

/* 20 clients that lost the same server: their first 200 returns fall evenly into ten parts of each waiting
 * time. */
static void clients_that_failed_together_do_not_come_back_together(void **state)
{
    (void)state;
    static const struct kml_kube_status down = {.http = 0};
    uint64_t seed = test_seed();
    uint32_t bin[10] = {0};
    for (uint32_t client = 0; client < 2000; client++) {
        struct kml_reflector r;
        kml_reflector_init(&r, seed + client);
        for (int i = 0; i < 6; i++) {
            uint64_t now = r.not_before_ns;
            (void)next(&r, now);
            kml_reflector_failed(&r, &down, now);
        }
        uint64_t wait = r.not_before_ns - r.failed_ns; /* uniform below 25.6 s */
        bin[wait * 10 / (25600 * KML_MILLISECOND + 1)]++;
    }
    double chi = 0;
    for (int i = 0; i < 10; i++) {
        double off = (double)bin[i] - 200.0;
        chi += off * off / 200.0;
    }
    assert_true(chi < 40.0); /* 9 degrees of freedom: once in 100,000 runs by chance */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_lists_page_by_page_and_then_watches_from_the_lists_version),
        cmocka_unit_test(a_watch_that_ends_in_order_goes_on_without_a_list),
        cmocka_unit_test(bookmarks_move_the_version_from_which_it_goes_on),
        cmocka_unit_test(a_server_that_closes_at_once_is_not_stormed),
        cmocka_unit_test(watches_last_five_to_ten_minutes_at_random),
        cmocka_unit_test(a_version_that_is_gone_is_listed_again_not_older_first_and_then_in_full),
        cmocka_unit_test(a_page_token_that_is_gone_starts_the_list_over),
        cmocka_unit_test(a_page_that_failed_is_asked_for_again),
        cmocka_unit_test(a_server_that_lags_behind_is_tried_again_and_then_asked_for_what_it_has),
        cmocka_unit_test(other_failures_do_the_same_again_without_a_list),
        cmocka_unit_test(a_frame_that_cannot_be_read_is_followed_by_a_consistent_list),
        cmocka_unit_test(a_list_without_a_version_or_with_an_endless_token_is_not_believed),
        cmocka_unit_test(waiting_grows_to_thirty_seconds_and_starts_over_after_two_good_minutes),
        cmocka_unit_test(retry_after_is_the_least_time_to_wait),
        cmocka_unit_test(clients_that_failed_together_do_not_come_back_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
