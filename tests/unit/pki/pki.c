#include "pki/pki.h"

#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/mem.h"
#include "unit/temp.h"

#define START UINT64_C(1767225600) /* 2026-01-01 */
#define DAY UINT64_C(86400)

static X509 *certificate_of(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *x = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    BIO_free(bio);
    assert_non_null(x);
    return x;
}

static void make_ca(struct kml_pki_pair *ca)
{
    struct kml_err err = {0};
    if (kml_pki_make_ca("job 1", START, START + 3650 * DAY, ca, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static struct kml_pki_request a_request(void)
{
    static const char *const dns[] = {"fashion-ps-0.fashion.default.svc", "localhost"};
    static const char *const addresses[] = {"127.0.0.1", "::1"};
    return (struct kml_pki_request){"worker 3", "kunal://uid-1/worker/3", dns, 2, addresses, 2,
                                    START,      START + 90 * DAY};
}

/* What the library's own verification says at a time, for a purpose; `host` NULL: no name is asked for. */
static int verdict(const char *ca_pem, const char *leaf_pem, uint64_t at, int purpose, const char *host,
                   const char *ip)
{
    X509 *ca = certificate_of(ca_pem);
    X509 *leaf = certificate_of(leaf_pem);
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *context = X509_STORE_CTX_new();
    X509_STORE_add_cert(store, ca);
    assert_int_equal(X509_STORE_CTX_init(context, store, leaf, NULL), 1);
    X509_VERIFY_PARAM *parameters = X509_STORE_CTX_get0_param(context);
    X509_VERIFY_PARAM_set_time(parameters, (time_t)at);
    X509_VERIFY_PARAM_set_purpose(parameters, purpose);
    X509_VERIFY_PARAM_set_flags(parameters, X509_V_FLAG_X509_STRICT);
    if (host != NULL) {
        X509_VERIFY_PARAM_set1_host(parameters, host, 0);
    }
    if (ip != NULL) {
        X509_VERIFY_PARAM_set1_ip_asc(parameters, ip);
    }
    int good = X509_verify_cert(context);
    int error = X509_STORE_CTX_get_error(context);
    X509_STORE_CTX_free(context);
    X509_STORE_free(store);
    X509_free(leaf);
    X509_free(ca);
    return good == 1 ? X509_V_OK : error;
}

static void an_issued_pair_verifies_as_server_and_as_client_under_its_names(void **state)
{
    (void)state;
    struct kml_pki_pair ca;
    struct kml_pki_pair pair;
    struct kml_pki_request request = a_request();
    uint64_t now = START + DAY;
    make_ca(&ca);
    assert_int_equal(kml_pki_issue(&ca, &request, &pair, NULL), 0);
    assert_non_null(strstr(pair.key, "-----BEGIN PRIVATE KEY-----"));
    const char *c = ca.certificate;
    const char *p = pair.certificate;
    assert_int_equal(verdict(c, p, now, X509_PURPOSE_SSL_CLIENT, NULL, NULL), X509_V_OK);
    assert_int_equal(verdict(c, p, now, X509_PURPOSE_SSL_SERVER, "localhost", NULL), X509_V_OK);
    assert_int_equal(verdict(c, p, now, X509_PURPOSE_SSL_SERVER, "fashion-ps-0.fashion.default.svc", NULL),
                     X509_V_OK);
    assert_int_equal(verdict(c, p, now, X509_PURPOSE_SSL_SERVER, NULL, "127.0.0.1"), X509_V_OK);
    assert_int_equal(verdict(c, p, now, X509_PURPOSE_SSL_SERVER, NULL, "::1"), X509_V_OK);
    assert_int_equal(verdict(c, p, now, X509_PURPOSE_SSL_SERVER, "other", NULL),
                     X509_V_ERR_HOSTNAME_MISMATCH);
    kml_pki_pair_finish(&pair);
    kml_pki_pair_finish(&ca);
}

static void it_is_refused_outside_its_time_and_under_another_ca(void **state)
{
    (void)state;
    struct kml_pki_pair ca;
    struct kml_pki_pair other;
    struct kml_pki_pair pair;
    struct kml_pki_request request = a_request();
    make_ca(&ca);
    make_ca(&other);
    assert_int_equal(kml_pki_issue(&ca, &request, &pair, NULL), 0);
    int purpose = X509_PURPOSE_SSL_CLIENT;
    assert_int_equal(verdict(ca.certificate, pair.certificate, START + 91 * DAY, purpose, NULL, NULL),
                     X509_V_ERR_CERT_HAS_EXPIRED);
    assert_int_not_equal(verdict(ca.certificate, pair.certificate, START - DAY, purpose, NULL, NULL),
                         X509_V_OK);
    assert_int_not_equal(verdict(other.certificate, pair.certificate, START + DAY, purpose, NULL, NULL),
                         X509_V_OK);
    kml_pki_pair_finish(&pair);
    kml_pki_pair_finish(&other);
    kml_pki_pair_finish(&ca);
}

static void a_pair_cannot_sign_and_a_ca_has_one_level(void **state)
{
    (void)state;
    struct kml_pki_pair ca;
    struct kml_pki_pair pair;
    struct kml_pki_pair below;
    struct kml_pki_request request = a_request();
    struct kml_err err = {0};
    make_ca(&ca);
    assert_int_equal(kml_pki_issue(&ca, &request, &pair, NULL), 0);
    assert_int_equal(kml_pki_issue(&pair, &request, &below, &err), -1);
    assert_int_equal(err.code, KML_INVALID);
    X509 *x = certificate_of(ca.certificate);
    assert_int_equal(X509_get_pathlen(x), 0);
    X509_free(x);
    kml_pki_pair_finish(&pair);
    kml_pki_pair_finish(&ca);
}

static void the_uri_and_all_names_stand_in_the_certificate_as_given(void **state)
{
    (void)state;
    struct kml_pki_pair ca;
    struct kml_pki_pair pair;
    struct kml_pki_request request = a_request();
    static const char *const tricky[] = {"a,DNS:evil.example"};
    request.dns = tricky;
    request.dns_count = 1;
    make_ca(&ca);
    assert_int_equal(kml_pki_issue(&ca, &request, &pair, NULL), 0);
    X509 *x = certificate_of(pair.certificate);
    GENERAL_NAMES *names = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
    assert_int_equal(sk_GENERAL_NAME_num(names), 4);
    const GENERAL_NAME *dns = sk_GENERAL_NAME_value(names, 0);
    const GENERAL_NAME *uri = sk_GENERAL_NAME_value(names, 3);
    assert_int_equal(dns->type, GEN_DNS);
    assert_string_equal((const char *)ASN1_STRING_get0_data(dns->d.dNSName), tricky[0]);
    assert_int_equal(uri->type, GEN_URI);
    assert_string_equal((const char *)ASN1_STRING_get0_data(uri->d.uniformResourceIdentifier), request.uri);
    GENERAL_NAMES_free(names);
    X509_free(x);
    kml_pki_pair_finish(&pair);
    kml_pki_pair_finish(&ca);
}

static void validity_reads_back_what_was_asked_for(void **state)
{
    (void)state;
    struct kml_pki_pair ca;
    uint64_t from = 0;
    uint64_t until = 0;
    struct kml_err err = {0};
    uint64_t far = UINT64_C(4102444800) + 12345; /* after 2050 the encoding of times changes */
    assert_int_equal(kml_pki_make_ca("far", START + 7, far, &ca, NULL), 0);
    assert_int_equal(kml_pki_validity(ca.certificate, &from, &until, NULL), 0);
    assert_int_equal(from, START + 7);
    assert_int_equal(until, far);
    assert_int_equal(kml_pki_validity("-----BEGIN CERTIFICATE-----\nnonsense", &from, &until, &err), -1);
    assert_int_equal(err.code, KML_INVALID);
    assert_int_equal(kml_pki_validity(ca.key, &from, &until, &err), -1);
    kml_pki_pair_finish(&ca);
}

static void bad_requests_are_refused_with_a_reason(void **state)
{
    (void)state;
    static const char *const no_address[] = {"300.1.1.1"};
    static const char *const no_name[] = {"two words"};
    char long_name[80];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    struct kml_pki_pair ca;
    struct kml_pki_pair out;
    struct kml_err err = {0};
    make_ca(&ca);
    struct kml_pki_request bad[5];
    for (size_t i = 0; i < KML_COUNT(bad); i++) {
        bad[i] = a_request();
    }
    bad[0].addresses = no_address;
    bad[0].address_count = 1;
    bad[1].dns = no_name;
    bad[1].dns_count = 1;
    bad[2].common_name = long_name;
    bad[3].not_after = bad[3].not_before;
    bad[4].uri = "";
    for (size_t i = 0; i < KML_COUNT(bad); i++) {
        err = (struct kml_err){0};
        assert_int_equal(kml_pki_issue(&ca, &bad[i], &out, &err), -1);
        assert_int_equal(err.code, KML_INVALID);
        assert_true(err.text[0] != '\0');
    }
    struct kml_pki_pair other;
    make_ca(&other);
    struct kml_pki_pair mixed = {ca.certificate, other.key};
    struct kml_pki_request good = a_request();
    assert_int_equal(kml_pki_issue(&mixed, &good, &out, &err), -1);
    assert_int_equal(err.code, KML_INVALID);
    kml_pki_pair_finish(&other);
    kml_pki_pair_finish(&ca);
}

static void a_folder_gets_three_files_and_only_its_owner_reads_the_key(void **state)
{
    (void)state;
    char folder[TEMP_ROOM];
    struct kml_pki_pair ca;
    struct kml_pki_pair pair;
    struct kml_pki_request request = a_request();
    struct stat info;
    temp_make(folder);
    make_ca(&ca);
    assert_int_equal(kml_pki_issue(&ca, &request, &pair, NULL), 0);
    assert_int_equal(kml_pki_write_folder(folder, &ca, &pair, NULL), 0);
    assert_int_equal(stat(temp_path(folder, "tls.key"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(stat(temp_path(folder, "tls.crt"), &info), 0);
    assert_int_equal(info.st_size, strlen(pair.certificate));
    assert_int_equal(info.st_mode & 0777, 0644);
    assert_int_equal(stat(temp_path(folder, "ca.crt"), &info), 0);
    struct kml_err err = {0};
    assert_int_equal(kml_pki_write_folder("/nowhere/at/all", &ca, &pair, &err), -1);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
    temp_remove(folder);
    kml_pki_pair_finish(&pair);
    kml_pki_pair_finish(&ca);
}

/* FIPS 180-2, appendix B. */
static void sha256_has_the_published_values(void **state)
{
    (void)state;
    uint8_t digest[KML_SHA256_BYTES];
    char hex[2 * KML_SHA256_BYTES + 1];
    kml_sha256_of("abc", 3, digest);
    kml_hex(digest, sizeof digest, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    struct kml_sha256 *h = kml_sha256_create();
    for (int i = 0; i < 1000; i++) {
        char run[1000];
        memset(run, 'a', sizeof run);
        kml_sha256_add(h, run, sizeof run);
    }
    kml_sha256_end(h, digest);
    kml_hex(digest, sizeof digest, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_issued_pair_verifies_as_server_and_as_client_under_its_names),
        cmocka_unit_test(it_is_refused_outside_its_time_and_under_another_ca),
        cmocka_unit_test(a_pair_cannot_sign_and_a_ca_has_one_level),
        cmocka_unit_test(the_uri_and_all_names_stand_in_the_certificate_as_given),
        cmocka_unit_test(validity_reads_back_what_was_asked_for),
        cmocka_unit_test(bad_requests_are_refused_with_a_reason),
        cmocka_unit_test(a_folder_gets_three_files_and_only_its_owner_reads_the_key),
        cmocka_unit_test(sha256_has_the_published_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
