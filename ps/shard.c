#include "ps/shard.h"

#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "math/vec.h"
#include "sync/coverage.h"

struct kml_block {
    atomic_uint references; /* 0: free for the next commit */
    float *data;            /* [chunk_floats] */
};

/* What one worker staged: one step at a time, as a worker waits until its step is committed or abandoned. */
struct stage {
    float *data;   /* [floats of this shard], allocated when the worker first pushes */
    uint64_t step; /* being collected, or complete */
    bool complete;
    struct kml_coverage covered;
    struct kml_shard_staged result;
};

struct kml_shard {
    struct kml_shard_setup setup;
    struct kml_span floats; /* of the whole vector */
    struct kml_span chunks; /* of the whole map */
    struct kml_fence fence;
    struct kml_fence_seat *seat; /* [workers] */
    struct stage *stage;         /* [workers] */
    struct stage initial;        /* version 0 as it comes in ... */
    uint64_t initial_from;       /* ... from this incarnation: never mixed out of two workers' values */
    bool ready;
    struct kml_block **current; /* [chunks] */
    struct kml_block **pinned;  /* [chunks], all NULL when nothing is pinned */
    uint64_t pinned_version;
    struct kml_block **pool; /* [pool_count], all blocks that were ever made */
    uint32_t pool_count;
    uint32_t pool_room;
    uint32_t pool_next;
    float *slot[KML_OPTIMIZER_SLOTS]; /* [floats of this shard] each */
    uint64_t updates;                 /* commits that changed something: Adam's t */
    const float **grad;               /* [workers], scratch of a commit */
    float *coefficient;               /* [workers], scratch of a commit */
};

static uint64_t count_of(struct kml_span span)
{
    return span.end - span.begin;
}

uint64_t kml_shard_floats(const struct kml_shard *s)
{
    return s->setup.map.floats;
}

uint32_t kml_shard_chunks(const struct kml_shard *s)
{
    return (uint32_t)count_of(s->chunks);
}

struct kml_span kml_shard_span(const struct kml_shard *s, uint32_t chunk)
{
    return kml_shardmap_chunk(&s->setup.map, (uint32_t)s->chunks.begin + chunk);
}

/* ---- Blocks ---- */

static void block_destroy(struct kml_block *b)
{
    kml_free(b->data);
    kml_free(b);
}

static struct kml_block *block_create(struct kml_shard *s, struct kml_err *err)
{
    struct kml_block *b = KML_NEW(struct kml_block);
    b->data = kml_try_alloc((size_t)s->setup.map.chunk_floats * sizeof(float));
    if (b->data == NULL) {
        kml_free(b);
        (void)kml_fail(err, KML_NO_MEMORY, "no memory for a chunk of %u floats", s->setup.map.chunk_floats);
        return NULL;
    }
    if (s->pool_count == s->pool_room) {
        s->pool_room = s->pool_room == 0 ? 16 : 2 * s->pool_room;
        s->pool = kml_realloc(s->pool, s->pool_room * sizeof *s->pool);
    }
    s->pool[s->pool_count++] = b;
    return b;
}

/* A block that nobody reads any more, or a new one. Its only reference is the caller's. */
static struct kml_block *block_take(struct kml_shard *s, struct kml_err *err)
{
    for (uint32_t tried = 0; tried < s->pool_count; tried++) {
        struct kml_block *b = s->pool[s->pool_next];
        s->pool_next = s->pool_next + 1 == s->pool_count ? 0 : s->pool_next + 1;
        /* acquire: what the last reader did with the bytes is over before we write them again */
        if (atomic_load_explicit(&b->references, memory_order_acquire) == 0) {
            atomic_store_explicit(&b->references, 1, memory_order_relaxed);
            return b;
        }
    }
    struct kml_block *b = block_create(s, err);
    if (b != NULL) {
        atomic_store_explicit(&b->references, 1, memory_order_relaxed);
    }
    return b;
}

static struct kml_block *block_share(struct kml_block *b)
{
    atomic_fetch_add_explicit(&b->references, 1, memory_order_relaxed);
    return b;
}

void kml_block_drop(void *block)
{
    struct kml_block *b = block;
    KML_BUG_ON(atomic_fetch_sub_explicit(&b->references, 1, memory_order_release) == 0);
}

const float *kml_block_data(const struct kml_block *b)
{
    return b->data;
}

/* ---- Life ---- */

static int allocate(struct kml_shard *s, struct kml_err *err)
{
    size_t bytes = (size_t)count_of(s->floats) * sizeof(float);
    for (uint32_t k = 0; k < kml_optimizer_slots(s->setup.optimizer.kind); k++) {
        s->slot[k] = kml_try_alloc(bytes);
        if (s->slot[k] == NULL) {
            return kml_fail(err, KML_NO_MEMORY, "no memory for %zu bytes of optimiser state", bytes);
        }
        memset(s->slot[k], 0, bytes);
    }
    for (uint32_t c = 0; c < kml_shard_chunks(s); c++) {
        s->current[c] = block_take(s, err);
        if (s->current[c] == NULL) {
            return -1;
        }
    }
    return 0;
}

