#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"

/* A line fits into one atomic write to a pipe (PIPE_BUF), so lines of several threads or processes never mix.
 */
#define LINE_ROOM 4096
#define TAIL_ROOM 16    /* kept free for the closing brace, the mark that pairs were cut, and the newline */
#define VALUE_MOST 1024 /* bytes of one text value */

struct line {
    char text[LINE_ROOM];
    size_t size;
    bool full; /* something did not fit */
};

static struct {
    char program[32];
    enum kml_level least;
    bool json;
} self = {"kunal", KML_INFO, false};

static const char *const level_name[] = {"debug", "info", "warn", "error"};

static void put(struct line *l, const char *text, size_t size)
{
    if (size > LINE_ROOM - TAIL_ROOM - l->size) {
        l->full = true;
        return;
    }
    memcpy(l->text + l->size, text, size);
    l->size += size;
}

static void puts_to(struct line *l, const char *text)
{
    put(l, text, strlen(text));
}

static void put_char(struct line *l, const char *c, size_t length)
{
    unsigned char first = (unsigned char)*c;
    char escape[8];
    if (length == 0) {
        puts_to(l, "\\ufffd");
    } else if (first == '"' || first == '\\') {
        put(l, (const char[]){'\\', *c}, 2);
    } else if (first == '\n') {
        puts_to(l, "\\n");
    } else if (first < 0x20 || first == 0x7f) {
        (void)snprintf(escape, sizeof escape, "\\u%04x", first);
        puts_to(l, escape);
    } else {
        put(l, c, length);
    }
}

/* A JSON string; also the form of a text with blanks on a terminal, so that no value can break or colour the
 * line. */
static void put_quoted(struct line *l, const char *text)
{
    puts_to(l, "\"");
    const char *c = text;
    while (*c != '\0' && c - text < VALUE_MOST) {
        size_t length = kml_utf8_length(c);
        put_char(l, c, length);
        c += length == 0 ? 1 : length;
    }
    puts_to(l, *c == '\0' ? "\"" : "...\"");
}

static bool is_plain(const char *text)
{
    size_t length = strlen(text);
    return length > 0 && length < VALUE_MOST &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@+%,") == length;
}

static void put_text(struct line *l, const char *text)
{
    if (text == NULL) {
        puts_to(l, "null");
    } else if (!self.json && is_plain(text)) {
        puts_to(l, text);
    } else {
        put_quoted(l, text);
    }
}

static void put_real(struct line *l, double value)
{
    char number[40];
    if (!isfinite(value)) {
        puts_to(l, self.json      ? "null"
                   : isnan(value) ? "nan"
                   : value > 0    ? "inf"
                                  : "-inf"); /* JSON knows none of them */
        return;
    }
    (void)snprintf(number, sizeof number, "%.9g", value);
    puts_to(l, number);
}

static void put_value(struct line *l, const struct kml_kv *pair)
{
    char number[32];
    switch (pair->kind) {
    case KML_KV_TEXT:
        put_text(l, pair->value.text);
        break;
    case KML_KV_UINT:
        (void)snprintf(number, sizeof number, "%llu", (unsigned long long)pair->value.u);
        puts_to(l, number);
        break;
    case KML_KV_INT:
        (void)snprintf(number, sizeof number, "%lld", (long long)pair->value.i);
        puts_to(l, number);
        break;
    case KML_KV_REAL:
        put_real(l, pair->value.real);
        break;
    case KML_KV_BOOL:
        puts_to(l, pair->value.yes ? "true" : "false");
        break;
    }
}

static void put_key(struct line *l, const char *key)
{
    if (self.json) {
        puts_to(l, ",");
        put_quoted(l, key);
        puts_to(l, ":");
    } else {
        puts_to(l, " ");
        puts_to(l, key);
        puts_to(l, "=");
    }
}

static void put_head(struct line *l, enum kml_level level, const char *message)
{
    char now[32];
    kml_format_time(kml_wall_ns(), now);
    if (self.json) {
        puts_to(l, "{\"time\":\"");
        puts_to(l, now);
        puts_to(l, "\"");
        put_key(l, "level");
        put_quoted(l, level_name[level]);
        put_key(l, "program");
        put_quoted(l, self.program);
        put_key(l, "message");
        put_quoted(l, message);
    } else {
        put(l, now + 11, 12); /* the time of day */
        puts_to(l, " ");
        puts_to(l, level_name[level]);
        puts_to(l, " ");
        puts_to(l, self.program);
        puts_to(l, ": ");
        puts_to(l, message);
    }
}

/* Pairs go in whole or not at all: a line that was cut is still valid JSON, and says that it was cut. */
static void put_pairs(struct line *l, const struct kml_kv *pairs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t before = l->size;
        put_key(l, pairs[i].key);
        put_value(l, &pairs[i]);
        if (l->full) {
            l->size = before;
            return;
        }
    }
}

static void put_tail(struct line *l)
{
    const char *tail = self.json ? (l->full ? ",\"cut\":true}\n" : "}\n") : (l->full ? " cut=true\n" : "\n");
    size_t size = strlen(tail);
    memcpy(l->text + l->size, tail, size);
    l->size += size;
}

void kml_log(enum kml_level level, const char *message, const struct kml_kv *pairs, size_t count)
{
    if (level < self.least) {
        return;
    }
    struct line l;
    l.size = 0;
    l.full = false;
    put_head(&l, level, message);
    put_pairs(&l, pairs, count);
    put_tail(&l);
    ssize_t written = write(STDERR_FILENO, l.text, l.size);
    (void)written; /* there is nowhere left to say that the log is gone */
}

void kml_log_init(const char *program, enum kml_level least, bool json)
{
    (void)snprintf(self.program, sizeof self.program, "%s", program);
    self.least = least;
    self.json = json;
}

struct kml_kv kv_s(const char *key, const char *text)
{
    return (struct kml_kv){.key = key, .kind = KML_KV_TEXT, .value.text = text};
}

struct kml_kv kv_u(const char *key, uint64_t value)
{
    return (struct kml_kv){.key = key, .kind = KML_KV_UINT, .value.u = value};
}

struct kml_kv kv_i(const char *key, int64_t value)
{
    return (struct kml_kv){.key = key, .kind = KML_KV_INT, .value.i = value};
}

struct kml_kv kv_f(const char *key, double value)
{
    return (struct kml_kv){.key = key, .kind = KML_KV_REAL, .value.real = value};
}

struct kml_kv kv_b(const char *key, bool value)
{
    return (struct kml_kv){.key = key, .kind = KML_KV_BOOL, .value.yes = value};
}

/* The text must outlive this call, not the log line: one slot a thread is enough. */
struct kml_kv kv_err(const struct kml_err *err)
{
    static _Thread_local char text[KML_ERR_TEXT + 32];
    (void)snprintf(text, sizeof text, "%s: %s", kml_code_name(err->code), err->text);
    return kv_s("error", text);
}
