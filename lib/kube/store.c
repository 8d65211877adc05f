#include "kube/store.h"

#include <string.h>

#include "base/mem.h"

struct entry {
    struct kml_kube_object object; /* first: an object is its entry */
    struct entry *same_name;       /* next in its chain of the table by name */
    struct entry *same_owner;      /* next in its chain of the table by owner */
    uint64_t list;                 /* the list in which it was seen last */
};

struct kml_kube_store {
    struct kml_kube_store_options options;
    struct entry **by_name;  /* [room] */
    struct entry **by_owner; /* [room] */
    uint32_t room;           /* a power of two */
    uint32_t count;
    uint64_t list; /* number of the newest list */
};

static uint32_t hash_more(uint32_t h, const char *text)
{
    for (; *text != '\0'; text++) {
        h = (h ^ (uint8_t)*text) * 16777619U; /* FNV-1a */
    }
    return (h ^ '/') * 16777619U;
}

static uint32_t name_slot(const struct kml_kube_store *s, const char *ns, const char *name)
{
    return hash_more(hash_more(2166136261U, ns), name) & (s->room - 1);
}

static uint32_t owner_slot(const struct kml_kube_store *s, const char *uid)
{
    return hash_more(2166136261U, uid) & (s->room - 1);
}

static struct entry *entry_of(const struct kml_kube_object *object)
{
    return (struct entry *)(uintptr_t)object; /* the store's own, which it handed out as const */
}

static void link_entry(struct kml_kube_store *s, struct entry *e)
{
    struct entry **name = &s->by_name[name_slot(s, e->object.ns, e->object.name)];
    e->same_name = *name;
    *name = e;
    if (e->object.owner_uid != NULL) {
        struct entry **owner = &s->by_owner[owner_slot(s, e->object.owner_uid)];
        e->same_owner = *owner;
        *owner = e;
    }
}

static void unlink_entry(struct kml_kube_store *s, struct entry *e)
{
    struct entry **at = &s->by_name[name_slot(s, e->object.ns, e->object.name)];
    while (*at != e) {
        at = &(*at)->same_name;
    }
    *at = e->same_name;
    if (e->object.owner_uid == NULL) {
        return;
    }
    at = &s->by_owner[owner_slot(s, e->object.owner_uid)];
    while (*at != e) {
        at = &(*at)->same_owner;
    }
    *at = e->same_owner;
}

static void make_tables(struct kml_kube_store *s, uint32_t room)
{
    s->room = room;
    s->by_name = kml_alloc_array(room, sizeof(struct entry *));
    s->by_owner = kml_alloc_array(room, sizeof(struct entry *));
}

static void grow(struct kml_kube_store *s)
{
    struct entry **old = s->by_name;
    uint32_t room = s->room;
    kml_free(s->by_owner);
    make_tables(s, room * 2);
    for (uint32_t i = 0; i < room; i++) {
        for (struct entry *e = old[i]; e != NULL;) {
            struct entry *next = e->same_name;
            link_entry(s, e);
            e = next;
        }
    }
    kml_free(old);
}

static void entry_destroy(struct entry *e)
{
    kml_doc_finish(&e->object.doc);
    kml_free(e);
}

struct kml_kube_store *kml_kube_store_create(const struct kml_kube_store_options *options)
{
    struct kml_kube_store *s = KML_NEW(struct kml_kube_store);
    if (options != NULL) {
        s->options = *options;
    }
    make_tables(s, 64);
    return s;
}

void kml_kube_store_destroy(struct kml_kube_store *s)
{
    if (s == NULL) {
        return;
    }
    for (uint32_t i = 0; i < s->room; i++) {
        for (struct entry *e = s->by_name[i]; e != NULL;) {
            struct entry *next = e->same_name;
            entry_destroy(e);
            e = next;
        }
    }
    kml_free(s->by_name);
    kml_free(s->by_owner);
    kml_free(s);
}

static const char *text_of(const struct kml_node *map, const char *key)
{
    const struct kml_node *node = kml_node_get(map, key);
    return node == NULL || node->kind != KML_NODE_TEXT || node->text[0] == '\0' ? NULL : node->text;
}

static const char *owner_of(const struct kml_node *meta)
{
    const struct kml_node *owners = kml_node_get(meta, "ownerReferences");
    for (uint32_t i = 0; owners != NULL && owners->kind == KML_NODE_LIST && i < owners->count; i++) {
        const struct kml_node *controls = kml_node_get(owners->child[i], "controller");
        if (controls != NULL && controls->kind == KML_NODE_BOOL && controls->value.yes) {
            return text_of(owners->child[i], "uid");
        }
    }
    return NULL;
}

