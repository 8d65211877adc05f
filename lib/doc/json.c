#include "doc/json.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/parse.h"
#include "doc/doc.h"

void kml_format_real(double value, char out[KML_JSON_REAL])
{
    KML_BUG_ON(!isfinite(value));
    /* Up to 15 digits survive in a normal double, so %.15g is the shortest when it reads back; below, digits
     * are fewer. */
    int digits = fabs(value) < DBL_MIN && value != 0.0 ? 1 : 15;
    do {
        snprintf(out, KML_JSON_REAL, "%.*g", digits, value);
    } while (digits++ < 17 && strtod(out, NULL) != value);
    if (strpbrk(out, ".e") == NULL) {
        size_t size = strlen(out);
        memcpy(out + size, ".0", 3);
    }
}

static const char *escape_of(uint8_t c, char space[8])
{
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        snprintf(space, 8, "\\u%04x", c);
        return space;
    }
}

/* One character, as it is or escaped; `size` is set to the bytes of `text` that it took. */
static int put_character(struct kml_buf *out, const uint8_t *text, size_t *size, struct kml_err *err)
{
    *size = kml_utf8_length((const char *)text);
    if (*size == 0) {
        *size = 1;
        return kml_buf_puts(out, "\xef\xbf\xbd", err);
    }
    if (text[0] >= 0x20 && text[0] != '"' && text[0] != '\\') {
        return kml_buf_append(out, text, *size, err);
    }
    char space[8];
    return kml_buf_puts(out, escape_of(text[0], space), err);
}

int kml_json_quote(struct kml_buf *out, const char *text, struct kml_err *err)
{
    if (kml_buf_puts(out, "\"", err) != 0) {
        return -1;
    }
    const uint8_t *at = (const uint8_t *)text;
    for (size_t size; *at != '\0'; at += size) {
        if (put_character(out, at, &size, err) != 0) {
            return -1;
        }
    }
    return kml_buf_puts(out, "\"", err);
}

static int write_children(const struct kml_node *node, struct kml_buf *out, struct kml_err *err)
{
    bool map = node->kind == KML_NODE_MAP;
    if (kml_buf_puts(out, map ? "{" : "[", err) != 0) {
        return -1;
    }
    for (uint32_t i = 0; i < node->count; i++) {
        const struct kml_node *child = node->child[i];
        if ((i > 0 && kml_buf_puts(out, ",", err) != 0) ||
            (map && (kml_json_quote(out, child->key, err) != 0 || kml_buf_puts(out, ":", err) != 0)) ||
            kml_node_write(child, out, err) != 0) {
            return -1;
        }
    }
    return kml_buf_puts(out, map ? "}" : "]", err);
}

int kml_node_write(const struct kml_node *node, struct kml_buf *out, struct kml_err *err)
{
    char number[KML_JSON_REAL];
    switch (node->kind) {
    case KML_NODE_BOOL:
        return kml_buf_puts(out, node->value.yes ? "true" : "false", err);
    case KML_NODE_INT:
        return kml_buf_printf(out, err, "%" PRId64, node->value.integer);
    case KML_NODE_REAL:
        kml_format_real(node->value.real, number);
        return kml_buf_puts(out, number, err);
    case KML_NODE_TEXT:
        return kml_json_quote(out, node->text, err);
    case KML_NODE_LIST:
    case KML_NODE_MAP:
        return write_children(node, out, err);
    case KML_NODE_NULL:
        break;
    }
    return kml_buf_puts(out, "null", err);
}

/* ---- Appending ---- */

static void keep(struct kml_json *w, int result)
{
    w->failed = w->failed || result != 0;
}

static void puts_raw(struct kml_json *w, const char *text)
{
    if (!w->failed) {
        keep(w, kml_buf_puts(w->out, text, &w->err));
    }
}

/* Comma and key of whatever comes next. */
static void lead(struct kml_json *w, const char *key)
{
    KML_BUG_ON(w->depth == 0 || (w->closer[w->depth - 1] == '}') != (key != NULL));
    if (w->comma) {
        puts_raw(w, ",");
    }
    w->comma = true;
    if (key != NULL && !w->failed) {
        keep(w, kml_json_quote(w->out, key, &w->err));
        puts_raw(w, ":");
    }
}

static void open_level(struct kml_json *w, const char *bracket, char closer)
{
    KML_BUG_ON(w->depth >= KML_JSON_DEPTH);
    puts_raw(w, bracket);
    w->closer[w->depth++] = closer;
    w->comma = false;
}

static void close_level(struct kml_json *w)
{
    char closer[2] = {w->closer[--w->depth], '\0'};
    puts_raw(w, closer);
    w->comma = true;
}

void kml_json_begin(struct kml_json *w, struct kml_buf *out)
{
    *w = (struct kml_json){.out = out, .start = out->size};
    open_level(w, "{", '}');
}

int kml_json_end_bare(struct kml_json *w, struct kml_err *err)
{
    while (w->depth > 0) {
        close_level(w);
    }
    if (!w->failed) {
        return 0;
    }
    w->out->size = w->start;
    if (w->out->data != NULL) {
        w->out->data[w->start] = '\0';
    }
    return kml_fail(err, w->err.code, "%s", w->err.text);
}

int kml_json_end(struct kml_json *w, struct kml_err *err)
{
    while (w->depth > 0) {
        close_level(w);
    }
    puts_raw(w, "\n");
    return kml_json_end_bare(w, err);
}

void kml_json_map(struct kml_json *w, const char *key)
{
    lead(w, key);
    open_level(w, "{", '}');
}

void kml_json_list(struct kml_json *w, const char *key)
{
    lead(w, key);
    open_level(w, "[", ']');
}

void kml_json_close(struct kml_json *w)
{
    KML_BUG_ON(w->depth < 2);
    close_level(w);
}

void kml_json_text(struct kml_json *w, const char *key, const char *text)
{
    lead(w, key);
    if (text == NULL) {
        puts_raw(w, "null");
    } else if (!w->failed) {
        keep(w, kml_json_quote(w->out, text, &w->err));
    }
}

void kml_json_uint(struct kml_json *w, const char *key, uint64_t value)
{
    char number[KML_JSON_REAL];
    snprintf(number, sizeof(number), "%" PRIu64, value);
    kml_json_raw(w, key, number);
}

void kml_json_int(struct kml_json *w, const char *key, int64_t value)
{
    char number[KML_JSON_REAL];
    snprintf(number, sizeof(number), "%" PRId64, value);
    kml_json_raw(w, key, number);
}

void kml_json_real(struct kml_json *w, const char *key, double value)
{
    char number[KML_JSON_REAL] = "null";
    if (isfinite(value)) {
        kml_format_real(value, number);
    }
    kml_json_raw(w, key, number);
}

void kml_json_bool(struct kml_json *w, const char *key, bool yes)
{
    kml_json_raw(w, key, yes ? "true" : "false");
}

void kml_json_null(struct kml_json *w, const char *key)
{
    kml_json_raw(w, key, "null");
}

void kml_json_raw(struct kml_json *w, const char *key, const char *json)
{
    lead(w, key);
    puts_raw(w, json);
}
