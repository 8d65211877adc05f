#include "worker/backoff.h"

#include "base/clock.h"

#define FIRST_NS (0.1 * (double)KML_SECOND)
#define MOST_NS (5.0 * (double)KML_SECOND)

void kml_backoff_init(struct kml_backoff *b, uint64_t seed)
{
    kml_rng_init(&b->rng, seed);
    b->failures = 0;
}

void kml_backoff_succeeded(struct kml_backoff *b)
{
    b->failures = 0;
}

uint64_t kml_backoff_failed(struct kml_backoff *b)
{
    double wait = FIRST_NS;
    for (uint32_t i = 0; i < b->failures && wait < MOST_NS; i++) {
        wait *= 1.6;
    }
    b->failures++;
    wait = wait < MOST_NS ? wait : MOST_NS;
    return (uint64_t)(wait * (0.75 + 0.5 * kml_rng_unit(&b->rng)));
}
