#ifndef KML_KUBE_STORE_H
#define KML_KUBE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "doc/doc.h"

/*
 * A copy of the API server's objects of one kind, by namespace and name, and by the uid of their controlling
 * owner.
 *
 * Only the fields asked for are kept; apiVersion, kind, and of the metadata name, namespace, uid,
 * resourceVersion, generation, labels, creationTimestamp, deletionTimestamp and ownerReferences always are.
 * `changed` hears of every difference once: what comes twice, or comes back the same after a list, is silent.
 * An object of the same name and another uid is one that was deleted and one that was added.
 *
 * Not thread-safe. Borrowed objects are valid until the next put, remove or sweep.
 */
struct kml_kube_object {
    const char *ns; /* "" without a namespace */
    const char *name;
    const char *uid;
    const char *version;   /* resourceVersion: only to be compared for equality */
    const char *owner_uid; /* of the controlling owner reference; NULL: none */
    bool deleting;         /* it has a deletionTimestamp */
    struct kml_doc doc;
};

enum kml_kube_change { KML_KUBE_ADDED, KML_KUBE_MODIFIED, KML_KUBE_DELETED };

struct kml_kube_store_options {
    /* Paths of what is kept, ends with NULL: "spec.nodeName", "status.containerStatuses.state" (lists on the
     * way mean each element). NULL: everything but metadata.managedFields. Borrowed. */
    const char *const *keep;
    /* `object` is the new state, with DELETED the last known one. It must not change the store. May be NULL.
     */
    void (*changed)(void *self, const struct kml_kube_object *object, enum kml_kube_change change);
    void *self;
};

struct kml_kube_store;
struct kml_kube_store *
kml_kube_store_create(const struct kml_kube_store_options *options); /* copied; NULL accepted */
void kml_kube_store_destroy(struct kml_kube_store *s);               /* silently */

/* Takes the document, which is empty afterwards, also on failure. KML_INVALID: no metadata.name or no uid. */
int kml_kube_store_put(struct kml_kube_store *s, struct kml_doc *object, struct kml_err *err) KML_MUST_CHECK;
void kml_kube_store_remove(struct kml_kube_store *s, const char *ns,
                           const char *name); /* not there: nothing */

/* Around a list: what was not put in between is removed by the sweep. A list that failed halfway just begins
 * anew. */
void kml_kube_store_begin(struct kml_kube_store *s);
void kml_kube_store_sweep(struct kml_kube_store *s);

const struct kml_kube_object *kml_kube_store_get(const struct kml_kube_store *s, const char *ns,
                                                 const char *name);
uint32_t kml_kube_store_count(const struct kml_kube_store *s);

/* Iteration in no order: `at` NULL for the first, NULL at the end. */
const struct kml_kube_object *kml_kube_store_next(const struct kml_kube_store *s,
                                                  const struct kml_kube_object *at);
const struct kml_kube_object *kml_kube_store_owned(const struct kml_kube_store *s, const char *owner_uid,
                                                   const struct kml_kube_object *at);

/* The projection alone, in place: takes all that is not kept out of the tree. */
void kml_kube_project(struct kml_doc *doc, const char *const *keep);

#endif
