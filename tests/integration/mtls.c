/* Mutual TLS between a server and clients, with certificates of lib/pki: who gets in, who does not, and
 * rotation. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "base/log.h"
#include "pki/pki.h"
#include "unit/rpc/peers.h"
#include "unit/temp.h"

#define DAY UINT64_C(86400)
#define REVERSE "/kunal.test.Echo/Reverse"

struct site {
    char folder[TEMP_ROOM]; /* the server's ca.crt, tls.crt, tls.key */
    uint64_t now;           /* seconds since 1970 */
    struct kml_pki_pair ca;
    struct kml_pki_pair other_ca;
    struct peers p;
};

/* Times in quarters of a day from yesterday. */
static void issue(const struct site *t, const struct kml_pki_pair *ca, const char *uri, uint64_t from,
                  uint64_t until, struct kml_pki_pair *out)
{
    static const char *const dns[] = {"localhost"};
    static const char *const addresses[] = {"127.0.0.1"};
    uint64_t start = t->now - DAY;
    struct kml_pki_request request = {
        "test", uri, dns, 1, addresses, 1, start + from * DAY / 4, start + until * DAY / 4};
    struct kml_err err = {0};
    if (kml_pki_issue(ca, &request, out, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static void write_server_pair(struct site *t, const struct kml_pki_pair *ca)
{
    struct kml_pki_pair pair;
    issue(t, ca, "kunal://uid-1/ps/0", 0, 100, &pair);
    assert_int_equal(kml_pki_write_folder(t->folder, ca, &pair, NULL), 0);
    kml_pki_pair_finish(&pair);
}

static void site_start(struct site *t)
{
    *t = (struct site){.now = kml_wall_ns() / KML_SECOND};
    temp_make(t->folder);
    assert_int_equal(kml_pki_make_ca("job 1", t->now - DAY, t->now + 3650 * DAY, &t->ca, NULL), 0);
    assert_int_equal(kml_pki_make_ca("job 2", t->now - DAY, t->now + 3650 * DAY, &t->other_ca, NULL), 0);
    write_server_pair(t, &t->ca);
    t->p.loop = kml_loop_create();
    struct kml_creds *creds = NULL;
    struct kml_err err = {0};
    if (kml_creds_mtls(t->folder, &creds, &err) != 0) {
        fail_msg("%s", err.text);
    }
    peers_listen(&t->p, "127.0.0.1:0", creds);
    (void)snprintf(t->p.address, sizeof t->p.address, "127.0.0.1:%d", kml_server_port(t->p.server));
    kml_creds_destroy(creds);
}

static void site_stop(struct site *t)
{
    kml_server_destroy(t->p.server, 0);
    kml_loop_destroy(t->p.loop);
    temp_remove(t->folder);
    kml_pki_pair_finish(&t->ca);
    kml_pki_pair_finish(&t->other_ca);
}

/* One call on a fresh connection: KML_OK, or the code of its failure. With `stream` a stream follows on it.
 */
static enum kml_code knock(struct site *t, struct kml_creds *creds, struct probe *stream)
{
    struct kml_channel *channel = NULL;
    struct kml_buf reply;
    struct kml_err err = {KML_OK, ""};
    kml_buf_init(&reply, 100);
    assert_int_equal(kml_channel_create(t->p.loop, t->p.address, creds, &channel, NULL), 0);
    (void)!kml_call_wait(channel, REVERSE, kml_view_str("abc"), PATIENCE, &reply, &err);
    if (err.code == KML_OK) {
        assert_string_equal(kml_buf_text(&reply), "cba");
    }
    if (stream != NULL) {
        t->p.channel = channel;
        peers_open(&t->p, ECHO, stream);
        kml_stream_close(stream->stream, NULL);
        assert_true(await(t->p.loop, is_closed, stream));
    }
    kml_channel_destroy(channel);
    kml_buf_finish(&reply);
    return err.code;
}

/* The same with a client certificate of `ca`, believing in `trusted`. */
static enum kml_code knock_as(struct site *t, const struct kml_pki_pair *ca,
                              const struct kml_pki_pair *trusted, uint64_t from, uint64_t until,
                              struct probe *stream)
{
    struct kml_pki_pair pair;
    struct kml_creds *creds = NULL;
    issue(t, ca, "kunal://uid-1/worker/3", from, until, &pair);
    assert_int_equal(kml_creds_mtls_pem(trusted->certificate, pair.certificate, pair.key, &creds, NULL), 0);
    enum kml_code code = knock(t, creds, stream);
    kml_creds_destroy(creds);
    kml_pki_pair_finish(&pair);
    return code;
}

static void a_client_of_the_same_ca_gets_in_and_the_server_learns_its_identity(void **state)
{
    (void)state;
    struct site t;
    struct probe stream = {0};
    site_start(&t);
    assert_int_equal(knock_as(&t, &t.ca, &t.ca, 0, 100, &stream), KML_OK);
    assert_int_equal(stream.why.code, KML_OK);
    assert_string_equal(t.p.server_side.identity, "kunal://uid-1/worker/3");
    assert_int_equal(t.p.calls, 1);
    site_stop(&t);
}

static void strangers_do_not_get_in(void **state)
{
    (void)state;
    struct site t;
    site_start(&t);
    assert_int_equal(knock_as(&t, &t.other_ca, &t.ca, 0, 100, NULL),
                     KML_UNAVAILABLE); /* another CA's certificate */
    assert_int_equal(knock_as(&t, &t.ca, &t.other_ca, 0, 100, NULL),
                     KML_UNAVAILABLE); /* does not believe the server */
    assert_int_equal(knock_as(&t, &t.ca, &t.ca, 0, 2, NULL),
                     KML_UNAVAILABLE); /* its certificate has expired */
    assert_int_equal(knock_as(&t, &t.ca, &t.ca, 50, 100, NULL), KML_UNAVAILABLE); /* ... is not valid yet */
    struct kml_creds *plain = kml_creds_plaintext();
    assert_int_equal(knock(&t, plain, NULL), KML_UNAVAILABLE);
    kml_creds_destroy(plain);
    assert_int_equal(t.p.calls, 0);
    assert_int_equal(knock_as(&t, &t.ca, &t.ca, 0, 100, NULL), KML_OK);
    site_stop(&t);
}

/*
 * lib/rpc has no credentials without a certificate, so this client is the openssl program. In TLS 1.3 it
 * believes that it is connected before the server has looked at its certificate; what counts is whether the
 * server then speaks to it.
 */
static bool server_speaks_to(struct site *t, const char *options)
{
    kml_auto_free char *line =
        kml_format("exec openssl s_client -connect %s -CAfile %s/ca.crt -alpn h2 -quiet %s 2>/dev/null",
                   t->p.address, t->folder, options);
    char shell[] = "sh";
    char option[] = "-c";
    char *const arguments[] = {shell, option, line, NULL};
    int output[2];
    int input[2]; /* stays open: at its end the program would leave */
    pid_t child = 0;
    posix_spawn_file_actions_t actions;
    assert_int_equal(pipe2(output, O_CLOEXEC), 0);
    assert_int_equal(pipe2(input, O_CLOEXEC), 0);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, input[0], 0), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, output[1], 1), 0);
    assert_int_equal(posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ), 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(output[1]);
    (void)close(input[0]);
    struct pollfd ready = {output[0], POLLIN, 0};
    struct kml_clock clock = kml_clock_monotonic();
    while (poll(&ready, 1, 0) == 0) {
        (void)kml_loop_run(t->p.loop, kml_now(&clock) + 5 * KML_MILLISECOND, true); /* the server's turn */
    }
    char said[100];
    ssize_t got = read(output[0], said, sizeof said);
    (void)kill(child, SIGTERM);
    (void)close(input[1]);
    (void)close(output[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return got > 0;
}

static void a_client_without_a_certificate_is_sent_away(void **state)
{
    (void)state;
    struct site t;
    site_start(&t);
    kml_auto_free char *pair = kml_format("-cert %s/tls.crt -key %s/tls.key", t.folder, t.folder);
    assert_true(server_speaks_to(&t, pair));
    assert_false(server_speaks_to(&t, ""));
    site_stop(&t);
}

static void a_new_certificate_on_disk_is_used_for_new_connections(void **state)
{
    (void)state;
    struct site t;
    struct kml_clock clock = kml_clock_monotonic();
    site_start(&t);
    assert_int_equal(knock_as(&t, &t.ca, &t.ca, 0, 100, NULL), KML_OK);
    assert_int_equal(knock_as(&t, &t.other_ca, &t.other_ca, 0, 100, NULL), KML_UNAVAILABLE);
    write_server_pair(&t, &t.other_ca);
    uint64_t until = kml_now(&clock) + PATIENCE;
    enum kml_code code = KML_UNAVAILABLE;
    while (code != KML_OK && kml_now(&clock) < until) {
        code = knock_as(&t, &t.other_ca, &t.other_ca, 0, 100, NULL);
    }
    assert_int_equal(code, KML_OK);
    assert_int_equal(knock_as(&t, &t.ca, &t.ca, 0, 100, NULL), KML_UNAVAILABLE);
    site_stop(&t);
}

static void files_that_are_missing_or_no_pem_are_named(void **state)
{
    (void)state;
    static const char *const names[] = {"ca.crt", "tls.crt", "tls.key"};
    struct site t;
    site_start(&t);
    for (size_t i = 0; i < 2 * KML_COUNT(names); i++) {
        struct kml_creds *creds = NULL;
        struct kml_err err = {0};
        const char *name = names[i / 2];
        write_server_pair(&t, &t.ca);
        if (i % 2 == 0) {
            assert_int_equal(unlink(temp_path(t.folder, name)), 0);
        } else {
            temp_write(t.folder, name, "nothing of use");
        }
        assert_int_equal(kml_creds_mtls(t.folder, &creds, &err), -1);
        assert_int_equal(err.code, i % 2 == 0 ? KML_NOT_FOUND : KML_INVALID);
        assert_non_null(strstr(err.text, name));
        assert_null(creds);
    }
    site_stop(&t);
}

static int fast_refresh(void **state)
{
    (void)setenv("KUNAL_TLS_REFRESH_SECONDS", "1", 1);
    kml_log_init("mtls", KML_ERROR, false); /* refusals are what is tested; the library warns of each */
    return group_init(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_of_the_same_ca_gets_in_and_the_server_learns_its_identity),
        cmocka_unit_test(strangers_do_not_get_in),
        cmocka_unit_test(a_client_without_a_certificate_is_sent_away),
        cmocka_unit_test(a_new_certificate_on_disk_is_used_for_new_connections),
        cmocka_unit_test(files_that_are_missing_or_no_pem_are_named),
    };
    return cmocka_run_group_tests(tests, fast_refresh, group_finish);
}