int kml_shard_create(const struct kml_shard_setup *setup, struct kml_shard **out, struct kml_err *err)
{
    struct kml_shard *s = KML_NEW(struct kml_shard);
    s->setup = *setup;
    s->floats = kml_shardmap_shard(&setup->map, setup->shard);
    s->chunks = kml_shardmap_shard_chunks(&setup->map, setup->shard);
    s->seat = KML_NEW_ARRAY(setup->workers, struct kml_fence_seat);
    s->stage = KML_NEW_ARRAY(setup->workers, struct stage);
    s->grad = KML_NEW_ARRAY(setup->workers, const float *);
    s->coefficient = KML_NEW_ARRAY(setup->workers, float);
    s->current = KML_NEW_ARRAY(kml_shard_chunks(s), struct kml_block *);
    s->pinned = KML_NEW_ARRAY(kml_shard_chunks(s), struct kml_block *);
    kml_fence_init(&s->fence, setup->generation, 0, s->seat, setup->workers);
    if (allocate(s, err) < 0) {
        kml_shard_destroy(s);
        return -1;
    }
    *out = s;
    return 0;
}

void kml_shard_destroy(struct kml_shard *s)
{
    if (s == NULL) {
        return;
    }
    kml_shard_unpin(s);
    for (uint32_t c = 0; c < kml_shard_chunks(s); c++) {
        if (s->current[c] != NULL) {
            kml_block_drop(s->current[c]);
        }
    }
    for (uint32_t i = 0; i < s->pool_count; i++) {
        KML_BUG_ON(atomic_load(&s->pool[i]->references) != 0);
        block_destroy(s->pool[i]);
    }
    for (uint32_t w = 0; w < s->setup.workers; w++) {
        kml_free(s->stage[w].data);
        kml_coverage_finish(&s->stage[w].covered);
    }
    kml_free(s->initial.data);
    kml_coverage_finish(&s->initial.covered);
    for (uint32_t k = 0; k < KML_OPTIMIZER_SLOTS; k++) {
        kml_free(s->slot[k]);
    }
    kml_free(s->pool);
    kml_free(s->seat);
    kml_free(s->stage);
    kml_free(s->grad);
    kml_free(s->coefficient);
    kml_free(s->current);
    kml_free(s->pinned);
    kml_free(s);
}

/* ---- Who may stage ---- */

static void stage_restart(struct stage *g, uint64_t step)
{
    g->step = step;
    g->complete = false;
    kml_coverage_clear(&g->covered);
}

int kml_shard_admit(struct kml_shard *s, uint32_t worker, uint64_t incarnation, struct kml_err *err)
{
    bool replaced = false;
    if (kml_fence_admit(&s->fence, worker, incarnation, &replaced, err) < 0) {
        return -1;
    }
    if (replaced) {
        stage_restart(&s->stage[worker], 0);
    }
    return 0;
}

bool kml_shard_admitted(const struct kml_shard *s, uint32_t worker, uint64_t incarnation)
{
    return worker < s->setup.workers && incarnation != 0 && s->seat[worker].incarnation == incarnation;
}

void kml_shard_dismiss(struct kml_shard *s, uint32_t worker, uint64_t incarnation)
{
    if (kml_shard_admitted(s, worker, incarnation)) {
        kml_fence_dismiss(&s->fence, worker);
        stage_restart(&s->stage[worker], 0);
    }
}

/* ---- Staging ---- */

static int stage_room(struct kml_shard *s, struct stage *g, struct kml_err *err)
{
    if (g->data == NULL) {
        size_t bytes = (size_t)count_of(s->floats) * sizeof(float);
        g->data = kml_try_alloc(bytes);
        if (g->data == NULL) {
            return kml_fail(err, KML_NO_MEMORY, "no memory to stage %zu bytes", bytes);
        }
    }
    return 0;
}

static int check_range(const struct kml_shard *s, const struct kml_chunk *p, struct kml_err *err)
{
    if (p->elements == 0 || p->offset < s->floats.begin || p->offset > s->floats.end ||
        p->elements > s->floats.end - p->offset) {
        return kml_fail(err, KML_INVALID,
                        "a piece of %llu elements at %llu is outside shard %u, [%llu, %llu)",
                        (unsigned long long)p->elements, (unsigned long long)p->offset, s->setup.shard,
                        (unsigned long long)s->floats.begin, (unsigned long long)s->floats.end);
    }
    return 0;
}

