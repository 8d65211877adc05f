#include "pki/pki.h"

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

#define COMMON_NAME_MAX 64 /* RFC 5280, upper bound of a common name */

/* Objects of the library in one place, so that each way out frees all of them. */
struct work {
    EVP_PKEY *key;
    X509 *certificate;
    EVP_PKEY *ca_key;
    X509 *ca;
};

static void work_finish(struct work *w)
{
    EVP_PKEY_free(w->key);
    X509_free(w->certificate);
    EVP_PKEY_free(w->ca_key);
    X509_free(w->ca);
}

/* The library's own reason for the last failure, behind ours. */
static int fail_ssl(struct kml_err *err, enum kml_code code, const char *what)
{
    char reason[200] = "no reason given";
    unsigned long number = ERR_peek_last_error();
    if (number != 0) {
        ERR_error_string_n(number, reason, sizeof reason);
    }
    ERR_clear_error();
    return kml_fail(err, code, "%s: %s", what, reason);
}

/* ---- PEM ---- */

static char *text_of(BIO *bio)
{
    char *data = NULL;
    long size = BIO_get_mem_data(bio, &data);
    return kml_strndup(data, (size_t)size);
}

static int to_pem(const struct work *w, struct kml_pki_pair *out, struct kml_err *err)
{
    BIO *certificate = BIO_new(BIO_s_mem());
    BIO *key = BIO_new(BIO_s_secmem()); /* wiped when freed */
    int written = certificate != NULL && key != NULL &&
                  PEM_write_bio_X509(certificate, w->certificate) == 1 &&
                  PEM_write_bio_PKCS8PrivateKey(key, w->key, NULL, NULL, 0, NULL, NULL) == 1;
    if (written) {
        *out = (struct kml_pki_pair){text_of(certificate), text_of(key)};
    }
    BIO_free(certificate);
    BIO_free(key);
    return written ? 0 : fail_ssl(err, KML_INTERNAL, "cannot write a certificate");
}

/* A key in a file may be encrypted; then the library would ask on the terminal. It must not. */
static int no_password(char *buffer, int size, int writing, void *self)
{
    (void)buffer;
    (void)size;
    (void)writing;
    (void)self;
    return -1;
}

static X509 *read_certificate(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *x = bio == NULL ? NULL : PEM_read_bio_X509(bio, NULL, no_password, NULL);
    BIO_free(bio);
    return x;
}

static EVP_PKEY *read_key(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    EVP_PKEY *key = bio == NULL ? NULL : PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);
    BIO_free(bio);
    return key;
}

static int read_ca(const struct kml_pki_pair *ca, struct work *w, struct kml_err *err)
{
    w->ca = read_certificate(ca->certificate);
    if (w->ca == NULL) {
        return fail_ssl(err, KML_INVALID, "the CA's certificate cannot be read");
    }
    w->ca_key = read_key(ca->key);
    if (w->ca_key == NULL) {
        return fail_ssl(err, KML_INVALID, "the CA's key cannot be read");
    }
    if (X509_check_private_key(w->ca, w->ca_key) != 1) {
        return fail_ssl(err, KML_INVALID, "the CA's key does not belong to its certificate");
    }
    if (X509_check_ca(w->ca) == 0) {
        return kml_fail(err, KML_INVALID, "the certificate that should sign is not a CA's");
    }
    return 0;
}

/* ---- Building ---- */

static int set_times(X509 *x, uint64_t not_before, uint64_t not_after, struct kml_err *err)
{
    if (not_before >= not_after || not_after > INT64_MAX) {
        return kml_fail(err, KML_INVALID, "a certificate's time of validity ends before it starts");
    }
    if (ASN1_TIME_set(X509_getm_notBefore(x), (time_t)not_before) == NULL ||
        ASN1_TIME_set(X509_getm_notAfter(x), (time_t)not_after) == NULL) {
        return fail_ssl(err, KML_INVALID, "a time that a certificate cannot hold");
    }
    return 0;
}

static int set_serial(X509 *x)
{
    BIGNUM *number = BN_new();
    /* 159 bits: positive and within the 20 bytes of RFC 5280 */
    int set = number != NULL && BN_rand(number, 159, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
              BN_to_ASN1_INTEGER(number, X509_get_serialNumber(x)) != NULL;
    BN_free(number);
    return set;
}

static int set_name(X509 *x, const char *common_name, struct kml_err *err)
{
    size_t length = strlen(common_name);
    if (length == 0 || length > COMMON_NAME_MAX) {
        return kml_fail(err, KML_INVALID, "a common name of %zu bytes, 1 to %d are allowed", length,
                        COMMON_NAME_MAX);
    }
    X509_NAME *name = X509_NAME_new();
    int set = name != NULL &&
              X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)common_name, -1,
                                         -1, 0) == 1 &&
              X509_set_subject_name(x, name) == 1;
    X509_NAME_free(name);
    return set ? 0 : fail_ssl(err, KML_INVALID, "a common name that a certificate cannot hold");
}

