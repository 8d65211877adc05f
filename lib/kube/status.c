#include "kube/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"

#define DAY_SECONDS 86400

static const char *text_of(const struct kml_node *map, const char *key)
{
    const struct kml_node *node = kml_node_get(map, key);
    return node == NULL || node->kind != KML_NODE_TEXT ? "" : node->text;
}

static int64_t integer_of(const struct kml_node *map, const char *key)
{
    const struct kml_node *node = kml_node_get(map, key);
    return node == NULL || node->kind != KML_NODE_INT ? 0 : node->value.integer;
}

/* A 504 for "Too large resource version" is told from any other by its cause; very old servers only by the
 * message. */
static void read_details(struct kml_kube_status *s, const struct kml_node *details)
{
    int64_t wait = integer_of(details, "retryAfterSeconds");
    if (wait > 0 && s->retry_after == 0) {
        s->retry_after = wait > DAY_SECONDS ? DAY_SECONDS : (uint32_t)wait;
    }
    const struct kml_node *causes = kml_node_get(details, "causes");
    for (uint32_t i = 0; causes != NULL && causes->kind == KML_NODE_LIST && i < causes->count; i++) {
        if (strcmp(text_of(causes->child[i], "reason"), "ResourceVersionTooLarge") == 0) {
            s->version_too_large = true;
        }
    }
}

void kml_kube_status_of(struct kml_kube_status *s, const struct kml_node *status)
{
    *s = (struct kml_kube_status){0};
    int64_t code = integer_of(status, "code");
    s->http = code < 0 || code > 999 ? 0 : (int)code;
    (void)snprintf(s->reason, sizeof s->reason, "%s", text_of(status, "reason"));
    (void)snprintf(s->message, sizeof s->message, "%s", text_of(status, "message"));
    read_details(s, kml_node_get(status, "details"));
    if (strstr(s->message, "Too large resource version") != NULL) {
        s->version_too_large = true;
    }
}

void kml_kube_status_read(struct kml_kube_status *s, int http, uint32_t retry_after, struct kml_view body)
{
    *s = (struct kml_kube_status){0};
    if (http >= 300) {
        struct kml_doc doc;
        kml_doc_init(&doc);
        if (kml_doc_read(&doc, "status", body, NULL) == 0 &&
            strcmp(text_of(doc.root, "kind"), "Status") == 0) {
            kml_kube_status_of(s, doc.root);
        } else {
            size_t size = body.size < 200 ? body.size : 200; /* a proxy's page, a plain line */
            (void)snprintf(s->message, sizeof s->message, "%.*s", (int)size, (const char *)body.data);
        }
        kml_doc_finish(&doc);
    }
    s->http = http;
    if (retry_after > 0) {
        s->retry_after = retry_after;
    }
}

enum kml_code kml_kube_status_code(const struct kml_kube_status *s)
{
    switch (s->http) {
    case 0:
        return KML_UNAVAILABLE;
    case 400:
    case 422:
        return KML_INVALID;
    case 401:
        return KML_UNAUTHENTICATED;
    case 403:
        return strstr(s->message, "exceeded quota") != NULL ? KML_EXHAUSTED : KML_DENIED;
    case 404:
        return KML_NOT_FOUND;
    case 409:
        return strcmp(s->reason, "AlreadyExists") == 0 ? KML_EXISTS : KML_CONFLICT;
    case 410:
        return KML_FENCED;
    case 413:
        return KML_TOO_LARGE;
    case 429:
        return KML_EXHAUSTED;
    case 500:
        return KML_AGAIN;
    case 502:
    case 503:
        return KML_UNAVAILABLE;
    case 504:
        return KML_TIMEOUT;
    default:
        return s->http >= 200 && s->http < 300 ? KML_OK : KML_PROTOCOL;
    }
}

int kml_kube_status_fail(const struct kml_kube_status *s, struct kml_err *err)
{
    const char *blank = s->reason[0] == '\0' ? "" : " ";
    const char *message = s->message[0] == '\0' ? "the API server gave no reason" : s->message;
    return kml_fail(err, kml_kube_status_code(s), "%d%s%s: %s", s->http, blank, s->reason, message);
}

bool kml_kube_status_retry(const struct kml_kube_status *s, uint32_t tries, uint64_t *wait_ns)
{
    bool asks = s->http == 429 || (s->http >= 500 && s->retry_after > 0);
    if (!asks || s->version_too_large || tries >= KML_KUBE_TRIES) {
        return false;
    }
    *wait_ns = (s->retry_after == 0 ? 1 : s->retry_after) * KML_SECOND;
    return true;
}

uint32_t kml_kube_retry_after(const char *value)
{
    uint64_t seconds = 0;
    if (kml_parse_u64(value, &seconds, NULL) != 0) {
        return 1;
    }
    return seconds > DAY_SECONDS ? DAY_SECONDS : (uint32_t)seconds;
}
