/* A store that stays equal to the API server, whatever happens to lists and watches on their way. */
#include "integration/kube_fake.h"
#include "kube/lease.h"
#include "kube/watcher.h"

struct site {
    struct fake f;
    struct kml_kube_store *store;
    struct kml_kube_watcher *watcher;
    uint32_t heard[3];  /* by change */
    struct kml_buf log; /* "+o-1 ~o-1 -o-1 " */
    char trouble[KML_ERR_TEXT];
};

static void on_change(void *self, const struct kml_kube_object *o, enum kml_kube_change change)
{
    struct site *s = self;
    s->heard[change]++;
    assert_int_equal(kml_buf_printf(&s->log, NULL, "%c%s ", "+~-"[change], o -> name), 0);
}

static void on_trouble(void *self, const struct kml_err *err)
{
    struct site *s = self;
    (void)snprintf(s->trouble, sizeof s->trouble, "%s", err->text);
}

static int setup(void **state)
{
    struct site *s = KML_NEW(struct site);
    fake_start(&s->f);
    kml_buf_init(&s->log, (size_t)1 << 20);
    s->store = kml_kube_store_create(&(struct kml_kube_store_options){.changed = on_change, .self = s});
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct site *s = *state;
    kml_kube_watcher_stop(s->watcher);
    kml_kube_store_destroy(s->store);
    kml_buf_finish(&s->log);
    fake_stop(&s->f);
    kml_free(s);
    return 0;
}

static void start(struct site *s, uint32_t page)
{
    const struct kml_kube_watch_options options = {.kind = &kml_kube_pods,
                                                   .labels = "mine=yes",
                                                   .seed = 7,
                                                   .page = page,
                                                   .trouble = on_trouble,
                                                   .self = s};
    s->watcher = kml_kube_watcher_start(s->f.client, s->store, &options);
}

static struct kml_kube_watcher_counts counts_of(struct site *s)
{
    struct kml_kube_watcher_counts c;
    kml_kube_watcher_counts(s->watcher, &c);
    return c;
}

#define SYNCED(s) kml_kube_watcher_synced((s)->watcher)

static void fill(struct site *s, int from, int to)
{
    control_format(&s->f, "{\"do\":\"fill\",\"plural\":\"pods\",\"from\":%d,\"to\":%d}", from, to);
}

static void rule(struct site *s, const char *match, int times, const char *action)
{
    control_format(&s->f, "{\"do\":\"rules\",\"rules\":[{\"match\":\"%s\",\"times\":%d,\"action\":%s}]}",
                   match, times, action);
}

static bool has(struct site *s, const char *name)
{
    return kml_kube_store_get(s->store, "a", name) != NULL;
}

static void delete_one(struct site *s, const char *name)
{
    control_format(&s->f, "{\"do\":\"delete\",\"plural\":\"pods\",\"name\":\"%s\"}", name);
}

static void everything_that_was_there_before_and_comes_after_is_seen(void **state)
{
    struct site *s = *state;
    fill(s, 0, 100);
    start(s, 7);
    for (int i = 100; i < 200; i += 10) {
        fill(s, i, i + 10); /* while it starts */
        linger(&s->f);
    }
    SOON(&s->f, kml_kube_store_count(s->store) == 200);
    fill(s, 5, 6);
    SOON(&s->f, s->heard[KML_KUBE_MODIFIED] == 1);
    delete_one(s, "o-6");
    SOON(&s->f, s->heard[KML_KUBE_DELETED] == 1);
    assert_int_equal(s->heard[KML_KUBE_ADDED], 200);
    assert_false(has(s, "o-6"));
    assert_int_equal(counts_of(s).lists, 1);
    assert_int_equal(counts_of(s).failures, 0);
    assert_int_equal(seen(&s->f, "GET", "labelSelector=mine%3Dyes"),
                     seen(&s->f, "GET", "pods")); /* all of them */
}