/* Copies the piece in; true in g->complete when nothing is missing any more. */
static int collect(struct kml_shard *s, struct stage *g, const struct kml_chunk *p, struct kml_err *err)
{
    uint64_t at = p->offset - s->floats.begin;
    if (stage_room(s, g, err) < 0 || kml_chunk_copy(p, g->data + at, err) < 0 ||
        kml_coverage_add(&g->covered, at, at + p->elements, err) < 0) {
        return -1;
    }
    g->complete = kml_coverage_is(&g->covered, 0, count_of(s->floats));
    return 0;
}

static void measure(struct kml_shard *s, struct stage *g)
{
    size_t n = (size_t)count_of(s->floats);
    g->result = (struct kml_shard_staged){.complete = true};
    g->result.non_finite = !kml_vec_all_finite(g->data, n);
    if (s->setup.square_sums && !g->result.non_finite) {
        g->result.square_sum = kml_vec_square_sum(g->data, n);
    }
}

static void install_initial(struct kml_shard *s)
{
    for (uint32_t c = 0; c < kml_shard_chunks(s); c++) {
        struct kml_span span = kml_shard_span(s, c);
        memcpy(s->current[c]->data, s->initial.data + (span.begin - s->floats.begin),
               count_of(span) * sizeof(float));
    }
    s->ready = true;
    kml_free(s->initial.data);
    s->initial.data = NULL;
}

static int stage_initial(struct kml_shard *s, uint64_t incarnation, const struct kml_chunk *p,
                         struct kml_shard_staged *out, struct kml_err *err)
{
    if (p->step != 0) {
        return kml_fail(err, KML_INVALID, "parameters come with step 0, not %llu",
                        (unsigned long long)p->step);
    }
    if (s->initial_from != incarnation && s->fence.version == 0) {
        stage_restart(&s->initial, 0); /* the conductor asked another worker: the first one was lost */
        s->initial_from = incarnation;
        s->ready = false;
    }
    if (!s->ready) {
        if (collect(s, &s->initial, p, err) < 0) {
            return -1;
        }
        if (s->initial.complete) {
            measure(s, &s->initial);
            install_initial(s);
        }
    }
    if (s->ready) {
        *out = s->initial.result;
    }
    return 0;
}

static int stage_gradient(struct kml_shard *s, uint32_t worker, const struct kml_chunk *p,
                          struct kml_shard_staged *out, struct kml_err *err)
{
    struct stage *g = &s->stage[worker];
    if (p->step > g->step) {
        stage_restart(g, p->step);
    }
    if (p->step < g->step) {
        return 0; /* the worker has gone on: a delayed piece of a step that was abandoned */
    }
    if (!g->complete) {
        if (collect(s, g, p, err) < 0) {
            return -1;
        }
        if (g->complete) {
            measure(s, g);
            kml_fence_staged(&s->fence, worker, p->step);
        }
    }
    if (g->complete) {
        *out = g->result;
    }
    return 0;
}

int kml_shard_stage(struct kml_shard *s, uint32_t worker, uint64_t incarnation, const struct kml_chunk *piece,
                    struct kml_shard_staged *out, struct kml_err *err)
{
    *out = (struct kml_shard_staged){.complete = false};
    if (!kml_shard_admitted(s, worker, incarnation)) {
        return kml_fail(err, KML_FENCED, "worker %u: this process is not the one that joined last", worker);
    }
    if (check_range(s, piece, err) < 0) {
        return -1;
    }
    if (piece->payload == KML_PAYLOAD_PARAMETERS) {
        return stage_initial(s, incarnation, piece, out, err);
    }
    switch (kml_fence_push(&s->fence, worker, incarnation, piece->step, s->setup.generation)) {
    case KML_VERDICT_CURRENT:
    case KML_VERDICT_DUPLICATE:
        return stage_gradient(s, worker, piece, out, err);
    case KML_VERDICT_LATE:
        return 0;
    case KML_VERDICT_FENCED:
    case KML_VERDICT_AHEAD:
        break;
    }
    return kml_fail(err, KML_INVALID, "worker %u: a gradient of step %llu", worker,
                    (unsigned long long)piece->step);
}

void kml_shard_forget(struct kml_shard *s, uint32_t worker, uint64_t incarnation, uint64_t step)
{
    if (kml_shard_admitted(s, worker, incarnation)) {
        kml_fence_closed(&s->fence, worker, step);
    }
}

/* ---- Commits ---- */

static int check_member(const struct kml_shard *s, const struct kml_shard_member *m, struct kml_err *err)
{
    const struct stage *g = m->worker < s->setup.workers ? &s->stage[m->worker] : NULL;
    bool here =
        g != NULL && kml_shard_admitted(s, m->worker, m->incarnation) && g->complete && g->step == m->step;
    if (!here ||
        m->step <=
            s->seat[m->worker].closed) { /* a step that was committed is not there for another version */
        return kml_fail(err, KML_CONFLICT, "shard %u: worker %u has not staged step %llu here",
                        s->setup.shard, m->worker, (unsigned long long)m->step);
    }
    return 0;
}

