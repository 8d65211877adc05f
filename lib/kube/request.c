#include "kube/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "doc/json.h"

#define PATH_MAX_BYTES ((size_t)16 << 10)

/* A path that grows; the first failure is kept, so that the calls between need no checks. */
struct path {
    struct kml_buf text;
    char mark; /* before the next query parameter: '?' or '&' */
    int failed;
    struct kml_err *err;
};

static void put(struct path *p, const char *text)
{
    if (p->failed == 0) {
        p->failed = kml_buf_puts(&p->text, text, p->err);
    }
}

/* Everything but the unreserved characters of RFC 3986 as %XX. */
static void put_escaped(struct path *p, const char *text)
{
    for (; *text != '\0' && p->failed == 0; text++) {
        uint8_t c = (uint8_t)*text;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-._~", c) != NULL;
        p->failed =
            plain ? kml_buf_append(&p->text, &c, 1, p->err) : kml_buf_printf(&p->text, p->err, "%%%02X", c);
    }
}

static void query(struct path *p, const char *key, const char *value)
{
    if (value == NULL || value[0] == '\0') {
        return;
    }
    char mark[2] = {p->mark, '\0'};
    put(p, mark);
    put(p, key);
    put(p, "=");
    put_escaped(p, value);
    p->mark = '&';
}

static void query_number(struct path *p, const char *key, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    query(p, key, value == 0 ? NULL : text);
}

/* One piece of a path: Kubernetes refuses the same ones (path segment names). */
static void piece(struct path *p, const char *what, const char *name)
{
    put(p, "/");
    bool bad = name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
               strpbrk(name, "/%?#") != NULL || strlen(name) > 253;
    if (bad && p->failed == 0) {
        p->failed = kml_fail(p->err, KML_INVALID, "\"%.100s\" cannot be the name of a %s", name, what);
    }
    put_escaped(p, name);
}

static void begin(struct path *p, const struct kml_kube_ref *ref, struct kml_err *err)
{
    *p = (struct path){.mark = '?', .err = err};
    kml_buf_init(&p->text, PATH_MAX_BYTES);
    put(p, ref->kind->group[0] == '\0' ? "/api/" : "/apis/");
    if (ref->kind->group[0] != '\0') {
        put(p, ref->kind->group);
        put(p, "/");
    }
    put(p, ref->kind->version);
    if (ref->kind->namespaced && ref->ns != NULL && ref->ns[0] != '\0') {
        put(p, "/namespaces");
        piece(p, "namespace", ref->ns);
    }
    put(p, "/");
    put(p, ref->kind->plural);
    if (ref->name != NULL) {
        piece(p, ref->kind->kind, ref->name);
    }
    if (ref->subresource != NULL) {
        piece(p, "subresource", ref->subresource);
    }
}

static int end(struct path *p, const char *method, struct kml_kube_request *r)
{
    *r = (struct kml_kube_request){.method = method, .reads = strcmp(method, "GET") == 0};
    kml_buf_init(&r->body, KML_KUBE_BODY_MAX);
    if (p->failed == 0) {
        size_t size;
        r->path = (char *)kml_buf_take(&p->text, &size);
    }
    kml_buf_finish(&p->text);
    return p->failed;
}

static int end_with_body(struct path *p, const char *method, const char *type, struct kml_view body,
                         struct kml_kube_request *r, struct kml_err *err)
{
    if (end(p, method, r) != 0) {
        return -1;
    }
    r->content_type = type;
    if (kml_buf_append(&r->body, body.data, body.size, err) != 0) {
        kml_kube_request_finish(r);
        return kml_wrap(err, "the body of %s", method);
    }
    return 0;
}

void kml_kube_request_finish(struct kml_kube_request *r)
{
    kml_free(r->path);
    kml_buf_finish(&r->body);
    *r = (struct kml_kube_request){0};
}

int kml_kube_get(struct kml_kube_request *r, const struct kml_kube_ref *ref, struct kml_err *err)
{
    struct path p;
    begin(&p, ref, err);
    return end(&p, "GET", r);
}

static void select_objects(struct path *p, const struct kml_kube_list *list)
{
    query(p, "labelSelector", list->labels);
    query(p, "fieldSelector", list->fields);
}

int kml_kube_list(struct kml_kube_request *r, const struct kml_kube_ref *ref,
                  const struct kml_kube_list *list, struct kml_err *err)
{
    struct path p;
    begin(&p, ref, err);
    select_objects(&p, list);
    query_number(&p, "limit", list->limit);
    if (list->from != NULL && list->from[0] != '\0') {
        query(&p, "continue", list->from); /* the token holds the version; the server refuses both */
    } else if (list->version != NULL && list->version[0] != '\0') {
        query(&p, "resourceVersion", list->version);
        query(&p, "resourceVersionMatch", list->not_older_than ? "NotOlderThan" : NULL);
    }
    return end(&p, "GET", r);
}