static void lists_and_watches_in_single_bytes_give_the_same_objects(void **state)
{
    struct site *s = *state;
    fill(s, 0, 3);
    rule(s, "GET .*pods", 100, "{\"split\":1}");
    start(s, 2);
    SOON(&s->f, SYNCED(s));
    control(
        &s->f,
        "{\"do\":\"put\",\"plural\":\"pods\",\"object\":{\"metadata\":{\"namespace\":\"a\",\"name\":\"odd\"},"
        "\"spec\":{\"t\":\"\\u00e9\\\"}{\\n\\u2028\",\"n\":null,\"unknown\":{\"k\":[1,2.5,true]}}}}",
        NULL);
    SOON(&s->f, has(s, "odd"));
    const struct kml_kube_object *o = kml_kube_store_get(s->store, "a", "odd");
    struct kml_buf text;
    kml_buf_init(&text, 1000);
    assert_int_equal(kml_node_write(kml_doc_find(&o->doc, "spec"), &text, NULL), 0);
    assert_non_null(strstr(kml_buf_text(&text), "\"n\":null,\"unknown\":{\"k\":[1,2.5,true]}"));
    assert_string_equal(kml_doc_find(&o->doc, "spec.t")->text, "\xc3\xa9\"}{\n\xe2\x80\xa8");
    assert_string_equal(kml_buf_text(&s->log), "+o-0 +o-1 +o-2 +odd ");
    kml_buf_finish(&text);
}

static void a_server_that_ends_watches_in_order_is_never_listed_again(void **state)
{
    struct site *s = *state;
    rule(s, "GET .*watch=1", 1000, "{\"events\":1}"); /* the end after each event */
    start(s, 0);
    SOON(&s->f, SYNCED(s));
    for (int i = 0; i < 20; i++) {
        fill(s, i, i + 1);
        SOON(&s->f, kml_kube_store_count(s->store) == (uint32_t)i + 1);
    }
    assert_int_equal(counts_of(s).lists, 1);
    assert_int_equal(counts_of(s).failures, 0);
    assert_true(counts_of(s).watches >= 20);
}

static void a_bookmark_is_enough_to_go_on_from(void **state)
{
    struct site *s = *state;
    rule(s, "GET .*watch=1", 1, "{\"events\":1}");
    start(s, 0);
    SOON(&s->f, SYNCED(s));
    control(&s->f, "{\"do\":\"bookmark\",\"plural\":\"pods\"}",
            NULL); /* version 2, then the end of the watch */
    SOON(&s->f, counts_of(s).watches == 2);
    assert_int_equal(counts_of(s).bookmarks, 1);
    UNTIL(&s->f, seen(&s->f, "GET", "resourceVersion=2&") == 1);
    assert_int_equal(counts_of(s).lists, 1);
}

static void a_version_that_is_gone_inside_a_stream_is_one_list_more_and_finds_what_vanished(void **state)
{
    struct site *s = *state;
    fill(s, 0, 5);
    rule(s, "GET .*watch=1", 1, "{\"frames\":[],\"then\":\"hold\"}"); /* a watch that hears nothing */
    start(s, 0);
    SOON(&s->f, seen(&s->f, "GET", "watch=1") == 1);
    delete_one(s, "o-1");
    delete_one(s, "o-2");
    fill(s, 7, 8);
    control(&s->f, "{\"do\":\"forget\"}", NULL);
    control(&s->f, "{\"do\":\"release\"}", NULL); /* the watch ends in order; the next one is told 410 */
    SOON(&s->f, has(s, "o-7"));
    assert_int_equal(s->heard[KML_KUBE_DELETED], 2);
    assert_int_equal(kml_kube_store_count(s->store), 4);
    assert_int_equal(counts_of(s).lists, 2);
    assert_int_equal(seen(&s->f, "GET", "resourceVersion=6&resourceVersionMatch=NotOlderThan"), 1);
    assert_true(SYNCED(s));
}

