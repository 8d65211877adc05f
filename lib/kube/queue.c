#include "kube/queue.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define BACKOFF_FIRST (5 * KML_MILLISECOND)
#define BACKOFF_MOST (1000 * KML_SECOND)
#define NEVER UINT64_MAX

struct item {
    char *key;
    struct item *same_hash;
    struct item *next; /* in its line, while ready */
    enum kml_workqueue_level level;
    bool ready;      /* stands in a line */
    bool working;    /* handed out */
    bool again;      /* was added while handed out */
    uint64_t due_ns; /* NEVER, or when it comes by itself */
    uint32_t heap;   /* its place in the heap, 1..; 0: not in it */
    uint32_t failures;
};

struct line {
    struct item *first;
    struct item **end;
};

struct kml_workqueue {
    struct item **slot; /* [room] by hash */
    uint32_t room;      /* a power of two */
    uint32_t count;
    struct item **heap; /* [1..waiting], the earliest first */
    uint32_t waiting;
    uint32_t heap_room;
    struct line line[2]; /* by level */
    struct kml_workqueue_counts counts;
};

struct kml_workqueue *kml_workqueue_create(void)
{
    struct kml_workqueue *q = KML_NEW(struct kml_workqueue);
    q->room = 64;
    q->slot = kml_alloc_array(q->room, sizeof(struct item *));
    for (int i = 0; i < 2; i++) {
        q->line[i].end = &q->line[i].first;
    }
    return q;
}

static void item_destroy(struct item *it)
{
    kml_free(it->key);
    kml_free(it);
}

void kml_workqueue_destroy(struct kml_workqueue *q)
{
    if (q == NULL) {
        return;
    }
    for (uint32_t i = 0; i < q->room; i++) {
        for (struct item *it = q->slot[i]; it != NULL;) {
            struct item *next = it->same_hash;
            item_destroy(it);
            it = next;
        }
    }
    kml_free(q->slot);
    kml_free(q->heap);
    kml_free(q);
}

/* ---- By key ---- */

static struct item **place_of(const struct kml_workqueue *q, const char *key)
{
    uint32_t h = 2166136261U;
    for (const char *c = key; *c != '\0'; c++) {
        h = (h ^ (uint8_t)*c) * 16777619U; /* FNV-1a */
    }
    return &q->slot[h & (q->room - 1)];
}

static struct item *find(const struct kml_workqueue *q, const char *key)
{
    struct item *it = *place_of(q, key);
    while (it != NULL && strcmp(it->key, key) != 0) {
        it = it->same_hash;
    }
    return it;
}

static void link_item(struct kml_workqueue *q, struct item *it)
{
    struct item **place = place_of(q, it->key);
    it->same_hash = *place;
    *place = it;
}

static void grow(struct kml_workqueue *q)
{
    struct item **old = q->slot;
    uint32_t room = q->room;
    q->room = room * 2;
    q->slot = kml_alloc_array(q->room, sizeof(struct item *));
    for (uint32_t i = 0; i < room; i++) {
        for (struct item *it = old[i]; it != NULL;) {
            struct item *next = it->same_hash;
            link_item(q, it);
            it = next;
        }
    }
    kml_free(old);
}

static struct item *find_or_make(struct kml_workqueue *q, const char *key)
{
    struct item *it = find(q, key);
    if (it != NULL) {
        return it;
    }
    if (q->count >= q->room) {
        grow(q);
    }
    it = KML_NEW(struct item);
    it->key = kml_strdup(key);
    it->due_ns = NEVER;
    it->level = KML_WORK_BACKGROUND;
    link_item(q, it);
    q->count++;
    return it;
}

/* What neither waits, nor is worked on, nor has failed is of no interest any more. */
static void forget_if_idle(struct kml_workqueue *q, struct item *it)
{
    if (it->ready || it->working || it->heap != 0 || it->failures > 0) {
        return;
    }
    struct item **at = place_of(q, it->key);
    while (*at != it) {
        at = &(*at)->same_hash;
    }
    *at = it->same_hash;
    q->count--;
    item_destroy(it);
}

/* ---- By time: a binary heap ---- */

static void heap_put(struct kml_workqueue *q, uint32_t at, struct item *it)
{
    q->heap[at] = it;
    it->heap = at;
}

static void heap_up(struct kml_workqueue *q, struct item *it)
{
    uint32_t at = it->heap;
    while (at > 1 && q->heap[at / 2]->due_ns > it->due_ns) {
        heap_put(q, at, q->heap[at / 2]);
        at /= 2;
    }
    heap_put(q, at, it);
}

static void heap_down(struct kml_workqueue *q, struct item *it)
{
    uint32_t at = it->heap;
    for (;;) {
        uint32_t child = at * 2;
        if (child < q->waiting && q->heap[child + 1]->due_ns < q->heap[child]->due_ns) {
            child++;
        }
        if (child > q->waiting || q->heap[child]->due_ns >= it->due_ns) {
            break;
        }
        heap_put(q, at, q->heap[child]);
        at = child;
    }
    heap_put(q, at, it);
}

