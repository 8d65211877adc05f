#include "data/order.h"

#include "base/mem.h"
#include "base/rng.h"

void kml_order_fill(uint32_t *order, uint32_t count, enum kml_shuffle shuffle, uint64_t seed, uint32_t epoch,
                    const uint32_t *cut, uint32_t shards)
{
    for (uint32_t i = 0; i < count; i++) {
        order[i] = i;
    }
    struct kml_rng rng;
    if (shuffle == KML_SHUFFLE_GLOBAL) {
        kml_rng_init2(&rng, seed, epoch);
        kml_rng_shuffle(&rng, order, count);
    } else if (shuffle == KML_SHUFFLE_SHARD) {
        KML_BUG_ON(shards == 0 || cut[0] != 0 || cut[shards] != count);
        for (uint32_t k = 0; k < shards; k++) {
            KML_BUG_ON(cut[k] > cut[k + 1]);
            /* A stream of its own, so that moving one cut does not reorder the shards behind it. */
            kml_rng_init2(&rng, seed, ((uint64_t)(k + 1) << 32) | epoch);
            kml_rng_shuffle(&rng, order + cut[k], cut[k + 1] - cut[k]);
        }
    }
}
