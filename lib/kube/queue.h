#ifndef KML_KUBE_QUEUE_H
#define KML_KUBE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What is to be looked at next: keys ("namespace/name"), each at most once.
 *
 *   - A key that is added while it waits is not added again; while it is worked on, it comes once more
 * afterwards. So one key is never handed out twice at a time.
 *   - A key that failed comes back after 5 ms * 2^n, at most 1000 s; kml_workqueue_forget starts that over.
 * Only the key itself waits, all others go on.
 *   - Live changes come before background ones (first lists, resyncs); inside each, first come, first served.
 *
 * Pure: time is passed in. Not thread-safe. Keys are copied; memory is bounded by the keys that wait or have
 * failed.
 */
enum kml_workqueue_level { KML_WORK_LIVE, KML_WORK_BACKGROUND };

struct kml_workqueue;
struct kml_workqueue *kml_workqueue_create(void);
void kml_workqueue_destroy(struct kml_workqueue *q);

void kml_workqueue_add(struct kml_workqueue *q, const char *key, enum kml_workqueue_level level,
                       uint64_t now_ns);
/* Not before `at_ns`; if it already comes earlier, nothing changes. An add in between brings it forward. */
void kml_workqueue_add_at(struct kml_workqueue *q, const char *key, uint64_t at_ns);
void kml_workqueue_add_failed(struct kml_workqueue *q, const char *key, uint64_t now_ns);
void kml_workqueue_forget(struct kml_workqueue *q,
                          const char *key); /* no more failures; what waits still comes */
uint32_t kml_workqueue_failures(const struct kml_workqueue *q, const char *key);

/* The next key that is due, NULL: none. It is the caller's until kml_workqueue_done, and borrowed until then.
 */
const char *kml_workqueue_get(struct kml_workqueue *q, uint64_t now_ns);
void kml_workqueue_done(struct kml_workqueue *q, const char *key, uint64_t now_ns);

uint64_t kml_workqueue_next_ns(const struct kml_workqueue *q,
                               uint64_t now_ns); /* when to ask again; UINT64_MAX: never */

struct kml_workqueue_counts { /* for /metrics, by controller-runtime's names */
    uint64_t depth;
    uint64_t adds;
    uint64_t retries;
    uint64_t working;
    uint64_t waiting;
};
void kml_workqueue_counts(const struct kml_workqueue *q, struct kml_workqueue_counts *out);

#endif
