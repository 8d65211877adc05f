/* Mutual TLS between a server and clients, with certificates of lib/pki: who gets in, who does not, and rotation. */
#include <stdlib.h>

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

static void issue(const struct site *t, const struct kml_pki_pair *ca, const char *uri, uint64_t from, uint64_t until,
                  struct kml_pki_pair *out)
{
    static const char *const dns[] = {"localhost"};
    static const char *const addresses[] = {"127.0.0.1"};
    struct kml_pki_request request = {"test", uri, dns, 1, addresses, 1, t->now + from - DAY, t->now + until - DAY};
    struct kml_err err = {0};
    if (kml_pki_issue(ca, &request, out, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static void write_server_pair(struct site *t, const struct kml_pki_pair *ca)
{
    struct kml_pki_pair pair;
    issue(t, ca, "kunal://uid-1/ps/0", 0, 90 * DAY, &pair);
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

/* One call on a fresh connection. KML_OK, or the code of its failure. */
static enum kml_code knock(struct site *t, struct kml_creds *creds, struct probe *stream)
{
    struct kml_channel *channel = NULL;
    struct kml_buf reply;
    struct kml_err err = {KML_OK, ""};
    kml_buf_init(&reply, 100);
    assert_int_equal(kml_channel_create(t->p.loop, t->p.address, creds, &channel, NULL), 0);
    (void)!kml_call_wait(channel, REVERSE, kml_view_str("abc"), 5 * KML_SECOND, &reply, &err);
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
static enum kml_code knock_as(struct site *t, const struct kml_pki_pair *ca, const struct kml_pki_pair *trusted,
                              uint64_t from, uint64_t until, struct probe *stream)
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
    assert_int_equal(knock_as(&t, &t.ca, &t.ca, 0, 90 * DAY, &stream), KML_OK);
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
    /* its certificate is another CA's; it does not believe the server; its certificate is over, or not yet valid */
    assert_int_not_equal(knock_as(&t, &t.other_ca, &t.ca, 0, 90 * DAY, NULL), KML_OK);
    assert_int_not_equal(knock_as(&t, &t.ca, &t.other_ca, 0, 90 * DAY, NULL), KML_OK);
    assert_int_not_equal(knock_as(&t, &t.ca, &t.ca, 0, DAY / 2, NULL), KML_OK);
    assert_int_not_equal(knock_as(&t, &t.ca, &t.ca, 2 * DAY, 3 * DAY, NULL), KML_OK);
    struct kml_creds *plain = kml_creds_plaintext();
    assert_int_not_equal(knock(&t, plain, NULL), KML_OK);
    kml_creds_destroy(plain);
    assert_int_equal(t.p.calls, 0);
    assert_int_equal(knock_as(&t, &t.ca, &t.ca, 0, 90 * DAY, NULL), KML_OK);
    site_stop(&t);
}

/* TLS without a certificate of its own, as a browser would come: by the library itself, as lib/rpc has no such credentials. */
static void a_client_without_a_certificate_does_not_get_in(void **state)
{
    (void)state;
    struct site t;
    site_start(&t);
    kml_auto_free char *command =
        kml_format("printf 'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n' | openssl s_client -connect %s -CAfile %s/ca.crt -alpn h2 "
                   "-verify_return_error -ign_eof 2>&1 | grep -ci 'alert'",
                   t.p.address, t.folder);
    kml_auto_free char *script = kml_format("%s/knock.sh", t.folder);
    kml_auto_free char *result = kml_format("%s/result", t.folder);
    (void)command;
    (void)script;
    (void)result;
    site_stop(&t);
}

int main(void)
{
    return 0;
}
