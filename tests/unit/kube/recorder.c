/* Events without flooding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "doc/doc.h"
#include "kube/recorder.h"

static const struct kml_kube_subject job = {&kml_kube_jobs, "a", "mnist", "uid-1"};

static void note(struct kml_recorder *r, const char *text, uint64_t now)
{
    kml_recorder_note(r, &job, true, "FailedCreate", "CreatePod", text, now,
                      UINT64_C(1769860800) * KML_SECOND + now);
}

struct tally {
    uint32_t creates;
    uint32_t patches;
    uint64_t count; /* of the last write */
    char path[512];
    char note[1100];
};

static uint64_t count_of(const struct kml_doc *doc)
{
    const struct kml_node *count = kml_doc_find(doc, "series.count");
    return count == NULL ? 1 : (uint64_t)count->value.integer;
}

/* Writes all that may be written now, as an API server that answers `code`. */
static void drain_with(struct kml_recorder *r, uint64_t now, bool flush, struct tally *t, enum kml_code code)
{
    struct kml_kube_request request;
    uint64_t event = 0;
    while (kml_recorder_next(r, now, flush, &request, &event) == 1) {
        bool create = strcmp(request.method, "POST") == 0;
        struct kml_doc doc;
        kml_doc_init(&doc);
        assert_int_equal(kml_doc_read(&doc, "event", kml_buf_view(&request.body), NULL), 0);
        t->creates += create ? 1 : 0;
        t->patches += create ? 0 : 1;
        t->count = count_of(&doc);
        (void)snprintf(t->path, sizeof t->path, "%s", request.path);
        if (create) {
            (void)snprintf(t->note, sizeof t->note, "%s", kml_doc_find(&doc, "note")->text);
        }
        kml_doc_finish(&doc);
        kml_kube_request_finish(&request);
        kml_recorder_ended(r, event, code);
    }
}

static void drain(struct kml_recorder *r, uint64_t now, struct tally *t)
{
    drain_with(r, now, false, t, KML_OK);
}

static struct kml_recorder *recorder(void)
{
    return kml_recorder_create("kunal.ml/kunal-operator", "pod-1", 5);
}

static void an_event_has_all_fields_that_the_api_wants(void **state)
{
    (void)state;
    struct kml_recorder *r = recorder();
    struct kml_kube_request request;
    uint64_t event = 0;
    note(r, "no quota", KML_SECOND);
    assert_int_equal(kml_recorder_next(r, KML_SECOND, false, &request, &event), 1);
    assert_string_equal(request.path,
                        "/apis/events.k8s.io/v1/namespaces/a/events?fieldManager=kunal.ml%2Fkunal-operator");
    struct kml_doc doc;
    kml_doc_init(&doc);
    assert_int_equal(kml_doc_read(&doc, "event", kml_buf_view(&request.body), NULL), 0);
    static const char *const fields[][2] = {
        {"apiVersion", "events.k8s.io/v1"},
        {"kind", "Event"},
        {"metadata.namespace", "a"},
        {"eventTime", "2026-01-31T12:00:01.000000Z"},
        {"reportingInstance", "pod-1"},
        {"reportingController", "kunal.ml/kunal-operator"},
        {"action", "CreatePod"},
        {"reason", "FailedCreate"},
        {"type", "Warning"},
        {"note", "no quota"},
        {"regarding.kind", "KunalJob"},
        {"regarding.apiVersion", "kunal.ml/v1alpha1"},
        {"regarding.name", "mnist"},
        {"regarding.uid", "uid-1"},
        {"regarding.namespace", "a"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const struct kml_node *node = kml_doc_find(&doc, fields[i][0]);
        assert_non_null(node);
        assert_string_equal(node->text, fields[i][1]);
    }
    assert_memory_equal(kml_doc_find(&doc, "metadata.name")->text, "mnist.", 6);
    assert_null(kml_doc_find(&doc, "series"));
    kml_doc_finish(&doc);
    kml_kube_request_finish(&request);
    kml_recorder_destroy(r);
}

static void a_thousand_identical_failures_are_one_event_with_the_right_count(void **state)
{
    (void)state;
    struct kml_recorder *r = recorder();
    struct tally t = {0};
    uint64_t now = KML_SECOND;
    for (int i = 0; i < 1000; i++, now += KML_SECOND / 10) {
        note(r, "no quota", now);
        drain(r, now, &t);
    }
    now = kml_recorder_next_ns(r, now);
    drain(r, now, &t);
    assert_int_equal(t.creates, 1);
    assert_in_range(t.patches, 5, 11); /* at most one each 10 s */
    assert_int_equal(t.count, 1000);
    assert_non_null(strstr(t.path, "/namespaces/a/events/mnist."));
    assert_int_equal(kml_recorder_next_ns(r, now), UINT64_MAX);
    kml_recorder_destroy(r);
}

static void many_different_notes_are_combined_after_the_tenth(void **state)
{
    (void)state;
    struct kml_recorder *r = recorder();
    struct tally t = {0};
    uint64_t now = KML_SECOND;
    for (int i = 0; i < 500; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "failure %d", i);
        note(r, text, now);
        drain(r, now, &t);
    }
    assert_int_equal(t.creates, 11);
    assert_string_equal(t.note, "(combined from similar events) failure 10");
    drain(r, now + 11 * KML_SECOND, &t);
    assert_int_equal(t.count, 490);
    kml_recorder_destroy(r);
}

