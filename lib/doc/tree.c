#include "doc/doc.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "doc/internal.h"

void kml_doc_init(struct kml_doc *doc)
{
    *doc = (struct kml_doc){0};
}

/* Forgets the tree and the sources; what stays is a document as kml_doc_init leaves it. */
void kml_doc_finish(struct kml_doc *doc)
{
    kml_node_destroy(doc->root);
    for (uint32_t i = 0; i < doc->sources; i++) {
        kml_free(doc->source[i]);
    }
    kml_free(doc->source);
    kml_doc_init(doc);
}

char *kml_doc_text(const void *data, size_t size, struct kml_err *err)
{
    char *text = kml_try_alloc(size + 1);
    if (text == NULL) {
        kml_fail(err, KML_NO_MEMORY, "no memory for a text of %zu bytes", size);
        return NULL;
    }
    if (size > 0) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    return text;
}

static int append_source(struct kml_doc *doc, const char *name, struct kml_err *err)
{
    char *copy = kml_doc_text(name, strlen(name), err);
    if (copy == NULL) {
        return -1;
    }
    doc->source = kml_realloc(doc->source, (doc->sources + 1) * sizeof(*doc->source));
    doc->source[doc->sources++] = copy;
    return 0;
}

int kml_doc_add_source(struct kml_doc *doc, const char *name, uint32_t *index, struct kml_err *err)
{
    if (doc->sources >= KML_DOC_MAX_SOURCES) {
        return kml_fail(err, KML_TOO_LARGE, "more than %d sources for one document", KML_DOC_MAX_SOURCES - 1);
    }
    if (doc->sources == 0 && append_source(doc, "", err) != 0) {
        return -1;
    }
    if (append_source(doc, name, err) != 0) {
        return -1;
    }
    *index = doc->sources - 1;
    return 0;
}

struct kml_node *kml_node_create(struct kml_doc *doc, enum kml_node_kind kind, struct kml_err *err)
{
    if (doc->nodes >= KML_DOC_MAX_NODES) {
        kml_fail(err, KML_TOO_LARGE, "more than %d values in one document", KML_DOC_MAX_NODES);
        return NULL;
    }
    struct kml_node *node = kml_try_alloc(sizeof(*node));
    if (node == NULL) {
        kml_fail(err, KML_NO_MEMORY, "no memory for a value");
        return NULL;
    }
    *node = (struct kml_node){.kind = kind};
    doc->nodes++;
    return node;
}

/* As deep as the tree: KML_DOC_MAX_DEPTH calls at most. */
void kml_node_destroy(struct kml_node *node)
{
    if (node == NULL) {
        return;
    }
    for (uint32_t i = 0; i < node->count; i++) {
        kml_node_destroy(node->child[i]);
    }
    kml_free(node->child);
    kml_free(node->text);
    kml_free(node->key);
    kml_free(node);
}

static int make_room(struct kml_node *parent, struct kml_err *err)
{
    if (parent->count < parent->room) {
        return 0;
    }
    uint32_t room = parent->room == 0 ? 4 : parent->room * 2;
    struct kml_node **child = kml_try_alloc(room * sizeof(struct kml_node *));
    if (child == NULL) {
        return kml_fail(err, KML_NO_MEMORY, "no memory for %" PRIu32 " values", room);
    }
    if (parent->count > 0) {
        memcpy(child, parent->child, parent->count * sizeof(struct kml_node *));
    }
    kml_free(parent->child);
    parent->child = child;
    parent->room = room;
    return 0;
}

int kml_node_attach(struct kml_node *parent, struct kml_node *node, char *key, struct kml_err *err)
{
    KML_BUG_ON((parent->kind == KML_NODE_MAP) != (key != NULL));
    if (key != NULL && parent->count >= KML_DOC_MAX_KEYS) {
        return kml_fail(err, KML_TOO_LARGE, "more than %d keys in one map", KML_DOC_MAX_KEYS);
    }
    if (make_room(parent, err) != 0) {
        return -1;
    }
    node->key = key;
    node->parent = parent;
    node->index = parent->count;
    parent->child[parent->count++] = node;
    return 0;
}

