#include "kube/recorder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "doc/json.h"
#include "kube/text.h"

#define SIMILAR_FOR (600 * KML_SECOND)
#define SIMILAR_MOST 10
#define BETWEEN_WRITES (10 * KML_SECOND)
#define BURST 25
#define REFILL (300 * KML_SECOND)
#define NEVER UINT64_MAX
#define NAME 256
#define SHORT 128 /* the API's limit of reason and action, with the zero */
#define UID 64
#define COMBINED "(combined from similar events) "

struct event {
    bool used;
    bool warning;
    bool combined;
    bool written;   /* the API server has it */
    bool in_flight; /* a request is under way */
    uint32_t life;  /* counts the uses of this place: old answers are told apart */
    const struct kml_kube_kind *kind;
    char ns[NAME];
    char subject[NAME];
    char uid[UID];
    char reason[SHORT];
    char action[SHORT];
    char note[KML_RECORDER_NOTE];
    char name[NAME]; /* of the Event */
    uint64_t count;
    uint64_t sent; /* the count that was written last */
    uint64_t first_wall_ns;
    uint64_t last_wall_ns;
    uint64_t seen_ns;
    uint64_t write_ns; /* of the last write */
};

/* What an object may still cause: as many writes as the time since then would have filled up. */
struct allowance {
    char uid[UID];
    uint64_t full_ns; /* when it is full again; 0: nothing was used */
    uint64_t used_ns; /* of the last write, to find the oldest */
};

struct kml_recorder {
    char controller[NAME];
    char instance[SHORT];
    struct kml_rng rng;
    struct event *event;         /* [KML_RECORDER_ROOM] */
    struct allowance *allowance; /* [KML_RECORDER_ROOM] */
};

struct kml_recorder *kml_recorder_create(const char *controller, const char *instance, uint64_t seed)
{
    struct kml_recorder *r = KML_NEW(struct kml_recorder);
    (void)snprintf(r->controller, sizeof r->controller, "%s", controller);
    (void)snprintf(r->instance, sizeof r->instance, "%s", instance);
    kml_rng_init(&r->rng, seed);
    r->event = KML_NEW_ARRAY(KML_RECORDER_ROOM, struct event);
    r->allowance = KML_NEW_ARRAY(KML_RECORDER_ROOM, struct allowance);
    return r;
}

void kml_recorder_destroy(struct kml_recorder *r)
{
    if (r == NULL) {
        return;
    }
    kml_free(r->event);
    kml_free(r->allowance);
    kml_free(r);
}

/* ---- What happened ---- */

static bool recent(const struct event *e, uint64_t now_ns)
{
    return e->used && now_ns - e->seen_ns < SIMILAR_FOR;
}

static bool similar(const struct event *e, const struct event *made)
{
    return e->warning == made->warning && strcmp(e->uid, made->uid) == 0 &&
           strcmp(e->reason, made->reason) == 0 && strcmp(e->subject, made->subject) == 0 &&
           strcmp(e->ns, made->ns) == 0;
}

struct known {
    struct event *same;     /* with this very note */
    struct event *combined; /* of all similar ones */
    struct event *place;    /* for a new one: unused, or not seen longest */
    uint32_t similar;
};

static struct known look(struct kml_recorder *r, const struct event *made, uint64_t now_ns)
{
    struct known k = {.place = &r->event[0]};
    for (uint32_t i = 0; i < KML_RECORDER_ROOM; i++) {
        struct event *e = &r->event[i];
        if (!e->used ? k.place->used : k.place->used && e->seen_ns < k.place->seen_ns) {
            k.place = e;
        }
        if (!recent(e, now_ns) || !similar(e, made)) {
            continue;
        }
        if (e->combined) {
            k.combined = e;
        } else {
            k.similar++;
            k.same = strcmp(e->note, made->note) == 0 ? e : k.same;
        }
    }
    return k;
}

static void name_event(struct kml_recorder *r, struct event *e)
{
    (void)snprintf(e->name, sizeof e->name, "%.200s.%016" PRIx64, e->subject, kml_rng_next(&r->rng));
}

