/* What each verb would send. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "kube/request.h"

static const struct kml_kube_ref pod = {&kml_kube_pods, "a", "p-0", NULL};

static void assert_request(struct kml_kube_request *r, const char *method, const char *path, const char *type,
                           const char *body)
{
    assert_string_equal(r->method, method);
    assert_string_equal(r->path, path);
    assert_int_equal(r->reads, strcmp(method, "GET") == 0);
    if (type == NULL) {
        assert_null(r->content_type);
    } else {
        assert_string_equal(r->content_type, type);
    }
    assert_string_equal(kml_buf_text(&r->body), body);
    kml_kube_request_finish(r);
    kml_kube_request_finish(r); /* twice is fine */
}

static void objects_are_found_under_their_group_and_namespace(void **state)
{
    (void)state;
    static const struct {
        struct kml_kube_ref ref;
        const char *path;
    } cases[] = {
        {{&kml_kube_pods, "a", "p-0", NULL}, "/api/v1/namespaces/a/pods/p-0"},
        {{&kml_kube_jobs, "a", "j", "status"}, "/apis/kunal.ml/v1alpha1/namespaces/a/kunaljobs/j/status"},
        {{&kml_kube_leases, "s", "l", NULL}, "/apis/coordination.k8s.io/v1/namespaces/s/leases/l"},
        {{&kml_kube_nodes, NULL, "n1", NULL}, "/api/v1/nodes/n1"},
        {{&kml_kube_nodes, "ignored", "n1", NULL}, "/api/v1/nodes/n1"},
        {{&kml_kube_pod_metrics, "a", "p", NULL}, "/apis/metrics.k8s.io/v1beta1/namespaces/a/pods/p"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kml_kube_request r;
        assert_int_equal(kml_kube_get(&r, &cases[i].ref, NULL), 0);
        assert_request(&r, "GET", cases[i].path, NULL, "");
    }
}

static void a_name_that_would_change_the_path_never_leaves_the_house(void **state)
{
    (void)state;
    static const char *const names[] = {"", ".", "..", "a/b", "../secrets/x", "a%2fb", "a?b", "a#b"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct kml_kube_request r;
        struct kml_err err = {0};
        const struct kml_kube_ref by_name = {&kml_kube_pods, "a", names[i], NULL};
        assert_int_equal(kml_kube_get(&r, &by_name, &err), -1);
        assert_int_equal(err.code, KML_INVALID);
        const struct kml_kube_ref by_ns = {&kml_kube_pods, names[i], "p", NULL};
        if (names[i][0] != '\0') {
            assert_int_equal(kml_kube_get(&r, &by_ns, NULL), -1);
        }
    }
}

static void a_list_is_asked_for_in_pages_and_by_selectors(void **state)
{
    (void)state;
    const struct kml_kube_ref all = {.kind = &kml_kube_pods};
    struct kml_kube_request r;
    const struct kml_kube_list first = {.labels = "app.kubernetes.io/managed-by=kunal-operator,x in (a,b)",
                                        .limit = 500};
    assert_int_equal(kml_kube_list(&r, &all, &first, NULL), 0);
    assert_request(
        &r, "GET",
        "/api/v1/pods?labelSelector=app.kubernetes.io%2Fmanaged-by%3Dkunal-operator%2Cx%20in%20%28a%2Cb%29"
        "&limit=500",
        NULL, "");
    const struct kml_kube_list next = {.limit = 500, .from = "ab+/=", .version = "7", .not_older_than = true};
    assert_int_equal(kml_kube_list(&r, &all, &next, NULL), 0);
    assert_request(&r, "GET", "/api/v1/pods?limit=500&continue=ab%2B%2F%3D", NULL, "");
    const struct kml_kube_list again = {.limit = 2, .version = "7", .not_older_than = true};
    assert_int_equal(kml_kube_list(&r, &all, &again, NULL), 0);
    assert_request(&r, "GET", "/api/v1/pods?limit=2&resourceVersion=7&resourceVersionMatch=NotOlderThan",
                   NULL, "");
}

static void a_watch_allows_bookmarks_and_goes_on_from_a_version(void **state)
{
    (void)state;
    const struct kml_kube_ref mine = {.kind = &kml_kube_jobs, .ns = "a"};
    struct kml_kube_request r;
    const struct kml_kube_list list = {.version = "12", .timeout_seconds = 301, .fields = "metadata.name=x"};
    assert_int_equal(kml_kube_watch(&r, &mine, &list, NULL), 0);
    assert_request(&r, "GET",
                   "/apis/kunal.ml/v1alpha1/namespaces/a/kunaljobs?watch=1&allowWatchBookmarks=true"
                   "&fieldSelector=metadata.name%3Dx&resourceVersion=12&timeoutSeconds=301",
                   NULL, "");
}

static void writes_name_their_field_manager_and_media_type(void **state)
{
    (void)state;
    struct kml_view body = kml_view_str("{\"a\":1}");
    struct kml_kube_request r;
    assert_int_equal(kml_kube_create(&r, &pod, body, "op", NULL), 0);
    assert_request(&r, "POST", "/api/v1/namespaces/a/pods?fieldManager=op", "application/json", "{\"a\":1}");
    assert_int_equal(kml_kube_replace(&r, &pod, body, "op", NULL), 0);
    assert_request(&r, "PUT", "/api/v1/namespaces/a/pods/p-0?fieldManager=op", "application/json",
                   "{\"a\":1}");
    assert_int_equal(kml_kube_apply(&r, &pod, body, "op", true, NULL), 0);
    assert_request(&r, "PATCH", "/api/v1/namespaces/a/pods/p-0?fieldManager=op&force=true",
                   "application/apply-patch+yaml", "{\"a\":1}");
    assert_int_equal(kml_kube_apply(&r, &pod, body, "op", false, NULL), 0);
    assert_request(&r, "PATCH", "/api/v1/namespaces/a/pods/p-0?fieldManager=op",
                   "application/apply-patch+yaml", "{\"a\":1}");
    const struct kml_kube_ref status = {&kml_kube_pods, "a", "p-0", "status"};
    assert_int_equal(kml_kube_patch(&r, &status, KML_KUBE_MERGE_PATCH, body, "op", NULL), 0);
    assert_request(&r, "PATCH", "/api/v1/namespaces/a/pods/p-0/status?fieldManager=op",
                   "application/merge-patch+json", "{\"a\":1}");
    assert_int_equal(kml_kube_patch(&r, &pod, KML_KUBE_JSON_PATCH, kml_view_str("[]"), NULL, NULL), 0);
    assert_request(&r, "PATCH", "/api/v1/namespaces/a/pods/p-0", "application/json-patch+json", "[]");
}

static void a_delete_carries_uid_and_version_as_preconditions(void **state)
{
    (void)state;
    struct kml_kube_request r;
    const struct kml_kube_delete how = {"u-1", "42", KML_KUBE_FOREGROUND, -1};
    assert_int_equal(kml_kube_delete(&r, &pod, &how, NULL), 0);
    assert_request(&r, "DELETE", "/api/v1/namespaces/a/pods/p-0", "application/json",
                   "{\"kind\":\"DeleteOptions\",\"apiVersion\":\"v1\",\"propagationPolicy\":\"Foreground\","
                   "\"preconditions\":{\"uid\":\"u-1\",\"resourceVersion\":\"42\"}}");
    const struct kml_kube_delete now = {NULL, NULL, KML_KUBE_BACKGROUND, 0};
    assert_int_equal(kml_kube_delete(&r, &pod, &now, NULL), 0);
    assert_request(&r, "DELETE", "/api/v1/namespaces/a/pods/p-0", "application/json",
                   "{\"kind\":\"DeleteOptions\",\"apiVersion\":\"v1\",\"propagationPolicy\":\"Background\","
                   "\"gracePeriodSeconds\":0}");
}

static void a_log_is_asked_for_as_kubectl_does(void **state)
{
    (void)state;
    struct kml_kube_request r;
    const struct kml_kube_log log = {.container = "kunal", .follow = true, .tail_lines = 10};
    assert_int_equal(kml_kube_log(&r, "a", "p-0", &log, NULL), 0);
    assert_request(&r, "GET", "/api/v1/namespaces/a/pods/p-0/log?container=kunal&follow=true&tailLines=10",
                   NULL, "");
    const struct kml_kube_log before = {.previous = true, .timestamps = true, .limit_bytes = 1000};
    assert_int_equal(kml_kube_log(&r, "a", "p-0", &before, NULL), 0);
    assert_request(&r, "GET",
                   "/api/v1/namespaces/a/pods/p-0/log?previous=true&timestamps=true&limitBytes=1000", NULL,
                   "");
}

static void a_body_larger_than_the_server_takes_is_refused_here(void **state)
{
    (void)state;
    char *big = test_malloc(KML_KUBE_BODY_MAX + 1);
    memset(big, ' ', KML_KUBE_BODY_MAX + 1);
    struct kml_kube_request r;
    struct kml_err err = {0};
    assert_int_equal(kml_kube_create(&r, &pod, kml_view_of(big, KML_KUBE_BODY_MAX + 1), "op", &err), -1);
    assert_int_equal(err.code, KML_TOO_LARGE);
    test_free(big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_are_found_under_their_group_and_namespace),
        cmocka_unit_test(a_name_that_would_change_the_path_never_leaves_the_house),
        cmocka_unit_test(a_list_is_asked_for_in_pages_and_by_selectors),
        cmocka_unit_test(a_watch_allows_bookmarks_and_goes_on_from_a_version),
        cmocka_unit_test(writes_name_their_field_manager_and_media_type),
        cmocka_unit_test(a_delete_carries_uid_and_version_as_preconditions),
        cmocka_unit_test(a_log_is_asked_for_as_kubectl_does),
        cmocka_unit_test(a_body_larger_than_the_server_takes_is_refused_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
