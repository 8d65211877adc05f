#ifndef KML_WORKER_PARAMS_H
#define KML_WORKER_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "sync/coverage.h"

/*
 * The parameters as they arrive: two slots, each one whole flat vector of one version, gathered from the
 * pieces of all shards.
 *
 * A piece goes into the slot that holds its version; if there is none, into the slot of the older version,
 * which then starts anew with nothing in it. A slot that is `wanted` (work waits for that version, or
 * computes on it) is never taken away. So
 *   - what is being computed on never changes under the computation;
 *   - late pieces of an older version cannot disturb a newer one, and a newer version makes its own way in;
 *   - an evaluation may still ask for a pinned version that is older than the last one trained on.
 *
 * The pieces may be faster than the word which work they are for: until it comes, the newest version is safe,
 * and the one before it as long as no third one comes in between (a conductor has no reason to send three). A
 * vector is complete when every shard's range is covered by pieces of exactly that version.
 */
struct kml_params_slot {
    bool used;
    uint64_t version;
    float *value;               /* [floats]; borrowed when shared */
    struct kml_coverage *shard; /* [shards] */
    uint32_t full;              /* shards whose range is there */
};

struct kml_params {
    size_t floats;
    uint32_t shards;
    uint64_t *cut; /* [shards + 1] */
    struct kml_params_slot slot[2];
    bool shared; /* the slots are shared memory, filled by the shards themselves: see kml_params_init */
    bool waiting, computing;   /* do these two hold? */
    uint64_t waited, computed; /* versions that must not be taken away */
};

/*
 * KML_NO_MEMORY. There are no shards until kml_params_cut. `memory`, NULL for none: shared memory as
 * wire/chunk.h lays it out; then even versions live in one slot and odd ones in the other, and a message
 * means that its floats are there.
 */
int kml_params_init(struct kml_params *p, size_t floats, uint8_t *memory, struct kml_err *err) KML_MUST_CHECK;
void kml_params_finish(struct kml_params *p);

/* Shard k holds [cut[k], cut[k + 1]). Forgets every piece. */
void kml_params_cut(struct kml_params *p, const uint64_t *cut, uint32_t shards);
void kml_params_clear(struct kml_params *p); /* forgets every piece, and what was wanted */

/*
 * Where floats [from, to) of a shard go: NULL when they are not needed (here already, or both slots are
 * wanted). The caller copies them there (shared memory: they are there) and says so with kml_params_put. The
 * range lies in the shard's, checked by the caller.
 */
float *kml_params_place(struct kml_params *p, uint64_t version, uint32_t shard, uint64_t from, uint64_t to);
int kml_params_put(struct kml_params *p, uint64_t version, uint32_t shard, uint64_t from, uint64_t to,
                   struct kml_err *err) KML_MUST_CHECK; /* KML_EXHAUSTED: too many holes */

/* The whole vector of a version, or NULL while pieces of it are missing. */
const float *kml_params_get(const struct kml_params *p, uint64_t version);

#endif