static void start_event(struct kml_recorder *r, struct event *place, struct event *made, bool combined)
{
    made->combined = combined;
    if (combined) {
        char note[KML_RECORDER_NOTE];
        (void)snprintf(note, sizeof note, COMBINED "%.*s", (int)(sizeof note - sizeof COMBINED), made->note);
        memcpy(made->note, note, sizeof note);
    }
    made->used = true;
    made->life = place->life + 1;
    *place = *made;
    name_event(r, place);
}

/* Cut where a character ends: half a character would make the whole event invalid. */
static void copy_cut(char *to, size_t room, const char *text)
{
    size_t size = strlen(text);
    if (size >= room) {
        size = room - 1;
        while (size > 0 && ((uint8_t)text[size] & 0xc0) == 0x80) {
            size--;
        }
    }
    memcpy(to, text, size);
    to[size] = '\0';
}

void kml_recorder_note(struct kml_recorder *r, const struct kml_kube_subject *about, bool warning,
                       const char *reason, const char *action, const char *note, uint64_t now_ns,
                       uint64_t wall_ns)
{
    struct event made = {.warning = warning,
                         .kind = about->kind,
                         .count = 1,
                         .first_wall_ns = wall_ns,
                         .last_wall_ns = wall_ns};
    made.seen_ns = now_ns;
    copy_cut(made.ns, sizeof made.ns, about->ns == NULL ? "" : about->ns);
    copy_cut(made.subject, sizeof made.subject, about->name);
    copy_cut(made.uid, sizeof made.uid, about->uid);
    copy_cut(made.reason, sizeof made.reason, reason);
    copy_cut(made.action, sizeof made.action, action);
    copy_cut(made.note, sizeof made.note - sizeof COMBINED, note);
    struct known k = look(r, &made, now_ns);
    struct event *old = k.same != NULL ? k.same : k.similar >= SIMILAR_MOST ? k.combined : NULL;
    if (old == NULL) {
        start_event(r, k.place, &made, k.similar >= SIMILAR_MOST);
        return;
    }
    old->count++;
    old->seen_ns = now_ns;
    old->last_wall_ns = wall_ns;
}

/* ---- What may be written ---- */

static struct allowance *allowance_of(const struct kml_recorder *r, const char *uid)
{
    struct allowance *oldest = &r->allowance[0];
    for (uint32_t i = 0; i < KML_RECORDER_ROOM; i++) {
        struct allowance *a = &r->allowance[i];
        if (strcmp(a->uid, uid) == 0) {
            return a;
        }
        oldest = a->used_ns < oldest->used_ns ? a : oldest;
    }
    *oldest = (struct allowance){0};
    copy_cut(oldest->uid, sizeof oldest->uid, uid);
    return oldest;
}

/* When this object may cause a write: each costs REFILL of the time until it is full, BURST of them may be
 * open. */
static uint64_t allowed_ns(const struct allowance *a)
{
    uint64_t open = (BURST - 1) * REFILL;
    return a->full_ns > open ? a->full_ns - open : 0;
}

static void use(struct allowance *a, uint64_t now_ns)
{
    a->full_ns = (a->full_ns > now_ns ? a->full_ns : now_ns) + REFILL;
    a->used_ns = now_ns;
}

static bool due(const struct event *e)
{
    return e->used && !e->in_flight && e->sent != e->count;
}

static uint64_t due_ns(const struct kml_recorder *r, const struct event *e, bool flush)
{
    uint64_t allowed = allowed_ns(allowance_of(r, e->uid));
    uint64_t calm = e->write_ns == 0 || flush ? 0 : e->write_ns + BETWEEN_WRITES;
    return allowed > calm ? allowed : calm;
}

static void write_series(struct kml_json *w, const struct event *e)
{
    char last[KML_KUBE_TIME];
    kml_kube_time_micro(e->last_wall_ns, last);
    kml_json_map(w, "series");
    kml_json_uint(w, "count", e->count);
    kml_json_text(w, "lastObservedTime", last);
    kml_json_close(w);
}

static void write_regarding(struct kml_json *w, const struct event *e)
{
    char version[KML_KUBE_API_VERSION];
    kml_kube_api_version(e->kind, version);
    kml_json_map(w, "regarding");
    kml_json_text(w, "apiVersion", version);
    kml_json_text(w, "kind", e->kind->kind);
    if (e->ns[0] != '\0') {
        kml_json_text(w, "namespace", e->ns);
    }
    kml_json_text(w, "name", e->subject);
    kml_json_text(w, "uid", e->uid);
    kml_json_close(w);
}

