#ifndef KML_BASE_RNG_H
#define KML_BASE_RNG_H

#include <stdint.h>

/*
 * Seeded randomness: xoshiro256** (Blackman, Vigna 2018), seeded through splitmix64. Same seed, same numbers,
 * on every machine and compiler. Never for secrets: see kml_random_secret.
 */
struct kml_rng {
    uint64_t s[4];
};

void kml_rng_init(struct kml_rng *r, uint64_t seed);
void kml_rng_init2(struct kml_rng *r, uint64_t seed, uint64_t stream); /* independent streams of one seed */
uint64_t kml_rng_next(struct kml_rng *r);
uint64_t kml_rng_below(struct kml_rng *r,
                       uint64_t bound);   /* uniform in [0, bound), no modulo bias; bound >= 1 */
double kml_rng_unit(struct kml_rng *r);   /* uniform in [0, 1), 53 bits */
double kml_rng_normal(struct kml_rng *r); /* mean 0, deviation 1 (Box-Muller, one value a call) */
double kml_rng_exponential(struct kml_rng *r, double rate);
void kml_rng_shuffle(struct kml_rng *r, uint32_t *values, uint32_t count); /* Fisher-Yates, from the top */

/* A 64-bit number from the operating system, for incarnations and secrets: never repeats in practice, never
 * 0. */
uint64_t kml_random_secret(void);

#endif
