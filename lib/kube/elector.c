#include "kube/elector.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define FOREVER UINT64_MAX
#define JITTER 1.2 /* a waiting candidate asks every retry_ns * (1 to 1 + JITTER) */

void kml_elector_init(struct kml_elector *e, const char *identity, uint64_t seed)
{
    *e = (struct kml_elector){
        .lease_ns = 15 * KML_SECOND, .renew_ns = 10 * KML_SECOND, .retry_ns = 2 * KML_SECOND};
    KML_BUG_ON(identity[0] == '\0' || strlen(identity) >= sizeof e->identity);
    (void)snprintf(e->identity, sizeof e->identity, "%s", identity);
    kml_rng_init(&e->rng, seed);
}

static bool ours(const struct kml_elector *e)
{
    return e->exists && strcmp(e->seen.holder, e->identity) == 0;
}

static bool over(const struct kml_elector *e, uint64_t now_ns)
{
    return e->seen.holder[0] == '\0' || now_ns - e->seen_ns >= e->seen.duration_seconds * KML_SECOND;
}

static bool out_of_time(const struct kml_elector *e, uint64_t now_ns)
{
    return now_ns >= e->renewed_ns + e->renew_ns;
}

bool kml_elector_leads(const struct kml_elector *e, uint64_t now_ns)
{
    return e->state == KML_ELECTOR_LEADING && !out_of_time(e, now_ns);
}

static void fill_record(const struct kml_elector *e, uint64_t wall_ns, struct kml_elector_record *r)
{
    bool had_it = ours(e);
    *r = (struct kml_elector_record){
        .duration_seconds = (uint32_t)(e->lease_ns / KML_SECOND),
        .acquire_wall_ns = had_it ? e->seen.acquire_wall_ns : wall_ns,
        .renew_wall_ns = wall_ns,
        .transitions = e->exists ? e->seen.transitions + (had_it ? 0 : 1) : 0,
    };
    if (e->release) {
        r->duration_seconds = 1; /* the holder stays empty; the API wants a duration above zero */
    } else {
        memcpy(r->holder, e->identity, sizeof r->holder);
    }
}

/* Which call is due, when one is. */
static enum kml_elector_act choose(const struct kml_elector *e)
{
    if (!e->know) {
        return KML_ELECTOR_READ;
    }
    return e->exists ? KML_ELECTOR_WRITE : KML_ELECTOR_CREATE;
}

static void settle(struct kml_elector *e, uint64_t now_ns)
{
    if (e->state == KML_ELECTOR_LEADING && out_of_time(e, now_ns)) {
        e->state = KML_ELECTOR_LOST;
    }
    if (e->release && e->state == KML_ELECTOR_WAITING && !e->asked) {
        e->state = KML_ELECTOR_RELEASED;
    }
}

void kml_elector_next(struct kml_elector *e, uint64_t now_ns, uint64_t wall_ns, struct kml_elector_want *want)
{
    *want = (struct kml_elector_want){.act = KML_ELECTOR_WAIT, .until_ns = FOREVER};
    settle(e, now_ns);
    if (e->state == KML_ELECTOR_LOST || e->state == KML_ELECTOR_RELEASED) {
        return;
    }
    if (e->state == KML_ELECTOR_LEADING) {
        want->until_ns = e->renewed_ns + e->renew_ns;
    }
    if (e->asked) {
        return;
    }
    if (now_ns < e->next_ns) {
        want->until_ns = e->next_ns < want->until_ns ? e->next_ns : want->until_ns;
        return;
    }
    want->act = choose(e);
    if (want->act != KML_ELECTOR_READ) {
        fill_record(e, wall_ns, &want->record);
        want->version = e->version;
    }
    e->asked = true;
    e->sent_ns = now_ns;
}

static void try_later(struct kml_elector *e, uint64_t now_ns)
{
    double factor = e->state == KML_ELECTOR_LEADING ? 1.0 : 1.0 + JITTER * kml_rng_unit(&e->rng);
    e->next_ns = now_ns + (uint64_t)((double)e->retry_ns * factor);
}

static bool same_record(const struct kml_elector_record *a, const struct kml_elector_record *b)
{
    return strcmp(a->holder, b->holder) == 0 && a->duration_seconds == b->duration_seconds &&
           a->acquire_wall_ns == b->acquire_wall_ns && a->renew_wall_ns == b->renew_wall_ns &&
           a->transitions == b->transitions;
}

void kml_elector_read(struct kml_elector *e, const struct kml_elector_record *record, const char *version,
                      uint64_t now_ns)
{
    e->asked = false;
    if (!e->exists || !same_record(&e->seen, record)) {
        e->seen = *record;
        e->seen_ns = now_ns;
    }
    e->exists = true;
    (void)snprintf(e->version, sizeof e->version, "%s", version);
    if (e->state == KML_ELECTOR_LEADING && !ours(e)) {
        e->state = KML_ELECTOR_LOST;
        return;
    }
    e->know = ours(e) || over(e, now_ns);
    if (e->know) {
        e->next_ns = now_ns;
    } else {
        try_later(e, now_ns);
    }
}

void kml_elector_missing(struct kml_elector *e, uint64_t now_ns)
{
    e->asked = false;
    e->exists = false;
    e->know = true;
    e->next_ns = now_ns;
}

void kml_elector_wrote(struct kml_elector *e, const struct kml_elector_record *record, const char *version,
                       uint64_t now_ns)
{
    e->asked = false;
    if (e->state == KML_ELECTOR_LOST) {
        return; /* too late to count: somebody may have taken over in between */
    }
    e->seen = *record;
    e->seen_ns = now_ns;
    e->exists = true;
    e->know = true;
    (void)snprintf(e->version, sizeof e->version, "%s", version);
    if (record->holder[0] == '\0') {
        e->state = KML_ELECTOR_RELEASED;
        return;
    }
    e->state = KML_ELECTOR_LEADING;
    e->renewed_ns = e->sent_ns;
    e->next_ns = e->release ? now_ns : now_ns + e->retry_ns;
}

void kml_elector_failed(struct kml_elector *e, uint64_t now_ns)
{
    e->asked = false;
    e->know = false;
    try_later(e, now_ns);
}

void kml_elector_release(struct kml_elector *e)
{
    e->release = true;
    if (e->state == KML_ELECTOR_WAITING && !e->asked) {
        e->state = KML_ELECTOR_RELEASED;
    }
    e->next_ns = 0;
}