static void heap_add(struct kml_workqueue *q, struct item *it)
{
    if (q->waiting + 1 >= q->heap_room) {
        q->heap_room = q->heap_room == 0 ? 64 : q->heap_room * 2;
        q->heap = kml_realloc(q->heap, q->heap_room * sizeof(struct item *));
    }
    heap_put(q, ++q->waiting, it);
    heap_up(q, it);
}

static void heap_remove(struct kml_workqueue *q, struct item *it)
{
    if (it->heap == 0) {
        return;
    }
    uint32_t at = it->heap;
    struct item *last = q->heap[q->waiting--];
    it->heap = 0;
    if (last != it) {
        heap_put(q, at, last);
        heap_up(q, last);
        heap_down(q, last);
    }
}

/* ---- The lines of those that are due ---- */

static void line_up(struct kml_workqueue *q, struct item *it)
{
    heap_remove(q, it);
    it->due_ns = NEVER;
    it->ready = true;
    it->next = NULL;
    struct line *line = &q->line[it->level];
    *line->end = it;
    line->end = &it->next;
    q->counts.depth++;
}

static void leave_line(struct kml_workqueue *q, struct item *it)
{
    struct line *line = &q->line[it->level];
    struct item **at = &line->first;
    while (*at != it) {
        at = &(*at)->next;
    }
    *at = it->next;
    if (line->end == &it->next) {
        line->end = at;
    }
    it->ready = false;
    q->counts.depth--;
}

void kml_workqueue_add(struct kml_workqueue *q, const char *key, enum kml_workqueue_level level,
                       uint64_t now_ns)
{
    (void)now_ns;
    struct item *it = find_or_make(q, key);
    bool first = !it->ready && !(it->working && it->again);
    bool raised = level < it->level;
    q->counts.adds += first ? 1 : 0;
    if (it->ready && raised) {
        leave_line(q, it);
    }
    if (first || raised) {
        it->level = level;
    }
    if (it->working) {
        it->again = true;
    } else if (!it->ready) {
        line_up(q, it);
    }
}

void kml_workqueue_add_at(struct kml_workqueue *q, const char *key, uint64_t at_ns)
{
    struct item *it = find_or_make(q, key);
    if (it->ready || it->again || it->due_ns <= at_ns) {
        return;
    }
    it->due_ns = at_ns;
    if (it->working) {
        return; /* kml_workqueue_done puts it into the heap */
    }
    heap_remove(q, it);
    heap_add(q, it);
}

void kml_workqueue_add_failed(struct kml_workqueue *q, const char *key, uint64_t now_ns)
{
    struct item *it = find_or_make(q, key);
    uint64_t wait = BACKOFF_MOST;
    if (it->failures < 18 && BACKOFF_FIRST << it->failures < BACKOFF_MOST) {
        wait = BACKOFF_FIRST << it->failures;
    }
    it->failures++;
    q->counts.retries++;
    kml_workqueue_add_at(q, key, now_ns + wait);
}

void kml_workqueue_forget(struct kml_workqueue *q, const char *key)
{
    struct item *it = find(q, key);
    if (it != NULL) {
        it->failures = 0;
        forget_if_idle(q, it);
    }
}

uint32_t kml_workqueue_failures(const struct kml_workqueue *q, const char *key)
{
    const struct item *it = find(q, key);
    return it == NULL ? 0 : it->failures;
}

const char *kml_workqueue_get(struct kml_workqueue *q, uint64_t now_ns)
{
    while (q->waiting > 0 && q->heap[1]->due_ns <= now_ns) {
        q->heap[1]->level = KML_WORK_LIVE;
        q->counts.adds++;
        line_up(q, q->heap[1]);
    }
    struct item *it = q->line[KML_WORK_LIVE].first;
    it = it != NULL ? it : q->line[KML_WORK_BACKGROUND].first;
    if (it == NULL) {
        return NULL;
    }
    leave_line(q, it);
    it->level = KML_WORK_BACKGROUND; /* what comes next decides anew */
    it->working = true;
    q->counts.working++;
    return it->key;
}

void kml_workqueue_done(struct kml_workqueue *q, const char *key, uint64_t now_ns)
{
    (void)now_ns;
    struct item *it = find(q, key);
    KML_BUG_ON(it == NULL || !it->working);
    it->working = false;
    q->counts.working--;
    if (it->again) {
        it->again = false;
        line_up(q, it);
    } else if (it->due_ns != NEVER) {
        heap_add(q, it);
    } else {
        forget_if_idle(q, it);
    }
}

uint64_t kml_workqueue_next_ns(const struct kml_workqueue *q, uint64_t now_ns)
{
    if (q->counts.depth > 0) {
        return now_ns;
    }
    return q->waiting > 0 ? q->heap[1]->due_ns : NEVER;
}

void kml_workqueue_counts(const struct kml_workqueue *q, struct kml_workqueue_counts *out)
{
    *out = q->counts;
    out->waiting = q->waiting;
}