/* The texts of an object belong to its document. */
static int read_object(struct kml_kube_object *o, struct kml_err *err)
{
    const struct kml_node *meta = kml_node_get(o->doc.root, "metadata");
    const char *ns = text_of(meta, "namespace");
    const char *version = text_of(meta, "resourceVersion");
    o->name = text_of(meta, "name");
    o->uid = text_of(meta, "uid");
    o->ns = ns == NULL ? "" : ns;
    o->version = version == NULL ? "" : version;
    o->owner_uid = owner_of(meta);
    o->deleting = text_of(meta, "deletionTimestamp") != NULL;
    if (o->name == NULL || o->uid == NULL) {
        return kml_fail(err, KML_INVALID, "an object without metadata.name or metadata.uid");
    }
    return 0;
}

static void tell(const struct kml_kube_store *s, const struct entry *e, enum kml_kube_change change)
{
    if (s->options.changed != NULL) {
        s->options.changed(s->options.self, &e->object, change);
    }
}

/* It is out of the store before anybody hears of it, so that who looks it up finds what is true. */
static void drop(struct kml_kube_store *s, struct entry *e)
{
    unlink_entry(s, e);
    s->count--;
    tell(s, e, KML_KUBE_DELETED);
    entry_destroy(e);
}

static void insert(struct kml_kube_store *s, struct entry *e)
{
    if (s->count >= s->room) {
        grow(s);
    }
    link_entry(s, e);
    s->count++;
}

static void replace(struct kml_kube_store *s, struct entry *old, struct entry *e)
{
    unlink_entry(s, old);
    link_entry(s, e);
    tell(s, e, KML_KUBE_MODIFIED);
    entry_destroy(old);
}

int kml_kube_store_put(struct kml_kube_store *s, struct kml_doc *object, struct kml_err *err)
{
    struct entry *e = KML_NEW(struct entry);
    e->object.doc = *object;
    e->list = s->list;
    kml_doc_init(object);
    kml_kube_project(&e->object.doc, s->options.keep);
    if (read_object(&e->object, err) != 0) {
        entry_destroy(e);
        return -1;
    }
    const struct kml_kube_object *old = kml_kube_store_get(s, e->object.ns, e->object.name);
    bool same_uid = old != NULL && strcmp(old->uid, e->object.uid) == 0;
    if (same_uid && old->version[0] != '\0' && strcmp(old->version, e->object.version) == 0) {
        entry_of(old)->list = s->list;
        entry_destroy(e);
        return 0;
    }
    if (same_uid) {
        replace(s, entry_of(old), e);
        return 0;
    }
    if (old != NULL) {
        drop(s, entry_of(old));
    }
    insert(s, e);
    tell(s, e, KML_KUBE_ADDED);
    return 0;
}

void kml_kube_store_remove(struct kml_kube_store *s, const char *ns, const char *name)
{
    const struct kml_kube_object *object = kml_kube_store_get(s, ns, name);
    if (object != NULL) {
        drop(s, entry_of(object));
    }
}

void kml_kube_store_begin(struct kml_kube_store *s)
{
    s->list++;
}

void kml_kube_store_sweep(struct kml_kube_store *s)
{
    for (uint32_t i = 0; i < s->room; i++) {
        for (struct entry *e = s->by_name[i]; e != NULL;) {
            struct entry *next = e->same_name;
            if (e->list != s->list) {
                drop(s, e);
            }
            e = next;
        }
    }
}

const struct kml_kube_object *kml_kube_store_get(const struct kml_kube_store *s, const char *ns,
                                                 const char *name)
{
    const struct entry *e = s->by_name[name_slot(s, ns, name)];
    while (e != NULL && (strcmp(e->object.name, name) != 0 || strcmp(e->object.ns, ns) != 0)) {
        e = e->same_name;
    }
    return e == NULL ? NULL : &e->object;
}

uint32_t kml_kube_store_count(const struct kml_kube_store *s)
{
    return s->count;
}

const struct kml_kube_object *kml_kube_store_next(const struct kml_kube_store *s,
                                                  const struct kml_kube_object *at)
{
    uint32_t slot = 0;
    if (at != NULL) {
        if (entry_of(at)->same_name != NULL) {
            return &entry_of(at)->same_name->object;
        }
        slot = name_slot(s, at->ns, at->name) + 1;
    }
    while (slot < s->room && s->by_name[slot] == NULL) {
        slot++;
    }
    return slot < s->room ? &s->by_name[slot]->object : NULL;
}

const struct kml_kube_object *kml_kube_store_owned(const struct kml_kube_store *s, const char *owner_uid,
                                                   const struct kml_kube_object *at)
{
    const struct entry *e = at == NULL ? s->by_owner[owner_slot(s, owner_uid)] : entry_of(at)->same_owner;
    while (e != NULL && strcmp(e->object.owner_uid, owner_uid) != 0) {
        e = e->same_owner;
    }
    return e == NULL ? NULL : &e->object;
}
