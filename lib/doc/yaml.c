#include "doc/internal.h"

#include <string.h>
#include <yaml.h>

#include "base/mem.h"

/*
 * YAML through libyaml's events. `open` is the list or map that is being filled; the way back up is its
 * parent, so the depth of the input never becomes depth of our stack.
 */
struct yaml_reader {
    yaml_parser_t parser;
    struct kml_doc *doc;
    const char *name;
    uint32_t source;
    uint32_t depth;
    uint32_t documents;
    struct kml_node *open; /* NULL: the next value is the root */
    char *key;             /* owned; set between a key and its value */
    yaml_mark_t key_mark;
};

static int fail_at(struct yaml_reader *r, yaml_mark_t mark, enum kml_code code, const char *text,
                   struct kml_err *err)
{
    return kml_doc_fail(err, code, r->name, mark.line + 1, mark.column + 1, "%s", text);
}

static int parser_failed(struct yaml_reader *r, struct kml_err *err)
{
    const yaml_parser_t *p = &r->parser;
    const char *problem = p->problem != NULL ? p->problem : "it cannot be read";
    if (p->error == YAML_MEMORY_ERROR) {
        return kml_fail(err, KML_NO_MEMORY, "%.200s: no memory to read the document", r->name);
    }
    if (p->error == YAML_READER_ERROR) {
        return kml_fail(err, KML_INVALID, "%.200s: no UTF-8 text at byte %zu: %s", r->name, p->problem_offset,
                        problem);
    }
    return kml_doc_fail(err, KML_INVALID, r->name, p->problem_mark.line + 1, p->problem_mark.column + 1,
                        "%s%s%s; correct the YAML", p->context != NULL ? p->context : "",
                        p->context != NULL ? ": " : "", problem);
}

static bool expects_key(const struct yaml_reader *r)
{
    return r->open != NULL && r->open->kind == KML_NODE_MAP && r->key == NULL;
}

static void place(struct yaml_reader *r, struct kml_node *node, yaml_mark_t mark)
{
    node->source = r->source;
    node->line = (uint32_t)mark.line + 1;
    node->column = (uint32_t)mark.column + 1;
    if (r->key != NULL) {
        node->key_line = (uint32_t)r->key_mark.line + 1;
        node->key_column = (uint32_t)r->key_mark.column + 1;
    }
}

/* The node goes where the next value belongs. It is freed on failure. */
static int deliver(struct yaml_reader *r, struct kml_node *node, yaml_mark_t mark, struct kml_err *err)
{
    place(r, node, mark);
    if (r->open == NULL) {
        r->doc->root = node;
        return 0;
    }
    struct kml_err inner = {0};
    if (kml_node_attach(r->open, node, r->key, &inner) != 0) {
        kml_node_destroy(node);
        return fail_at(r, mark, inner.code, inner.text, err);
    }
    r->key = NULL;
    return 0;
}

static int take_key(struct yaml_reader *r, const yaml_event_t *event, struct kml_err *err)
{
    const char *text = (const char *)event->data.scalar.value;
    if (kml_node_get(r->open, text) != NULL) {
        return kml_doc_fail(err, KML_INVALID, r->name, event->start_mark.line + 1,
                            event->start_mark.column + 1,
                            "the key '%.100s' stands twice in one map; remove one", text);
    }
    r->key = kml_doc_text(text, event->data.scalar.length, err);
    r->key_mark = event->start_mark;
    return r->key == NULL ? -1 : 0;
}

static int take_value(struct yaml_reader *r, const yaml_event_t *event, struct kml_err *err)
{
    struct kml_err inner = {0};
    struct kml_node *node = kml_node_create(r->doc, KML_NODE_TEXT, &inner);
    if (node == NULL) {
        return fail_at(r, event->start_mark, inner.code, inner.text, err);
    }
    node->text = kml_doc_text(event->data.scalar.value, event->data.scalar.length, &inner);
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (node->text == NULL || (plain && kml_scalar_resolve(node, &inner) != 0)) {
        kml_node_destroy(node);
        return fail_at(r, event->start_mark, inner.code, inner.text, err);
    }
    return deliver(r, node, event->start_mark, err);
}

