#include "doc/doc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "doc/internal.h"

/* Paths: printing them, walking them, and setting what they name. */

static void put(char out[KML_DOC_PATH], size_t *size, char c)
{
    if (*size + 1 < KML_DOC_PATH) {
        out[(*size)++] = c;
    }
}

static void put_step(const struct kml_node *node, char out[KML_DOC_PATH], size_t *size)
{
    if (node->key == NULL) {
        char number[16];
        snprintf(number, sizeof(number), "[%" PRIu32 "]", node->index);
        for (const char *c = number; *c != '\0'; c++) {
            put(out, size, *c);
        }
        return;
    }
    if (*size > 0) {
        put(out, size, '.');
    }
    for (const char *c = node->key; *c != '\0'; c++) {
        if (strchr(".[]\\", *c) != NULL) {
            put(out, size, '\\');
        }
        put(out, size, *c);
    }
}

/* The root has no step of its own. */
static void put_path(const struct kml_node *node, char out[KML_DOC_PATH], size_t *size)
{
    if (node->parent != NULL) {
        put_path(node->parent, out, size);
        put_step(node, out, size);
    }
}

void kml_node_path(const struct kml_node *node, char out[KML_DOC_PATH])
{
    size_t size = 0;
    put_path(node, out, &size);
    out[size] = '\0';
}

void kml_node_place(const struct kml_doc *doc, const struct kml_node *node, bool of_key,
                    char out[KML_DOC_PLACE])
{
    const char *name = node->source < doc->sources ? doc->source[node->source] : "";
    uint32_t line = of_key && node->key_line > 0 ? node->key_line : node->line;
    uint32_t column = of_key && node->key_line > 0 ? node->key_column : node->column;
    if (node->source == 0 || line == 0) {
        snprintf(out, KML_DOC_PLACE, "%.200s", name);
    } else {
        snprintf(out, KML_DOC_PLACE, "%.200s:%" PRIu32 ":%" PRIu32, name, line, column);
    }
}

static int malformed(const char *whole, struct kml_err *err)
{
    return kml_fail(err, KML_USAGE,
                    "the path '%.200s' is malformed; write it like spec.model.hiddenLayers[0]", whole);
}

static int next_index(const char **path, struct kml_path_step *step, const char *whole, struct kml_err *err)
{
    const char *c = *path + 1;
    uint64_t index = 0;
    if (*c < '0' || *c > '9') {
        return malformed(whole, err);
    }
    for (; *c >= '0' && *c <= '9' && index <= KML_DOC_MAX_NODES; c++) {
        index = index * 10 + (uint64_t)(*c - '0');
    }
    if (*c != ']' || index > KML_DOC_MAX_NODES) {
        return malformed(whole, err);
    }
    step->is_index = true;
    step->index = (uint32_t)index;
    c++;
    if (*c == '.' && c[1] != '\0') {
        c++;
    } else if (*c != '\0' && *c != '[') {
        return malformed(whole, err);
    }
    *path = c;
    return 1;
}

int kml_path_next(const char **path, struct kml_path_step *step, const char *whole, struct kml_err *err)
{
    const char *c = *path;
    if (*c == '\0') {
        return 0;
    }
    if (*c == '[') {
        return next_index(path, step, whole, err);
    }
    size_t size = 0;
    step->is_index = false;
    for (; *c != '\0' && *c != '.' && *c != '['; c++) {
        if (*c == '\\' && c[1] != '\0') {
            c++;
        }
        if (*c == ']' && c[-1] != '\\') {
            return malformed(whole, err);
        }
        if (size + 1 >= sizeof(step->key)) {
            return malformed(whole, err);
        }
        step->key[size++] = *c;
    }
    step->key[size] = '\0';
    if (size == 0) {
        return malformed(whole, err);
    }
    if (*c == '.') {
        c++;
        if (*c == '\0' || *c == '.' || *c == '[') {
            return malformed(whole, err);
        }
    }
    *path = c;
    return 1;
}

static struct kml_node *child_of(const struct kml_node *node, const struct kml_path_step *step)
{
    if (!step->is_index) {
        return kml_node_get(node, step->key);
    }
    return node->kind == KML_NODE_LIST && step->index < node->count ? node->child[step->index] : NULL;
}

struct kml_node *kml_doc_find(const struct kml_doc *doc, const char *path)
{
    struct kml_node *node = doc->root;
    const char *rest = path;
    struct kml_path_step step;
    int more = 0;
    while (node != NULL && (more = kml_path_next(&rest, &step, path, NULL)) > 0) {
        node = child_of(node, &step);
    }
    return more < 0 ? NULL : node;
}

static uint32_t height(const struct kml_node *node)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < node->count; i++) {
        uint32_t h = height(node->child[i]);
        most = h > most ? h : most;
    }
    return most + 1;
}

/* The nodes of a value come from a text of one line that is the source's own name: a line number would say
 * nothing. */
static void adopt(struct kml_node *node, uint32_t source)
{
    node->source = source;
    node->line = node->column = node->key_line = node->key_column = 0;
    for (uint32_t i = 0; i < node->count; i++) {
        adopt(node->child[i], source);
    }
}

