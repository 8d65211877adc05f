#ifndef KML_RPC_CREDS_H
#define KML_RPC_CREDS_H

#include <stddef.h>

#include "base/err.h"

/*
 * Who we are and whom we believe. Plaintext, or mutual TLS with files that are re-read when they change
 * (ca.crt, tls.crt, tls.key in one folder, the layout of a Kubernetes TLS secret; looked at every
 * KUNAL_TLS_REFRESH_SECONDS, 60 by default). Peers without a certificate of that CA get nowhere. A server's
 * certificate must carry the name or the IP address that its clients dial; over a unix: address that name is
 * "localhost".
 */
struct kml_creds;

struct kml_creds *kml_creds_plaintext(void);

/* KML_NOT_FOUND, KML_DENIED, KML_INVALID name the file. */
int kml_creds_mtls(const char *folder, struct kml_creds **out, struct kml_err *err) KML_MUST_CHECK;

/* From PEM in memory (the operator's own client certificate). */
int kml_creds_mtls_pem(const char *ca, const char *certificate, const char *key, struct kml_creds **out,
                       struct kml_err *err) KML_MUST_CHECK;
void kml_creds_destroy(struct kml_creds *c); /* NULL accepted; servers and channels made with it live on */

#endif
