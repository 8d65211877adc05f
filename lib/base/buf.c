#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

struct kml_view kml_view_of(const void *data, size_t size)
{
    return (struct kml_view){data, size};
}

struct kml_view kml_view_str(const char *text)
{
    return (struct kml_view){(const uint8_t *)text, strlen(text)};
}

void kml_buf_init(struct kml_buf *b, size_t max)
{
    *b = (struct kml_buf){.max = max};
}

void kml_buf_finish(struct kml_buf *b)
{
    kml_free(b->data);
    *b = (struct kml_buf){.max = b->max};
}

void kml_buf_clear(struct kml_buf *b)
{
    b->size = 0;
    if (b->data != NULL) {
        b->data[0] = 0;
    }
}

uint8_t *kml_buf_reserve(struct kml_buf *b, size_t size, struct kml_err *err)
{
    if (size > b->max || b->size > b->max - size || b->size + size == SIZE_MAX) {
        (void)kml_fail(err, KML_TOO_LARGE, "more than %zu bytes", b->max);
        return NULL;
    }
    size_t need = b->size + size + 1; /* the zero behind the bytes */
    if (need > b->room) {
        size_t room = b->room < 64 ? 64 : b->room;
        while (room < need) {
            room = room > SIZE_MAX / 2 ? need : room * 2;
        }
        room = room - 1 > b->max ? b->max + 1 : room;
        uint8_t *grown = kml_try_alloc(room);
        if (grown == NULL) {
            (void)kml_fail(err, KML_NO_MEMORY, "no memory for %zu bytes", room);
            return NULL;
        }
        if (b->size > 0) {
            memcpy(grown, b->data, b->size);
        }
        kml_free(b->data);
        b->data = grown;
        b->room = room;
    }
    b->data[b->size] = 0;
    return b->data + b->size;
}

void kml_buf_added(struct kml_buf *b, size_t size)
{
    KML_BUG_ON(size >= b->room - b->size);
    b->size += size;
    b->data[b->size] = 0;
}

int kml_buf_append(struct kml_buf *b, const void *data, size_t size, struct kml_err *err)
{
    uint8_t *to = kml_buf_reserve(b, size, err);
    if (to == NULL) {
        return -1;
    }
    if (size > 0) {
        memcpy(to, data, size);
    }
    kml_buf_added(b, size);
    return 0;
}

int kml_buf_puts(struct kml_buf *b, const char *text, struct kml_err *err)
{
    return kml_buf_append(b, text, strlen(text), err);
}

int kml_buf_printf(struct kml_buf *b, struct kml_err *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    uint8_t *to = length < 0 ? NULL : kml_buf_reserve(b, (size_t)length, err);
    if (to != NULL) {
        (void)vsnprintf((char *)to, (size_t)length + 1, format, again);
        kml_buf_added(b, (size_t)length);
    }
    va_end(again);
    return to == NULL ? -1 : 0;
}

const char *kml_buf_text(const struct kml_buf *b)
{
    return b->data == NULL ? "" : (const char *)b->data;
}

struct kml_view kml_buf_view(const struct kml_buf *b)
{
    return (struct kml_view){b->data, b->size};
}

uint8_t *kml_buf_take(struct kml_buf *b, size_t *size)
{
    uint8_t *data = b->data;
    *size = b->size;
    *b = (struct kml_buf){.max = b->max};
    return data;
}
