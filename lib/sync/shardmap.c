#include "sync/shardmap.h"

#include "base/mem.h"

#define LINE 16u /* floats in a cache line */

static uint64_t chunks_of(uint64_t floats, uint64_t chunk_floats)
{
    return (floats + chunk_floats - 1) / chunk_floats;
}

/* The wish, but no more than one shard's part (rounded up), and so small that each shard has a chunk. */
static uint64_t fit(uint64_t floats, uint32_t shards, uint32_t wish)
{
    uint64_t part = chunks_of(floats, shards);
    uint64_t size = (part + LINE - 1) / LINE * LINE;
    size = size < wish ? size : wish;
    if (chunks_of(floats, size) >= shards) {
        return size;
    }
    size = (floats - 1) / (shards - 1); /* the largest that still gives as many chunks as shards */
    return size >= LINE ? size / LINE * LINE : size;
}

int kml_shardmap_init(struct kml_shardmap *m, uint64_t floats, uint32_t shards, uint32_t chunk_floats,
                      struct kml_err *err)
{
    if (shards == 0 || shards > KML_SHARDS_MAX) {
        return kml_fail(err, KML_INVALID, "%u shards: there can be 1 to %u", shards, KML_SHARDS_MAX);
    }
    if (floats > KML_FLOATS_MAX) {
        return kml_fail(err, KML_INVALID, "a model of %llu parameters: the largest is %llu",
                        (unsigned long long)floats, (unsigned long long)KML_FLOATS_MAX);
    }
    if (floats < shards) {
        return kml_fail(err, KML_INVALID,
                        "%llu parameters cannot be spread over %u shards; use fewer PS replicas",
                        (unsigned long long)floats, shards);
    }
    if (chunk_floats < LINE || chunk_floats > KML_CHUNK_FLOATS_MAX || chunk_floats % LINE != 0) {
        return kml_fail(err, KML_INVALID, "chunks of %u floats: a multiple of %u up to %u is needed",
                        chunk_floats, LINE, KML_CHUNK_FLOATS_MAX);
    }
    uint64_t size = fit(floats, shards, chunk_floats);
    *m = (struct kml_shardmap){.floats = floats,
                               .chunk_floats = (uint32_t)size,
                               .chunks = (uint32_t)chunks_of(floats, size),
                               .shards = shards};
    return 0;
}

static uint64_t chunk_begin(const struct kml_shardmap *m, uint64_t chunk)
{
    uint64_t begin = chunk * m->chunk_floats;
    return begin < m->floats ? begin : m->floats;
}

struct kml_span kml_shardmap_chunk(const struct kml_shardmap *m, uint32_t chunk)
{
    KML_BUG_ON(chunk >= m->chunks);
    return (struct kml_span){chunk_begin(m, chunk), chunk_begin(m, (uint64_t)chunk + 1)};
}

struct kml_span kml_shardmap_shard_chunks(const struct kml_shardmap *m, uint32_t shard)
{
    KML_BUG_ON(shard >= m->shards);
    uint64_t chunks = m->chunks;
    return (struct kml_span){shard * chunks / m->shards, (shard + 1) * chunks / m->shards};
}

struct kml_span kml_shardmap_shard(const struct kml_shardmap *m, uint32_t shard)
{
    struct kml_span chunks = kml_shardmap_shard_chunks(m, shard);
    return (struct kml_span){chunk_begin(m, chunks.begin), chunk_begin(m, chunks.end)};
}

uint32_t kml_shardmap_shard_of(const struct kml_shardmap *m, uint32_t chunk)
{
    KML_BUG_ON(chunk >= m->chunks);
    /* The largest s with floor(s * chunks / shards) <= chunk. */
    return (uint32_t)((((uint64_t)chunk + 1) * m->shards - 1) / m->chunks);
}

uint32_t kml_shardmap_chunk_of(const struct kml_shardmap *m, uint64_t position)
{
    KML_BUG_ON(position >= m->floats);
    return (uint32_t)(position / m->chunk_floats);
}
