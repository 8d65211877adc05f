#ifndef KML_KUBE_INTERNAL_H
#define KML_KUBE_INTERNAL_H

#include <curl/curl.h>
#include <sys/stat.h>

#include "kube/client.h"

/* What the files of the client share. */

/* A file that is read again when it changed. */
struct kml_kube_file {
    const char *path; /* NULL: there is none */
    struct kml_buf text;
    struct timespec changed;
    ino_t inode;
    off_t size;
    uint64_t read_ns;
};

/* Who we are and whom we trust, as of now. */
struct kml_kube_creds {
    const struct kml_kube_config *config;
    struct kml_kube_file token;
    struct kml_kube_file ca;
    struct kml_kube_file cert;
    struct kml_kube_file key;
    struct kml_kube_credential exec; /* expires_ns 0: none yet */
    uint64_t token_reads;
};

void kml_kube_creds_init(struct kml_kube_creds *c, const struct kml_kube_config *config);
void kml_kube_creds_finish(struct kml_kube_creds *c);
/* Reads what changed, `again`: everything (after a 401). Fails only when there is no older value to go on
 * with. */
int kml_kube_creds_refresh(struct kml_kube_creds *c, bool again, uint64_t now_ns,
                           struct kml_err *err) KML_MUST_CHECK;
bool kml_kube_creds_can_change(const struct kml_kube_creds *c); /* reading again may help */

/* Puts them into a handle, and the Authorization header into the list. */
int kml_kube_creds_apply(const struct kml_kube_creds *c, CURL *easy, struct curl_slist **headers,
                         struct kml_err *err) KML_MUST_CHECK;

/* What does not change from call to call: URL, TLS, keepalive, limits of the connection. */
void kml_kube_transport_apply(const struct kml_kube_config *config, const char *path, CURL *easy,
                              struct curl_slist **connect_to);
/* The error of a transfer that curl gave up. Returns -1. */
int kml_kube_transport_fail(CURLcode code, const char *detail, const char *server, struct kml_err *err);

#endif
