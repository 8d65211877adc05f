#ifndef KML_TESTS_UNIT_SYNC_SEED_H
#define KML_TESTS_UNIT_SYNC_SEED_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Property tests replay exactly: the seed is fixed, KML_SEED=N takes another; printed on its own line. */
static inline uint64_t test_seed(void)
{
    const char *wish = getenv("KML_SEED");
    uint64_t seed = wish != NULL ? strtoull(wish, NULL, 10) : 20240607;
    printf("seed %" PRIu64 "\n", seed);
    fflush(stdout);
    return seed;
}

#endif
