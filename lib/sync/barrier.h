#ifndef KML_SYNC_BARRIER_H
#define KML_SYNC_BARRIER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * The limited synchronisation barrier of one group of workers (method.md 2.3, 2.4). One machine runs all
 * models; two numbers tell them apart:
 *
 *   limit   it opens as soon as min(limit, crew - held) workers have staged a step; all that wait commit
 *           together, the others go on computing and join a later opening: late, never dropped;
 *   bound   a worker that has committed starts its next step only while clock - floor <= bound, where its
 *           clock counts its committed steps and floor is the lowest clock of the crew. Until then it is
 *           held.
 *
 * BSP: limit >= crew, no bound. ASP: limit 1, no bound. LSP(l): limit l, no bound. SSP(s): limit 1, bound s.
 *
 * The crew are the live workers that are not excused. So nobody waits for a worker that has left, that
 * evaluates, or that has no work until the epoch ends.
 *
 * Between any two calls:
 *   - a worker is away, computing, staged (waits to commit), held (committed, waits to start) or excused;
 *   - fewer workers are staged than min(limit, crew - held), or none is, or a grace window runs (deadline
 *     says until when);
 *   - a computing or excused worker has clock - floor <= bound; the floor never falls;
 *   - some worker of the crew computes, or the crew is empty: nobody waits for ever;
 *   - right after an opening, with a fixed crew of m, no grace window, no bound:
 *       applied + sum over the crew of (version - pulled) == (m - min(limit, m)) * version.
 *
 * Pure: no clock, no thread, no allocation; `now` is nanoseconds of any steady clock. Not thread-safe; the
 * conductor owns it. A worker index is below capacity: the caller has checked it. Copying the struct with its
 * seats copies all.
 */

#define KML_BARRIER_ALL UINT32_MAX       /* as limit: everybody (BSP) */
#define KML_BARRIER_UNBOUNDED UINT32_MAX /* as bound */
#define KML_BARRIER_NEVER UINT64_MAX     /* as deadline: no grace window runs */

enum kml_seat_state { KML_SEAT_AWAY, KML_SEAT_COMPUTING, KML_SEAT_STAGED, KML_SEAT_HELD, KML_SEAT_EXCUSED };

struct kml_barrier_seat {
    enum kml_seat_state state;
    uint64_t pulled; /* the version it computes from */
    uint64_t clock;  /* its committed steps; a worker that joins starts at the floor */
};

struct kml_barrier_rule {
    uint32_t limit; /* 1.. or KML_BARRIER_ALL */
    uint32_t bound; /* 0.. or KML_BARRIER_UNBOUNDED */
    uint64_t grace; /* ns to wait for one more after the limit is reached; 0: the pure model */
};

struct kml_barrier {
    struct kml_barrier_rule rule;  /* the caller may change rule.grace between calls */
    uint32_t group;                /* which group of workers this barrier serves; 0 when there is one */
    uint32_t live;                 /* workers that are not away */
    uint32_t excused;              /* of the live */
    uint32_t staged;               /* of the live: waits to commit */
    uint32_t held;                 /* of the live: committed, waits to start */
    uint64_t version;              /* openings so far; may be set before the first join (after a restart) */
    uint64_t floor;                /* lowest clock of the crew, kept while the crew is empty */
    uint64_t applied;              /* sum of the staleness of all committed gradients */
    uint64_t contributions;        /* gradients committed; applied / contributions is the mean staleness */
    uint64_t deadline;             /* when the grace window ends, KML_BARRIER_NEVER if none runs */
    struct kml_barrier_seat *seat; /* [capacity], the caller's array, index = worker */
    uint32_t capacity;
};

/*
 * What a call brought about. `worker[0..count)` commit together, ascending, as version `version` (count 0:
 * the barrier stayed shut); staleness[i] is how many versions passed since worker[i] pulled.
 * `released[0..releases)`, ascending, start their next step from the barrier's current version: without a
 * bound these are the committers; with one, a committer may be held, and workers held before may be set free
 * by somebody else's commit or leave. Commit first, then release.
 */
struct kml_opening {
    uint32_t *worker;    /* [capacity], the caller's array */
    uint32_t *staleness; /* [capacity], the caller's array */
    uint32_t *released;  /* [capacity], the caller's array */
    uint32_t count;
    uint32_t releases;
    uint64_t version; /* the version that this opening makes; meaningful when count > 0 */
};

struct kml_barrier_rule kml_barrier_bsp(void);
struct kml_barrier_rule kml_barrier_asp(void);
struct kml_barrier_rule kml_barrier_lsp(uint32_t limit, uint64_t grace);
struct kml_barrier_rule kml_barrier_ssp(uint32_t staleness);

/* LSP's limit `auto`: the divisor of m nearest to m/2, the smaller on a tie; an odd prime m: ceil(m/2). */
uint32_t kml_barrier_auto_limit(uint32_t workers);

/* All seats away, version 0. A limit of 0 is a bug. */
void kml_barrier_init(struct kml_barrier *b, uint32_t group, struct kml_barrier_rule rule,
                      struct kml_barrier_seat *seat, uint32_t capacity);

uint32_t kml_barrier_crew(const struct kml_barrier *b);  /* live and not excused */
uint32_t kml_barrier_limit(const struct kml_barrier *b); /* in force now: max(1, min(limit, crew - held)) */

/*
 * A worker starts computing from the current version, with the floor as its clock. KML_CONFLICT if it is here
 * already: the old incarnation leaves before the new one joins. A join may stop a grace window, as it can
 * raise the limit in force.
 */
int kml_barrier_join(struct kml_barrier *b, uint32_t worker, struct kml_err *err) KML_MUST_CHECK;

/*
 * A worker is gone, with whatever it staged and did not commit. The rest may be enough now, so this can open
 * the barrier and release held ones. A worker that is away already changes nothing.
 */
void kml_barrier_leave(struct kml_barrier *b, uint32_t worker, uint64_t now, struct kml_opening *out);

/* A worker has staged its step on every shard and reported it. A message that comes twice changes nothing. */
void kml_barrier_staged(struct kml_barrier *b, uint32_t worker, uint64_t now, struct kml_opening *out);

/*
 * A computing worker has got no training step: an evaluation lease, or nothing until the epoch ends. It
 * leaves the crew until kml_barrier_readmit, so this can open the barrier as a leave can. A worker that is
 * not computing changes nothing.
 */
void kml_barrier_excuse(struct kml_barrier *b, uint32_t worker, uint64_t now, struct kml_opening *out);

/*
 * An excused worker is back and computes from the current version (which the caller sends it); its clock is
 * raised to the floor. Never opens. A worker that is not excused changes nothing.
 */
void kml_barrier_readmit(struct kml_barrier *b, uint32_t worker);

/* Time has passed: opens when a grace window has ended. Call it at `deadline`; early or late does no harm. */
void kml_barrier_tick(struct kml_barrier *b, uint64_t now, struct kml_opening *out);

const char *kml_seat_name(enum kml_seat_state state); /* "computing" */

#endif
