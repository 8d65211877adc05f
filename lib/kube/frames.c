#include "kube/frames.h"

#include <string.h>

void kml_kube_frames_init(struct kml_kube_frames *f, size_t max)
{
    kml_buf_init(&f->partial, max);
}

void kml_kube_frames_finish(struct kml_kube_frames *f)
{
    kml_buf_finish(&f->partial);
}

void kml_kube_frames_clear(struct kml_kube_frames *f)
{
    kml_buf_clear(&f->partial);
}

bool kml_kube_frames_whole(const struct kml_kube_frames *f)
{
    return f->partial.size == 0;
}

static int too_long(size_t max, struct kml_err *err)
{
    return kml_fail(err, KML_TOO_LARGE, "one object is longer than %zu bytes", max);
}

/* A frame that lies whole inside `line` is handed out where it is; only what was split is put together. */
static int hand_out(struct kml_kube_frames *f, struct kml_view line, const struct kml_kube_frame_sink *sink,
                    struct kml_err *err)
{
    if (f->partial.size == 0) {
        if (line.size > f->partial.max) {
            return too_long(f->partial.max, err);
        }
        return line.size == 0 ? 0 : sink->frame(sink->self, line, err);
    }
    if (kml_buf_append(&f->partial, line.data, line.size, NULL) != 0) {
        return too_long(f->partial.max, err);
    }
    int result = sink->frame(sink->self, kml_buf_view(&f->partial), err);
    kml_buf_clear(&f->partial);
    return result;
}

int kml_kube_frames_feed(struct kml_kube_frames *f, struct kml_view bytes,
                         const struct kml_kube_frame_sink *sink, struct kml_err *err)
{
    while (bytes.size > 0) {
        const uint8_t *end = memchr(bytes.data, '\n', bytes.size);
        if (end == NULL) {
            return kml_buf_append(&f->partial, bytes.data, bytes.size, NULL) == 0
                       ? 0
                       : too_long(f->partial.max, err);
        }
        size_t size = (size_t)(end - bytes.data);
        if (hand_out(f, kml_view_of(bytes.data, size), sink, err) != 0) {
            return -1;
        }
        bytes = kml_view_of(end + 1, bytes.size - size - 1);
    }
    return 0;
}

/* ---- The items of a list: brackets and strings are followed, nothing else of JSON needs to be understood
 * here. ---- */

enum { BEFORE, INSIDE, AFTER };

#define ENVELOPE_MAX ((size_t)64 << 10)

void kml_kube_items_init(struct kml_kube_items *s, size_t max)
{
    *s = (struct kml_kube_items){.state = BEFORE};
    kml_buf_init(&s->item, max);
    kml_buf_init(&s->envelope, ENVELOPE_MAX);
}

void kml_kube_items_finish(struct kml_kube_items *s)
{
    kml_buf_finish(&s->item);
    kml_buf_finish(&s->envelope);
}

void kml_kube_items_clear(struct kml_kube_items *s)
{
    struct kml_buf item = s->item;
    struct kml_buf envelope = s->envelope;
    kml_buf_clear(&item);
    kml_buf_clear(&envelope);
    *s = (struct kml_kube_items){.item = item, .envelope = envelope, .state = BEFORE};
}

bool kml_kube_items_whole(const struct kml_kube_items *s)
{
    return s->state == AFTER;
}

/* Whether the byte belongs to an element of items: not the blanks and commas between them. */
static bool belongs_to_item(const struct kml_kube_items *s, uint8_t c)
{
    return s->in_items && (s->item.size > 0 || (strchr(" \t\r\n,]", c) == NULL));
}

static int keep(struct kml_kube_items *s, uint8_t c, bool item, struct kml_err *err)
{
    struct kml_buf *to = item ? &s->item : &s->envelope;
    if (s->in_items && !item && c != ']') {
        return 0; /* between two items */
    }
    return kml_buf_append(to, &c, 1, NULL) == 0 ? 0 : too_long(to->max, err);
}

