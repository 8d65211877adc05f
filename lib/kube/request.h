#ifndef KML_KUBE_REQUEST_H
#define KML_KUBE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "kube/kind.h"

/*
 * One call of the API as data: method, path with query, body. The verbs below fill a request; the client
 * sends it. Pure: what would be sent can be looked at in a test.
 *
 * Names go into paths, so they are checked: a name with a slash, a percent sign or a dot alone never leaves
 * the house (KML_INVALID). On failure there is nothing to finish.
 */
#define KML_KUBE_BODY_MAX ((size_t)3 << 20) /* what the API server accepts */

struct kml_kube_request {
    const char *method;       /* static */
    char *path;               /* owned: "/api/v1/namespaces/a/pods?limit=500" */
    const char *content_type; /* static; NULL: no body */
    struct kml_buf body;
    bool reads; /* changes nothing, so it may be sent twice */
};

void kml_kube_request_finish(struct kml_kube_request *r); /* also after it was taken: then it does nothing */

/* Which object. `ns` NULL or "" for kinds without a namespace and for lists over all of them. */
struct kml_kube_ref {
    const struct kml_kube_kind *kind;
    const char *ns;
    const char *name;        /* NULL for lists, watches and creation */
    const char *subresource; /* "status", "scale"; NULL: the object itself */
};

int kml_kube_get(struct kml_kube_request *r, const struct kml_kube_ref *ref,
                 struct kml_err *err) KML_MUST_CHECK;

struct kml_kube_list {
    const char *labels;       /* label selector, or NULL */
    const char *fields;       /* field selector, or NULL */
    uint32_t limit;           /* 0: all at once */
    const char *from;         /* continue token of the page before, or NULL */
    const char *version;      /* resourceVersion, or NULL: the newest, read through etcd */
    bool not_older_than;      /* resourceVersionMatch=NotOlderThan (with version, without from) */
    uint32_t timeout_seconds; /* watches: the server ends the stream after that; 0: it decides */
};
int kml_kube_list(struct kml_kube_request *r, const struct kml_kube_ref *ref,
                  const struct kml_kube_list *list, struct kml_err *err) KML_MUST_CHECK;
/* With bookmarks allowed. list->version is where to go on from. */
int kml_kube_watch(struct kml_kube_request *r, const struct kml_kube_ref *ref,
                   const struct kml_kube_list *list, struct kml_err *err) KML_MUST_CHECK;

/* POST. `body` is the object's JSON; `manager` is the field manager. */
int kml_kube_create(struct kml_kube_request *r, const struct kml_kube_ref *ref, struct kml_view body,
                    const char *manager, struct kml_err *err) KML_MUST_CHECK;

/* PUT of a whole object; with metadata.resourceVersion inside, a change in between is a KML_CONFLICT. */
int kml_kube_replace(struct kml_kube_request *r, const struct kml_kube_ref *ref, struct kml_view body,
                     const char *manager, struct kml_err *err) KML_MUST_CHECK;

/* Server-side apply: creates or changes; the fields in `body` become `manager`'s. `force` takes them from
 * others. */
int kml_kube_apply(struct kml_kube_request *r, const struct kml_kube_ref *ref, struct kml_view body,
                   const char *manager, bool force, struct kml_err *err) KML_MUST_CHECK;

enum kml_kube_patch { KML_KUBE_MERGE_PATCH, KML_KUBE_JSON_PATCH };
int kml_kube_patch(struct kml_kube_request *r, const struct kml_kube_ref *ref, enum kml_kube_patch kind,
                   struct kml_view body, const char *manager, struct kml_err *err) KML_MUST_CHECK;

/* `uid` and `version` are preconditions (NULL: none): if the object is another one by now, the answer is
 * KML_CONFLICT. */
enum kml_kube_propagation { KML_KUBE_BACKGROUND, KML_KUBE_FOREGROUND, KML_KUBE_ORPHAN };
struct kml_kube_delete {
    const char *uid;
    const char *version;
    enum kml_kube_propagation propagation;
    int64_t grace_seconds; /* -1: the object's own */
};
int kml_kube_delete(struct kml_kube_request *r, const struct kml_kube_ref *ref,
                    const struct kml_kube_delete *how, struct kml_err *err) KML_MUST_CHECK;

/* A container's output as plain text. */
struct kml_kube_log {
    const char *container; /* NULL: the only one */
    bool follow;           /* the stream goes on until the container ends */
    bool previous;         /* of the instance before the last restart */
    bool timestamps;
    uint64_t tail_lines;  /* 0: all */
    uint64_t limit_bytes; /* 0: no limit */
};
int kml_kube_log(struct kml_kube_request *r, const char *ns, const char *pod, const struct kml_kube_log *log,
                 struct kml_err *err) KML_MUST_CHECK;

#endif
