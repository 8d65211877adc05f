#ifndef KML_WORKER_BATCH_H
#define KML_WORKER_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "data/order.h"

/*
 * From a lease to sample numbers. A lease is ranges of positions in an epoch's order; the orders of the two
 * newest epochs asked for are kept, as two may be open at once. Pure.
 */
#define KML_MICRO_BATCH 256u /* samples at most that are computed at once */

struct kml_orders {
    uint32_t samples;
    enum kml_shuffle shuffle;
    uint64_t seed;
    uint32_t *cut; /* Shard: [shards + 1] */
    uint32_t shards;
    struct {
        bool used;
        uint32_t epoch;
        uint32_t *order; /* [samples] */
    } kept[2];
};

void kml_orders_init(struct kml_orders *o, uint32_t samples, enum kml_shuffle shuffle, uint64_t seed);
void kml_orders_finish(struct kml_orders *o);

/* Shard: cuts the file order into `workers` (1..) equal shards, as the ledger does; another number forgets
 * orders. */
void kml_orders_cut(struct kml_orders *o, uint32_t workers);

/* [samples], borrowed until two other epochs have been asked for. */
const uint32_t *kml_orders_get(struct kml_orders *o, uint32_t epoch);

struct kml_lease_range {
    uint64_t begin, end;
};

/* The work of one step. Its memory is used again by the next one. */
struct kml_work {
    uint64_t step;
    uint64_t version;
    uint32_t epoch;
    uint64_t samples;              /* of all ranges */
    struct kml_lease_range *range; /* [count], room for `room` */
    uint32_t count, room;
    uint32_t at; /* the walk: next position is range[at].begin + inside */
    uint64_t inside;
};

void kml_work_init(struct kml_work *w);
void kml_work_finish(struct kml_work *w);
void kml_work_clear(struct kml_work *w);

/* KML_PROTOCOL when the range is empty or reaches beyond `samples`, or all together are more than an epoch.
 */
int kml_work_add(struct kml_work *w, uint64_t begin, uint64_t end, uint32_t samples,
                 struct kml_err *err) KML_MUST_CHECK;

/* The next sample numbers, at most `most`; returns how many, 0 at the end. */
uint32_t kml_work_take(struct kml_work *w, const uint32_t *order, uint32_t *index, uint32_t most);

#endif
