#include "sync/ledger.h"

#include <string.h>

#include "base/mem.h"

uint64_t kml_shard_cut(uint64_t n, uint32_t m, uint32_t i)
{
    /* i*n/m without the overflow of i*n: n = q*m + r. */
    return n / m * i + n % m * i / m;
}

static struct kml_ledger_epoch *row_of(struct kml_ledger *l, uint32_t epoch)
{
    return &l->row[epoch % 2];
}

static const struct kml_ledger_epoch *row_of_const(const struct kml_ledger *l, uint32_t epoch)
{
    return &l->row[epoch % 2];
}

static uint64_t *own_of(const struct kml_ledger *l, uint32_t epoch, uint32_t worker)
{
    return &l->own[(size_t)(epoch % 2) * l->capacity + worker];
}

static uint64_t piece_end(const struct kml_ledger *l, const struct kml_ledger_epoch *row, uint32_t i)
{
    return i + 1 < row->count ? row->piece[i + 1].begin : l->positions;
}

static uint64_t piece_size(const struct kml_ledger *l, const struct kml_ledger_epoch *row, uint32_t i)
{
    return piece_end(l, row, i) - row->piece[i].begin;
}

int kml_ledger_init(struct kml_ledger *l, enum kml_ledger_policy policy, bool lockstep, uint64_t positions,
                    uint32_t epochs, uint32_t shards, uint32_t capacity, struct kml_err *err)
{
    if (positions == 0 || epochs == 0) {
        return kml_fail(err, KML_INVALID, "nothing to deal: %llu samples, %u epochs; both must be at least 1",
                        (unsigned long long)positions, epochs);
    }
    if (shards == 0 || shards > capacity) {
        return kml_fail(err, KML_INVALID, "%u workers own shards, but there is room for 1 to %u", shards,
                        capacity);
    }
    *l = (struct kml_ledger){.policy = policy,
                             .lockstep = lockstep || policy == KML_LEDGER_STATIC,
                             .positions = positions,
                             .epochs = epochs,
                             .shards = shards,
                             .capacity = capacity};
    l->cut = KML_NEW_ARRAY((size_t)shards + 1, uint64_t);
    for (uint32_t i = 0; i <= shards; i++) {
        l->cut[i] = kml_shard_cut(positions, shards, i);
    }
    l->forfeited = KML_NEW_ARRAY(capacity, bool);
    l->committed = KML_NEW_ARRAY(capacity, uint64_t);
    l->own = KML_NEW_ARRAY(2 * (size_t)capacity, uint64_t);
    for (int r = 0; r < 2; r++) {
        l->row[r].room = shards + 64;
        l->row[r].piece = KML_NEW_ARRAY(l->row[r].room, struct kml_piece);
    }
    return 0;
}

void kml_ledger_finish(struct kml_ledger *l)
{
    kml_free(l->row[0].piece);
    kml_free(l->row[1].piece);
    kml_free(l->own);
    kml_free(l->committed);
    kml_free(l->forfeited);
    kml_free(l->cut);
    *l = (struct kml_ledger){.positions = 0};
}

/* Two neighbours that say the same are one piece. */
static bool alike(const struct kml_piece *a, const struct kml_piece *b)
{
    if (a->state != b->state) {
        return false;
    }
    switch (a->state) {
    case KML_PIECE_FREE:
        return a->owner == b->owner;
    case KML_PIECE_LEASED:
        return a->owner == b->owner && a->worker == b->worker && a->step == b->step;
    case KML_PIECE_DONE:
        return true;
    }
    return false;
}

static void join_alike(struct kml_ledger_epoch *row)
{
    uint32_t kept = 0;
    for (uint32_t i = 1; i < row->count; i++) {
        if (alike(&row->piece[kept], &row->piece[i])) {
            continue;
        }
        kept++;
        if (kept != i) {
            row->piece[kept] = row->piece[i];
        }
    }
    row->count = row->count == 0 ? 0 : kept + 1;
}

