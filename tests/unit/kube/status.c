/* What the API server's answers mean. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kube/status.h"

#define BODY(reason, message, details)                                                                       \
    "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":"         \
    "\"" message "\",\"reason\":\"" reason "\",\"details\":{" details "},\"code\":1}"

static struct kml_kube_status read_status(int http, const char *body)
{
    struct kml_kube_status s;
    kml_kube_status_read(&s, http, 0, kml_view_str(body));
    return s;
}

static void each_refusal_becomes_the_error_that_says_what_to_do(void **state)
{
    (void)state;
    static const struct {
        int http;
        const char *body;
        enum kml_code code;
    } cases[] = {
        {400, BODY("BadRequest", "no", ""), KML_INVALID},
        {401, BODY("Unauthorized", "no", ""), KML_UNAUTHENTICATED},
        {403, BODY("Forbidden", "no", ""), KML_DENIED},
        {403, BODY("Forbidden", "pods \\\"a\\\" is forbidden: exceeded quota: q", ""), KML_EXHAUSTED},
        {404, BODY("NotFound", "no", ""), KML_NOT_FOUND},
        {409, BODY("AlreadyExists", "no", ""), KML_EXISTS},
        {409, BODY("Conflict", "no", ""), KML_CONFLICT},
        {410, BODY("Expired", "no", ""), KML_FENCED},
        {413, "too large", KML_TOO_LARGE},
        {422, BODY("Invalid", "no", ""), KML_INVALID},
        {429, BODY("TooManyRequests", "no", ""), KML_EXHAUSTED},
        {500, BODY("InternalError", "no", ""), KML_AGAIN},
        {502, "<html>", KML_UNAVAILABLE},
        {503, BODY("ServiceUnavailable", "no", ""), KML_UNAVAILABLE},
        {504, BODY("Timeout", "no", ""), KML_TIMEOUT},
        {302, "", KML_PROTOCOL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kml_kube_status s = read_status(cases[i].http, cases[i].body);
        struct kml_err err = {0};
        assert_int_equal(s.http, cases[i].http); /* of the answer, whatever the body says */
        assert_int_equal(kml_kube_status_fail(&s, &err), -1);
        assert_int_equal(err.code, cases[i].code);
    }
}

static void the_servers_own_words_stand_in_the_error(void **state)
{
    (void)state;
    struct kml_err err = {0};
    struct kml_kube_status s = read_status(409, BODY("AlreadyExists", "pods \\\"a\\\" already exists", ""));
    (void)kml_kube_status_fail(&s, &err);
    assert_string_equal(err.text, "409 AlreadyExists: pods \"a\" already exists");
    s = read_status(503, "upstream connect error");
    (void)kml_kube_status_fail(&s, &err);
    assert_string_equal(err.text, "503: upstream connect error");
    s = read_status(500, "");
    (void)kml_kube_status_fail(&s, &err);
    assert_string_equal(err.text, "500: the API server gave no reason");
}

static void a_version_that_the_server_has_not_seen_is_told_from_other_timeouts(void **state)
{
    (void)state;
    struct kml_kube_status s =
        read_status(504, BODY("Timeout", "Too large resource version: 99, current: 7",
                              "\"causes\":[{\"reason\":\"ResourceVersionTooLarge\",\"message\":\"m\"}],"
                              "\"retryAfterSeconds\":1"));
    assert_true(s.version_too_large);
    assert_int_equal(s.retry_after, 1);
    assert_true(read_status(504, BODY("Timeout", "Too large resource version: 9", "")).version_too_large);
    assert_false(read_status(504, BODY("Timeout", "request timed out", "")).version_too_large);
}

static void what_was_refused_untouched_is_sent_again_when_the_server_says(void **state)
{
    (void)state;
    uint64_t wait = 0;
    struct kml_kube_status s = {.http = 429, .retry_after = 7};
    assert_true(kml_kube_status_retry(&s, 1, &wait));
    assert_int_equal(wait, 7 * KML_SECOND);
    s = (struct kml_kube_status){.http = 429};
    assert_true(kml_kube_status_retry(&s, KML_KUBE_TRIES - 1, &wait));
    assert_int_equal(wait, KML_SECOND);
    assert_false(kml_kube_status_retry(&s, KML_KUBE_TRIES, &wait));
    s = (struct kml_kube_status){.http = 503, .retry_after = 2};
    assert_true(kml_kube_status_retry(&s, 1, &wait));
    s = (struct kml_kube_status){.http = 500};
    assert_false(kml_kube_status_retry(&s, 1, &wait)); /* it may have acted */
    s = (struct kml_kube_status){.http = 504, .retry_after = 1, .version_too_large = true};
    assert_false(kml_kube_status_retry(&s, 1, &wait)); /* the reflector decides */
    s = (struct kml_kube_status){.http = 0, .retry_after = 1};
    assert_false(kml_kube_status_retry(&s, 1, &wait));
    s = (struct kml_kube_status){.http = 409, .retry_after = 1};
    assert_false(kml_kube_status_retry(&s, 1, &wait));
}

static void the_header_wins_over_the_body_and_both_are_bounded(void **state)
{
    (void)state;
    struct kml_kube_status s;
    struct kml_view body = kml_view_str(BODY("TooManyRequests", "no", "\"retryAfterSeconds\":999999999"));
    kml_kube_status_read(&s, 429, 3, body);
    assert_int_equal(s.retry_after, 3);
    kml_kube_status_read(&s, 429, 0, body);
    assert_int_equal(s.retry_after, 86400);
    assert_int_equal(kml_kube_retry_after("12"), 12);
    assert_int_equal(kml_kube_retry_after("99999999999"), 86400);
    assert_int_equal(kml_kube_retry_after("Fri, 31 Dec 1999 23:59:59 GMT"), 1);
    assert_int_equal(kml_kube_retry_after(""), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_refusal_becomes_the_error_that_says_what_to_do),
        cmocka_unit_test(the_servers_own_words_stand_in_the_error),
        cmocka_unit_test(a_version_that_the_server_has_not_seen_is_told_from_other_timeouts),
        cmocka_unit_test(what_was_refused_untouched_is_sent_again_when_the_server_says),
        cmocka_unit_test(the_header_wins_over_the_body_and_both_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
