#include "data/lines.h"

#include <string.h>

#include "base/mem.h"
#include "data/table.h"

#define ROOM ((size_t)1 << 18)

void kml_lines_init(struct kml_lines *l, struct kml_source *source)
{
    *l = (struct kml_lines){.source = source, .size = ROOM};
    l->room = kml_alloc(ROOM);
}

void kml_lines_finish(struct kml_lines *l)
{
    kml_free(l->room);
    *l = (struct kml_lines){0};
}

/* Moves what is unread to the front, doubles the room if that fills it, and reads more. */
static int more(struct kml_lines *l, struct kml_err *err)
{
    memmove(l->room, l->room + l->begin, l->end - l->begin);
    l->end -= l->begin;
    l->begin = 0;
    if (l->end == l->size) {
        if (l->size >= KML_DATA_MAX_LINE) {
            return kml_fail(err, KML_TOO_LARGE, "%s: line %llu is longer than %u bytes",
                            kml_source_name(l->source), (unsigned long long)l->number + 1, KML_DATA_MAX_LINE);
        }
        l->size *= 2;
        l->room = kml_realloc(l->room, l->size);
    }
    size_t got;
    if (kml_source_read(l->source, l->room + l->end, l->size - l->end, &got, err) != 0) {
        return -1;
    }
    l->end += got;
    l->ended = got == 0;
    return 0;
}

/* Any line, empty ones too. */
static int next_line(struct kml_lines *l, struct kml_view *line, struct kml_err *err)
{
    size_t searched = 0;
    const uint8_t *stop = NULL;
    for (;;) {
        size_t have = l->end - l->begin;
        stop = have > searched ? memchr(l->room + l->begin + searched, '\n', have - searched) : NULL;
        if (stop != NULL || l->ended) {
            break;
        }
        searched = have;
        if (more(l, err) != 0) {
            return -1;
        }
    }
    size_t have = l->end - l->begin;
    if (have == 0) {
        *line = (struct kml_view){NULL, 0};
        return 0;
    }
    const uint8_t *start = l->room + l->begin;
    size_t size = stop == NULL ? have : (size_t)(stop - start);
    l->begin += stop == NULL ? size : size + 1;
    l->number++;
    *line = (struct kml_view){start, size > 0 && start[size - 1] == '\r' ? size - 1 : size};
    return 0;
}

static void skip_byte_order_mark(struct kml_view *line)
{
    if (line->size >= 3 && memcmp(line->data, "\xef\xbb\xbf", 3) == 0) {
        line->data += 3;
        line->size -= 3;
    }
}

int kml_lines_next(struct kml_lines *l, struct kml_view *line, struct kml_err *err)
{
    do {
        if (next_line(l, line, err) != 0) {
            return -1;
        }
        if (l->number == 1) {
            skip_byte_order_mark(line);
        }
    } while (line->data != NULL && line->size == 0);
    return 0;
}

void kml_fields_init(struct kml_fields *f, struct kml_view line, char separator)
{
    *f = (struct kml_fields){line.data, line.data + line.size, separator, true, false};
}

/* `at` is behind the opening quote. */
static const uint8_t *closing_quote(const uint8_t *at, const uint8_t *end)
{
    for (; at < end; at++) {
        if (*at == '"') {
            if (at + 1 < end && at[1] == '"') {
                at++;
            } else {
                return at;
            }
        }
    }
    return NULL;
}

bool kml_fields_next(struct kml_fields *f, struct kml_view *field)
{
    if (!f->more || f->malformed) {
        return false;
    }
    const uint8_t *stop;
    if (f->at < f->end && *f->at == '"') {
        const uint8_t *quote = closing_quote(f->at + 1, f->end);
        stop = quote == NULL ? NULL : quote + 1;
        if (stop == NULL || (stop < f->end && *stop != (uint8_t)f->separator)) {
            f->malformed = true;
            return false;
        }
        *field = (struct kml_view){f->at + 1, (size_t)(quote - f->at) - 1};
    } else {
        size_t left = (size_t)(f->end - f->at);
        stop = left == 0 ? NULL : memchr(f->at, f->separator, left);
        stop = stop == NULL ? f->end : stop;
        *field = (struct kml_view){f->at, (size_t)(stop - f->at)};
    }
    f->more = stop < f->end;
    f->at = f->more ? stop + 1 : stop;
    return true;
}
