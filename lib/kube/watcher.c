#include "kube/watcher.h"

#include <string.h>

#include "base/mem.h"
#include "kube/frames.h"

#define WATCH_GRACE (30 * KML_SECOND) /* after the time when the server should have ended the watch */

/* What a frame that ends the watch was. */
enum verdict { FINE, TOLD_ERROR, GARBLED };

struct kml_kube_watcher {
    struct kml_kube_client *client;
    struct kml_kube_store *store;
    struct kml_kube_watch_options options;
    char *ns;
    char *labels;
    char *fields;
    struct kml_reflector reflector;
    struct kml_kube_items items;
    struct kml_kube_frames frames;
    struct kml_kube_call *call;
    struct kml_kube_timer timer;
    enum verdict verdict;
    struct kml_kube_status told; /* of an ERROR frame */
    bool stopped;
    struct kml_kube_watcher_counts counts;
};

static void act(void *self);

static const char *text_of(const struct kml_node *map, const char *key)
{
    const struct kml_node *node = kml_node_get(map, key);
    return node == NULL || node->kind != KML_NODE_TEXT ? "" : node->text;
}

static uint64_t now_of(const struct kml_kube_watcher *w)
{
    return kml_kube_client_now(w->client);
}

static void report(struct kml_kube_watcher *w, const struct kml_err *why)
{
    if (w->options.trouble != NULL) {
        struct kml_err err = *why;
        (void)kml_wrap(&err, "watching %s", w->options.kind->plural);
        w->options.trouble(w->options.self, &err);
    }
}

static void report_failure(struct kml_kube_watcher *w, const struct kml_err *why)
{
    w->counts.failures++;
    report(w, why);
}

/* ---- A list ---- */

/* One object that cannot be read must not keep all others from us: it is left out, and said. */
static int on_item(void *self, struct kml_view json, struct kml_err *err)
{
    (void)err;
    struct kml_kube_watcher *w = self;
    struct kml_err why = {0};
    struct kml_doc doc;
    kml_doc_init(&doc);
    if (kml_doc_read(&doc, w->options.kind->kind, json, &why) != 0 ||
        kml_kube_store_put(w->store, &doc, &why) != 0) {
        w->counts.unreadable++;
        report(w, &why);
    }
    return 0;
}

static int on_list_bytes(void *self, struct kml_view bytes, struct kml_err *err)
{
    struct kml_kube_watcher *w = self;
    const struct kml_kube_frame_sink sink = {on_item, w};
    if (kml_kube_items_feed(&w->items, bytes, &sink, err) != 0) {
        w->verdict = GARBLED;
        return -1;
    }
    return 0;
}

static int read_page(struct kml_kube_watcher *w, struct kml_err *err)
{
    struct kml_doc doc;
    kml_doc_init(&doc);
    if (!kml_kube_items_whole(&w->items)) {
        return kml_fail(err, KML_PROTOCOL, "the list ended before its closing bracket");
    }
    if (kml_doc_read(&doc, "list", kml_buf_view(&w->items.envelope), err) != 0) {
        return -1;
    }
    const struct kml_node *meta = kml_node_get(doc.root, "metadata");
    bool whole = kml_reflector_page(&w->reflector, text_of(meta, "resourceVersion"),
                                    text_of(meta, "continue"), now_of(w));
    if (whole) {
        kml_kube_store_sweep(w->store);
    }
    kml_doc_finish(&doc);
    return 0;
}

static void on_list_done(void *self, const struct kml_kube_answer *answer)
{
    struct kml_kube_watcher *w = self;
    struct kml_err why = {0};
    w->call = NULL;
    if (w->stopped) {
        return;
    }
    if (answer->err == NULL && read_page(w, &why) != 0) {
        report_failure(w, &why);
        kml_reflector_garbled(&w->reflector, now_of(w));
    } else if (answer->err != NULL) {
        report_failure(w, answer->err);
        if (w->verdict == GARBLED) {
            kml_reflector_garbled(&w->reflector, now_of(w));
        } else {
            kml_reflector_failed(&w->reflector, &answer->status, now_of(w));
        }
    }
    act(w);
}

/* ---- A watch ---- */