static int take_scalar(struct yaml_reader *r, const yaml_event_t *event, struct kml_err *err)
{
    if (memchr(event->data.scalar.value, 0, event->data.scalar.length) != NULL) {
        return fail_at(r, event->start_mark, KML_INVALID, "a text holds a zero byte; remove it", err);
    }
    return expects_key(r) ? take_key(r, event, err) : take_value(r, event, err);
}

static int open_container(struct yaml_reader *r, enum kml_node_kind kind, yaml_mark_t mark,
                          struct kml_err *err)
{
    if (expects_key(r)) {
        return fail_at(r, mark, KML_INVALID, "a key must be a text, not a list or map", err);
    }
    if (r->depth + 1 >= KML_DOC_MAX_DEPTH) {
        return kml_doc_fail(err, KML_TOO_LARGE, r->name, mark.line + 1, mark.column + 1,
                            "deeper than %d levels", KML_DOC_MAX_DEPTH);
    }
    struct kml_err inner = {0};
    struct kml_node *node = kml_node_create(r->doc, kind, &inner);
    if (node == NULL) {
        return fail_at(r, mark, inner.code, inner.text, err);
    }
    if (deliver(r, node, mark, err) != 0) {
        return -1;
    }
    r->open = node;
    r->depth++;
    return 0;
}

static int close_container(struct yaml_reader *r)
{
    r->open = r->open->parent;
    r->depth--;
    return 0;
}

static int open_document(struct yaml_reader *r, yaml_mark_t mark, struct kml_err *err)
{
    if (r->documents++ > 0) {
        return fail_at(r, mark, KML_INVALID,
                       "a second document begins here; exactly one is read, so split the file", err);
    }
    return 0;
}

/* Anchors and tags could stand on any value; nothing we read needs them. */
static int refuse_decoration(struct yaml_reader *r, const yaml_event_t *event, struct kml_err *err)
{
    const yaml_char_t *anchor = NULL;
    const yaml_char_t *tag = NULL;
    if (event->type == YAML_SCALAR_EVENT) {
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
    }
    if (anchor != NULL || event->type == YAML_ALIAS_EVENT) {
        return fail_at(r, event->start_mark, KML_INVALID,
                       "anchors and aliases are not read; write the value out", err);
    }
    if (tag != NULL) {
        return fail_at(r, event->start_mark, KML_INVALID, "tags are not read; put a text in quotes instead",
                       err);
    }
    return 0;
}

static int handle(struct yaml_reader *r, const yaml_event_t *event, struct kml_err *err)
{
    if (refuse_decoration(r, event, err) != 0) {
        return -1;
    }
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        return open_document(r, event->start_mark, err);
    case YAML_SCALAR_EVENT:
        return take_scalar(r, event, err);
    case YAML_SEQUENCE_START_EVENT:
        return open_container(r, KML_NODE_LIST, event->start_mark, err);
    case YAML_MAPPING_START_EVENT:
        return open_container(r, KML_NODE_MAP, event->start_mark, err);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return close_container(r);
    default:
        return 0;
    }
}

static int read_events(struct yaml_reader *r, struct kml_err *err)
{
    for (bool more = true; more;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&r->parser, &event)) {
            return parser_failed(r, err);
        }
        more = event.type != YAML_STREAM_END_EVENT;
        int result = handle(r, &event, err);
        yaml_event_delete(&event);
        if (result != 0) {
            return -1;
        }
    }
    if (r->doc->root == NULL) {
        return kml_fail(err, KML_INVALID, "%.200s: the document is empty", r->name);
    }
    return 0;
}

int kml_yaml_read(struct kml_doc *doc, uint32_t source, struct kml_view text, struct kml_err *err)
{
    struct yaml_reader r = {.doc = doc, .source = source, .name = doc->source[source]};
    if (!yaml_parser_initialize(&r.parser)) {
        return kml_fail(err, KML_NO_MEMORY, "%.200s: no memory to read the document", r.name);
    }
    static const uint8_t nothing[1];
    yaml_parser_set_input_string(&r.parser, text.data != NULL ? text.data : nothing, text.size);
    int result = read_events(&r, err);
    yaml_parser_delete(&r.parser);
    kml_free(r.key);
    return result;
}
