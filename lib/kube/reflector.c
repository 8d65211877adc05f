#include "kube/reflector.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define BACKOFF_FIRST (800 * KML_MILLISECOND)
#define BACKOFF_MOST (30 * KML_SECOND)
#define HEALTHY (120 * KML_SECOND)
#define SHORT_WATCH KML_SECOND
#define WATCH_LEAST 300 /* seconds */
#define WATCH_MOST 600

void kml_reflector_init(struct kml_reflector *r, uint64_t seed)
{
    *r = (struct kml_reflector){.phase = KML_REFLECT_LIST, .consistent = true};
    kml_rng_init(&r->rng, seed);
}

static void want_list(struct kml_reflector *r, struct kml_reflect_want *want)
{
    want->act = KML_REFLECT_DO_LIST;
    want->token = r->token[0] == '\0' ? NULL : r->token;
    want->not_older_than = want->token == NULL && !r->consistent;
    want->version = want->not_older_than ? r->version : NULL;
}

static void want_watch(struct kml_reflector *r, struct kml_reflect_want *want)
{
    want->act = KML_REFLECT_DO_WATCH;
    want->version = r->version;
    want->timeout_seconds = WATCH_LEAST + (uint32_t)kml_rng_below(&r->rng, WATCH_MOST - WATCH_LEAST + 1);
    r->events = false;
}

void kml_reflector_next(struct kml_reflector *r, uint64_t now_ns, struct kml_reflect_want *want)
{
    *want = (struct kml_reflect_want){.act = KML_REFLECT_DO_WAIT, .until_ns = UINT64_MAX};
    if (r->asked) {
        return;
    }
    if (now_ns < r->not_before_ns) {
        want->until_ns = r->not_before_ns;
        return;
    }
    r->asked = true;
    r->started_ns = now_ns;
    if (r->phase == KML_REFLECT_LIST) {
        want_list(r, want);
    } else {
        want_watch(r, want);
    }
}

/* From the start, and from which version: what we saw last, or whatever is newest. */
static void list_again(struct kml_reflector *r, bool consistent)
{
    r->phase = KML_REFLECT_LIST;
    r->token[0] = '\0';
    r->consistent = consistent || r->version[0] == '\0';
}

static void back_off(struct kml_reflector *r, uint32_t least_seconds, uint64_t now_ns)
{
    if (r->failures > 0 && now_ns - r->failed_ns >= HEALTHY) {
        r->failures = 0;
    }
    uint64_t most = BACKOFF_MOST;
    if (r->failures < 6 && BACKOFF_FIRST << r->failures < BACKOFF_MOST) {
        most = BACKOFF_FIRST << r->failures;
    }
    r->failures++;
    r->failed_ns = now_ns;
    uint64_t wait = kml_rng_below(&r->rng, most + 1);
    uint64_t least = least_seconds * KML_SECOND;
    r->not_before_ns = now_ns + (wait > least ? wait : least);
}

static void remember(char *to, size_t room, const char *text)
{
    (void)snprintf(to, room, "%s", text);
}

bool kml_reflector_page(struct kml_reflector *r, const char *version, const char *token, uint64_t now_ns)
{
    r->asked = false;
    if (token != NULL && token[0] != '\0') {
        if (strlen(token) >= sizeof r->token) { /* a cut token would be another token */
            kml_reflector_garbled(r, now_ns);
            return false;
        }
        remember(r->token, sizeof r->token, token);
        return false;
    }
    if (version == NULL || version[0] == '\0' || strlen(version) >= sizeof r->version) {
        kml_reflector_garbled(r, now_ns); /* nothing to watch from */
        return false;
    }
    remember(r->version, sizeof r->version, version);
    r->token[0] = '\0';
    r->phase = KML_REFLECT_WATCH;
    r->too_large_before = false;
    r->synced = true;
    return true;
}

void kml_reflector_event(struct kml_reflector *r, const char *version)
{
    r->events = true;
    if (version[0] != '\0' && strlen(version) < sizeof r->version) {
        remember(r->version, sizeof r->version, version);
    }
}

void kml_reflector_ended(struct kml_reflector *r, uint64_t now_ns)
{
    r->asked = false;
    if (!r->events && now_ns - r->started_ns < SHORT_WATCH) {
        back_off(r, 0, now_ns);
    }
}

void kml_reflector_garbled(struct kml_reflector *r, uint64_t now_ns)
{
    r->asked = false;
    list_again(r, true);
    back_off(r, 0, now_ns);
}

/* A list's 410 is about its page token or about the version it was to be not older than: both mean start
 * over. */
static void gone(struct kml_reflector *r, uint64_t now_ns)
{
    bool first = r->phase == KML_REFLECT_WATCH;
    list_again(r, !first);
    if (!first) {
        back_off(r, 0, now_ns);
    }
}

static void lagging(struct kml_reflector *r, uint32_t retry_after, uint64_t now_ns)
{
    list_again(r, r->too_large_before);
    r->too_large_before = true;
    back_off(r, retry_after == 0 ? 1 : retry_after, now_ns);
}

void kml_reflector_failed(struct kml_reflector *r, const struct kml_kube_status *status, uint64_t now_ns)
{
    r->asked = false;
    if (status->http == 410) {
        gone(r, now_ns);
    } else if (status->version_too_large) {
        lagging(r, status->retry_after, now_ns);
    } else {
        back_off(r, status->retry_after, now_ns);
    }
}