/* Cuts piece i in two: [begin, at) stays piece i, [at, end) becomes piece i + 1. */
static void cut_piece(struct kml_ledger_epoch *row, uint32_t i, uint64_t at)
{
    if (row->count == row->room) {
        row->room *= 2; /* never above the positions: a piece holds at least one */
        row->piece = kml_realloc(row->piece, (size_t)row->room * sizeof *row->piece);
    }
    memmove(&row->piece[i + 1], &row->piece[i], (size_t)(row->count - i) * sizeof *row->piece);
    row->piece[i + 1].begin = at;
    row->count++;
}

static void count_free(struct kml_ledger *l, uint32_t epoch, uint32_t owner, uint64_t samples)
{
    row_of(l, epoch)->free += samples;
    if (owner == KML_LEDGER_COMMON) {
        row_of(l, epoch)->common += samples;
    } else {
        *own_of(l, epoch, owner) += samples;
    }
}

static void uncount_free(struct kml_ledger *l, uint32_t epoch, uint32_t owner, uint64_t samples)
{
    row_of(l, epoch)->free -= samples;
    if (owner == KML_LEDGER_COMMON) {
        row_of(l, epoch)->common -= samples;
    } else {
        *own_of(l, epoch, owner) -= samples;
    }
}

static uint32_t first_owner(const struct kml_ledger *l, uint32_t shard)
{
    return l->policy == KML_LEDGER_STATIC && !l->forfeited[shard] ? shard : KML_LEDGER_COMMON;
}

static void open_next_epoch(struct kml_ledger *l)
{
    uint32_t epoch = l->opened++;
    struct kml_ledger_epoch *row = row_of(l, epoch);
    row->count = 0;
    row->free = row->leased = row->done = row->common = 0;
    memset(own_of(l, epoch, 0), 0, l->capacity * sizeof *l->own);
    for (uint32_t s = 0; s < l->shards; s++) {
        uint64_t samples = l->cut[s + 1] - l->cut[s];
        if (samples == 0) {
            continue; /* fewer samples than workers */
        }
        row->piece[row->count++] = (struct kml_piece){.begin = l->cut[s], .owner = first_owner(l, s)};
        count_free(l, epoch, first_owner(l, s), samples);
    }
    join_alike(row);
}

static bool may_open(const struct kml_ledger *l)
{
    return l->opened < l->epochs && l->opened - l->closed < (l->lockstep ? 1u : 2u);
}

static void add_range(struct kml_lease *out, uint64_t begin, uint64_t end)
{
    out->samples += end - begin;
    if (out->count > 0 && out->range[out->count - 1].end == begin) {
        out->range[out->count - 1].end = end;
        return;
    }
    out->range[out->count++] = (struct kml_range){begin, end};
}

/* Leases the free pieces of one owner, the lowest first, until the lease is full. */
static void take(struct kml_ledger *l, uint32_t owner, uint32_t worker, uint64_t step, uint64_t want,
                 struct kml_lease *out)
{
    struct kml_ledger_epoch *row = row_of(l, out->epoch);
    for (uint32_t i = 0; i < row->count && out->samples < want && out->count < KML_LEASE_RANGES; i++) {
        if (row->piece[i].state != KML_PIECE_FREE || row->piece[i].owner != owner) {
            continue;
        }
        uint64_t begin = row->piece[i].begin;
        uint64_t size = piece_size(l, row, i);
        if (size > want - out->samples) {
            size = want - out->samples;
            cut_piece(row, i, begin + size);
        }
        row->piece[i].state = KML_PIECE_LEASED;
        row->piece[i].worker = worker;
        row->piece[i].step = step;
        uncount_free(l, out->epoch, owner, size);
        row->leased += size;
        add_range(out, begin, begin + size);
    }
}