static void a_page_token_that_is_gone_loses_nothing(void **state)
{
    struct site *s = *state;
    fill(s, 0, 50);
    rule(s, "continue=30", 1, "{\"status\":410,\"reason\":\"Expired\"}");
    start(s, 5);
    SOON(&s->f, SYNCED(s));
    assert_int_equal(kml_kube_store_count(s->store), 50);
    assert_int_equal(s->heard[KML_KUBE_ADDED], 50);
    assert_int_equal(s->heard[KML_KUBE_DELETED], 0);
    assert_int_equal(counts_of(s).lists, 2);
}

static void a_server_that_lags_behind_is_never_taken_for_an_empty_one(void **state)
{
    struct site *s = *state;
    fill(s, 0, 3);
    control(&s->f,
            "{\"do\":\"rules\",\"rules\":["
            "{\"match\":\"watch=1\",\"times\":1,\"action\":{\"frames\":[],\"then\":\"hold\"}},"
            "{\"match\":\"watch=1\",\"times\":1,\"action\":{\"status\":410,\"reason\":\"Expired\"}},"
            "{\"match\":\"NotOlderThan\",\"times\":2,\"action\":{\"status\":504,\"reason\":\"Timeout\","
            "\"message\":\"Too "
            "large resource version: 4, current: "
            "1\",\"details\":{\"retryAfterSeconds\":1,\"causes\":[{\"reason\":"
            "\"ResourceVersionTooLarge\"}]}}}]}",
            NULL);
    start(s, 0);
    SOON(&s->f, seen(&s->f, "GET", "watch=1") == 1);
    fill(s, 9, 10);
    control(&s->f, "{\"do\":\"forget\"}", NULL);
    control(&s->f, "{\"do\":\"release\"}", NULL);
    SOON(&s->f, has(s, "o-9"));
    assert_int_equal(s->heard[KML_KUBE_DELETED], 0);
    assert_int_equal(seen(&s->f, "GET", "NotOlderThan"), 2);
}

static void a_connection_that_breaks_inside_an_event_loses_no_event(void **state)
{
    struct site *s = *state;
    rule(s, "GET .*watch=1", 1,
         "{\"frames\":[\"{\\\"type\\\":\\\"ADDED\\\",\\\"object\\\":{\\\"metad\"],\"then\":\"cut\"}");
    start(s, 0);
    SOON(&s->f, SYNCED(s));
    fill(s, 0, 4);
    SOON(&s->f, kml_kube_store_count(s->store) == 4);
    assert_int_equal(counts_of(s).lists, 1);
    assert_int_equal(counts_of(s).failures, 1);
    assert_non_null(strstr(s->trouble, "watching pods"));
}

static void a_stream_that_ends_in_order_but_inside_an_event_counts_as_broken(void **state)
{
    struct site *s = *state;
    rule(s, "GET .*watch=1", 1, "{\"frames\":[\"{\\\"type\\\":\\\"ADD\"],\"then\":\"eof\"}");
    start(s, 0);
    SOON(&s->f, SYNCED(s));
    fill(s, 0, 1);
    SOON(&s->f, has(s, "o-0"));
    assert_int_equal(counts_of(s).lists, 1);
    assert_int_equal(counts_of(s).failures, 1);
}

static void what_cannot_be_read_in_a_watch_is_followed_by_a_list(void **state)
{
    struct site *s = *state;
    static const char *const frames[] = {"{\\\"type\\\": nonsense}\\n",
                                         "{\\\"type\\\":\\\"STRANGE\\\",\\\"object\\\":{}}\\n", "[]\\n"};
    start(s, 0);
    SOON(&s->f, SYNCED(s));
    for (uint32_t i = 0; i < KML_COUNT(frames); i++) {
        char action[256];
        (void)snprintf(action, sizeof action, "{\"frames\":[\"%s\"],\"then\":\"hold\"}", frames[i]);
        rule(s, "GET .*watch=1", 1, action);
        control(&s->f, "{\"do\":\"release\"}", NULL); /* ends the watch; the next one gets the frame */
        SOON(&s->f, counts_of(s).lists == i + 2);
        fill(s, (int)i, (int)i + 1);
        SOON(&s->f, kml_kube_store_count(s->store) == i + 1);
    }
    assert_int_equal(s->heard[KML_KUBE_DELETED], 0);
}

