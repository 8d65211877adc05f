/* The client against a server that refuses, hangs, lies and dies. */
#include <fcntl.h>
#include <sys/stat.h>

#include "integration/kube_fake.h"

static int setup(void **state)
{
    struct fake *f = KML_NEW(struct fake);
    fake_start(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fake_stop(*state);
    kml_free(*state);
    return 0;
}

static const struct kml_kube_ref pod = {&kml_kube_pods, "a", "p", NULL};
#define POD "{\"metadata\":{\"name\":\"p\"},\"spec\":{\"x\":1}}"

static enum kml_code call(struct fake *f, struct kml_kube_request *r, struct kml_doc *doc,
                          struct kml_kube_status *status)
{
    struct kml_err err = {0};
    return kml_kube_call(f->client, r, doc, status, &err) == 0 ? KML_OK : err.code;
}

static enum kml_code get(struct fake *f, const char *name)
{
    struct kml_kube_request r = get_pod(name);
    return call(f, &r, NULL, NULL);
}

static enum kml_code create(struct fake *f)
{
    struct kml_kube_request r;
    assert_int_equal(kml_kube_create(&r, &pod, kml_view_str(POD), "op", NULL), 0);
    return call(f, &r, NULL, NULL);
}

static void objects_are_made_read_changed_and_deleted(void **state)
{
    struct fake *f = *state;
    struct kml_kube_request r;
    struct kml_doc doc;
    kml_doc_init(&doc);
    assert_int_equal(get(f, "p"), KML_NOT_FOUND);
    assert_int_equal(create(f), KML_OK);
    assert_int_equal(create(f), KML_EXISTS);
    assert_int_equal(
        kml_kube_patch(&r, &pod, KML_KUBE_MERGE_PATCH, kml_view_str("{\"spec\":{\"y\":2}}"), "op", NULL), 0);
    assert_int_equal(call(f, &r, NULL, NULL), KML_OK);
    r = get_pod("p");
    assert_int_equal(call(f, &r, &doc, NULL), KML_OK);
    assert_int_equal(kml_doc_find(&doc, "spec.x")->value.integer, 1);
    assert_int_equal(kml_doc_find(&doc, "spec.y")->value.integer, 2);
    const char *uid = kml_doc_find(&doc, "metadata.uid")->text;
    const struct kml_kube_delete wrong = {"other", NULL, KML_KUBE_BACKGROUND, -1};
    assert_int_equal(kml_kube_delete(&r, &pod, &wrong, NULL), 0);
    assert_int_equal(call(f, &r, NULL, NULL), KML_CONFLICT);
    const struct kml_kube_delete right = {uid, kml_doc_find(&doc, "metadata.resourceVersion")->text,
                                          KML_KUBE_BACKGROUND, -1};
    assert_int_equal(kml_kube_delete(&r, &pod, &right, NULL), 0);
    assert_int_equal(call(f, &r, NULL, NULL), KML_OK);
    assert_int_equal(get(f, "p"), KML_NOT_FOUND);
    kml_doc_finish(&doc);
}

static void each_request_says_who_we_are(void **state)
{
    struct fake *f = *state;
    struct kml_doc doc;
    kml_doc_init(&doc);
    (void)get(f, "p");
    control(f, "{\"do\":\"trace\"}", &doc);
    assert_string_equal(kml_doc_find(&doc, "[0].token")->text, "first");
    assert_memory_equal(kml_doc_find(&doc, "[0].agent")->text, "kunal-ml/", 9);
    kml_doc_finish(&doc);
}

static void a_429_is_sent_again_not_a_moment_before_the_server_said(void **state)
{
    struct fake *f = *state;
    struct told t;
    struct kml_kube_client_counts counts;
    assert_int_equal(create(f), KML_OK);
    control(f,
            "{\"do\":\"rules\",\"rules\":[{\"match\":\"GET "
            ".*pods/p\",\"action\":{\"status\":429,\"retry_after\":7}}]}",
            NULL);
    struct kml_kube_request r = get_pod("p");
    (void)send_request(f, &r, NULL, &t);
    UNTIL(f, seen(f, "GET", "pods/p") == 1);
    linger(f);
    f->now_ns += 7 * KML_SECOND - 1;
    linger(f);
    kml_kube_client_counts(f->client, &counts);
    assert_int_equal(counts.retries, 0);
    assert_int_equal(t.times, 0);
    f->now_ns += 1;
    UNTIL(f, t.times == 1);
    assert_int_equal(t.code, KML_OK);
    kml_kube_client_counts(f->client, &counts);
    assert_int_equal(counts.retries, 1);
    assert_int_equal(seen(f, "GET", "pods/p"), 2);
}

static void a_wait_that_is_longer_than_the_deadline_is_the_callers(void **state)
{
    struct fake *f = *state;
    struct kml_kube_status status;
    control(
        f,
        "{\"do\":\"rules\",\"rules\":[{\"match\":\"GET\",\"action\":{\"status\":503,\"retry_after\":60}}]}",
        NULL);
    struct kml_kube_request r = get_pod("p");
    assert_int_equal(call(f, &r, NULL, &status), KML_UNAVAILABLE);
    assert_int_equal(status.retry_after, 60);
    assert_int_equal(seen(f, "GET", "pods"), 1);
}

static void an_error_that_may_have_acted_is_not_sent_again(void **state)
{
    struct fake *f = *state;
    control(f, "{\"do\":\"rules\",\"rules\":[{\"match\":\"POST\",\"action\":{\"status\":500}}]}", NULL);
    assert_int_equal(create(f), KML_AGAIN);
    assert_int_equal(seen(f, "POST", "pods"), 1);
}

static void a_swallowed_answer_leaves_the_outcome_open_and_a_second_try_makes_no_twin(void **state)
{
    struct fake *f = *state;
    struct kml_kube_request r;
    struct kml_kube_status status;
    control(f, "{\"do\":\"rules\",\"rules\":[{\"match\":\"POST\",\"action\":{\"swallow\":true}}]}", NULL);
    assert_int_equal(kml_kube_create(&r, &pod, kml_view_str(POD), "op", NULL), 0);
    assert_int_equal(call(f, &r, NULL, &status), KML_UNAVAILABLE); /* on a fresh connection */
    assert_int_equal(status.http, 0);
    assert_int_equal(get(f, "p"), KML_OK); /* re-read before re-do */
    assert_int_equal(create(f), KML_EXISTS);
}

static void a_call_that_hangs_ends_at_its_deadline_and_the_dead_connection_is_given_up(void **state)
{
    struct fake *f = *state;
    struct told t;
    struct kml_kube_client_counts counts;
    control(f, "{\"do\":\"rules\",\"rules\":[{\"match\":\"GET .*pods/p\",\"action\":{\"hang\":true}}]}",
            NULL);
    struct kml_kube_request r = get_pod("p");
    (void)send_request(f, &r, NULL, &t);
    UNTIL(f, seen(f, "GET", "pods/p") == 1);
    f->now_ns += KML_KUBE_DEADLINE - 1;
    linger(f);
    assert_int_equal(t.times, 0);
    f->now_ns += 1;
    UNTIL(f, t.times == 1);
    assert_int_equal(t.code, KML_TIMEOUT);
    assert_int_equal(t.status.http, 0);
    kml_kube_client_counts(f->client, &counts);
    assert_int_equal(counts.resets, 1);
    assert_int_equal(get(f, "p"), KML_NOT_FOUND); /* over a new connection */
}

static void a_body_that_is_cut_is_no_answer(void **state)
{
    struct fake *f = *state;
    assert_int_equal(create(f), KML_OK);
    control(f, "{\"do\":\"rules\",\"rules\":[{\"match\":\"GET\",\"action\":{\"cut\":10}}]}", NULL);
    struct kml_kube_request r = get_pod("p");
    struct kml_kube_status status;
    assert_int_equal(call(f, &r, NULL, &status), KML_UNAVAILABLE);
    assert_int_equal(status.http, 0);
    assert_int_equal(get(f, "p"), KML_OK);
}

static void an_answer_of_any_size_is_read_up_to_the_maximum_and_no_further(void **state)
{
    struct fake *f = *state;
    struct told t;
    char *big = kml_alloc(1500001);
    memset(big, 'x', 1500000);
    char *order = kml_format(
        "{\"do\":\"put\",\"plural\":\"pods\",\"object\":{\"metadata\":{\"namespace\":\"a\",\"name\":\"p\"},"
        "\"data\":\"%s\"}}",
        big);
    struct kml_doc doc;
    kml_doc_init(&doc);
    control(f, order, NULL);
    struct kml_kube_request r = get_pod("p");
    assert_int_equal(call(f, &r, &doc, NULL), KML_OK);
    assert_string_equal(kml_doc_find(&doc, "data")->text, big);
    r = get_pod("p");
    (void)send_request(f, &r, &(struct kml_kube_send){.body_max = 100000}, &t);
    UNTIL(f, t.times == 1);
    assert_int_equal(t.code, KML_TOO_LARGE);
    kml_doc_finish(&doc);
    kml_free(order);
    kml_free(big);
}

static void a_changed_token_file_is_used_for_the_next_call(void **state)
{
    struct fake *f = *state;
    assert_int_equal(create(f), KML_OK);
    temp_write(f->folder, "token", "second-one\n");
    control(f, "{\"do\":\"tokens\",\"tokens\":[\"second-one\"]}", NULL);
    assert_int_equal(get(f, "p"), KML_OK);
    assert_int_equal(seen(f, "GET", "pods/p"), 1); /* without a 401 first */
}

/* Rewrites the token in place and sets the old times again: no sign of a change but the content. */
static void change_token_unseen(struct fake *f, const char *text)
{
    struct stat old;
    const char *path = temp_path(f->folder, "token");
    assert_int_equal(stat(path, &old), 0);
    int fd = open(path, O_WRONLY);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    const struct timespec times[2] = {old.st_atim, old.st_mtim};
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

static void a_401_reads_the_token_again_and_sends_the_call_once_more(void **state)
{
    struct fake *f = *state;
    assert_int_equal(create(f), KML_OK);
    change_token_unseen(f, "other\n");
    control(f, "{\"do\":\"tokens\",\"tokens\":[\"other\"]}", NULL);
    assert_int_equal(get(f, "p"), KML_OK);
    assert_int_equal(seen(f, "GET", "pods/p"), 2);
    control(f, "{\"do\":\"tokens\",\"tokens\":[]}", NULL);
    assert_int_equal(get(f, "p"), KML_UNAUTHENTICATED); /* and not for ever */
    assert_int_equal(seen(f, "GET", "pods/p"), 4);
}

static void a_token_is_read_once_a_minute_in_any_case(void **state)
{
    struct fake *f = *state;
    assert_int_equal(create(f), KML_OK);
    change_token_unseen(f, "other\n");
    control(f, "{\"do\":\"tokens\",\"tokens\":[\"other\"]}", NULL);
    f->now_ns += 60 * KML_SECOND;
    assert_int_equal(get(f, "p"), KML_OK);
    assert_int_equal(seen(f, "GET", "pods/p"), 1);
}

static void a_missing_token_file_leaves_the_last_token_in_use(void **state)
{
    struct fake *f = *state;
    assert_int_equal(create(f), KML_OK);
    assert_int_equal(unlink(temp_path(f->folder, "token")), 0);
    assert_int_equal(get(f, "p"), KML_OK);
}

static void a_new_ca_is_read_from_its_file_for_new_connections(void **state)
{
    struct fake *f = *state;
    assert_int_equal(create(f), KML_OK);
    fake_new_ca(f); /* the folder now holds another CA and a pair of it */
    control(f, "{\"do\":\"reload\"}", NULL);
    assert_int_equal(get(f, "p"), KML_OK);
}

static void a_server_with_a_certificate_of_another_ca_is_not_spoken_to(void **state)
{
    struct fake *f = *state;
    struct kml_pki_pair other;
    struct kml_err err = {0};
    uint64_t today = kml_wall_ns() / KML_SECOND;
    must(kml_pki_make_ca("other", today - 86400, today + 86400, &other, &err), &err);
    temp_write(f->folder, "ca.crt", other.certificate);
    kml_pki_pair_finish(&other);
    struct kml_kube_request r = get_pod("p");
    assert_int_equal(kml_kube_call(f->client, &r, NULL, NULL, &err), -1);
    assert_int_equal(err.code, KML_UNAUTHENTICATED);
    assert_non_null(strstr(err.text, "the API server https://localhost:"));
}

static void a_client_certificate_inside_the_kubeconfig_is_shown(void **state)
{
    struct fake *f = *state;
    struct kml_pki_pair pair;
    struct kml_doc doc;
    struct kml_err err = {0};
    kml_doc_init(&doc);
    fake_issue(f, "kunal-admin", &pair);
    must(kml_buf_puts(&f->config.cert, pair.certificate, &err), &err);
    must(kml_buf_puts(&f->config.key, pair.key, &err), &err);
    (void)get(f, "p");
    control(f, "{\"do\":\"trace\"}", &doc);
    assert_string_equal(kml_doc_find(&doc, "[0].peer")->text, "kunal-admin");
    kml_doc_finish(&doc);
    kml_pki_pair_finish(&pair);
}

static void another_name_than_the_address_is_looked_for_in_the_certificate_when_asked(void **state)
{
    struct fake *f = *state;
    struct kml_err err = {0};
    struct kml_kube_request r = get_pod("p");
    f->config.tls_server_name = kml_strdup("kubernetes.default.svc");
    assert_int_equal(get(f, "p"), KML_NOT_FOUND);
    kml_free(f->config.tls_server_name);
    f->config.tls_server_name = kml_strdup("somebody.else");
    assert_int_equal(kml_kube_call(f->client, &r, NULL, NULL, &err), -1);
    assert_int_equal(err.code, KML_UNAUTHENTICATED);
}

static void a_cancelled_call_is_told_so_once_and_at_once(void **state)
{
    struct fake *f = *state;
    struct told t, u;
    control(f, "{\"do\":\"rules\",\"rules\":[{\"match\":\"GET\",\"times\":9,\"action\":{\"hang\":true}}]}",
            NULL);
    struct kml_kube_request r = get_pod("p");
    struct kml_kube_call *c = send_request(f, &r, NULL, &t);
    linger(f);
    kml_kube_client_cancel(f->client, c);
    assert_int_equal(t.times, 1);
    assert_int_equal(t.code, KML_CANCELLED);
    linger(f);
    assert_int_equal(t.times, 1);
    r = get_pod("q");
    (void)send_request(f, &r, NULL, &u);
    kml_kube_client_destroy(f->client);
    assert_int_equal(u.times, 1);
    assert_int_equal(u.code, KML_CANCELLED);
    f->client = NULL;
}

static void a_log_that_is_followed_comes_as_it_is_written(void **state)
{
    struct fake *f = *state;
    struct told t;
    struct kml_kube_request r;
    const struct kml_kube_log log = {.follow = true};
    assert_int_equal(kml_kube_log(&r, "a", "p", &log, NULL), 0);
    (void)send_request(f, &r, &(struct kml_kube_send){.stream = true}, &t);
    UNTIL(f, strcmp(kml_buf_text(&t.bytes), "line 0\nline 1\nline 2\n") == 0);
    assert_int_equal(t.times, 0);
    control(f, "{\"do\":\"release\"}", NULL);
    UNTIL(f, t.times == 1);
    assert_int_equal(t.code, KML_OK);
    assert_string_equal(kml_buf_text(&t.bytes), "line 0\nline 1\nline 2\nlast\n");
    kml_buf_finish(&t.bytes);
}

static uint64_t answers_of(struct fake *f)
{
    struct kml_kube_client_counts counts;
    kml_kube_client_counts(f->client, &counts);
    return counts.answers;
}

static void a_silent_stream_with_a_live_server_goes_on(void **state)
{
    struct fake *f = *state;
    struct told t;
    struct kml_kube_request r;
    const struct kml_kube_log log = {.follow = true};
    assert_int_equal(kml_kube_log(&r, "a", "p", &log, NULL), 0);
    (void)send_request(f, &r, &(struct kml_kube_send){.stream = true}, &t);
    UNTIL(f, t.bytes.size > 0);
    for (uint32_t i = 1; i <= 3; i++) {
        f->now_ns += 30 * KML_SECOND;
        UNTIL(f, answers_of(f) == i);
        assert_int_equal(seen(f, "GET", "/version"), i);
    }
    assert_int_equal(t.times, 0);
    kml_kube_client_destroy(f->client);
    f->client = NULL;
    kml_buf_finish(&t.bytes);
}

static void a_server_that_stands_still_is_noticed_and_all_its_streams_end(void **state)
{
    struct fake *f = *state;
    struct told t;
    struct kml_kube_request r;
    struct kml_kube_client_counts counts;
    const struct kml_kube_log log = {.follow = true};
    assert_int_equal(kml_kube_log(&r, "a", "p", &log, NULL), 0);
    (void)send_request(f, &r, &(struct kml_kube_send){.stream = true}, &t);
    UNTIL(f, t.bytes.size > 0);
    assert_int_equal(kill(f->child, SIGSTOP), 0);
    kml_kube_client_counts(f->client, &counts);
    uint64_t before = counts.requests;
    f->now_ns += 30 * KML_SECOND;
    linger(f);
    kml_kube_client_counts(f->client, &counts);
    assert_int_equal(counts.requests, before + 1); /* the question */
    assert_int_equal(t.times, 0);
    f->now_ns += 10 * KML_SECOND;
    UNTIL(f, t.times == 1);
    assert_int_equal(kill(f->child, SIGCONT), 0);
    assert_int_equal(t.code, KML_UNAVAILABLE);
    assert_int_equal(get(f, "p"), KML_NOT_FOUND);
    kml_buf_finish(&t.bytes);
}

static void more_than_sixty_four_calls_wait_for_their_turn(void **state)
{
    struct fake *f = *state;
    static struct told t[100];
    uint32_t done = 0;
    control(f, "{\"do\":\"rules\",\"rules\":[{\"match\":\"GET\",\"times\":64,\"action\":{\"hang\":true}}]}",
            NULL);
    for (uint32_t i = 0; i < 100; i++) {
        struct kml_kube_request r = get_pod("p");
        (void)send_request(f, &r, NULL, &t[i]);
    }
    UNTIL(f, seen(f, "GET", "pods/p") == 64);
    linger(f);
    assert_int_equal(seen(f, "GET", "pods/p"), 64);
    control(f, "{\"do\":\"release\"}", NULL);
    for (uint32_t i = 0; i < 100; i++) {
        UNTIL(f, t[i].times == 1);
        done += t[i].code == KML_NOT_FOUND ? 1 : 0;
    }
    assert_int_equal(done, 100);
}

static void a_server_that_is_not_there_is_named(void **state)
{
    struct fake *f = *state;
    struct kml_err err = {0};
    kml_free(f->config.server);
    f->config.server = kml_strdup("https://localhost:1");
    struct kml_kube_request r = get_pod("p");
    assert_int_equal(kml_kube_call(f->client, &r, NULL, NULL, &err), -1);
    assert_int_equal(err.code, KML_UNAVAILABLE);
    assert_non_null(strstr(err.text, "https://localhost:1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(objects_are_made_read_changed_and_deleted),
        TEST(each_request_says_who_we_are),
        TEST(a_429_is_sent_again_not_a_moment_before_the_server_said),
        TEST(a_wait_that_is_longer_than_the_deadline_is_the_callers),
        TEST(an_error_that_may_have_acted_is_not_sent_again),
        TEST(a_swallowed_answer_leaves_the_outcome_open_and_a_second_try_makes_no_twin),
        TEST(a_call_that_hangs_ends_at_its_deadline_and_the_dead_connection_is_given_up),
        TEST(a_body_that_is_cut_is_no_answer),
        TEST(an_answer_of_any_size_is_read_up_to_the_maximum_and_no_further),
        TEST(a_changed_token_file_is_used_for_the_next_call),
        TEST(a_401_reads_the_token_again_and_sends_the_call_once_more),
        TEST(a_token_is_read_once_a_minute_in_any_case),
        TEST(a_missing_token_file_leaves_the_last_token_in_use),
        TEST(a_new_ca_is_read_from_its_file_for_new_connections),
        TEST(a_server_with_a_certificate_of_another_ca_is_not_spoken_to),
        TEST(a_client_certificate_inside_the_kubeconfig_is_shown),
        TEST(another_name_than_the_address_is_looked_for_in_the_certificate_when_asked),
        TEST(a_cancelled_call_is_told_so_once_and_at_once),
        TEST(a_log_that_is_followed_comes_as_it_is_written),
        TEST(a_silent_stream_with_a_live_server_goes_on),
        TEST(a_server_that_stands_still_is_noticed_and_all_its_streams_end),
        TEST(more_than_sixty_four_calls_wait_for_their_turn),
        TEST(a_server_that_is_not_there_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
