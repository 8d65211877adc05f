/* metrics.k8s.io. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kube/usage.h"

static int read_usage(const char *json, struct kml_doc *doc, struct kml_kube_usage *out, struct kml_err *err)
{
    kml_doc_init(doc);
    assert_int_equal(kml_doc_read(doc, "t", kml_view_str(json), NULL), 0);
    return kml_kube_usage_read(doc->root, out, err);
}

static void a_pods_usage_is_the_sum_over_its_containers(void **state)
{
    (void)state;
    struct kml_doc doc;
    struct kml_kube_usage u;
    assert_int_equal(
        read_usage(
            "{\"metadata\":{\"namespace\":\"a\",\"name\":\"p\"},\"timestamp\":\"2026-01-31T12:00:00Z\","
            "\"window\":\"15.5s\",\"containers\":[{\"name\":\"c\",\"usage\":{\"cpu\":\"250m\","
            "\"memory\":\"64Mi\"}},{\"name\":\"d\",\"usage\":{\"cpu\":\"1500000000n\",\"memory\":\"1Ki\"}}]}",
            &doc, &u, NULL),
        0);
    assert_string_equal(u.ns, "a");
    assert_string_equal(u.pod, "p");
    assert_float_equal(u.cpu_cores, 1.75, 1e-9);
    assert_float_equal(u.memory_bytes, 64.0 * 1048576 + 1024, 0.5);
    assert_float_equal(u.window_seconds, 15.5, 1e-9);
    assert_int_equal(u.at_wall_ns, UINT64_C(1769860800) * KML_SECOND);
    kml_doc_finish(&doc);
}

static void metrics_that_cannot_be_read_are_refused_with_the_pods_name(void **state)
{
    (void)state;
    struct kml_doc doc;
    struct kml_kube_usage u;
    struct kml_err err = {0};
    assert_int_equal(
        read_usage("{\"metadata\":{\"name\":\"p\"},\"timestamp\":\"2026-01-31T12:00:00Z\",\"window\":\"15s\","
                   "\"containers\":[{\"name\":\"c\",\"usage\":{\"cpu\":\"lots\",\"memory\":\"1\"}}]}",
                   &doc, &u, &err),
        -1);
    assert_non_null(strstr(err.text, "metrics of pod p: container c"));
    kml_doc_finish(&doc);
    assert_int_equal(
        read_usage("{\"metadata\":{\"name\":\"p\"},\"timestamp\":\"x\",\"containers\":[]}", &doc, &u, &err),
        -1);
    kml_doc_finish(&doc);
    assert_int_equal(read_usage("{}", &doc, &u, &err), -1);
    kml_doc_finish(&doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pods_usage_is_the_sum_over_its_containers),
        cmocka_unit_test(metrics_that_cannot_be_read_are_refused_with_the_pods_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
