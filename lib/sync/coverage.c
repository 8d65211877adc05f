#include "sync/coverage.h"

#include <string.h>

#include "base/mem.h"

void kml_coverage_finish(struct kml_coverage *c)
{
    kml_free(c->interval);
    *c = (struct kml_coverage){.count = 0};
}

void kml_coverage_clear(struct kml_coverage *c)
{
    c->count = 0;
}

bool kml_coverage_is(const struct kml_coverage *c, uint64_t begin, uint64_t end)
{
    return c->count == 1 && c->interval[0].begin == begin && c->interval[0].end == end;
}

static void make_room(struct kml_coverage *c)
{
    if (c->count == c->room) {
        c->room = c->room == 0 ? 8 : 2 * c->room;
        c->interval = kml_realloc(c->interval, c->room * sizeof *c->interval);
    }
}

int kml_coverage_add(struct kml_coverage *c, uint64_t begin, uint64_t end, struct kml_err *err)
{
    KML_BUG_ON(begin >= end);
    uint32_t first = 0;
    while (first < c->count && c->interval[first].end < begin) {
        first++;
    }
    uint32_t last = first; /* [first, last) touch the new one and become one with it */
    while (last < c->count && c->interval[last].begin <= end) {
        begin = c->interval[last].begin < begin ? c->interval[last].begin : begin;
        end = c->interval[last].end > end ? c->interval[last].end : end;
        last++;
    }
    if (first == last) {
        if (c->count >= KML_COVERAGE_MAX) {
            return kml_fail(err, KML_EXHAUSTED, "more than %u separate pieces", KML_COVERAGE_MAX);
        }
        make_room(c);
        memmove(c->interval + first + 1, c->interval + first, (c->count - first) * sizeof *c->interval);
        c->count++;
    } else {
        memmove(c->interval + first + 1, c->interval + last, (c->count - last) * sizeof *c->interval);
        c->count -= last - first - 1;
    }
    c->interval[first] = (struct kml_interval){begin, end};
    return 0;
}
