#ifndef KML_DATA_ORDER_H
#define KML_DATA_ORDER_H

#include <stdint.h>

/*
 * The order of an epoch: position -> sample. Leases are ranges of positions, so everybody who knows seed,
 * epoch and number of samples knows which samples a lease means.
 *
 *   Global  one permutation of all samples
 *   Shard   positions are cut into contiguous shards, each shuffled inside (class-skewed on a sorted file)
 *   None    position = sample
 *
 * Pure: depends on nothing but its arguments, the same on every machine.
 */
enum kml_shuffle { KML_SHUFFLE_GLOBAL, KML_SHUFFLE_SHARD, KML_SHUFFLE_NONE };

/*
 * Fills order[count]. Shard only: `cut` holds shards + 1 ascending positions, cut[0] = 0, cut[shards] = count
 * (what the conductor's shares gave); else NULL and 0.
 */
void kml_order_fill(uint32_t *order, uint32_t count, enum kml_shuffle shuffle, uint64_t seed, uint32_t epoch,
                    const uint32_t *cut, uint32_t shards);

#endif
