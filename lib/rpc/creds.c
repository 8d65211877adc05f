#include "rpc/creds.h"

#include <grpc/grpc_security.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "rpc/core.h"

#define PEM_MAX ((size_t)1 << 20)

/*
 * The library's TLS interface with certificate providers is marked experimental; it is the only one that
 * re-reads files, and all use of it is in here.
 */
struct kml_creds {
    grpc_channel_credentials *channel; /* made when first asked for */
    grpc_server_credentials *server;
    grpc_tls_certificate_provider *provider; /* NULL: plaintext */
};

struct kml_creds *kml_creds_plaintext(void)
{
    return KML_NEW(struct kml_creds);
}

void kml_creds_destroy(struct kml_creds *c)
{
    if (c == NULL) {
        return;
    }
    grpc_channel_credentials_release(c->channel);
    if (c->server != NULL) {
        grpc_server_credentials_release(c->server);
    }
    if (c->provider != NULL) {
        grpc_tls_certificate_provider_release(c->provider);
    }
    kml_free(c);
}

static grpc_tls_credentials_options *tls_options(const struct kml_creds *c)
{
    grpc_tls_credentials_options *options = grpc_tls_credentials_options_create();
    grpc_tls_credentials_options_set_certificate_provider(options, c->provider);
    grpc_tls_credentials_options_watch_root_certs(options);
    grpc_tls_credentials_options_watch_identity_key_cert_pairs(options);
    return options;
}

grpc_channel_credentials *kml_creds_channel(struct kml_creds *c)
{
    if (c->channel == NULL) {
        c->channel = c->provider == NULL ? grpc_insecure_credentials_create()
                                         : grpc_tls_credentials_create(tls_options(c));
    }
    return c->channel;
}

grpc_server_credentials *kml_creds_server(struct kml_creds *c)
{
    if (c->server == NULL && c->provider == NULL) {
        c->server = grpc_insecure_server_credentials_create();
    } else if (c->server == NULL) {
        grpc_tls_credentials_options *options = tls_options(c);
        grpc_tls_credentials_options_set_cert_request_type(
            options, GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
        c->server = grpc_tls_server_credentials_create(options);
    }
    return c->server;
}

static int check_pem(const char *pem, const char *name, const char *mark, struct kml_err *err)
{
    const char *begin = strstr(pem, "-----BEGIN ");
    if (begin == NULL || strstr(begin, mark) == NULL) {
        return kml_fail(err, KML_INVALID, "%s: no '%s' in PEM form in it", name, mark);
    }
    return 0;
}

/* Read here once only to say what is wrong with it; the library reads it by itself and would only log. */
static int check_file(const char *path, const char *mark, struct kml_err *err)
{
    struct kml_buf pem;
    kml_buf_init(&pem, PEM_MAX);
    int failed = kml_file_read(path, &pem, err) != 0 || check_pem(kml_buf_text(&pem), path, mark, err) != 0;
    if (pem.data != NULL) {
        explicit_bzero(pem.data, pem.room);
    }
    kml_buf_finish(&pem);
    return failed ? -1 : 0;
}

/* KUNAL_TLS_REFRESH_SECONDS: how often the files are looked at. */
static unsigned refresh_seconds(void)
{
    const char *text = getenv("KUNAL_TLS_REFRESH_SECONDS");
    long seconds = text == NULL ? 0 : strtol(text, NULL, 10);
    return seconds > 0 && seconds < INT_MAX ? (unsigned)seconds : 60;
}

int kml_creds_mtls(const char *folder, struct kml_creds **out, struct kml_err *err)
{
    kml_auto_free char *ca = kml_format("%s/ca.crt", folder);
    kml_auto_free char *certificate = kml_format("%s/tls.crt", folder);
    kml_auto_free char *key = kml_format("%s/tls.key", folder);
    if (check_file(ca, "CERTIFICATE", err) != 0 || check_file(certificate, "CERTIFICATE", err) != 0 ||
        check_file(key, "PRIVATE KEY", err) != 0) {
        return -1;
    }
    struct kml_creds *c = KML_NEW(struct kml_creds);
    c->provider = grpc_tls_certificate_provider_file_watcher_create(key, certificate, ca, refresh_seconds());
    *out = c;
    return 0;
}

int kml_creds_mtls_pem(const char *ca, const char *certificate, const char *key, struct kml_creds **out,
                       struct kml_err *err)
{
    if (check_pem(ca, "the CA", "CERTIFICATE", err) != 0 ||
        check_pem(certificate, "the certificate", "CERTIFICATE", err) != 0 ||
        check_pem(key, "the key", "PRIVATE KEY", err) != 0) {
        return -1;
    }
    struct kml_creds *c = KML_NEW(struct kml_creds);
    grpc_tls_identity_pairs *pairs = grpc_tls_identity_pairs_create();
    grpc_tls_identity_pairs_add_pair(pairs, key, certificate);
    c->provider = grpc_tls_certificate_provider_static_data_create(ca, pairs);
    *out = c;
    return 0;
}
