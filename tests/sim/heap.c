#include "tests/sim/heap.h"

#include "base/mem.h"

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static void swap(struct sim_event *a, struct sim_event *b)
{
    struct sim_event t = *a;
    *a = *b;
    *b = t;
}

void sim_heap_post(struct sim_heap *h, uint64_t at, void (*run)(void *self, void *arg), void *self, void *arg,
                   void (*drop)(void *arg))
{
    if (h->count == h->room) {
        h->room = h->room == 0 ? 256 : 2 * h->room;
        h->event = kml_realloc(h->event, h->room * sizeof *h->event);
    }
    uint32_t i = h->count++;
    h->event[i] = (struct sim_event){at, h->posted++, run, drop, self, arg};
    while (i > 0 && before(&h->event[i], &h->event[(i - 1) / 2])) {
        swap(&h->event[i], &h->event[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
}

static void sink_top(struct sim_heap *h)
{
    for (uint32_t i = 0;;) {
        uint32_t least = i;
        for (uint32_t child = 2 * i + 1; child <= 2 * i + 2 && child < h->count; child++) {
            least = before(&h->event[child], &h->event[least]) ? child : least;
        }
        if (least == i) {
            return;
        }
        swap(&h->event[i], &h->event[least]);
        i = least;
    }
}

bool sim_heap_next(struct sim_heap *h, struct sim_event *out)
{
    if (h->count == 0) {
        return false;
    }
    *out = h->event[0];
    h->event[0] = h->event[--h->count];
    sink_top(h);
    return true;
}

void sim_heap_finish(struct sim_heap *h)
{
    for (uint32_t i = 0; i < h->count; i++) {
        if (h->event[i].drop != NULL) {
            h->event[i].drop(h->event[i].arg);
        }
    }
    kml_free(h->event);
    *h = (struct sim_heap){.count = 0};
}