static uint32_t gather_members(struct kml_shard *s, const struct kml_shard_commit *c)
{
    uint32_t counted = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->member[i].coefficient != 0) {
            s->grad[counted] = s->stage[c->member[i].worker].data;
            s->coefficient[counted++] = (float)c->member[i].coefficient;
        }
    }
    return counted;
}

static int write_chunk(struct kml_shard *s, const struct kml_optimizer_step *step, uint32_t members,
                       uint32_t chunk, struct kml_err *err)
{
    struct kml_block *next = block_take(s, err);
    if (next == NULL) {
        return -1;
    }
    struct kml_span span = kml_shard_span(s, chunk);
    uint64_t at = span.begin - s->floats.begin;
    float *slot[KML_OPTIMIZER_SLOTS] = {NULL};
    for (uint32_t k = 0; k < kml_optimizer_slots(s->setup.optimizer.kind); k++) {
        slot[k] = s->slot[k] + at;
    }
    for (uint32_t i = 0; i < members; i++) {
        s->grad[i] += at;
    }
    kml_optimizer_commit(&s->setup.optimizer, step, next->data, s->current[chunk]->data, s->grad,
                         s->coefficient, members, slot, (size_t)count_of(span));
    for (uint32_t i = 0; i < members; i++) {
        s->grad[i] -= at;
    }
    kml_block_drop(s->current[chunk]);
    s->current[chunk] = next;
    return 0;
}

static int apply(struct kml_shard *s, const struct kml_shard_commit *c, struct kml_err *err)
{
    uint32_t members = gather_members(s, c);
    if (members == 0) {
        return 0; /* every gradient was refused: a version without a change */
    }
    struct kml_optimizer_step step = {.learning_rate = c->learning_rate, .number = ++s->updates};
    for (uint32_t chunk = 0; chunk < kml_shard_chunks(s); chunk++) {
        if (write_chunk(s, &step, members, chunk, err) < 0) {
            return -1;
        }
    }
    return 0;
}

int kml_shard_commit(struct kml_shard *s, const struct kml_shard_commit *c, struct kml_err *err)
{
    if (c->version <= s->fence.version) {
        return 0;
    }
    if (!s->ready || c->version != s->fence.version + 1) {
        return kml_fail(err, KML_CONFLICT, "shard %u is at version %llu and cannot make version %llu",
                        s->setup.shard, (unsigned long long)s->fence.version, (unsigned long long)c->version);
    }
    for (uint32_t i = 0; i < c->count; i++) {
        if (check_member(s, &c->member[i], err) < 0) {
            return -1;
        }
    }
    if (apply(s, c, err) < 0) {
        return -1;
    }
    (void)kml_fence_commit(&s->fence, c->version, s->setup.generation);
    for (uint32_t i = 0; i < c->count; i++) {
        kml_fence_closed(&s->fence, c->member[i].worker, c->member[i].step);
    }
    return 0;
}

/* ---- Reading ---- */

bool kml_shard_ready(const struct kml_shard *s)
{
    return s->ready;
}

uint64_t kml_shard_version(const struct kml_shard *s)
{
    return s->fence.version;
}

int kml_shard_pin(struct kml_shard *s, uint64_t version, struct kml_err *err)
{
    if (s->pinned[0] != NULL && s->pinned_version == version) {
        return 0;
    }
    if (!s->ready || version != s->fence.version) {
        return kml_fail(err, KML_NOT_FOUND, "shard %u is at version %llu and cannot pin %llu", s->setup.shard,
                        (unsigned long long)s->fence.version, (unsigned long long)version);
    }
    kml_shard_unpin(s);
    for (uint32_t c = 0; c < kml_shard_chunks(s); c++) {
        s->pinned[c] = block_share(s->current[c]);
    }
    s->pinned_version = version;
    return 0;
}

void kml_shard_unpin(struct kml_shard *s)
{
    for (uint32_t c = 0; c < kml_shard_chunks(s); c++) {
        if (s->pinned[c] != NULL) {
            kml_block_drop(s->pinned[c]);
            s->pinned[c] = NULL;
        }
    }
}

struct kml_block *kml_shard_block(struct kml_shard *s, uint64_t version, uint32_t chunk)
{
    KML_BUG_ON(chunk >= kml_shard_chunks(s));
    if (s->ready && version == s->fence.version) {
        return block_share(s->current[chunk]);
    }
    if (s->pinned[chunk] != NULL && version == s->pinned_version) {
        return block_share(s->pinned[chunk]);
    }
    return NULL;
}
