#ifndef KML_SYNC_SHARDMAP_H
#define KML_SYNC_SHARDMAP_H

#include <stdint.h>

#include "base/err.h"

/*
 * Where each parameter lives. The flat vector of n floats is cut into chunks of chunk_floats (the last may be
 * shorter); each shard holds a contiguous range of chunks, balanced to one chunk. All is computed from four
 * numbers, so every process that knows them agrees; nothing is allocated, copying the struct copies the map.
 *
 *   - every float is in exactly one chunk, every chunk in exactly one shard, every shard has at least one
 *     chunk;
 *   - chunk_floats is a multiple of 16 (64 bytes) unless the vector is too short for that;
 *   - it is shrunk below the wish so that the shards are alike in size when the model is small.
 */

#define KML_CHUNK_FLOATS (64u * 1024)      /* default: 256 KiB */
#define KML_CHUNK_FLOATS_MAX (256u * 1024) /* 1 MiB */
#define KML_SHARDS_MAX 1024u
#define KML_FLOATS_MAX ((UINT64_C(1) << 31) - 1)

struct kml_shardmap {
    uint64_t floats;
    uint32_t chunk_floats;
    uint32_t chunks;
    uint32_t shards;
};

struct kml_span {
    uint64_t begin, end; /* [begin, end) */
};

/* chunk_floats: the wish, a multiple of 16, 16 .. KML_CHUNK_FLOATS_MAX. floats: shards .. KML_FLOATS_MAX.
 * Else KML_INVALID. */
int kml_shardmap_init(struct kml_shardmap *m, uint64_t floats, uint32_t shards, uint32_t chunk_floats,
                      struct kml_err *err) KML_MUST_CHECK;

/* Indices must be in range; one that a peer sent is checked by the caller first. */
struct kml_span kml_shardmap_chunk(const struct kml_shardmap *m, uint32_t chunk);        /* its floats */
struct kml_span kml_shardmap_shard_chunks(const struct kml_shardmap *m, uint32_t shard); /* its chunks */
struct kml_span kml_shardmap_shard(const struct kml_shardmap *m, uint32_t shard);        /* its floats */
uint32_t kml_shardmap_shard_of(const struct kml_shardmap *m, uint32_t chunk);            /* holds a chunk */
uint32_t kml_shardmap_chunk_of(const struct kml_shardmap *m, uint64_t position);         /* holds a float */

#endif
