#include "peers.h"

#define REVERSE "/kunal.test.Echo/Reverse"

static struct kml_view view(const char *text)
{
    return kml_view_str(text);
}

static void a_call_brings_the_reply(void **state)
{
    (void)state;
    struct peers p;
    struct kml_buf reply;
    peers_start(&p);
    kml_buf_init(&reply, 1 << 20);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(kml_call_wait(p.channel, REVERSE, view("abcd"), PATIENCE, &reply, NULL), 0);
        assert_string_equal(kml_buf_text(&reply), "dcba");
    }
    assert_int_equal(kml_call_wait(p.channel, REVERSE, view(""), PATIENCE, &reply, NULL), 0);
    assert_int_equal(reply.size, 0);
    assert_int_equal(p.calls, 51);
    kml_buf_finish(&reply);
    peers_stop(&p);
}

static void a_large_call_passes_and_one_over_the_limit_is_refused_before_it_is_sent(void **state)
{
    (void)state;
    struct peers p;
    struct kml_buf reply;
    struct kml_err err = {0};
    size_t most = 4 << 20;
    uint8_t *bytes = kml_alloc(most + 1);
    bytes[0] = 'a';
    peers_start(&p);
    kml_buf_init(&reply, most);
    assert_int_equal(kml_call_wait(p.channel, REVERSE, kml_view_of(bytes, most), PATIENCE, &reply, NULL), 0);
    assert_int_equal(reply.size, most);
    assert_int_equal(reply.data[most - 1], 'a');
    assert_int_equal(kml_call_wait(p.channel, REVERSE, kml_view_of(bytes, most + 1), PATIENCE, &reply, &err),
                     -1);
    assert_int_equal(err.code, KML_TOO_LARGE);
    struct kml_buf small;
    kml_buf_init(&small, 3);
    assert_int_equal(kml_call_wait(p.channel, REVERSE, view("abcd"), PATIENCE, &small, &err), -1);
    assert_int_equal(err.code, KML_TOO_LARGE);
    kml_buf_finish(&small);
    kml_buf_finish(&reply);
    kml_free(bytes);
    peers_stop(&p);
}

static void an_error_of_the_handler_arrives_with_its_code_and_text(void **state)
{
    (void)state;
    struct peers p;
    struct kml_buf reply;
    peers_start(&p);
    kml_buf_init(&reply, 100);
    for (int code = KML_OK + 1; code < KML_CODE_COUNT; code++) {
        struct kml_err err = {0};
        (void)kml_fail(&p.fail_call, (enum kml_code)code, "no: 100%% of %d", code);
        assert_int_equal(kml_call_wait(p.channel, REVERSE, view("x"), PATIENCE, &reply, &err), -1);
        assert_int_equal(err.code, code);
        assert_string_equal(err.text, p.fail_call.text);
    }
    kml_buf_finish(&reply);
    peers_stop(&p);
}

/* A stream whose handler answers nothing stands for a server that is slow. */
static void a_call_without_an_answer_times_out(void **state)
{
    (void)state;
    struct peers p;
    struct kml_buf reply;
    struct kml_err err = {0};
    peers_start(&p);
    kml_buf_init(&reply, 100);
    p.server_side.pause_each = true;
    assert_int_equal(kml_call_wait(p.channel, ECHO, view("x"), 50 * KML_MILLISECOND, &reply, &err), -1);
    assert_int_equal(err.code, KML_TIMEOUT);
    kml_buf_finish(&reply);
    peers_stop(&p);
}

static void a_call_that_gets_no_reply_message_is_an_error(void **state)
{
    (void)state;
    struct peers p;
    struct kml_buf reply;
    struct kml_err err = {0};
    peers_start(&p);
    kml_buf_init(&reply, 100);
    assert_int_equal(kml_call_wait(p.channel, ECHO, view("x"), PATIENCE, &reply, &err), -1);
    assert_int_equal(err.code, KML_INTERNAL);
    kml_buf_finish(&reply);
    peers_stop(&p);
}

static void a_call_without_a_request_is_refused_and_a_second_request_ignored(void **state)
{
    (void)state;
    struct peers p;
    struct probe client = {0};
    peers_start(&p);
    peers_open(&p, REVERSE, &client);
    kml_stream_close(client.stream, NULL);
    assert_true(await(p.loop, is_closed, &client));
    assert_int_equal(client.why.code, KML_INVALID);
    assert_int_equal(p.calls, 0);
    client = (struct probe){0};
    peers_open(&p, REVERSE, &client);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kml_stream_send(client.stream, "x", 1, NULL, NULL), 0);
    }
    assert_true(await(p.loop, is_closed, &client));
    assert_int_equal(client.why.code, KML_OK);
    assert_int_equal(client.messages, 1);
    assert_int_equal(p.calls, 1);
    peers_stop(&p);
}

struct answers {
    unsigned count;
    unsigned good;
    struct kml_err last;
};

static void count_answer(void *self, const struct kml_slices *reply, const struct kml_err *why)
{
    struct answers *a = self;
    assert_true((reply != NULL) == (why->code == KML_OK));
    a->count++;
    a->good += why->code == KML_OK;
    a->last = *why;
}

static bool all_answered(void *self)
{
    const struct answers *a = self;
    return a->count >= 200;
}

/* More calls than a connection may carry streams at once: the rest wait their turn. */
static void many_calls_at_once_are_each_answered_once(void **state)
{
    (void)state;
    struct peers p;
    struct answers a = {0};
    peers_start(&p);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(kml_call(p.channel, REVERSE, view("ping"), PATIENCE, count_answer, &a, NULL), 0);
    }
    assert_true(await(p.loop, all_answered, &a));
    assert_int_equal(a.count, 200);
    assert_int_equal(a.good, 200);
    peers_stop(&p);
}

static void an_unreachable_server_is_an_error_in_time(void **state)
{
    (void)state;
    struct peers p;
    struct kml_buf reply;
    struct kml_err err = {0};
    peers_start(&p);
    kml_server_destroy(p.server, 0);
    p.server = NULL;
    kml_buf_init(&reply, 100);
    assert_int_equal(kml_call_wait(p.channel, REVERSE, view("x"), 2 * KML_SECOND, &reply, &err), -1);
    assert_true(err.code == KML_UNAVAILABLE || err.code == KML_TIMEOUT);
    assert_non_null(strstr(err.text, p.address));
    assert_int_equal(kml_call(p.channel, "no slash", view("x"), PATIENCE, count_answer, NULL, &err), -1);
    assert_int_equal(err.code, KML_INVALID);
    kml_buf_finish(&reply);
    peers_stop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_brings_the_reply),
        cmocka_unit_test(a_large_call_passes_and_one_over_the_limit_is_refused_before_it_is_sent),
        cmocka_unit_test(an_error_of_the_handler_arrives_with_its_code_and_text),
        cmocka_unit_test(a_call_without_an_answer_times_out),
        cmocka_unit_test(a_call_that_gets_no_reply_message_is_an_error),
        cmocka_unit_test(a_call_without_a_request_is_refused_and_a_second_request_ignored),
        cmocka_unit_test(many_calls_at_once_are_each_answered_once),
        cmocka_unit_test(an_unreachable_server_is_an_error_in_time),
    };
    return cmocka_run_group_tests(tests, group_init, group_finish);
}
