#ifndef KML_SYNC_COVERAGE_H
#define KML_SYNC_COVERAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * Which part of a range has come in: disjoint intervals, ascending, neighbours joined. Pieces may come twice,
 * overlap, in any order. Bounded: a sender that leaves more than KML_COVERAGE_MAX holes is refused.
 */
#define KML_COVERAGE_MAX 65536u

struct kml_interval {
    uint64_t begin, end; /* [begin, end) */
};

struct kml_coverage {
    struct kml_interval *interval; /* [count] */
    uint32_t count, room;
}; /* all zero: nothing has come */

void kml_coverage_finish(struct kml_coverage *c);
void kml_coverage_clear(struct kml_coverage *c); /* keeps the memory */
int kml_coverage_add(struct kml_coverage *c, uint64_t begin, uint64_t end,
                     struct kml_err *err) KML_MUST_CHECK;
bool kml_coverage_is(const struct kml_coverage *c, uint64_t begin,
                     uint64_t end); /* exactly this interval, whole */

#endif