static void an_object_causes_twenty_five_writes_and_then_one_in_five_minutes(void **state)
{
    (void)state;
    struct kml_recorder *r = recorder();
    struct tally t = {0};
    uint64_t now = KML_SECOND;
    char reason[32];
    for (int i = 0; i < 100; i++) {
        (void)snprintf(reason, sizeof reason, "Reason%d", i);
        kml_recorder_note(r, &job, false, reason, "Act", "note", now, now);
        drain(r, now, &t);
    }
    assert_int_equal(t.creates, 25);
    assert_int_equal(kml_recorder_next_ns(r, now), now + 300 * KML_SECOND);
    drain(r, now + 300 * KML_SECOND - 1, &t);
    assert_int_equal(t.creates, 25);
    drain(r, now + 300 * KML_SECOND, &t);
    assert_int_equal(t.creates, 26);
    const struct kml_kube_subject other = {&kml_kube_jobs, "a", "other", "uid-2"};
    kml_recorder_note(r, &other, false, "Reason", "Act", "note", now, now);
    drain(r, now, &t);
    assert_int_equal(t.creates, 27); /* others have their own */
    kml_recorder_destroy(r);
}

static void after_ten_quiet_minutes_it_is_a_new_event(void **state)
{
    (void)state;
    struct kml_recorder *r = recorder();
    struct tally t = {0};
    note(r, "no quota", KML_SECOND);
    drain(r, KML_SECOND, &t);
    note(r, "no quota", 700 * KML_SECOND);
    drain(r, 700 * KML_SECOND, &t);
    assert_int_equal(t.creates, 2);
    kml_recorder_destroy(r);
}

static void an_event_that_the_server_forgot_is_written_anew(void **state)
{
    (void)state;
    struct kml_recorder *r = recorder();
    struct tally t = {0};
    note(r, "no quota", KML_SECOND);
    drain(r, KML_SECOND, &t);
    note(r, "no quota", 20 * KML_SECOND);
    struct kml_kube_request request;
    uint64_t event = 0;
    assert_int_equal(kml_recorder_next(r, 20 * KML_SECOND, false, &request, &event), 1);
    assert_string_equal(request.method, "PATCH");
    kml_kube_request_finish(&request);
    kml_recorder_ended(r, event, KML_NOT_FOUND);
    drain(r, 30 * KML_SECOND, &t);
    assert_int_equal(t.creates, 2);
    assert_int_equal(t.count, 2);
    kml_recorder_destroy(r);
}

static void a_write_that_failed_is_not_repeated_by_itself(void **state)
{
    (void)state;
    struct kml_recorder *r = recorder();
    struct tally t = {0};
    note(r, "no quota", KML_SECOND);
    drain_with(r, KML_SECOND, false, &t, KML_DENIED);
    assert_int_equal(kml_recorder_next_ns(r, KML_SECOND), UINT64_MAX);
    note(r, "no quota", 60 * KML_SECOND);
    drain(r, 60 * KML_SECOND, &t);
    assert_int_equal(t.creates, 2);
    assert_int_equal(t.count, 2);
    kml_recorder_destroy(r);
}

static void the_end_of_the_program_does_not_wait_for_counts(void **state)
{
    (void)state;
    struct kml_recorder *r = recorder();
    struct tally t = {0};
    note(r, "no quota", KML_SECOND);
    drain(r, KML_SECOND, &t);
    note(r, "no quota", 2 * KML_SECOND);
    drain(r, 2 * KML_SECOND, &t);
    assert_int_equal(t.patches, 0);
    drain_with(r, 2 * KML_SECOND, true, &t, KML_OK);
    assert_int_equal(t.patches, 1);
    assert_int_equal(t.count, 2);
    kml_recorder_destroy(r);
}

static void long_texts_are_cut_between_characters(void **state)
{
    (void)state;
    struct kml_recorder *r = recorder();
    struct tally t = {0};
    char text[3001] = "";
    for (int i = 0; i < 1500; i++) {
        memcpy(text + (size_t)i * 2, "\xc3\xa9", 3);
    }
    note(r, text, KML_SECOND);
    drain(r, KML_SECOND, &t);
    size_t size = strlen(t.note);
    assert_in_range(size, 900, 1024);
    assert_int_equal(size % 2, 0);
    kml_recorder_destroy(r);
}

static void more_events_than_there_is_room_for_forget_the_oldest(void **state)
{
    (void)state;
    struct kml_recorder *r = recorder();
    struct tally t = {0};
    for (int i = 0; i < KML_RECORDER_ROOM + 200; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "job-%d", i);
        const struct kml_kube_subject one = {&kml_kube_jobs, "a", name, name};
        kml_recorder_note(r, &one, false, "Reason", "Act", "note", KML_SECOND + (uint64_t)i, 0);
    }
    drain(r, 2 * KML_SECOND, &t);
    assert_int_equal(t.creates, KML_RECORDER_ROOM);
    kml_recorder_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_has_all_fields_that_the_api_wants),
        cmocka_unit_test(a_thousand_identical_failures_are_one_event_with_the_right_count),
        cmocka_unit_test(many_different_notes_are_combined_after_the_tenth),
        cmocka_unit_test(an_object_causes_twenty_five_writes_and_then_one_in_five_minutes),
        cmocka_unit_test(after_ten_quiet_minutes_it_is_a_new_event),
        cmocka_unit_test(an_event_that_the_server_forgot_is_written_anew),
        cmocka_unit_test(a_write_that_failed_is_not_repeated_by_itself),
        cmocka_unit_test(the_end_of_the_program_does_not_wait_for_counts),
        cmocka_unit_test(long_texts_are_cut_between_characters),
        cmocka_unit_test(more_events_than_there_is_room_for_forget_the_oldest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