/* Makes the event's object the document's root; the rest of the event is freed. NULL: there is none. */
static struct kml_node *take_object(struct kml_doc *doc)
{
    struct kml_node *event = doc->root;
    struct kml_node *object = kml_node_get(event, "object");
    if (object == NULL) {
        return NULL;
    }
    event->child[object->index] = event->child[event->count - 1];
    event->child[object->index]->index = object->index;
    event->count--;
    struct kml_doc rest;
    kml_doc_init(&rest);
    rest.root = event;
    kml_doc_finish(&rest);
    kml_free(object->key);
    object->key = NULL;
    object->parent = NULL;
    object->index = 0;
    doc->root = object;
    return object;
}

static void change_store(struct kml_kube_watcher *w, const char *type, struct kml_doc *doc)
{
    const struct kml_node *meta = kml_node_get(doc->root, "metadata");
    struct kml_err why = {0};
    if (strcmp(type, "DELETED") == 0) {
        kml_kube_store_remove(w->store, text_of(meta, "namespace"), text_of(meta, "name"));
    } else if (kml_kube_store_put(w->store, doc, &why) != 0) {
        w->counts.unreadable++;
        report(w, &why);
    }
}

static int take_event(struct kml_kube_watcher *w, struct kml_doc *doc, struct kml_err *err)
{
    char type[16] = "";
    const char *said = text_of(doc->root, "type");
    memcpy(type, said, strnlen(said, sizeof type - 1));
    const struct kml_node *object = take_object(doc);
    const char *version = text_of(kml_node_get(object, "metadata"), "resourceVersion");
    if (strcmp(type, "ERROR") == 0) {
        kml_kube_status_of(&w->told, object);
        w->verdict = TOLD_ERROR;
        return kml_kube_status_fail(&w->told, err);
    }
    if (strcmp(type, "BOOKMARK") == 0) {
        w->counts.bookmarks++;
        kml_reflector_event(&w->reflector, version);
        return 0;
    }
    if (strcmp(type, "ADDED") != 0 && strcmp(type, "MODIFIED") != 0 && strcmp(type, "DELETED") != 0) {
        w->verdict = GARBLED;
        return kml_fail(err, KML_PROTOCOL, "a watch event of the type \"%s\"", type);
    }
    w->counts.events++;
    kml_reflector_event(&w->reflector, version);
    change_store(w, type, doc);
    return 0;
}

static int on_frame(void *self, struct kml_view json, struct kml_err *err)
{
    struct kml_kube_watcher *w = self;
    struct kml_doc doc;
    kml_doc_init(&doc);
    if (kml_doc_read(&doc, "watch event", json, err) != 0) {
        w->verdict = GARBLED;
        return -1;
    }
    int result = take_event(w, &doc, err);
    kml_doc_finish(&doc);
    return result;
}

static int on_watch_bytes(void *self, struct kml_view bytes, struct kml_err *err)
{
    struct kml_kube_watcher *w = self;
    const struct kml_kube_frame_sink sink = {on_frame, w};
    if (kml_kube_frames_feed(&w->frames, bytes, &sink, err) != 0) {
        w->verdict = w->verdict == FINE ? GARBLED : w->verdict; /* a frame longer than allowed */
        return -1;
    }
    return 0;
}

static void on_watch_done(void *self, const struct kml_kube_answer *answer)
{
    struct kml_kube_watcher *w = self;
    w->call = NULL;
    if (w->stopped) {
        return;
    }
    if (answer->err == NULL && kml_kube_frames_whole(&w->frames)) {
        kml_reflector_ended(&w->reflector, now_of(w));
        act(w);
        return;
    }
    struct kml_err cut = {0};
    (void)kml_fail(&cut, KML_UNAVAILABLE, "the watch ended inside an event");
    report_failure(w, answer->err != NULL ? answer->err : &cut);
    const struct kml_kube_status none = {0};
    if (w->verdict == GARBLED) {
        kml_reflector_garbled(&w->reflector, now_of(w));
    } else if (w->verdict == TOLD_ERROR) {
        kml_reflector_failed(&w->reflector, &w->told, now_of(w));
    } else {
        kml_reflector_failed(&w->reflector, answer->err != NULL ? &answer->status : &none, now_of(w));
    }
    act(w);
}

/* ---- What the reflector wants ---- */

static void send(struct kml_kube_watcher *w, struct kml_kube_request *r, const struct kml_kube_send *how,
                 const struct kml_kube_sink *sink)
{
    struct kml_err why = {0};
    if (kml_kube_client_send(w->client, r, how, sink, &w->call, &why) != 0) {
        const struct kml_kube_status none = {0};
        report_failure(w, &why);
        kml_reflector_failed(&w->reflector, &none, now_of(w));
        kml_kube_timer_set(w->client, &w->timer, w->reflector.not_before_ns);
    }
}

