#ifndef KML_TESTS_UNIT_SEED_H
#define KML_TESTS_UNIT_SEED_H

/* Test helper: the seed of a property test. A new one each run, printed; KML_SEED=N plays a run again. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/parse.h"
#include "base/rng.h"

static inline uint64_t test_seed(void)
{
    uint64_t seed = kml_random_secret();
    const char *wanted = getenv("KML_SEED");
    if (wanted != NULL && kml_parse_u64(wanted, &seed, NULL) != 0) {
        (void)fprintf(stderr, "KML_SEED=%s is no number\n", wanted);
        exit(1);
    }
    (void)printf("seed %llu\n", (unsigned long long)seed);
    return seed;
}

#endif
