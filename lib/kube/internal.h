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

/* URL, TLS, keepalive, limits of the connection. The caller sets CURLOPT_SOCKOPTDATA: a uint64_t that counts
 * them. */
void kml_kube_transport_apply(const struct kml_kube_config *config, const char *path, CURL *easy,
                              struct curl_slist **connect_to);
/* The error of a transfer that curl gave up. Returns -1. */
int kml_kube_transport_fail(CURLcode code, const char *detail, const char *server, struct kml_err *err);

#define KML_KUBE_NEVER UINT64_MAX

struct kml_kube_call {
    struct kml_kube_client *client;
    struct kml_kube_call *next;
    struct kml_kube_request request;
    struct kml_kube_send how;
    struct kml_kube_sink sink;
    CURL *easy; /* NULL: not under way */
    struct curl_slist *headers;
    struct curl_slist *connect_to;
    char detail[CURL_ERROR_SIZE];
    struct kml_buf body;  /* collected, or not handed out yet */
    uint64_t deadline_ns; /* KML_KUBE_NEVER: none */
    uint64_t start_ns;    /* of the next try, when not under way */
    uint64_t sent_ns;     /* of the last try */
    uint32_t tries;
    uint32_t retry_after;  /* of the answer's header */
    bool reread;           /* credentials were read again for it */
    bool lost;             /* was under way on a connection that was given up */
    bool ended;            /* done was called; freed after the step */
    bool finished;         /* curl is through with it */
    CURLcode code;         /* when finished */
    struct kml_err broken; /* why we ended it ourselves */
};

struct kml_kube_client {
    const struct kml_kube_config *config;
    struct kml_clock clock;
    char *agent;
    uint64_t silence_ns;
    uint64_t probe_ns;
    CURLM *multi;
    int wake;
    struct kml_kube_creds creds;
    struct kml_kube_call *call; /* oldest first */
    struct kml_kube_timer *timer;
    uint64_t heard_ns; /* when the server last said anything */
    bool heard;        /* in this step */
    bool stepping;
    bool probing;
    bool dead; /* the connections are to be given up */
    struct kml_kube_client_counts counts;
};

/* May one more be under way? What has to wait is started by the loop, the oldest first. */
bool kml_kube_call_may_launch(const struct kml_kube_call *call);
int kml_kube_call_launch(struct kml_kube_call *call, uint64_t now_ns, struct kml_err *err) KML_MUST_CHECK;
void kml_kube_call_let_go(struct kml_kube_call *call); /* of curl; it may be launched again */
void kml_kube_call_free(struct kml_kube_call *call);

/* Ends it without an answer of the server: `done` runs. */
void kml_kube_call_break(struct kml_kube_call *call, const struct kml_err *why);
/* Gives the bytes of a 2xx that were not handed out yet to the sink. False: the call ended over it. */
bool kml_kube_call_hand_out(struct kml_kube_call *call);
/* curl is through with it: ends it, or sets it up to be sent again. */
void kml_kube_call_finish(struct kml_kube_call *call);

#endif
