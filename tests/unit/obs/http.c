#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "obs/http.h"

/* What the hooks answer; the socket around it is tested in tests/integration. */
struct program {
    bool broken;
    bool starting;
    bool no_text;
};

static int metrics(void *self, struct kml_buf *out, struct kml_err *err)
{
    const struct program *p = self;
    if (kml_buf_puts(out, "x 1\n", err) != 0) {
        return -1;
    }
    return p->no_text ? kml_fail(err, KML_TOO_LARGE, "too many series") : 0;
}

static int healthy(void *self, struct kml_err *err)
{
    const struct program *p = self;
    return p->broken ? kml_fail(err, KML_INTERNAL, "the loop is stuck") : 0;
}

static int ready(void *self, struct kml_err *err)
{
    const struct program *p = self;
    return p->starting ? kml_fail(err, KML_AGAIN, "no shard yet") : 0;
}

static void assert_answer(const struct kml_http_hooks *hooks, const char *method, const char *path,
                          unsigned status, const char *body)
{
    struct kml_buf out;
    kml_buf_init(&out, 1000);
    assert_int_equal(kml_http_answer(hooks, method, path, &out), status);
    assert_string_equal(kml_buf_text(&out), body);
    kml_buf_finish(&out);
}

static void a_program_in_order_answers_ok(void **state)
{
    (void)state;
    struct program p = {false, false, false};
    const struct kml_http_hooks hooks = {metrics, healthy, ready, &p};
    assert_answer(&hooks, "GET", "/metrics", 200, "x 1\n");
    assert_answer(&hooks, "GET", "/healthz", 200, "ok\n");
    assert_answer(&hooks, "HEAD", "/readyz", 200, "ok\n");
}

static void a_program_in_trouble_says_why(void **state)
{
    (void)state;
    struct program p = {true, true, true};
    const struct kml_http_hooks hooks = {metrics, healthy, ready, &p};
    assert_answer(&hooks, "GET", "/metrics", 500, "too many series\n");
    assert_answer(&hooks, "GET", "/healthz", 503, "the loop is stuck\n");
    assert_answer(&hooks, "GET", "/readyz", 503, "no shard yet\n");
}

static void without_hooks_a_program_is_healthy_and_has_no_metrics(void **state)
{
    (void)state;
    const struct kml_http_hooks hooks = {NULL, NULL, NULL, NULL};
    assert_answer(&hooks, "GET", "/metrics", 404, "no metrics here\n");
    assert_answer(&hooks, "GET", "/healthz", 200, "ok\n");
    assert_answer(&hooks, "GET", "/readyz", 200, "ok\n");
}

static void anything_else_is_refused(void **state)
{
    (void)state;
    const struct kml_http_hooks hooks = {NULL, NULL, NULL, NULL};
    assert_answer(&hooks, "GET", "/", 404, "not found, try /metrics, /healthz or /readyz\n");
    assert_answer(&hooks, "GET", "/metrics/", 404, "not found, try /metrics, /healthz or /readyz\n");
    assert_answer(&hooks, "POST", "/metrics", 405, "only GET and HEAD\n");
    assert_answer(&hooks, "DELETE", "/healthz", 405, "only GET and HEAD\n");
}

static void a_bad_address_is_named_before_anything_is_opened(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",          "9090",       "127.0.0.1",      "127.0.0.1:", "127.0.0.1:65536",
        "host:9090", "1.2.3:9090", "[::1:9090",      "::1:9090",   "[zz]:9090",
        ":-1",       "[]:1",       "127.0.0.1:90 90"};
    const struct kml_http_hooks hooks = {NULL, NULL, NULL, NULL};
    for (size_t i = 0; i < KML_COUNT(bad); i++) {
        struct kml_http *h = NULL;
        struct kml_err err;
        assert_int_equal(kml_http_start(&h, bad[i], &hooks, &err), -1);
        assert_int_equal(err.code, KML_INVALID);
        assert_non_null(strstr(err.text, bad[i]));
        assert_null(h);
    }
    kml_http_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_in_order_answers_ok),
        cmocka_unit_test(a_program_in_trouble_says_why),
        cmocka_unit_test(without_hooks_a_program_is_healthy_and_has_no_metrics),
        cmocka_unit_test(anything_else_is_refused),
        cmocka_unit_test(a_bad_address_is_named_before_anything_is_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