/* Remembers the last string at the top level: what stands before a '[' there is its key. */
static void follow_string(struct kml_kube_items *s, uint8_t c)
{
    if (s->escaped) {
        s->escaped = false;
    } else if (c == '\\') {
        s->escaped = true;
    } else if (c == '"') {
        s->in_string = false;
        return;
    }
    if (s->depth == 1) {
        if (s->key_size < sizeof s->key) {
            s->key[s->key_size] = (char)c;
        }
        s->key_size = s->key_size < UINT8_MAX ? (uint8_t)(s->key_size + 1) : UINT8_MAX;
    }
}

static bool key_is_items(const struct kml_kube_items *s)
{
    return s->key_size == 5 && memcmp(s->key, "items", 5) == 0;
}

static int close_bracket(struct kml_kube_items *s, const struct kml_kube_frame_sink *sink,
                         struct kml_err *err)
{
    if (s->depth == 0) {
        return kml_fail(err, KML_INVALID, "a list closes a bracket that it did not open");
    }
    s->depth--;
    if (s->depth == 0) {
        s->state = AFTER;
    }
    if (s->in_items && s->depth == 2) {
        int result = sink->frame(sink->self, kml_buf_view(&s->item), err);
        kml_buf_clear(&s->item);
        return result;
    }
    return 0;
}

static int follow(struct kml_kube_items *s, uint8_t c, const struct kml_kube_frame_sink *sink,
                  struct kml_err *err)
{
    if (s->in_string) {
        follow_string(s, c);
        return 0;
    }
    switch (c) {
    case '"':
        s->in_string = true;
        s->key_size = s->depth == 1 ? 0 : s->key_size;
        return 0;
    case '{':
    case '[':
        if (s->depth == 1 && c == '[' && key_is_items(s)) {
            s->in_items = true;
        }
        s->depth++;
        s->state = INSIDE;
        return 0;
    case '}':
    case ']':
        if (s->in_items && s->depth == 2) {
            if (s->item.size > 0) {
                return kml_fail(err, KML_INVALID, "an item of a list is no object");
            }
            s->in_items = false;
        }
        return close_bracket(s, sink, err);
    default:
        return 0;
    }
}

static int take(struct kml_kube_items *s, uint8_t c, const struct kml_kube_frame_sink *sink,
                struct kml_err *err)
{
    if (s->state != INSIDE && c != '{') {
        bool blank = strchr(" \t\r\n", c) != NULL && c != '\0';
        return blank ? 0 : kml_fail(err, KML_INVALID, "the answer is no list");
    }
    if (s->state == AFTER) {
        return kml_fail(err, KML_INVALID, "something follows the list");
    }
    if (keep(s, c, belongs_to_item(s, c), err) != 0) {
        return -1;
    }
    return follow(s, c, sink, err);
}

/* Inside an item's string most bytes mean nothing: they are taken together. */
static size_t plain_run(const struct kml_kube_items *s, struct kml_view bytes)
{
    if (!s->in_items || !s->in_string || s->escaped) {
        return 0;
    }
    size_t n = 0;
    while (n < bytes.size && bytes.data[n] != '"' && bytes.data[n] != '\\') {
        n++;
    }
    return n;
}

int kml_kube_items_feed(struct kml_kube_items *s, struct kml_view bytes,
                        const struct kml_kube_frame_sink *sink, struct kml_err *err)
{
    for (size_t i = 0; i < bytes.size; i++) {
        size_t run = plain_run(s, kml_view_of(bytes.data + i, bytes.size - i));
        if (run > 0 && kml_buf_append(&s->item, bytes.data + i, run, NULL) != 0) {
            return too_long(s->item.max, err);
        }
        i += run;
        if (i < bytes.size && take(s, bytes.data[i], sink, err) != 0) {
            return -1;
        }
    }
    return 0;
}
