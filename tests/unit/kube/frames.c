/* Whole JSON texts out of bytes that were split anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "kube/frames.h"
#include "unit/seed.h"

struct got {
    struct kml_buf all; /* each frame, with '|' behind it */
    uint32_t frames;
    uint32_t fail_at; /* 0: never */
};

static int on_frame(void *self, struct kml_view json, struct kml_err *err)
{
    struct got *g = self;
    assert_int_equal(kml_buf_append(&g->all, json.data, json.size, NULL), 0);
    assert_int_equal(kml_buf_puts(&g->all, "|", NULL), 0);
    g->frames++;
    return g->frames == g->fail_at ? kml_fail(err, KML_CONFLICT, "enough") : 0;
}

static void got_init(struct got *g)
{
    *g = (struct got){0};
    kml_buf_init(&g->all, (size_t)1 << 20);
}

#define STREAM                                                                                               \
    "{\"type\":\"ADDED\",\"object\":{\"a\":\"\\n\\u00e9 "                                                    \
    "\xc3\xa9\"}}\n\n{\"b\":[1,2]}\n{\"c\":null,\"x\":{}}\n"
#define FRAMES                                                                                               \
    "{\"type\":\"ADDED\",\"object\":{\"a\":\"\\n\\u00e9 \xc3\xa9\"}}|{\"b\":[1,2]}|{\"c\":null,\"x\":{}}|"

static void a_watch_gives_the_same_frames_wherever_it_is_split(void **state)
{
    (void)state;
    static const char stream[] = STREAM;
    size_t size = strlen(stream);
    for (size_t first = 0; first <= size; first++) {
        for (size_t second = first; second <= size; second++) {
            struct kml_kube_frames f;
            struct got g;
            got_init(&g);
            kml_kube_frames_init(&f, 100);
            const struct kml_kube_frame_sink sink = {on_frame, &g};
            assert_int_equal(kml_kube_frames_feed(&f, kml_view_of(stream, first), &sink, NULL), 0);
            assert_int_equal(
                kml_kube_frames_feed(&f, kml_view_of(stream + first, second - first), &sink, NULL), 0);
            assert_int_equal(
                kml_kube_frames_feed(&f, kml_view_of(stream + second, size - second), &sink, NULL), 0);
            assert_string_equal(kml_buf_text(&g.all), FRAMES);
            assert_true(kml_kube_frames_whole(&f));
            kml_kube_frames_finish(&f);
            kml_buf_finish(&g.all);
        }
    }
}

static void a_stream_that_ends_inside_a_frame_is_not_whole(void **state)
{
    (void)state;
    struct kml_kube_frames f;
    struct got g;
    got_init(&g);
    kml_kube_frames_init(&f, 100);
    const struct kml_kube_frame_sink sink = {on_frame, &g};
    assert_int_equal(kml_kube_frames_feed(&f, kml_view_str("{}\n{\"a\""), &sink, NULL), 0);
    assert_false(kml_kube_frames_whole(&f));
    kml_kube_frames_clear(&f);
    assert_true(kml_kube_frames_whole(&f));
    kml_kube_frames_finish(&f);
    kml_buf_finish(&g.all);
}

static void a_frame_never_grows_past_its_maximum(void **state)
{
    (void)state;
    struct kml_kube_frames f;
    struct got g;
    struct kml_err err = {0};
    got_init(&g);
    kml_kube_frames_init(&f, 8);
    const struct kml_kube_frame_sink sink = {on_frame, &g};
    assert_int_equal(kml_kube_frames_feed(&f, kml_view_str("12345678\n"), &sink, &err), 0);
    assert_int_equal(kml_kube_frames_feed(&f, kml_view_str("123456789\n"), &sink, &err), -1);
    assert_int_equal(err.code, KML_TOO_LARGE);
    assert_int_equal(kml_kube_frames_feed(&f, kml_view_str("1234"), &sink, &err), 0);
    assert_int_equal(kml_kube_frames_feed(&f, kml_view_str("56789"), &sink, &err), -1);
    assert_int_equal(g.frames, 1);
    kml_kube_frames_finish(&f);
    kml_buf_finish(&g.all);
}

static void an_error_of_the_sink_stops_the_cutting(void **state)
{
    (void)state;
    struct kml_kube_frames f;
    struct got g;
    struct kml_err err = {0};
    got_init(&g);
    g.fail_at = 2;
    kml_kube_frames_init(&f, 100);
    const struct kml_kube_frame_sink sink = {on_frame, &g};
    assert_int_equal(kml_kube_frames_feed(&f, kml_view_str("1\n2\n3\n"), &sink, &err), -1);
    assert_int_equal(err.code, KML_CONFLICT);
    assert_int_equal(g.frames, 2);
    kml_kube_frames_finish(&f);
    kml_buf_finish(&g.all);
}

