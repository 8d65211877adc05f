#include "worker/batch.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "sync/ledger.h"

void kml_orders_init(struct kml_orders *o, uint32_t samples, enum kml_shuffle shuffle, uint64_t seed)
{
    *o = (struct kml_orders){.samples = samples, .shuffle = shuffle, .seed = seed};
}

void kml_orders_finish(struct kml_orders *o)
{
    kml_free(o->cut);
    kml_free(o->kept[0].order);
    kml_free(o->kept[1].order);
    *o = (struct kml_orders){0};
}

void kml_orders_cut(struct kml_orders *o, uint32_t workers)
{
    if (o->shuffle != KML_SHUFFLE_SHARD || workers == 0 || o->shards == workers) {
        return;
    }
    kml_free(o->cut);
    o->cut = KML_NEW_ARRAY((size_t)workers + 1, uint32_t);
    for (uint32_t i = 0; i <= workers; i++) {
        o->cut[i] = (uint32_t)kml_shard_cut(o->samples, workers, i);
    }
    o->shards = workers;
    o->kept[0].used = false;
    o->kept[1].used = false;
}

const uint32_t *kml_orders_get(struct kml_orders *o, uint32_t epoch)
{
    for (int k = 0; k < 2; k++) {
        if (o->kept[k].used && o->kept[k].epoch == epoch) {
            return o->kept[k].order;
        }
    }
    int k = !o->kept[0].used || (o->kept[1].used && o->kept[0].epoch < o->kept[1].epoch) ? 0 : 1;
    if (o->kept[k].order == NULL) {
        o->kept[k].order = KML_NEW_ARRAY(o->samples, uint32_t);
    }
    kml_order_fill(o->kept[k].order, o->samples, o->shuffle, o->seed, epoch, o->cut, o->shards);
    o->kept[k].used = true;
    o->kept[k].epoch = epoch;
    return o->kept[k].order;
}

void kml_work_init(struct kml_work *w)
{
    *w = (struct kml_work){0};
}

void kml_work_finish(struct kml_work *w)
{
    kml_free(w->range);
    *w = (struct kml_work){0};
}

void kml_work_clear(struct kml_work *w)
{
    w->samples = 0;
    w->count = 0;
    w->at = 0;
    w->inside = 0;
}

int kml_work_add(struct kml_work *w, uint64_t begin, uint64_t end, uint32_t samples, struct kml_err *err)
{
    if (begin >= end || end > samples || end - begin > samples - w->samples) {
        return kml_fail(err, KML_PROTOCOL,
                        "the conductor leased samples [%" PRIu64 ", %" PRIu64 ") of an epoch of %u", begin,
                        end, samples);
    }
    if (w->count == w->room) {
        w->room = w->room == 0 ? 32 : 2 * w->room;
        w->range = kml_realloc(w->range, w->room * sizeof(*w->range));
    }
    w->range[w->count++] = (struct kml_lease_range){begin, end};
    w->samples += end - begin;
    return 0;
}

uint32_t kml_work_take(struct kml_work *w, const uint32_t *order, uint32_t *index, uint32_t most)
{
    uint32_t taken = 0;
    while (taken < most && w->at < w->count) {
        const struct kml_lease_range *r = &w->range[w->at];
        uint64_t left = r->end - r->begin - w->inside;
        uint32_t n = left < most - taken ? (uint32_t)left : most - taken;
        memcpy(index + taken, order + r->begin + w->inside, n * sizeof(*index));
        taken += n;
        w->inside += n;
        if (w->inside == r->end - r->begin) {
            w->at++;
            w->inside = 0;
        }
    }
    return taken;
}
