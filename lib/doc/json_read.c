#include "doc/internal.h"

#include <jansson.h>
#include <string.h>

#include "base/mem.h"

/* JSON: jansson reads and checks it, then a walk over the text, known to be good by now, finds each node's
 * place. */

static int build(struct kml_doc *doc, const json_t *value, uint32_t depth, struct kml_node **out,
                 struct kml_err *err);

static int build_child(struct kml_doc *doc, struct kml_node *parent, const char *key, const json_t *value,
                       uint32_t depth, struct kml_err *err)
{
    struct kml_node *child = NULL;
    char *copy = key == NULL ? NULL : kml_doc_text(key, strlen(key), err);
    if ((key != NULL && copy == NULL) || build(doc, value, depth, &child, err) != 0 ||
        kml_node_attach(parent, child, copy, err) != 0) {
        kml_node_destroy(child);
        kml_free(copy);
        return -1;
    }
    return 0;
}

/* jansson keeps the order in which keys were written, on which the walk below relies. */
static int build_children(struct kml_doc *doc, struct kml_node *node, const json_t *value, uint32_t depth,
                          struct kml_err *err)
{
    if (node->kind == KML_NODE_LIST) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            if (build_child(doc, node, NULL, json_array_get(value, i), depth, err) != 0) {
                return -1;
            }
        }
        return 0;
    }
    json_t *map = json_incref(
        (json_t *)(uintptr_t)value); /* jansson's iterator wants it writable, and does not write */
    int result = 0;
    for (void *it = json_object_iter(map); it != NULL && result == 0; it = json_object_iter_next(map, it)) {
        result = build_child(doc, node, json_object_iter_key(it), json_object_iter_value(it), depth, err);
    }
    json_decref(map);
    return result;
}

static enum kml_node_kind kind_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return KML_NODE_MAP;
    case JSON_ARRAY:
        return KML_NODE_LIST;
    case JSON_STRING:
        return KML_NODE_TEXT;
    case JSON_INTEGER:
        return KML_NODE_INT;
    case JSON_REAL:
        return KML_NODE_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return KML_NODE_BOOL;
    case JSON_NULL:
        break;
    }
    return KML_NODE_NULL;
}

static int build(struct kml_doc *doc, const json_t *value, uint32_t depth, struct kml_node **out,
                 struct kml_err *err)
{
    if (depth >= KML_DOC_MAX_DEPTH) {
        return kml_fail(err, KML_TOO_LARGE, "deeper than %d levels", KML_DOC_MAX_DEPTH);
    }
    struct kml_node *node = kml_node_create(doc, kind_of(value), err);
    if (node == NULL) {
        return -1;
    }
    int result = 0;
    if (node->kind == KML_NODE_BOOL) {
        node->value.yes = json_is_true(value);
    } else if (node->kind == KML_NODE_INT) {
        node->value.integer = json_integer_value(value);
    } else if (node->kind == KML_NODE_REAL) {
        node->value.real = json_real_value(value);
    } else if (node->kind == KML_NODE_TEXT) {
        node->text = kml_doc_text(json_string_value(value), json_string_length(value), err);
        result = node->text == NULL ? -1 : 0;
    } else if (node->kind != KML_NODE_NULL) {
        result = build_children(doc, node, value, depth + 1, err);
    }
    if (result != 0) {
        kml_node_destroy(node);
        return -1;
    }
    *out = node;
    return 0;
}

/* Where the walk is. Columns count characters, so bytes that continue one do not move it. */
struct walk {
    const uint8_t *at;
    uint32_t line;
    uint32_t column;
    uint32_t source;
};

static void step(struct walk *w)
{
    uint8_t c = *w->at++;
    if (c == '\n') {
        w->line++;
        w->column = 1;
    } else if ((c & 0xc0) != 0x80) {
        w->column++;
    }
}

static void skip_blanks(struct walk *w)
{
    while (*w->at == ' ' || *w->at == '\t' || *w->at == '\r' || *w->at == '\n') {
        step(w);
    }
}

static void skip_string(struct walk *w)
{
    step(w);
    while (*w->at != '"') {
        if (*w->at == '\\') {
            step(w);
        }
        step(w);
    }
    step(w);
}

static void skip_scalar(struct walk *w)
{
    if (*w->at == '"') {
        skip_string(w);
        return;
    }
    while (*w->at != '\0' && strchr(" \t\r\n,]}", *w->at) == NULL) {
        step(w);
    }
}

static void find_places(struct walk *w, struct kml_node *node)
{
    skip_blanks(w);
    node->source = w->source;
    node->line = w->line;
    node->column = w->column;
    if (node->kind != KML_NODE_MAP && node->kind != KML_NODE_LIST) {
        skip_scalar(w);
        return;
    }
    step(w); /* the opening bracket */
    for (uint32_t i = 0; i < node->count; i++) {
        skip_blanks(w);
        if (node->kind == KML_NODE_MAP) {
            node->child[i]->key_line = w->line;
            node->child[i]->key_column = w->column;
            skip_string(w);
            skip_blanks(w);
            step(w); /* the colon */
        }
        find_places(w, node->child[i]);
        skip_blanks(w);
        if (i + 1 < node->count) {
            step(w); /* the comma */
        }
    }
    skip_blanks(w);
    step(w); /* the closing bracket */
}

static int syntax_error(const char *name, const json_error_t *error, struct kml_err *err)
{
    if (json_error_code(error) == json_error_out_of_memory) {
        return kml_fail(err, KML_NO_MEMORY, "%.200s: no memory to read the document", name);
    }
    size_t line = error->line > 0 ? (size_t)error->line : 1;
    size_t column = error->column > 0 ? (size_t)error->column : 1;
    if (json_error_code(error) == json_error_duplicate_key) {
        return kml_doc_fail(err, KML_INVALID, name, line, column,
                            "a key stands twice in one map (%s); remove one", error->text);
    }
    return kml_doc_fail(err, KML_INVALID, name, line, column, "%s; correct the JSON", error->text);
}

int kml_json_read(struct kml_doc *doc, uint32_t source, struct kml_view text, struct kml_err *err)
{
    const char *name = doc->source[source];
    json_error_t error;
    json_t *value = json_loadb((const char *)text.data, text.size, JSON_REJECT_DUPLICATES, &error);
    if (value == NULL) {
        return syntax_error(name, &error, err);
    }
    int result = build(doc, value, 0, &doc->root, err);
    json_decref(value);
    if (result != 0) {
        return kml_wrap(err, "%.200s", name);
    }
    /* The walk stops at the closing bracket of the root, which is there: it never looks past the end. */
    struct walk w = {.at = text.data, .line = 1, .column = 1, .source = source};
    find_places(&w, doc->root);
    return 0;
}
