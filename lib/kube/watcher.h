#ifndef KML_KUBE_WATCHER_H
#define KML_KUBE_WATCHER_H

#include <stdbool.h>

#include "kube/client.h"
#include "kube/reflector.h"
#include "kube/store.h"

/*
 * Keeps one store equal to what the API server has: the reflector's decisions carried out over a client. All
 * on the client's thread; the store changes only inside kml_kube_client_step.
 */
struct kml_kube_watcher;

struct kml_kube_watch_options {
    const struct kml_kube_kind *kind;
    const char *ns;     /* NULL: all namespaces; copied */
    const char *labels; /* copied */
    const char *fields; /* copied */
    uint64_t seed;      /* of the waiting times */
    uint32_t page;      /* objects in one answer; 0: KML_KUBE_PAGE */
    /* What went wrong, for the log (once a failure; an end in order is none). `status->http` 0: no answer.
     * May be NULL. */
    void (*trouble)(void *self, const struct kml_err *err);
    void *self;
};

/* The store must outlive the watcher, the watcher must be stopped before the client is destroyed. */
struct kml_kube_watcher *kml_kube_watcher_start(struct kml_kube_client *client, struct kml_kube_store *store,
                                                const struct kml_kube_watch_options *options);
void kml_kube_watcher_stop(struct kml_kube_watcher *w); /* NULL accepted */

bool kml_kube_watcher_synced(
    const struct kml_kube_watcher *w); /* the store was complete once: one may act on absence */

struct kml_kube_watcher_counts {
    uint64_t lists; /* begun, not pages */
    uint64_t watches;
    uint64_t events;
    uint64_t bookmarks;
    uint64_t failures;
    uint64_t unreadable; /* objects of lists left out because they could not be read */
};
void kml_kube_watcher_counts(const struct kml_kube_watcher *w, struct kml_kube_watcher_counts *out);

#endif