int kml_kube_watch(struct kml_kube_request *r, const struct kml_kube_ref *ref,
                   const struct kml_kube_list *list, struct kml_err *err)
{
    struct path p;
    begin(&p, ref, err);
    query(&p, "watch", "1");
    query(&p, "allowWatchBookmarks", "true");
    select_objects(&p, list);
    query(&p, "resourceVersion", list->version);
    query_number(&p, "timeoutSeconds", list->timeout_seconds);
    return end(&p, "GET", r);
}

int kml_kube_create(struct kml_kube_request *r, const struct kml_kube_ref *ref, struct kml_view body,
                    const char *manager, struct kml_err *err)
{
    struct path p;
    struct kml_kube_ref collection = *ref;
    collection.name = NULL;
    begin(&p, &collection, err);
    query(&p, "fieldManager", manager);
    return end_with_body(&p, "POST", "application/json", body, r, err);
}

int kml_kube_replace(struct kml_kube_request *r, const struct kml_kube_ref *ref, struct kml_view body,
                     const char *manager, struct kml_err *err)
{
    struct path p;
    begin(&p, ref, err);
    query(&p, "fieldManager", manager);
    return end_with_body(&p, "PUT", "application/json", body, r, err);
}

int kml_kube_apply(struct kml_kube_request *r, const struct kml_kube_ref *ref, struct kml_view body,
                   const char *manager, bool force, struct kml_err *err)
{
    struct path p;
    begin(&p, ref, err);
    query(&p, "fieldManager", manager);
    query(&p, "force", force ? "true" : NULL);
    return end_with_body(&p, "PATCH", "application/apply-patch+yaml", body, r, err);
}

int kml_kube_patch(struct kml_kube_request *r, const struct kml_kube_ref *ref, enum kml_kube_patch kind,
                   struct kml_view body, const char *manager, struct kml_err *err)
{
    struct path p;
    begin(&p, ref, err);
    query(&p, "fieldManager", manager);
    const char *type =
        kind == KML_KUBE_JSON_PATCH ? "application/json-patch+json" : "application/merge-patch+json";
    return end_with_body(&p, "PATCH", type, body, r, err);
}

static int write_delete_options(struct kml_buf *out, const struct kml_kube_delete *how, struct kml_err *err)
{
    static const char *const policies[] = {"Background", "Foreground", "Orphan"};
    struct kml_json w;
    kml_json_begin(&w, out);
    kml_json_text(&w, "kind", "DeleteOptions");
    kml_json_text(&w, "apiVersion", "v1");
    kml_json_text(&w, "propagationPolicy", policies[how->propagation]);
    if (how->grace_seconds >= 0) {
        kml_json_int(&w, "gracePeriodSeconds", how->grace_seconds);
    }
    if (how->uid != NULL || how->version != NULL) {
        kml_json_map(&w, "preconditions");
        if (how->uid != NULL) {
            kml_json_text(&w, "uid", how->uid);
        }
        if (how->version != NULL) {
            kml_json_text(&w, "resourceVersion", how->version);
        }
        kml_json_close(&w);
    }
    return kml_json_end_bare(&w, err);
}

int kml_kube_delete(struct kml_kube_request *r, const struct kml_kube_ref *ref,
                    const struct kml_kube_delete *how, struct kml_err *err)
{
    KML_BUG_ON(ref->name == NULL); /* without a name it would be the whole collection */
    struct path p;
    begin(&p, ref, err);
    if (end_with_body(&p, "DELETE", "application/json", kml_view_str(""), r, err) != 0) {
        return -1;
    }
    if (write_delete_options(&r->body, how, err) != 0) {
        kml_kube_request_finish(r);
        return -1;
    }
    return 0;
}

int kml_kube_log(struct kml_kube_request *r, const char *ns, const char *pod, const struct kml_kube_log *log,
                 struct kml_err *err)
{
    struct path p;
    const struct kml_kube_ref ref = {&kml_kube_pods, ns, pod, "log"};
    begin(&p, &ref, err);
    query(&p, "container", log->container);
    query(&p, "follow", log->follow ? "true" : NULL);
    query(&p, "previous", log->previous ? "true" : NULL);
    query(&p, "timestamps", log->timestamps ? "true" : NULL);
    query_number(&p, "tailLines", log->tail_lines);
    query_number(&p, "limitBytes", log->limit_bytes);
    return end(&p, "GET", r);
}