enum kml_lease_answer kml_ledger_lease(struct kml_ledger *l, uint32_t worker, uint64_t step, uint64_t want,
                                       struct kml_lease *out)
{
    KML_BUG_ON(worker >= l->capacity || want == 0);
    l->forfeited[worker] = false;
    out->count = 0;
    out->samples = 0;
    for (uint32_t epoch = l->closed; epoch < l->opened || may_open(l); epoch++) {
        if (epoch == l->opened) {
            open_next_epoch(l);
        }
        out->epoch = epoch;
        if (*own_of(l, epoch, worker) > 0) {
            take(l, worker, worker, step, want, out);
        }
        if (row_of(l, epoch)->common > 0) {
            take(l, KML_LEDGER_COMMON, worker, step, want, out);
        }
        if (out->samples > 0) {
            join_alike(row_of(l, epoch));
            return KML_LEASE_GIVEN;
        }
    }
    return kml_ledger_over(l) ? KML_LEASE_OVER : KML_LEASE_WAIT;
}

bool kml_ledger_has_work(const struct kml_ledger *l, uint32_t worker)
{
    KML_BUG_ON(worker >= l->capacity);
    for (uint32_t epoch = l->closed; epoch < l->opened; epoch++) {
        if (*own_of(l, epoch, worker) > 0 || row_of_const(l, epoch)->common > 0) {
            return true;
        }
    }
    if (!may_open(l)) {
        return false;
    }
    /* The next epoch has something for this worker if it owns a shard of it or any shard is common. */
    if (l->policy == KML_LEDGER_LEASED) {
        return true;
    }
    if (worker < l->shards && l->cut[worker + 1] > l->cut[worker]) {
        return true;
    }
    for (uint32_t s = 0; s < l->shards; s++) {
        if (l->forfeited[s] && l->cut[s + 1] > l->cut[s]) {
            return true;
        }
    }
    return false;
}

static void free_piece(struct kml_ledger *l, uint32_t epoch, struct kml_piece *p, uint64_t samples)
{
    p->state = KML_PIECE_FREE;
    p->worker = 0;
    p->step = 0;
    count_free(l, epoch, p->owner, samples);
}

static void finish_piece(struct kml_ledger *l, uint32_t epoch, struct kml_piece *p, uint64_t samples)
{
    l->committed[p->worker] += samples;
    row_of(l, epoch)->done += samples;
    *p = (struct kml_piece){.begin = p->begin, .owner = KML_LEDGER_COMMON, .state = KML_PIECE_DONE};
}

/* Ends a worker's leases, of one step or (step NULL) all, one way or the other. Returns their samples. */
static uint64_t end_leases(struct kml_ledger *l, uint32_t worker, const uint64_t *step,
                           void (*end)(struct kml_ledger *, uint32_t, struct kml_piece *, uint64_t))
{
    KML_BUG_ON(worker >= l->capacity);
    uint64_t total = 0;
    for (uint32_t epoch = l->closed; epoch < l->opened; epoch++) {
        struct kml_ledger_epoch *row = row_of(l, epoch);
        uint64_t before = total;
        for (uint32_t i = 0; i < row->count; i++) {
            struct kml_piece *p = &row->piece[i];
            if (p->state != KML_PIECE_LEASED || p->worker != worker || (step != NULL && p->step != *step)) {
                continue;
            }
            uint64_t samples = piece_size(l, row, i);
            row->leased -= samples;
            total += samples;
            end(l, epoch, p, samples);
        }
        if (total > before) {
            join_alike(row);
        }
    }
    return total;
}

uint64_t kml_ledger_done(struct kml_ledger *l, uint32_t worker, uint64_t step)
{
    uint64_t samples = end_leases(l, worker, &step, finish_piece);
    while (l->closed < l->opened && row_of(l, l->closed)->done == l->positions) {
        l->closed++;
    }
    return samples;
}

uint64_t kml_ledger_abandon(struct kml_ledger *l, uint32_t worker, uint64_t step)
{
    return end_leases(l, worker, &step, free_piece);
}

uint64_t kml_ledger_lost(struct kml_ledger *l, uint32_t worker)
{
    return end_leases(l, worker, NULL, free_piece);
}

