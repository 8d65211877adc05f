#include <openssl/evp.h>

#include "base/mem.h"
#include "pki/pki.h"

/* Digests fail only when memory is out or the library is broken; neither is the caller's affair. */
struct kml_sha256 {
    EVP_MD_CTX *context;
};

struct kml_sha256 *kml_sha256_create(void)
{
    struct kml_sha256 *h = KML_NEW(struct kml_sha256);
    h->context = EVP_MD_CTX_new();
    KML_BUG_ON(h->context == NULL || EVP_DigestInit_ex(h->context, EVP_sha256(), NULL) != 1);
    return h;
}

void kml_sha256_add(struct kml_sha256 *h, const void *data, size_t size)
{
    KML_BUG_ON(EVP_DigestUpdate(h->context, data, size) != 1);
}

void kml_sha256_end(struct kml_sha256 *h, uint8_t out[KML_SHA256_BYTES])
{
    KML_BUG_ON(EVP_DigestFinal_ex(h->context, out, NULL) != 1);
    EVP_MD_CTX_free(h->context);
    kml_free(h);
}

void kml_sha256_of(const void *data, size_t size, uint8_t out[KML_SHA256_BYTES])
{
    struct kml_sha256 *h = kml_sha256_create();
    kml_sha256_add(h, data, size);
    kml_sha256_end(h, out);
}

void kml_hex(const uint8_t *data, size_t size, char *out)
{
    static const char digit[] = "0123456789abcdef";
    for (size_t i = 0; i < size; i++) {
        out[2 * i] = digit[data[i] >> 4];
        out[2 * i + 1] = digit[data[i] & 15];
    }
    out[2 * size] = '\0';
}
