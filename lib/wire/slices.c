#include "wire/slices.h"

#include <string.h>

struct kml_slices kml_slices_of(const struct kml_view *one)
{
    return (struct kml_slices){one, 1, one->size};
}

struct kml_cursor kml_cursor_of(const struct kml_slices *s)
{
    return (struct kml_cursor){s->part, s->part + s->count, 0, s->size};
}

struct kml_view kml_cursor_run(struct kml_cursor *c, size_t most)
{
    most = most < c->left ? most : c->left;
    if (most == 0) {
        return (struct kml_view){NULL, 0};
    }
    while (c->at ==
           c->part->size) { /* at the end of a part, or in an empty one; one that has bytes must follow */
        c->part++;
        c->at = 0;
    }
    size_t here = c->part->size - c->at;
    struct kml_view run = {c->part->data + c->at, here < most ? here : most};
    c->at += run.size;
    c->left -= run.size;
    return run;
}

bool kml_cursor_copy(struct kml_cursor *c, void *to, size_t size)
{
    if (size > c->left) {
        return false;
    }
    uint8_t *out = to;
    while (size > 0) {
        struct kml_view run = kml_cursor_run(c, size);
        memcpy(out, run.data, run.size);
        out += run.size;
        size -= run.size;
    }
    return true;
}

bool kml_cursor_skip(struct kml_cursor *c, size_t size)
{
    if (size > c->left) {
        return false;
    }
    while (size > 0) {
        size -= kml_cursor_run(c, size).size;
    }
    return true;
}