#define LIST                                                                                                 \
    "{\"kind\":\"items\", "                                                                                  \
    "\"metadata\":{\"resourceVersion\":\"7\",\"items\":[{\"no\":1}],\"continue\":\"t\\\"]}\"},\n"            \
    " \"items\" : [ {\"a\":[{}, \"}]\\\\\"]} ,\n {\"items\":[{\"x\":\"{\"}]}, {} ] , \"more\":[{}] }\n"
#define ITEMS "{\"a\":[{}, \"}]\\\\\"]}|{\"items\":[{\"x\":\"{\"}]}|{}|"
#define ENVELOPE                                                                                             \
    "{\"kind\":\"items\", "                                                                                  \
    "\"metadata\":{\"resourceVersion\":\"7\",\"items\":[{\"no\":1}],\"continue\":\"t\\\"]}\"},\n"            \
    " \"items\" : [] , \"more\":[{}] }"

static void assert_items(const char *list, size_t split, const char *items, const char *envelope)
{
    struct kml_kube_items s;
    struct got g;
    got_init(&g);
    kml_kube_items_init(&s, 1000);
    const struct kml_kube_frame_sink sink = {on_frame, &g};
    assert_int_equal(kml_kube_items_feed(&s, kml_view_of(list, split), &sink, NULL), 0);
    assert_int_equal(kml_kube_items_feed(&s, kml_view_str(list + split), &sink, NULL), 0);
    assert_true(kml_kube_items_whole(&s));
    assert_string_equal(kml_buf_text(&g.all), items);
    assert_string_equal(kml_buf_text(&s.envelope), envelope);
    kml_kube_items_clear(&s);
    assert_false(kml_kube_items_whole(&s));
    kml_kube_items_finish(&s);
    kml_buf_finish(&g.all);
}

static void a_list_hands_out_its_items_one_by_one_wherever_it_is_split(void **state)
{
    (void)state;
    for (size_t split = 0; split <= strlen(LIST); split++) {
        assert_items(LIST, split, ITEMS, ENVELOPE);
    }
}

static void a_list_without_items_is_a_whole_list(void **state)
{
    (void)state;
    assert_items("{\"items\":null,\"metadata\":{}}", 3, "", "{\"items\":null,\"metadata\":{}}");
    assert_items("{\"items\":[],\"metadata\":{}}", 3, "", "{\"items\":[],\"metadata\":{}}");
    assert_items("{\"metadata\":{\"a\":[]}}", 3, "", "{\"metadata\":{\"a\":[]}}");
}

static void what_is_no_list_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"x", "[]", "{}{", "{\"items\":[1]}", "{\"items\":[\"a\"]}", "{}}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kml_kube_items s;
        struct got g;
        struct kml_err err = {0};
        got_init(&g);
        kml_kube_items_init(&s, 1000);
        const struct kml_kube_frame_sink sink = {on_frame, &g};
        assert_int_equal(kml_kube_items_feed(&s, kml_view_str(bad[i]), &sink, &err), -1);
        assert_int_equal(err.code, KML_INVALID);
        assert_int_equal(g.frames, 0);
        kml_kube_items_finish(&s);
        kml_buf_finish(&g.all);
    }
}

static void random_bytes_never_grow_past_the_maximum(void **state)
{
    (void)state;
    static const char letters[] = "{}[]\"\\,: items\n0";
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 3000; run++) {
        struct kml_kube_items s;
        struct got g;
        char text[200] = "{\"items\":[";
        size_t size = strlen(text);
        while (size < sizeof text - 1) {
            text[size++] = letters[kml_rng_below(&rng, sizeof letters - 1)];
        }
        got_init(&g);
        kml_kube_items_init(&s, 40);
        const struct kml_kube_frame_sink sink = {on_frame, &g};
        (void)!kml_kube_items_feed(&s, kml_view_of(text, size), &sink, NULL);
        assert_true(s.item.size <= 40);
        kml_kube_items_finish(&s);
        kml_buf_finish(&g.all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_watch_gives_the_same_frames_wherever_it_is_split),
        cmocka_unit_test(a_stream_that_ends_inside_a_frame_is_not_whole),
        cmocka_unit_test(a_frame_never_grows_past_its_maximum),
        cmocka_unit_test(an_error_of_the_sink_stops_the_cutting),
        cmocka_unit_test(a_list_hands_out_its_items_one_by_one_wherever_it_is_split),
        cmocka_unit_test(a_list_without_items_is_a_whole_list),
        cmocka_unit_test(what_is_no_list_is_refused),
        cmocka_unit_test(random_bytes_never_grow_past_the_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