static const char *event_ns(const struct event *e)
{
    return e->ns[0] == '\0' ? "default" : e->ns; /* where events about cluster-wide objects stand */
}

static int write_event(const struct kml_recorder *r, const struct event *e, struct kml_buf *out)
{
    char first[KML_KUBE_TIME];
    kml_kube_time_micro(e->first_wall_ns, first);
    struct kml_json w;
    kml_json_begin(&w, out);
    kml_json_text(&w, "apiVersion", "events.k8s.io/v1");
    kml_json_text(&w, "kind", "Event");
    kml_json_map(&w, "metadata");
    kml_json_text(&w, "name", e->name);
    kml_json_text(&w, "namespace", event_ns(e));
    kml_json_close(&w);
    kml_json_text(&w, "eventTime", first);
    kml_json_text(&w, "reportingController", r->controller);
    kml_json_text(&w, "reportingInstance", r->instance);
    kml_json_text(&w, "action", e->action);
    kml_json_text(&w, "reason", e->reason);
    kml_json_text(&w, "type", e->warning ? "Warning" : "Normal");
    kml_json_text(&w, "note", e->note);
    write_regarding(&w, e);
    if (e->count > 1) {
        write_series(&w, e);
    }
    return kml_json_end_bare(&w, NULL);
}

static int write_patch(const struct event *e, struct kml_buf *out)
{
    struct kml_json w;
    kml_json_begin(&w, out);
    write_series(&w, e);
    return kml_json_end_bare(&w, NULL);
}

/* The texts are bounded, so only a subject's name that is no name can fail; then the event is given up. */
static int make_request(const struct kml_recorder *r, const struct event *e, struct kml_kube_request *out)
{
    struct kml_buf body;
    kml_buf_init(&body, (size_t)16 << 10);
    const struct kml_kube_ref ref = {&kml_kube_events, event_ns(e), e->name, NULL};
    int result = e->written ? write_patch(e, &body) : write_event(r, e, &body);
    if (result == 0 && e->written) {
        result = kml_kube_patch(out, &ref, KML_KUBE_MERGE_PATCH, kml_buf_view(&body), r->controller, NULL);
    } else if (result == 0) {
        result = kml_kube_create(out, &ref, kml_buf_view(&body), r->controller, NULL);
    }
    kml_buf_finish(&body);
    return result;
}

int kml_recorder_next(struct kml_recorder *r, uint64_t now_ns, bool flush, struct kml_kube_request *out,
                      uint64_t *event)
{
    for (uint32_t i = 0; i < KML_RECORDER_ROOM; i++) {
        struct event *e = &r->event[i];
        if (!due(e) || due_ns(r, e, flush) > now_ns) {
            continue;
        }
        e->sent = e->count;
        e->write_ns = now_ns;
        if (make_request(r, e, out) != 0) {
            e->used = false;
            continue;
        }
        use(allowance_of(r, e->uid), now_ns);
        e->in_flight = true;
        *event = (uint64_t)e->life << 32 | i;
        return 1;
    }
    return 0;
}

void kml_recorder_ended(struct kml_recorder *r, uint64_t event, enum kml_code code)
{
    uint32_t place = (uint32_t)event;
    KML_BUG_ON(place >= KML_RECORDER_ROOM);
    struct event *e = &r->event[place];
    if (!e->used || e->life != (uint32_t)(event >> 32)) {
        return; /* forgotten meanwhile */
    }
    e->in_flight = false;
    if (code == KML_OK || code == KML_EXISTS) {
        e->written = true; /* EXISTS: an earlier try of ours got through, its answer did not */
    } else if (code == KML_NOT_FOUND && e->written) {
        e->written = false; /* the API server forgets events after an hour */
        e->sent = 0;
        name_event(r, e);
    }
}

uint64_t kml_recorder_next_ns(const struct kml_recorder *r, uint64_t now_ns)
{
    uint64_t next = NEVER;
    for (uint32_t i = 0; i < KML_RECORDER_ROOM; i++) {
        if (due(&r->event[i])) {
            uint64_t at = due_ns(r, &r->event[i], false);
            next = at < next ? at : next;
        }
    }
    return next == NEVER || next > now_ns ? next : now_ns;
}
