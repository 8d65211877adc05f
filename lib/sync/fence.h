#ifndef KML_SYNC_FENCE_H
#define KML_SYNC_FENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * Version and generation rules: which messages still count. The conductor and every shard hold one each.
 *
 *   generation   goes up when the job falls back to a checkpoint; messages of another generation are fenced;
 *   incarnation  one process of a worker; only the latest admitted counts, and one that was replaced never
 *                comes back;
 *   step         of an incarnation: its numbers rise and may skip. Staged once, closed (committed or
 *                abandoned) once;
 *   version      of the parameters: commits apply in order, without a gap, each once.
 *
 * Between any two calls: closed <= staged for each seat (closing a step that was not staged raises both);
 * version and generation never fall, except that a new generation may start from an older version.
 * Pure; not thread-safe; the seats are the caller's array. Worker indices are below capacity, checked by the
 * caller. The incarnation numbers come from kml_random_secret: 0 is never one.
 */

struct kml_fence_seat {
    uint64_t incarnation; /* 0: nobody */
    uint64_t former;      /* the last incarnation that was replaced or dismissed; 0: none */
    uint64_t staged;      /* highest step that is complete here; 0: none, steps start at 1 */
    uint64_t closed;      /* highest step that was committed or abandoned */
};

struct kml_fence {
    uint64_t generation;
    uint64_t version;
    struct kml_fence_seat *seat; /* [capacity] */
    uint32_t capacity;
};

enum kml_verdict {
    KML_VERDICT_CURRENT,   /* counts */
    KML_VERDICT_DUPLICATE, /* it is here already: drop it, and answer as if it had just come */
    KML_VERDICT_LATE,      /* its step is closed: drop it */
    KML_VERDICT_FENCED,    /* another incarnation or generation: drop it and end the peer's stream */
    KML_VERDICT_AHEAD      /* a version with a gap before it, or step 0: the peer breaks the protocol */
};

void kml_fence_init(struct kml_fence *f, uint64_t generation, uint64_t version, struct kml_fence_seat *seat,
                    uint32_t capacity);

/*
 * A process takes the worker's seat; its steps begin anew. *replaced says whether another one held it (which
 * then has left, with all it staged). The incarnation that sits there already is welcome again, with its
 * steps kept: joins may come twice. KML_FENCED for one that was replaced or dismissed before, KML_INVALID for
 * incarnation 0.
 */
int kml_fence_admit(struct kml_fence *f, uint32_t worker, uint64_t incarnation, bool *replaced,
                    struct kml_err *err) KML_MUST_CHECK;

/* The worker's process is given up: whatever still comes from it is fenced. */
void kml_fence_dismiss(struct kml_fence *f, uint32_t worker);

/* Does a push, a piece of it or a report of it, still count? Changes nothing. */
enum kml_verdict kml_fence_push(const struct kml_fence *f, uint32_t worker, uint64_t incarnation,
                                uint64_t step, uint64_t generation);

/* A step is complete here; a step was committed or abandoned. Both may be said twice. */
void kml_fence_staged(struct kml_fence *f, uint32_t worker, uint64_t step);
void kml_fence_closed(struct kml_fence *f, uint32_t worker, uint64_t step);

/* An order to make `version` out of version - 1. CURRENT advances the fence; DUPLICATE was applied before. */
enum kml_verdict kml_fence_commit(struct kml_fence *f, uint64_t version, uint64_t generation);

/*
 * Falls back to a checkpoint: a higher generation (a lower or equal one is a bug) and its version. All steps
 * in flight die, the seats stay taken.
 */
void kml_fence_raise(struct kml_fence *f, uint64_t generation, uint64_t version);

const char *kml_verdict_name(enum kml_verdict v); /* "duplicate" */

#endif