static struct kml_kube_list query_of(const struct kml_kube_watcher *w, const struct kml_reflect_want *want)
{
    return (struct kml_kube_list){
        .labels = w->labels,
        .fields = w->fields,
        .from = want->token,
        .version = want->version,
        .not_older_than = want->not_older_than,
        .timeout_seconds = want->timeout_seconds,
    };
}

static void list(struct kml_kube_watcher *w, const struct kml_reflect_want *want)
{
    const struct kml_kube_ref ref = {.kind = w->options.kind, .ns = w->ns};
    struct kml_kube_list query = query_of(w, want);
    query.limit = w->options.page;
    struct kml_kube_request r;
    struct kml_err why = {0};
    if (want->token == NULL) {
        w->counts.lists++;
        kml_kube_store_begin(w->store);
    }
    kml_kube_items_clear(&w->items);
    if (kml_kube_list(&r, &ref, &query, &why) != 0) {
        report_failure(w, &why);
        kml_reflector_garbled(&w->reflector, now_of(w));
        kml_kube_timer_set(w->client, &w->timer, w->reflector.not_before_ns);
        return;
    }
    send(w, &r, NULL, &(struct kml_kube_sink){on_list_bytes, on_list_done, w});
}

static void watch(struct kml_kube_watcher *w, const struct kml_reflect_want *want)
{
    const struct kml_kube_ref ref = {.kind = w->options.kind, .ns = w->ns};
    const struct kml_kube_list query = query_of(w, want);
    struct kml_kube_request r;
    struct kml_err why = {0};
    w->counts.watches++;
    kml_kube_frames_clear(&w->frames);
    if (kml_kube_watch(&r, &ref, &query, &why) != 0) {
        report_failure(w, &why);
        kml_reflector_garbled(&w->reflector, now_of(w));
        kml_kube_timer_set(w->client, &w->timer, w->reflector.not_before_ns);
        return;
    }
    const struct kml_kube_send how = {.stream = true,
                                      .deadline_ns = want->timeout_seconds * KML_SECOND + WATCH_GRACE};
    send(w, &r, &how, &(struct kml_kube_sink){on_watch_bytes, on_watch_done, w});
}

static void act(void *self)
{
    struct kml_kube_watcher *w = self;
    struct kml_reflect_want want;
    kml_reflector_next(&w->reflector, now_of(w), &want);
    w->verdict = FINE;
    if (want.act == KML_REFLECT_DO_LIST) {
        list(w, &want);
    } else if (want.act == KML_REFLECT_DO_WATCH) {
        watch(w, &want);
    } else if (want.until_ns != UINT64_MAX) {
        kml_kube_timer_set(w->client, &w->timer, want.until_ns);
    }
}

struct kml_kube_watcher *kml_kube_watcher_start(struct kml_kube_client *client, struct kml_kube_store *store,
                                                const struct kml_kube_watch_options *options)
{
    struct kml_kube_watcher *w = KML_NEW(struct kml_kube_watcher);
    w->client = client;
    w->store = store;
    w->options = *options;
    w->options.page = options->page == 0 ? KML_KUBE_PAGE : options->page;
    w->ns = kml_strdup(options->ns);
    w->labels = kml_strdup(options->labels);
    w->fields = kml_strdup(options->fields);
    w->timer = (struct kml_kube_timer){.fire = act, .self = w};
    kml_reflector_init(&w->reflector, options->seed);
    kml_kube_items_init(&w->items, KML_KUBE_FRAME_MAX);
    kml_kube_frames_init(&w->frames, KML_KUBE_FRAME_MAX);
    kml_kube_timer_set(client, &w->timer, kml_kube_client_now(client));
    return w;
}

void kml_kube_watcher_stop(struct kml_kube_watcher *w)
{
    if (w == NULL) {
        return;
    }
    w->stopped = true;
    kml_kube_timer_stop(w->client, &w->timer);
    if (w->call != NULL) {
        kml_kube_client_cancel(w->client, w->call);
    }
    kml_kube_items_finish(&w->items);
    kml_kube_frames_finish(&w->frames);
    kml_free(w->ns);
    kml_free(w->labels);
    kml_free(w->fields);
    kml_free(w);
}

bool kml_kube_watcher_synced(const struct kml_kube_watcher *w)
{
    return w->reflector.synced;
}

void kml_kube_watcher_counts(const struct kml_kube_watcher *w, struct kml_kube_watcher_counts *out)
{
    *out = w->counts;
}