static int add_text(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    int added = extension != NULL && X509_add_ext(x, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return added;
}

/* Values are put in as data, never as the library's configuration language: a comma in a name must stay a
 * comma. */
static int add_san(GENERAL_NAMES *names, int type, const void *data, size_t size)
{
    GENERAL_NAME *name = GENERAL_NAME_new();
    ASN1_STRING *value = ASN1_STRING_type_new(type == GEN_IPADD ? V_ASN1_OCTET_STRING : V_ASN1_IA5STRING);
    if (name == NULL || value == NULL || ASN1_STRING_set(value, data, (int)size) != 1) {
        GENERAL_NAME_free(name);
        ASN1_STRING_free(value);
        return 0;
    }
    GENERAL_NAME_set0_value(name, type, value);
    if (sk_GENERAL_NAME_push(names, name) <= 0) {
        GENERAL_NAME_free(name);
        return 0;
    }
    return 1;
}

static int check_text(const char *text, const char *what, struct kml_err *err)
{
    size_t length = strlen(text);
    if (length == 0 || length > 255) {
        return kml_fail(err, KML_INVALID, "%s of %zu bytes, 1 to 255 are allowed", what, length);
    }
    for (const char *c = text; *c != '\0'; c++) {
        if (*c <= ' ' || *c > '~') {
            return kml_fail(err, KML_INVALID, "%s '%s' holds a letter that is not allowed there", what, text);
        }
    }
    return 0;
}

static int add_text_san(GENERAL_NAMES *names, int type, const char *text, const char *what,
                        struct kml_err *err)
{
    if (check_text(text, what, err) != 0) {
        return -1;
    }
    return add_san(names, type, text, strlen(text)) ? 0 : fail_ssl(err, KML_INTERNAL, "cannot add a name");
}

static int add_address(GENERAL_NAMES *names, const char *text, struct kml_err *err)
{
    ASN1_OCTET_STRING *address = a2i_IPADDRESS(text);
    if (address == NULL) {
        ERR_clear_error();
        return kml_fail(err, KML_INVALID, "'%s' is not an IP address", text);
    }
    int added =
        add_san(names, GEN_IPADD, ASN1_STRING_get0_data(address), (size_t)ASN1_STRING_length(address));
    ASN1_OCTET_STRING_free(address);
    return added ? 0 : fail_ssl(err, KML_INTERNAL, "cannot add an address");
}

static int collect_names(GENERAL_NAMES *names, const struct kml_pki_request *r, struct kml_err *err)
{
    for (uint32_t i = 0; i < r->dns_count; i++) {
        if (add_text_san(names, GEN_DNS, r->dns[i], "a DNS name", err) != 0) {
            return -1;
        }
    }
    for (uint32_t i = 0; i < r->address_count; i++) {
        if (add_address(names, r->addresses[i], err) != 0) {
            return -1;
        }
    }
    return r->uri == NULL ? 0 : add_text_san(names, GEN_URI, r->uri, "a URI", err);
}

static int add_names(X509 *x, const struct kml_pki_request *r, struct kml_err *err)
{
    if (r->dns_count == 0 && r->address_count == 0 && r->uri == NULL) {
        return 0;
    }
    GENERAL_NAMES *names = GENERAL_NAMES_new();
    if (names == NULL) {
        return fail_ssl(err, KML_NO_MEMORY, "no memory for the names of a certificate");
    }
    int failed = collect_names(names, r, err) != 0;
    if (!failed && X509_add1_ext_i2d(x, NID_subject_alt_name, names, 0, X509V3_ADD_DEFAULT) != 1) {
        failed = fail_ssl(err, KML_INTERNAL, "cannot add the names");
    }
    GENERAL_NAMES_free(names);
    return failed ? -1 : 0;
}

/* A fresh key and an unsigned certificate for it. */
static int start(struct work *w, const char *common_name, uint64_t not_before, uint64_t not_after,
                 struct kml_err *err)
{
    w->key = EVP_EC_gen("P-256");
    w->certificate = X509_new();
    if (w->key == NULL || w->certificate == NULL || X509_set_version(w->certificate, X509_VERSION_3) != 1 ||
        X509_set_pubkey(w->certificate, w->key) != 1 || !set_serial(w->certificate)) {
        return fail_ssl(err, KML_INTERNAL, "cannot make a key");
    }
    if (set_name(w->certificate, common_name, err) != 0) {
        return -1;
    }
    return set_times(w->certificate, not_before, not_after, err);
}

static int sign(X509 *x, X509 *issuer, EVP_PKEY *key, struct kml_err *err)
{
    if (X509_set_issuer_name(x, X509_get_subject_name(issuer)) != 1 || X509_sign(x, key, EVP_sha256()) == 0) {
        return fail_ssl(err, KML_INTERNAL, "cannot sign a certificate");
    }
    return 0;
}

static int add_ca_extensions(X509 *x, struct kml_err *err)
{
    if (!add_text(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
        !add_text(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") ||
        !add_text(x, x, NID_subject_key_identifier, "hash")) {
        return fail_ssl(err, KML_INTERNAL, "cannot make a CA");
    }
    return 0;
}

/* Every process is a server to some and a client to others, so each pair may be both. */
static int add_leaf_extensions(X509 *x, X509 *ca, struct kml_err *err)
{
    if (!add_text(x, ca, NID_basic_constraints, "critical,CA:FALSE") ||
        !add_text(x, ca, NID_key_usage, "critical,digitalSignature") ||
        !add_text(x, ca, NID_ext_key_usage, "serverAuth,clientAuth") ||
        !add_text(x, ca, NID_subject_key_identifier, "hash") ||
        !add_text(x, ca, NID_authority_key_identifier, "keyid:always")) {
        return fail_ssl(err, KML_INTERNAL, "cannot issue a certificate");
    }
    return 0;
}

int kml_pki_make_ca(const char *common_name, uint64_t not_before, uint64_t not_after,
                    struct kml_pki_pair *out, struct kml_err *err)
{
    struct work w = {0};
    int failed = start(&w, common_name, not_before, not_after, err) != 0 ||
                 X509_set_issuer_name(w.certificate, X509_get_subject_name(w.certificate)) != 1 ||
                 add_ca_extensions(w.certificate, err) != 0 ||
                 sign(w.certificate, w.certificate, w.key, err) != 0 || to_pem(&w, out, err) != 0;
    work_finish(&w);
    return failed ? kml_wrap(err, "CA %s", common_name) : 0;
}

int kml_pki_issue(const struct kml_pki_pair *ca, const struct kml_pki_request *request,
                  struct kml_pki_pair *out, struct kml_err *err)
{
    struct work w = {0};
    int failed = read_ca(ca, &w, err) != 0 ||
                 start(&w, request->common_name, request->not_before, request->not_after, err) != 0 ||
                 add_names(w.certificate, request, err) != 0 ||
                 add_leaf_extensions(w.certificate, w.ca, err) != 0 ||
                 sign(w.certificate, w.ca, w.ca_key, err) != 0 || to_pem(&w, out, err) != 0;
    work_finish(&w);
    return failed ? kml_wrap(err, "certificate of %s", request->common_name) : 0;
}

void kml_pki_pair_finish(struct kml_pki_pair *pair)
{
    if (pair->key != NULL) {
        OPENSSL_cleanse(pair->key, strlen(pair->key));
    }
    kml_free(pair->key);
    kml_free(pair->certificate);
    *pair = (struct kml_pki_pair){0};
}

/* ---- Reading back, and files ---- */

static int seconds_of(const ASN1_TIME *time, uint64_t *seconds)
{
    ASN1_TIME *epoch = ASN1_TIME_set(NULL, 0);
    int days = 0;
    int rest = 0;
    int known = epoch != NULL && ASN1_TIME_diff(&days, &rest, epoch, time) == 1;
    ASN1_TIME_free(epoch);
    int64_t total = (int64_t)days * 86400 + rest;
    *seconds = total < 0 ? 0 : (uint64_t)total;
    return known;
}

int kml_pki_validity(const char *certificate, uint64_t *not_before, uint64_t *not_after, struct kml_err *err)
{
    X509 *x = read_certificate(certificate);
    if (x == NULL) {
        return fail_ssl(err, KML_INVALID, "not a certificate in PEM form");
    }
    uint64_t from = 0;
    uint64_t until = 0;
    int known = seconds_of(X509_get0_notBefore(x), &from) && seconds_of(X509_get0_notAfter(x), &until);
    X509_free(x);
    if (!known) {
        return fail_ssl(err, KML_INVALID, "a certificate whose times cannot be read");
    }
    *not_before = from;
    *not_after = until;
    return 0;
}

static int write_one(const char *folder, const char *name, const char *text, unsigned mode,
                     struct kml_err *err)
{
    kml_auto_free char *path = kml_format("%s/%s", folder, name);
    struct kml_view part = kml_view_str(text);
    return kml_file_write(path, &part, 1, mode, err);
}

/* The key first: whoever watches the folder reads a pair once the certificate is there. */
int kml_pki_write_folder(const char *folder, const struct kml_pki_pair *ca, const struct kml_pki_pair *pair,
                         struct kml_err *err)
{
    if (write_one(folder, "tls.key", pair->key, 0600, err) != 0 ||
        write_one(folder, "tls.crt", pair->certificate, 0644, err) != 0) {
        return -1;
    }
    return write_one(folder, "ca.crt", ca->certificate, 0644, err);
}
