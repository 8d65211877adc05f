#include "worker/params.h"

#include <string.h>

#include "base/mem.h"
#include "wire/chunk.h"

int kml_params_init(struct kml_params *p, size_t floats, uint8_t *memory, struct kml_err *err)
{
    *p = (struct kml_params){.floats = floats, .shared = memory != NULL};
    if (p->shared) {
        p->slot[0].value = kml_area_parameters(memory, floats, 0);
        p->slot[1].value = kml_area_parameters(memory, floats, 1);
        return 0;
    }
    for (int s = 0; s < 2; s++) {
        p->slot[s].value = kml_try_alloc(floats * sizeof(float));
        if (p->slot[s].value == NULL) {
            kml_params_finish(p);
            return kml_fail(err, KML_NO_MEMORY, "no memory for %zu parameters", floats);
        }
    }
    return 0;
}

static void forget_shards(struct kml_params *p)
{
    for (int s = 0; s < 2; s++) {
        for (uint32_t k = 0; k < p->shards; k++) {
            kml_coverage_finish(&p->slot[s].shard[k]);
        }
        kml_free(p->slot[s].shard);
        p->slot[s].shard = NULL;
    }
    kml_free(p->cut);
    p->cut = NULL;
    p->shards = 0;
}

void kml_params_finish(struct kml_params *p)
{
    forget_shards(p);
    if (!p->shared) {
        kml_free(p->slot[0].value);
        kml_free(p->slot[1].value);
    }
    *p = (struct kml_params){0};
}

static void start(struct kml_params *p, struct kml_params_slot *slot, bool used, uint64_t version)
{
    slot->used = used;
    slot->version = version;
    slot->full = 0;
    for (uint32_t k = 0; k < p->shards; k++) {
        kml_coverage_clear(&slot->shard[k]);
    }
}

void kml_params_clear(struct kml_params *p)
{
    start(p, &p->slot[0], false, 0);
    start(p, &p->slot[1], false, 0);
    p->waiting = false;
    p->computing = false;
}

void kml_params_cut(struct kml_params *p, const uint64_t *cut, uint32_t shards)
{
    forget_shards(p);
    p->shards = shards;
    p->cut = KML_NEW_ARRAY((size_t)shards + 1, uint64_t);
    memcpy(p->cut, cut, ((size_t)shards + 1) * sizeof(*cut));
    p->slot[0].shard = KML_NEW_ARRAY(shards, struct kml_coverage);
    p->slot[1].shard = KML_NEW_ARRAY(shards, struct kml_coverage);
    kml_params_clear(p);
}

static struct kml_params_slot *slot_of(struct kml_params *p, uint64_t version)
{
    for (int s = 0; s < 2; s++) {
        if (p->slot[s].used && p->slot[s].version == version) {
            return &p->slot[s];
        }
    }
    return NULL;
}

static bool wanted(const struct kml_params *p, const struct kml_params_slot *slot)
{
    return slot->used &&
           ((p->waiting && p->waited == slot->version) || (p->computing && p->computed == slot->version));
}

/* The older slot, or the other one when that is wanted; NULL when both are. */
static struct kml_params_slot *slot_to_give(struct kml_params *p, uint64_t version)
{
    if (p->shared) {
        return &p->slot[version % 2];
    }
    struct kml_params_slot *a = &p->slot[0];
    struct kml_params_slot *b = &p->slot[1];
    if (b->used && (!a->used || a->version < b->version)) {
        a = &p->slot[1];
        b = &p->slot[0];
    }
    /* Here `b` is the unused or older one. */
    return !wanted(p, b) ? b : !wanted(p, a) ? a : NULL;
}

static bool is_there(const struct kml_coverage *c, uint64_t from, uint64_t to)
{
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->interval[i].begin <= from && to <= c->interval[i].end) {
            return true;
        }
    }
    return false;
}

float *kml_params_place(struct kml_params *p, uint64_t version, uint32_t shard, uint64_t from, uint64_t to)
{
    struct kml_params_slot *slot = slot_of(p, version);
    if (slot == NULL) {
        slot = slot_to_give(p, version);
        if (slot == NULL) {
            return NULL;
        }
        start(p, slot, true, version);
    }
    return is_there(&slot->shard[shard], from, to) ? NULL : slot->value + from;
}

static bool is_full(const struct kml_params *p, const struct kml_params_slot *slot, uint32_t shard)
{
    return kml_coverage_is(&slot->shard[shard], p->cut[shard], p->cut[shard + 1]);
}

int kml_params_put(struct kml_params *p, uint64_t version, uint32_t shard, uint64_t from, uint64_t to,
                   struct kml_err *err)
{
    struct kml_params_slot *slot = slot_of(p, version);
    KML_BUG_ON(slot == NULL);
    bool was_full = is_full(p, slot, shard);
    if (kml_coverage_add(&slot->shard[shard], from, to, err) < 0) {
        return kml_wrap(err, "parameters of shard %u", shard);
    }
    if (!was_full && is_full(p, slot, shard)) {
        slot->full++;
    }
    return 0;
}

const float *kml_params_get(const struct kml_params *p, uint64_t version)
{
    for (int s = 0; s < 2; s++) {
        const struct kml_params_slot *slot = &p->slot[s];
        if (slot->used && slot->version == version && p->shards > 0 && slot->full == p->shards) {
            return slot->value;
        }
    }
    return NULL;
}