int kml_doc_fail(struct kml_err *err, enum kml_code code, const char *name, size_t line, size_t column,
                 const char *format, ...)
{
    char text[KML_ERR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return kml_fail(err, code, "%.200s:%zu:%zu: %s", name, line, column, text);
}

static bool begins_like_json(struct kml_view text, bool *quoted)
{
    size_t at = 0;
    while (at < text.size && strchr(" \t\r\n", text.data[at]) != NULL && text.data[at] != '\0') {
        at++;
    }
    if (at >= text.size || (text.data[at] != '{' && text.data[at] != '[')) {
        return false;
    }
    at++;
    while (at < text.size && strchr(" \t\r\n", text.data[at]) != NULL && text.data[at] != '\0') {
        at++;
    }
    *quoted = at < text.size && text.data[at] == '"';
    return true;
}

static void clear_tree(struct kml_doc *doc)
{
    kml_node_destroy(doc->root);
    doc->root = NULL;
    doc->nodes = 0;
}

/* A flow map of YAML also begins with '{', so what is no JSON gets a second chance; quotes say whose error to
 * show. */
static int read_either(struct kml_doc *doc, uint32_t source, struct kml_view text, struct kml_err *err)
{
    bool quoted = false;
    if (!begins_like_json(text, &quoted)) {
        return kml_yaml_read(doc, source, text, err);
    }
    struct kml_err as_json = {0};
    if (kml_json_read(doc, source, text, &as_json) == 0) {
        return 0;
    }
    clear_tree(doc);
    struct kml_err as_yaml = {0};
    if (as_json.code != KML_INVALID || kml_yaml_read(doc, source, text, &as_yaml) != 0) {
        const struct kml_err *show = as_json.code != KML_INVALID || quoted ? &as_json : &as_yaml;
        return kml_fail(err, show->code, "%s", show->text);
    }
    return 0;
}

int kml_doc_read(struct kml_doc *doc, const char *name, struct kml_view text, struct kml_err *err)
{
    KML_BUG_ON(doc->root != NULL);
    if (text.size > KML_DOC_MAX_BYTES) {
        return kml_fail(err, KML_TOO_LARGE, "%.200s: the document has %zu bytes; at most %zu are read", name,
                        text.size, KML_DOC_MAX_BYTES);
    }
    static const uint8_t mark[] = {0xef, 0xbb, 0xbf}; /* of UTF-8: allowed in YAML, refused by jansson */
    if (text.size >= sizeof(mark) && memcmp(text.data, mark, sizeof(mark)) == 0) {
        text = kml_view_of(text.data + sizeof(mark), text.size - sizeof(mark));
    }
    uint32_t source;
    if (kml_doc_add_source(doc, name, &source, err) != 0 || read_either(doc, source, text, err) != 0) {
        kml_doc_finish(doc);
        return -1;
    }
    return 0;
}

int kml_doc_read_file(struct kml_doc *doc, const char *path, struct kml_err *err)
{
    struct kml_buf text;
    kml_buf_init(&text, KML_DOC_MAX_BYTES);
    int result = kml_file_read(path, &text, err);
    if (result == 0) {
        result = kml_doc_read(doc, path, kml_buf_view(&text), err);
    }
    kml_buf_finish(&text);
    return result;
}

struct kml_node *kml_node_get(const struct kml_node *map, const char *key)
{
    if (map == NULL || map->kind != KML_NODE_MAP) {
        return NULL;
    }
    for (uint32_t i = 0; i < map->count; i++) {
        if (strcmp(map->child[i]->key, key) == 0) {
            return map->child[i];
        }
    }
    return NULL;
}

const char *kml_node_kind_name(enum kml_node_kind kind)
{
    static const char *const name[] = {"null", "boolean", "integer", "number", "text", "list", "map"};
    return name[kind];
}

bool kml_node_is_number(const struct kml_node *node)
{
    return node->kind == KML_NODE_INT || node->kind == KML_NODE_REAL;
}

double kml_node_number(const struct kml_node *node)
{
    return node->kind == KML_NODE_INT ? (double)node->value.integer : node->value.real;
}

static bool equal_children(const struct kml_node *a, const struct kml_node *b)
{
    if (a->count != b->count) {
        return false;
    }
    for (uint32_t i = 0; i < a->count; i++) {
        const struct kml_node *other =
            a->kind == KML_NODE_MAP ? kml_node_get(b, a->child[i]->key) : b->child[i];
        if (other == NULL || !kml_node_equal(a->child[i], other)) {
            return false;
        }
    }
    return true;
}

bool kml_node_equal(const struct kml_node *a, const struct kml_node *b)
{
    if (a == NULL || b == NULL || a->kind != b->kind) {
        return a == b;
    }
    switch (a->kind) {
    case KML_NODE_NULL:
        return true;
    case KML_NODE_BOOL:
        return a->value.yes == b->value.yes;
    case KML_NODE_INT:
        return a->value.integer == b->value.integer;
    case KML_NODE_REAL:
        return a->value.real == b->value.real;
    case KML_NODE_TEXT:
        return strcmp(a->text, b->text) == 0;
    case KML_NODE_LIST:
    case KML_NODE_MAP:
        return equal_children(a, b);
    }
    return false;
}

static struct kml_node *copy_node(struct kml_doc *to, const struct kml_node *from, struct kml_err *err);

static int copy_children(struct kml_doc *to, struct kml_node *node, const struct kml_node *from,
                         struct kml_err *err)
{
    for (uint32_t i = 0; i < from->count; i++) {
        const struct kml_node *old = from->child[i];
        char *key = old->key == NULL ? NULL : kml_doc_text(old->key, strlen(old->key), err);
        if (old->key != NULL && key == NULL) {
            return -1;
        }
        struct kml_node *child = copy_node(to, old, err);
        if (child == NULL || kml_node_attach(node, child, key, err) != 0) {
            kml_node_destroy(child);
            kml_free(key);
            return -1;
        }
    }
    return 0;
}

static struct kml_node *copy_node(struct kml_doc *to, const struct kml_node *from, struct kml_err *err)
{
    struct kml_node *node = kml_node_create(to, from->kind, err);
    if (node == NULL) {
        return NULL;
    }
    node->source = from->source;
    node->line = from->line;
    node->column = from->column;
    node->key_line = from->key_line;
    node->key_column = from->key_column;
    node->value = from->value;
    if (from->text != NULL) {
        node->text = kml_doc_text(from->text, strlen(from->text), err);
    }
    if ((from->text != NULL && node->text == NULL) || copy_children(to, node, from, err) != 0) {
        kml_node_destroy(node);
        return NULL;
    }
    return node;
}

int kml_doc_copy(struct kml_doc *to, const struct kml_doc *from, struct kml_err *err)
{
    KML_BUG_ON(to->root != NULL || to->sources != 0);
    for (uint32_t i = 1; i < from->sources; i++) {
        uint32_t index;
        if (kml_doc_add_source(to, from->source[i], &index, err) != 0) {
            kml_doc_finish(to);
            return -1;
        }
    }
    if (from->root != NULL) {
        to->root = copy_node(to, from->root, err);
        if (to->root == NULL) {
            kml_doc_finish(to);
            return -1;
        }
    }
    return 0;
}
