#ifndef KML_SYNC_LEDGER_H
#define KML_SYNC_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * The sample ledger: deals each of the N positions of an epoch exactly once per epoch, whatever workers come,
 * go and return. The order behind the positions (dataset.shuffle) belongs to lib/data; the ledger knows
 * positions only.
 *
 * An open epoch is a sorted row of pieces that always covers [0, N) without gap or overlap. A piece is free,
 * leased to (worker, step), or done; every verb only changes the state of pieces, cuts one or joins
 * neighbours. So "exactly once" holds by construction: done is reached only from leased, nothing leaves done,
 * and an epoch closes when one piece, done, covers it. Neighbours alike are joined at once, so the row stays
 * about as long as there are open leases.
 *
 * Policies differ in one thing, who owns a free piece when an epoch opens:
 *   Static   worker i owns the i-th equal shard, [i*N/m, (i+1)*N/m); its rest is dealt to others only once it
 *            is lost for good (kml_ledger_forfeit);
 *   Leased   nobody does: all take from one common queue.
 * A lease takes from the worker's own pieces first, then from common ones, always the lowest positions:
 * ranges that came back from a lost worker are dealt before fresh ones. Weighted shares need nothing more:
 * batch form gives another `want` per worker, shard form another `cut`.
 *
 * The end of an epoch: in lockstep (Static always, and BSP) epoch e + 1 opens when all of e is done.
 * Otherwise a worker that finds nothing left in e opens e + 1; two epochs are open at most. Batches at the
 * end of a queue can be runts.
 *
 * Between any two calls: closed <= opened <= closed + 2; all epochs below `closed` are done; per open epoch
 * free + leased + done == N. Memory: 2 rows, 40 bytes a piece, never more than N pieces a row.
 * Pure and deterministic; not thread-safe; the conductor owns it. Worker indices are below capacity, checked
 * by the caller.
 */

enum kml_ledger_policy { KML_LEDGER_STATIC, KML_LEDGER_LEASED };

enum kml_piece_state { KML_PIECE_FREE, KML_PIECE_LEASED, KML_PIECE_DONE };

#define KML_LEDGER_COMMON UINT32_MAX /* as owner: anybody may lease it */

struct kml_piece {
    uint64_t begin;  /* it ends where the next one begins, the last one at N */
    uint64_t step;   /* leased: of which step */
    uint32_t worker; /* leased: to whom */
    uint32_t owner;  /* free or leased: whose shard, or KML_LEDGER_COMMON */
    enum kml_piece_state state;
};

struct kml_ledger_epoch {
    struct kml_piece *piece; /* [count], room for `room` */
    uint32_t count, room;
    uint64_t free, leased, done; /* samples; their sum is N while the epoch is open */
    uint64_t common;             /* free samples that nobody owns */
};

struct kml_ledger {
    enum kml_ledger_policy policy;
    bool lockstep;
    uint64_t positions;  /* N */
    uint32_t epochs;     /* how many there are in all */
    uint32_t closed;     /* epochs that are done: 0 .. closed - 1 */
    uint32_t opened;     /* epochs that were ever opened; open now are closed .. opened - 1 */
    uint32_t shards;     /* m */
    uint32_t capacity;   /* workers 0 .. capacity - 1; those from m on own no shard */
    uint64_t *cut;       /* [m + 1], shard i is [cut[i], cut[i + 1]) */
    bool *forfeited;     /* [capacity], lost for good: its shard of the coming epochs is common */
    uint64_t *committed; /* [capacity], samples done by each worker, over all epochs */
    uint64_t *own;       /* [2 * capacity], free samples that w owns in e: own[(e % 2) * capacity + w] */
    struct kml_ledger_epoch row[2]; /* epoch e lives in row[e % 2] */
};

/* Work for one step. All ranges are of one epoch and disjoint; the worker's own come first, each kind
 * ascends. */
#define KML_LEASE_RANGES 32
struct kml_range {
    uint64_t begin, end; /* positions [begin, end) of the epoch's order */
};
struct kml_lease {
    uint32_t epoch;
    uint32_t count;   /* ranges */
    uint64_t samples; /* their sum, 1 .. want */
    struct kml_range range[KML_LEASE_RANGES];
};

enum kml_lease_answer {
    KML_LEASE_GIVEN, /* *out is filled */
    KML_LEASE_WAIT,  /* nothing now; kml_ledger_has_work tells when to ask again */
    KML_LEASE_OVER   /* all epochs are done */
};

/*
 * positions >= 1, epochs >= 1, 1 <= shards <= capacity, else KML_INVALID. `lockstep` is implied by Static.
 * A second ledger with one epoch deals an evaluation set.
 */
int kml_ledger_init(struct kml_ledger *l, enum kml_ledger_policy policy, bool lockstep, uint64_t positions,
                    uint32_t epochs, uint32_t shards, uint32_t capacity, struct kml_err *err) KML_MUST_CHECK;
void kml_ledger_finish(struct kml_ledger *l);

/*
 * Up to `want` (>= 1) samples for a step of a worker. A worker may hold leases of several steps, each under a
 * number of its own; numbers may start anew after kml_ledger_lost. Asking also says that a worker given up as
 * lost is back: it owns its shard again from the next epoch on.
 */
enum kml_lease_answer kml_ledger_lease(struct kml_ledger *l, uint32_t worker, uint64_t step, uint64_t want,
                                       struct kml_lease *out);

/* Would kml_ledger_lease give this worker something now? */
bool kml_ledger_has_work(const struct kml_ledger *l, uint32_t worker);

/*
 * The step's gradient is committed. Returns its samples, 0 when there is no such lease (a repeat changes
 * nothing). It may close one epoch, or two at once when the later one was finished first: compare `closed`
 * before and after.
 */
uint64_t kml_ledger_done(struct kml_ledger *l, uint32_t worker, uint64_t step);

/* The step will not be committed: its ranges are free again. Returns their samples, 0 when there is no
 * such lease. */
uint64_t kml_ledger_abandon(struct kml_ledger *l, uint32_t worker, uint64_t step);

/* A worker is gone: abandons all its steps. Its own shard waits for its return. Returns the samples that
 * came back. */
uint64_t kml_ledger_lost(struct kml_ledger *l, uint32_t worker);

/* A worker is lost for good: kml_ledger_lost, and what it owns is dealt to the others. */
uint64_t kml_ledger_forfeit(struct kml_ledger *l, uint32_t worker);

/* All epochs are done. */
bool kml_ledger_over(const struct kml_ledger *l);

/* Samples of an open lease, 0 when there is none. */
uint64_t kml_ledger_leased(const struct kml_ledger *l, uint32_t worker, uint64_t step);

/* Done samples, 0..1: of the whole job, and of one epoch (1 when closed, 0 when not open yet). */
double kml_ledger_progress(const struct kml_ledger *l);
double kml_ledger_epoch_progress(const struct kml_ledger *l, uint32_t epoch);

/* Start of the i-th of m equal shards of n positions: i*n/m, rounded down. lib/data cuts `shuffle: Shard`
 * in the same way. */
uint64_t kml_shard_cut(uint64_t n, uint32_t m, uint32_t i);

/* The invariants above, piece by piece. False is a bug. For tests and for a state that was read back. */
bool kml_ledger_sound(const struct kml_ledger *l);

#endif
