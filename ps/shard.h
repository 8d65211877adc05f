#ifndef KML_PS_SHARD_H
#define KML_PS_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "math/optimizer.h"
#include "sync/fence.h"
#include "sync/shardmap.h"
#include "wire/chunk.h"

/*
 * A shard of the parameters: a contiguous range of chunks of the flat vector, as versioned immutable buffers,
 * the optimiser's state beside them, and a staging buffer for each worker.
 *
 *   - A chunk's bytes never change. A commit writes new buffers and swaps the pointers, so a reader that
 *     holds a reference always sees one consistent version (docs/ARCHITECTURE.md).
 *   - A gradient counts only when the conductor commits it. Staging is keyed by (worker, incarnation, step);
 *     pieces may come twice, in any order, cut in any way.
 *   - Members of a commit are summed in the order given, which is ascending by worker: same members, same
 *     bytes.
 *
 * Not thread-safe, but kml_block_drop may be called on any thread: it only counts down. Buffers are reused by
 * the next commit that finds them free, so training allocates nothing once all are warm.
 */
struct kml_block; /* one version of one chunk */

struct kml_shard;

struct kml_shard_setup {
    struct kml_shardmap map;
    uint32_t shard;   /* which of map.shards */
    uint32_t workers; /* capacity: worker indices are below it */
    uint64_t generation;
    bool square_sums; /* measure ||g||^2 (clipping is on); else only whether all is finite */
    struct kml_optimizer optimizer;
};

/* What staging a piece brought about. */
struct kml_shard_staged {
    bool complete;     /* the step is whole now, or was already: tell the conductor (again) */
    double square_sum; /* of this part, 0 when not measured */
    bool non_finite;
};

/* KML_NO_MEMORY when the range does not fit. No parameters are there until version 0 is complete
 * (kml_shard_put). */
int kml_shard_create(const struct kml_shard_setup *setup, struct kml_shard **out,
                     struct kml_err *err) KML_MUST_CHECK;

/* NULL accepted. The transport must have ended before: a block that a send still holds is a bug, and aborts.
 */
void kml_shard_destroy(struct kml_shard *s);

/* A worker's process takes its seat; what an older one staged is gone. Errors as kml_fence_admit. */
int kml_shard_admit(struct kml_shard *s, uint32_t worker, uint64_t incarnation,
                    struct kml_err *err) KML_MUST_CHECK;
/* Whatever still comes from that worker's process is fenced, what it staged is dropped. Another incarnation:
 * no effect. */
void kml_shard_dismiss(struct kml_shard *s, uint32_t worker, uint64_t incarnation);
/* Does this incarnation hold the seat? */
bool kml_shard_admitted(const struct kml_shard *s, uint32_t worker, uint64_t incarnation);

/*
 * A piece of a gradient (step >= 1), or of the initial parameters (payload PARAMETERS, step 0). Before the
 * first commit another incarnation's initial parameters take the place of those that were there. A late piece
 * changes nothing and is no error. KML_FENCED: another incarnation; KML_INVALID: out of range, or the
 * checksum is wrong: end the peer's stream.
 */
int kml_shard_stage(struct kml_shard *s, uint32_t worker, uint64_t incarnation, const struct kml_chunk *piece,
                    struct kml_shard_staged *out, struct kml_err *err) KML_MUST_CHECK;

struct kml_shard_member {
    uint32_t worker;
    uint64_t incarnation;
    uint64_t step;
    double coefficient; /* 0: close the step, add nothing */
};

struct kml_shard_commit {
    uint64_t version;                      /* the one this makes */
    const struct kml_shard_member *member; /* [count], ascending by worker */
    uint32_t count;
    double learning_rate; /* with schedule and step scale in it */
};

/*
 * Applies a commit. A repeated one changes nothing. KML_CONFLICT: a gap in the versions, or a member that is
 * not staged here; then nothing has changed and the job cannot go on.
 */
int kml_shard_commit(struct kml_shard *s, const struct kml_shard_commit *c,
                     struct kml_err *err) KML_MUST_CHECK;

/* The conductor gave a step up: forget what was staged of it. */
void kml_shard_forget(struct kml_shard *s, uint32_t worker, uint64_t incarnation, uint64_t step);

bool kml_shard_ready(const struct kml_shard *s);       /* parameters are there */
uint64_t kml_shard_version(const struct kml_shard *s); /* newest */

/* Keeps a version readable until it is unpinned; one at a time (a later pin replaces it). KML_NOT_FOUND: not
 * the newest. */
int kml_shard_pin(struct kml_shard *s, uint64_t version, struct kml_err *err) KML_MUST_CHECK;
void kml_shard_unpin(struct kml_shard *s);

uint64_t kml_shard_floats(const struct kml_shard *s); /* of the whole vector, all shards */
/* Chunks of this shard, numbered from 0. */
uint32_t kml_shard_chunks(const struct kml_shard *s);
struct kml_span kml_shard_span(const struct kml_shard *s, uint32_t chunk); /* floats of the whole vector */

/*
 * A reference to one chunk of a version (the newest, or the pinned one); the caller gives it back with
 * kml_block_drop. NULL when that version is not there.
 */
struct kml_block *kml_shard_block(struct kml_shard *s, uint64_t version, uint32_t chunk);
const float *kml_block_data(const struct kml_block *b);
void kml_block_drop(void *block); /* any thread */

#endif