uint64_t kml_ledger_forfeit(struct kml_ledger *l, uint32_t worker)
{
    uint64_t samples = kml_ledger_lost(l, worker);
    l->forfeited[worker] = true;
    for (uint32_t epoch = l->closed; epoch < l->opened; epoch++) {
        struct kml_ledger_epoch *row = row_of(l, epoch);
        for (uint32_t i = 0; i < row->count; i++) {
            struct kml_piece *p = &row->piece[i];
            if (p->state == KML_PIECE_FREE && p->owner == worker) {
                p->owner = KML_LEDGER_COMMON;
            }
        }
        row->common += *own_of(l, epoch, worker);
        *own_of(l, epoch, worker) = 0;
        join_alike(row);
    }
    return samples;
}

bool kml_ledger_over(const struct kml_ledger *l)
{
    return l->closed == l->epochs;
}

uint64_t kml_ledger_leased(const struct kml_ledger *l, uint32_t worker, uint64_t step)
{
    uint64_t total = 0;
    for (uint32_t epoch = l->closed; epoch < l->opened; epoch++) {
        const struct kml_ledger_epoch *row = row_of_const(l, epoch);
        for (uint32_t i = 0; i < row->count; i++) {
            const struct kml_piece *p = &row->piece[i];
            if (p->state == KML_PIECE_LEASED && p->worker == worker && p->step == step) {
                total += piece_size(l, row, i);
            }
        }
    }
    return total;
}

double kml_ledger_epoch_progress(const struct kml_ledger *l, uint32_t epoch)
{
    if (epoch < l->closed) {
        return 1.0;
    }
    return epoch < l->opened ? (double)row_of_const(l, epoch)->done / (double)l->positions : 0.0;
}

double kml_ledger_progress(const struct kml_ledger *l)
{
    double epochs = (double)l->closed;
    for (uint32_t epoch = l->closed; epoch < l->opened; epoch++) {
        epochs += kml_ledger_epoch_progress(l, epoch);
    }
    return epochs / (double)l->epochs;
}

/* The counters of an open epoch, counted again from its pieces. */
static bool row_is_sound(const struct kml_ledger *l, uint32_t epoch)
{
    const struct kml_ledger_epoch *row = row_of_const(l, epoch);
    uint64_t sum[3] = {0, 0, 0};
    uint64_t common = 0;
    uint64_t owned = 0;
    if (row->count == 0 || row->count > row->room || row->piece[0].begin != 0) {
        return false;
    }
    for (uint32_t i = 0; i < row->count; i++) {
        const struct kml_piece *p = &row->piece[i];
        bool in_place = p->begin < piece_end(l, row, i) && (i == 0 || !alike(p - 1, p));
        if (!in_place || (p->owner != KML_LEDGER_COMMON && p->owner >= l->shards)) {
            return false;
        }
        sum[p->state] += piece_size(l, row, i);
        if (p->state == KML_PIECE_FREE && p->owner == KML_LEDGER_COMMON) {
            common += piece_size(l, row, i);
        }
    }
    for (uint32_t w = 0; w < l->capacity; w++) {
        owned += *own_of(l, epoch, w);
    }
    return sum[KML_PIECE_FREE] == row->free && sum[KML_PIECE_LEASED] == row->leased &&
           sum[KML_PIECE_DONE] == row->done && row->free + row->leased + row->done == l->positions &&
           common == row->common && owned + common == row->free;
}

bool kml_ledger_sound(const struct kml_ledger *l)
{
    if (l->closed > l->opened || l->opened - l->closed > (l->lockstep ? 1u : 2u) || l->opened > l->epochs) {
        return false;
    }
    uint64_t done = (uint64_t)l->closed * l->positions;
    for (uint32_t epoch = l->closed; epoch < l->opened; epoch++) {
        if (!row_is_sound(l, epoch)) {
            return false;
        }
        done += row_of_const(l, epoch)->done;
    }
    for (uint32_t w = 0; w < l->capacity; w++) {
        done -= l->committed[w];
    }
    return done == 0;
}
