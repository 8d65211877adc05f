#include "base/rng.h"

#include <math.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/mem.h"

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void kml_rng_init(struct kml_rng *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        r->s[i] = splitmix(&seed);
    }
}

void kml_rng_init2(struct kml_rng *r, uint64_t seed, uint64_t stream)
{
    uint64_t mixed = splitmix(&seed);
    mixed ^= stream * UINT64_C(0xd1342543de82ef95);
    kml_rng_init(r, splitmix(&mixed));
}

static uint64_t rotl(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

uint64_t kml_rng_next(struct kml_rng *r)
{
    uint64_t result = rotl(r->s[1] * 5, 7) * 9;
    uint64_t t = r->s[1] << 17;
    r->s[2] ^= r->s[0];
    r->s[3] ^= r->s[1];
    r->s[1] ^= r->s[2];
    r->s[0] ^= r->s[3];
    r->s[2] ^= t;
    r->s[3] = rotl(r->s[3], 45);
    return result;
}

uint64_t kml_rng_below(struct kml_rng *r, uint64_t bound)
{
    KML_BUG_ON(bound == 0);
    uint64_t least =
        -bound % bound; /* the numbers under 2^64 mod bound would make some remainders likelier */
    for (;;) {
        uint64_t x = kml_rng_next(r);
        if (x >= least) {
            return x % bound;
        }
    }
}

double kml_rng_unit(struct kml_rng *r)
{
    return (double)(kml_rng_next(r) >> 11) * 0x1p-53;
}

double kml_rng_normal(struct kml_rng *r)
{
    double u = 1.0 - kml_rng_unit(r);
    double v = kml_rng_unit(r);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

double kml_rng_exponential(struct kml_rng *r, double rate)
{
    return -log(1.0 - kml_rng_unit(r)) / rate;
}

void kml_rng_shuffle(struct kml_rng *r, uint32_t *values, uint32_t count)
{
    for (uint32_t i = count; i > 1; i--) {
        uint32_t j = (uint32_t)kml_rng_below(r, i);
        uint32_t kept = values[i - 1];
        values[i - 1] = values[j];
        values[j] = kept;
    }
}

uint64_t kml_random_secret(void)
{
    uint64_t value = 0;
    while (value == 0) {
        KML_BUG_ON(getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value);
    }
    return value;
}