/* `node` takes over the contents of `value`; its own place in the tree and its key stay. Empties `value`. */
static void replace(struct kml_node *node, struct kml_node *value)
{
    for (uint32_t i = 0; i < node->count; i++) {
        kml_node_destroy(node->child[i]);
    }
    kml_free(node->child);
    kml_free(node->text);
    struct kml_node old = *node;
    *node = *value;
    node->parent = old.parent;
    node->key = old.key;
    node->index = old.index;
    for (uint32_t i = 0; i < node->count; i++) {
        node->child[i]->parent = node;
    }
    kml_free(value);
}

static int add_child(struct kml_doc *doc, struct kml_node *parent, const struct kml_path_step *step,
                     uint32_t source, struct kml_node **child, struct kml_err *err)
{
    struct kml_node *node = kml_node_create(doc, KML_NODE_NULL, err);
    if (node == NULL) {
        return -1;
    }
    node->source = source;
    char *key = step->is_index ? NULL : kml_doc_text(step->key, strlen(step->key), err);
    if ((!step->is_index && key == NULL) || kml_node_attach(parent, node, key, err) != 0) {
        kml_free(key);
        kml_node_destroy(node);
        return -1;
    }
    *child = node;
    return 0;
}

/* One step down from `node`, which becomes the list or map that the step needs if it was null. */
static int descend(struct kml_doc *doc, struct kml_node *node, const struct kml_path_step *step,
                   uint32_t source, struct kml_node **child, struct kml_err *err)
{
    enum kml_node_kind needed = step->is_index ? KML_NODE_LIST : KML_NODE_MAP;
    if (node->kind == KML_NODE_NULL) {
        node->kind = needed;
    }
    char path[KML_DOC_PATH];
    kml_node_path(node, path);
    if (node->kind != needed) {
        return kml_fail(err, KML_INVALID, "'%s' is of the kind %s, not %s; nothing can be set inside it",
                        path, kml_node_kind_name(node->kind), kml_node_kind_name(needed));
    }
    *child = child_of(node, step);
    if (*child != NULL) {
        return 0;
    }
    if (step->is_index && step->index != node->count) {
        return kml_fail(err, KML_INVALID,
                        "'%s' has %" PRIu32 " elements, so [%" PRIu32 "] is neither one nor the next", path,
                        node->count, step->index);
    }
    return add_child(doc, node, step, source, child, err);
}

static int read_value(struct kml_doc *value, const char *text, const char *source, struct kml_err *err)
{
    const char *c = text;
    while (*c == ' ' || *c == '\t') {
        c++;
    }
    return kml_doc_read(value, source, kml_view_str(*c == '\0' ? "null" : text), err);
}

static int check_depth(const char *path, const struct kml_node *value, struct kml_err *err)
{
    struct kml_path_step step;
    uint32_t depth = height(value);
    const char *rest = path;
    int more;
    while ((more = kml_path_next(&rest, &step, path, err)) > 0) {
        depth++;
    }
    if (more == 0 && depth > KML_DOC_MAX_DEPTH) {
        return kml_fail(err, KML_TOO_LARGE, "'%.200s' is deeper than %d levels", path, KML_DOC_MAX_DEPTH);
    }
    return more;
}

static int set_value(struct kml_doc *doc, const char *path, struct kml_doc *value, uint32_t source,
                     struct kml_err *err)
{
    if (check_depth(path, value->root, err) != 0) {
        return -1;
    }
    if (doc->nodes + value->nodes > KML_DOC_MAX_NODES) {
        return kml_fail(err, KML_TOO_LARGE, "more than %d values in one document", KML_DOC_MAX_NODES);
    }
    if (doc->root == NULL && (doc->root = kml_node_create(doc, KML_NODE_NULL, err)) == NULL) {
        return -1;
    }
    struct kml_node *node = doc->root;
    const char *rest = path;
    struct kml_path_step step;
    while (kml_path_next(&rest, &step, path, NULL) > 0) {
        if (descend(doc, node, &step, source, &node, err) != 0) {
            return -1;
        }
    }
    adopt(value->root, source);
    doc->nodes += value->nodes;
    replace(node, value->root);
    value->root = NULL;
    return 0;
}

int kml_doc_set(struct kml_doc *doc, const char *path, const char *value, const char *source,
                struct kml_err *err)
{
    struct kml_doc read;
    kml_doc_init(&read);
    uint32_t index;
    int result = -1;
    if (*path == '\0') {
        result = malformed(path, err);
    } else if (read_value(&read, value, source, err) == 0 &&
               kml_doc_add_source(doc, source, &index, err) == 0) {
        result = set_value(doc, path, &read, index, err);
        if (result != 0) {
            kml_wrap(err, "%.200s", source);
        }
    }
    kml_doc_finish(&read);
    return result;
}

int kml_doc_assign(struct kml_doc *doc, const char *assignment, struct kml_err *err)
{
    const char *sign = strchr(assignment, '=');
    if (sign == NULL || sign == assignment) {
        return kml_fail(err, KML_USAGE, "--set '%.200s' has no value; write --set spec.training.epochs=5",
                        assignment);
    }
    kml_auto_free char *path = kml_strndup(assignment, (size_t)(sign - assignment));
    kml_auto_free char *source = kml_format("--set %s", assignment);
    return kml_doc_set(doc, path, sign + 1, source, err);
}