static void one_object_that_cannot_be_read_does_not_hide_the_others(void **state)
{
    struct site *s = *state;
    fill(s, 0, 2);
    control(
        &s->f,
        "{\"do\":\"put\",\"plural\":\"pods\",\"object\":{\"metadata\":{\"namespace\":\"a\",\"name\":\"bad\"},"
        "\"spec\":{\"t\":\"a\\u0000b\"}}}",
        NULL);
    fill(s, 2, 4);
    start(s, 0);
    SOON(&s->f, SYNCED(s));
    assert_int_equal(kml_kube_store_count(s->store), 4);
    assert_int_equal(counts_of(s).unreadable, 1);
}

static void an_object_of_one_and_a_half_megabytes_is_kept(void **state)
{
    struct site *s = *state;
    char *big = kml_alloc(1500001);
    memset(big, 'x', 1500000);
    char *order = kml_format(
        "{\"do\":\"put\",\"plural\":\"pods\",\"object\":{\"metadata\":{\"namespace\":\"a\",\"name\":"
        "\"big\"},\"data\":\"%s\"}}",
        big);
    start(s, 0);
    SOON(&s->f, SYNCED(s));
    control(&s->f, order, NULL);
    SOON(&s->f, has(s, "big"));
    assert_string_equal(kml_doc_find(&kml_kube_store_get(s->store, "a", "big")->doc, "data")->text, big);
    kml_free(order);
    kml_free(big);
}

static void an_event_without_an_end_is_given_up_at_the_maximum(void **state)
{
    struct site *s = *state;
    start(s, 0);
    SOON(&s->f, SYNCED(s));
    rule(s, "GET .*watch=1", 1, "{\"endless\":true,\"frames\":[],\"then\":\"hold\"}");
    control(&s->f, "{\"do\":\"release\"}", NULL);
    SOON(&s->f, counts_of(s).lists == 2);
    assert_non_null(strstr(s->trouble, "longer than"));
    fill(s, 0, 1);
    SOON(&s->f, has(s, "o-0"));
}

static void nothing_is_synced_before_the_whole_list_is_there(void **state)
{
    struct site *s = *state;
    fill(s, 0, 10);
    rule(s, "continue=8", 1, "{\"hang\":true}");
    start(s, 4);
    UNTIL(&s->f, kml_kube_store_count(s->store) == 8);
    linger(&s->f);
    assert_false(SYNCED(s));
    control(&s->f, "{\"do\":\"release\"}", NULL);
    SOON(&s->f, SYNCED(s));
    assert_int_equal(kml_kube_store_count(s->store), 10);
}

static void a_server_that_is_down_is_asked_less_and_less(void **state)
{
    struct site *s = *state;
    rule(s, "GET .*pods", 1000000, "{\"status\":503}");
    start(s, 0);
    uint64_t from = s->f.now_ns;
    while (s->f.now_ns < from + 300 * KML_SECOND) {
        s->f.now_ns += 500 * MS;
        kml_kube_client_step(s->f.client, MS);
    }
    assert_in_range(counts_of(s).failures, 10, 75); /* 0.25 a second */
    assert_false(SYNCED(s));
    control(&s->f, "{\"do\":\"rules\",\"rules\":[]}", NULL);
    SOON(&s->f, SYNCED(s));
}

static void a_watch_that_hangs_is_found_and_taken_up_again(void **state)
{
    struct site *s = *state;
    rule(s, "GET .*watch=1", 1, "{\"hang\":true}");
    start(s, 0);
    SOON(&s->f, SYNCED(s));
    fill(s, 0, 1);
    UNTIL(&s->f, seen(&s->f, "GET", "watch=1") == 1);
    rule(s, "GET /version", 1, "{\"hang\":true}");
    SOON(&s->f, has(s, "o-0")); /* 30 s of silence, 10 s for the question */
    assert_int_equal(counts_of(s).lists, 1);
    struct kml_kube_client_counts counts;
    kml_kube_client_counts(s->f.client, &counts);
    assert_int_equal(counts.resets, 1);
}

