#ifndef KML_PKI_PKI_H
#define KML_PKI_PKI_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * The certificates of a job: a CA of its own (ECDSA P-256, 10 years) and a pair for each process (90 days),
 * all PEM. SANs of a pair: the DNS names and IP addresses under which it is reached, and the URI kunal://<job
 * uid>/<role>/<index>. Key bytes are wiped when a pair is finished. Never logged. (architecture.md section 4)
 */
struct kml_pki_pair {
    char *certificate; /* PEM, owned */
    char *key;         /* PEM (PKCS#8), owned */
};

struct kml_pki_request {
    const char *common_name;
    const char *uri;        /* "kunal://uid/worker/3" */
    const char *const *dns; /* [dns_count] */
    uint32_t dns_count;
    const char *const *addresses; /* [address_count], "127.0.0.1" */
    uint32_t address_count;
    uint64_t not_before; /* seconds since 1970 */
    uint64_t not_after;
};

int kml_pki_make_ca(const char *common_name, uint64_t not_before, uint64_t not_after,
                    struct kml_pki_pair *out, struct kml_err *err) KML_MUST_CHECK;
int kml_pki_issue(const struct kml_pki_pair *ca, const struct kml_pki_request *request,
                  struct kml_pki_pair *out, struct kml_err *err) KML_MUST_CHECK;
void kml_pki_pair_finish(struct kml_pki_pair *pair);

/* Seconds since 1970 at which the first certificate of a PEM text starts and ends to be valid. */
int kml_pki_validity(const char *certificate, uint64_t *not_before, uint64_t *not_after,
                     struct kml_err *err) KML_MUST_CHECK;

/* Writes ca.crt, tls.crt (0644) and tls.key (0600) into a folder that exists. */
int kml_pki_write_folder(const char *folder, const struct kml_pki_pair *ca, const struct kml_pki_pair *pair,
                         struct kml_err *err) KML_MUST_CHECK;

/* SHA-256. */
#define KML_SHA256_BYTES 32
struct kml_sha256;
struct kml_sha256 *kml_sha256_create(void);
void kml_sha256_add(struct kml_sha256 *h, const void *data, size_t size);
void kml_sha256_end(struct kml_sha256 *h, uint8_t out[KML_SHA256_BYTES]); /* frees it */
void kml_sha256_of(const void *data, size_t size, uint8_t out[KML_SHA256_BYTES]);
void kml_hex(const uint8_t *data, size_t size, char *out); /* out: 2 * size + 1 */

#endif
