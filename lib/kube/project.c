#include <string.h>

#include "base/mem.h"
#include "kube/store.h"

/* Takes out of an object what nobody asked for. The tree is public data of lib/doc; what is cut off is given
 * to a document of its own, whose end frees it. */

static const char *const always[] = {
    "apiVersion",
    "kind",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.resourceVersion",
    "metadata.generation",
    "metadata.labels",
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "metadata.ownerReferences",
    NULL,
};

/* How much of `path` is behind the key: NULL when it does not begin with it, else "" or "more.keys". */
static const char *behind_key(const char *path, const char *key)
{
    size_t size = strlen(key);
    if (strncmp(path, key, size) != 0 || (path[size] != '\0' && path[size] != '.')) {
        return NULL;
    }
    return path[size] == '.' ? path + size + 1 : path + size;
}

#define PATHS_MAX 64

/* The paths that lead into `key`. Returns -1 when one ends here: all below is kept. */
static int narrow(const char *const *paths, const char *key, const char *below[PATHS_MAX])
{
    uint32_t n = 0;
    for (; *paths != NULL; paths++) {
        const char *rest = behind_key(*paths, key);
        if (rest == NULL) {
            continue;
        }
        if (rest[0] == '\0') {
            return -1;
        }
        KML_BUG_ON(n + 1 >= PATHS_MAX);
        below[n++] = rest;
    }
    below[n] = NULL;
    return (int)n;
}

static void discard(struct kml_node *node)
{
    struct kml_doc rest;
    kml_doc_init(&rest);
    rest.root = node;
    kml_doc_finish(&rest);
}

static void prune(struct kml_node *node, const char *const *paths);

/* True: the child stays, with what the paths leave of it. */
static bool prune_child(struct kml_node *child, const char *const *paths)
{
    const char *below[PATHS_MAX];
    int n = narrow(paths, child->key, below);
    if (n > 0) {
        prune(child, below);
    }
    return n != 0;
}

static void prune(struct kml_node *node, const char *const *paths)
{
    if (node->kind == KML_NODE_LIST) {
        for (uint32_t i = 0; i < node->count; i++) {
            prune(node->child[i], paths);
        }
    }
    if (node->kind != KML_NODE_MAP) {
        return;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < node->count; i++) {
        struct kml_node *child = node->child[i];
        if (prune_child(child, paths)) {
            child->index = kept;
            node->child[kept++] = child;
        } else {
            discard(child);
        }
    }
    node->count = kept;
}

static void drop_managed_fields(struct kml_node *root)
{
    struct kml_node *meta = kml_node_get(root, "metadata");
    struct kml_node *fields = kml_node_get(meta, "managedFields");
    if (fields == NULL) {
        return;
    }
    for (uint32_t i = fields->index; i + 1 < meta->count; i++) {
        meta->child[i] = meta->child[i + 1];
        meta->child[i]->index = i;
    }
    meta->count--;
    discard(fields);
}

void kml_kube_project(struct kml_doc *doc, const char *const *keep)
{
    if (doc->root == NULL) {
        return;
    }
    if (keep == NULL) {
        drop_managed_fields(doc->root);
        return;
    }
    const char *paths[PATHS_MAX];
    uint32_t n = 0;
    for (const char *const *list = always; *list != NULL; list++) {
        paths[n++] = *list;
    }
    for (; *keep != NULL; keep++) {
        KML_BUG_ON(n + 1 >= PATHS_MAX);
        paths[n++] = *keep;
    }
    paths[n] = NULL;
    prune(doc->root, paths);
}