/* ---- The lease: the same server, two candidates ---- */

struct candidate {
    struct kml_kube_lease *lease;
    enum kml_elector_state state;
};

static void on_state(void *self, enum kml_elector_state state)
{
    struct candidate *c = self;
    c->state = state;
}

static void run_for(struct fake *f, struct candidate *c, const char *identity)
{
    *c = (struct candidate){0};
    const struct kml_kube_lease_options options = {
        .ns = "a", .name = "op", .identity = identity, .seed = 3, .changed = on_state, .self = c};
    c->lease = kml_kube_lease_start(f->client, &options);
}

static void a_released_lease_goes_to_the_next_candidate(void **state)
{
    struct site *s = *state;
    struct candidate a, b;
    run_for(&s->f, &a, "a");
    SOON(&s->f, a.state == KML_ELECTOR_LEADING);
    run_for(&s->f, &b, "b");
    uint64_t from = s->f.now_ns;
    SOON(&s->f, s->f.now_ns > from + 30 * KML_SECOND); /* renewed all the time */
    assert_int_equal(b.state, KML_ELECTOR_WAITING);
    assert_true(kml_kube_lease_leads(a.lease));
    kml_kube_lease_release(a.lease);
    SOON(&s->f, a.state == KML_ELECTOR_RELEASED);
    assert_false(kml_kube_lease_leads(a.lease));
    SOON(&s->f, b.state == KML_ELECTOR_LEADING);
    kml_kube_lease_stop(a.lease);
    kml_kube_lease_stop(b.lease);
}

static void a_leader_that_is_refused_for_ten_seconds_has_lost(void **state)
{
    struct site *s = *state;
    struct candidate a;
    run_for(&s->f, &a, "a");
    SOON(&s->f, a.state == KML_ELECTOR_LEADING);
    rule(s, "leases", 1000, "{\"status\":500}");
    uint64_t from = s->f.now_ns;
    SOON(&s->f, a.state == KML_ELECTOR_LOST);
    assert_in_range(s->f.now_ns - from, 7 * KML_SECOND, 11 * KML_SECOND);
    assert_int_equal(seen(&s->f, "POST", "leases"), 1);
    kml_kube_lease_stop(a.lease);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(everything_that_was_there_before_and_comes_after_is_seen),
        TEST(lists_and_watches_in_single_bytes_give_the_same_objects),
        TEST(a_server_that_ends_watches_in_order_is_never_listed_again),
        TEST(a_bookmark_is_enough_to_go_on_from),
        TEST(a_version_that_is_gone_inside_a_stream_is_one_list_more_and_finds_what_vanished),
        TEST(a_page_token_that_is_gone_loses_nothing),
        TEST(a_server_that_lags_behind_is_never_taken_for_an_empty_one),
        TEST(a_connection_that_breaks_inside_an_event_loses_no_event),
        TEST(a_stream_that_ends_in_order_but_inside_an_event_counts_as_broken),
        TEST(what_cannot_be_read_in_a_watch_is_followed_by_a_list),
        TEST(one_object_that_cannot_be_read_does_not_hide_the_others),
        TEST(an_object_of_one_and_a_half_megabytes_is_kept),
        TEST(an_event_without_an_end_is_given_up_at_the_maximum),
        TEST(nothing_is_synced_before_the_whole_list_is_there),
        TEST(a_server_that_is_down_is_asked_less_and_less),
        TEST(a_watch_that_hangs_is_found_and_taken_up_again),
        TEST(a_released_lease_goes_to_the_next_candidate),
        TEST(a_leader_that_is_refused_for_ten_seconds_has_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
