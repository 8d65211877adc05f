#ifndef KML_BASE_BACKOFF_H
#define KML_BASE_BACKOFF_H

#include <stdint.h>

#include "base/rng.h"

/*
 * When to try again: 0.1 s after the first failure, then 1.6 times as long each time up to 5 s, give or take
 * a quarter, so that processes that lost the same peer do not come back in step. Pure.
 */
struct kml_backoff {
    struct kml_rng rng;
    uint32_t failures; /* in a row */
};

void kml_backoff_init(struct kml_backoff *b, uint64_t seed);
void kml_backoff_succeeded(struct kml_backoff *b);
uint64_t kml_backoff_failed(struct kml_backoff *b); /* ns to wait */

#endif
