#include "sync/fence.h"

#include "base/mem.h"

const char *kml_verdict_name(enum kml_verdict v)
{
    static const char *const name[] = {"current", "duplicate", "late", "fenced", "ahead"};
    return name[v];
}

void kml_fence_init(struct kml_fence *f, uint64_t generation, uint64_t version, struct kml_fence_seat *seat,
                    uint32_t capacity)
{
    *f = (struct kml_fence){.generation = generation, .version = version, .seat = seat, .capacity = capacity};
    for (uint32_t w = 0; w < capacity; w++) {
        seat[w] = (struct kml_fence_seat){.incarnation = 0};
    }
}

static struct kml_fence_seat *seat_of(const struct kml_fence *f, uint32_t worker)
{
    KML_BUG_ON(worker >= f->capacity);
    return &f->seat[worker];
}

int kml_fence_admit(struct kml_fence *f, uint32_t worker, uint64_t incarnation, bool *replaced,
                    struct kml_err *err)
{
    struct kml_fence_seat *seat = seat_of(f, worker);
    if (incarnation == 0) {
        return kml_fail(err, KML_INVALID, "worker %u: incarnation 0; it must be a random number", worker);
    }
    if (incarnation == seat->former) {
        return kml_fail(err, KML_FENCED, "worker %u: this process was given up or replaced; start a new one",
                        worker);
    }
    *replaced = seat->incarnation != 0 && seat->incarnation != incarnation;
    if (seat->incarnation == incarnation) {
        return 0;
    }
    uint64_t former = seat->incarnation != 0 ? seat->incarnation : seat->former;
    *seat = (struct kml_fence_seat){.incarnation = incarnation, .former = former};
    return 0;
}

void kml_fence_dismiss(struct kml_fence *f, uint32_t worker)
{
    struct kml_fence_seat *seat = seat_of(f, worker);
    if (seat->incarnation != 0) {
        *seat = (struct kml_fence_seat){.former = seat->incarnation};
    }
}

enum kml_verdict kml_fence_push(const struct kml_fence *f, uint32_t worker, uint64_t incarnation,
                                uint64_t step, uint64_t generation)
{
    const struct kml_fence_seat *seat = seat_of(f, worker);
    if (generation != f->generation || incarnation == 0 || incarnation != seat->incarnation) {
        return KML_VERDICT_FENCED;
    }
    if (step == 0) {
        return KML_VERDICT_AHEAD;
    }
    if (step <= seat->closed) {
        return KML_VERDICT_LATE;
    }
    return step <= seat->staged ? KML_VERDICT_DUPLICATE : KML_VERDICT_CURRENT;
}

void kml_fence_staged(struct kml_fence *f, uint32_t worker, uint64_t step)
{
    struct kml_fence_seat *seat = seat_of(f, worker);
    if (step > seat->staged) {
        seat->staged = step;
    }
}

void kml_fence_closed(struct kml_fence *f, uint32_t worker, uint64_t step)
{
    struct kml_fence_seat *seat = seat_of(f, worker);
    if (step > seat->closed) {
        seat->closed = step;
    }
    kml_fence_staged(f, worker, step); /* abandoned before it was complete: the rest of it is late */
}

enum kml_verdict kml_fence_commit(struct kml_fence *f, uint64_t version, uint64_t generation)
{
    if (generation != f->generation) {
        return KML_VERDICT_FENCED;
    }
    if (version <= f->version) {
        return KML_VERDICT_DUPLICATE;
    }
    if (version != f->version + 1) {
        return KML_VERDICT_AHEAD;
    }
    f->version = version;
    return KML_VERDICT_CURRENT;
}

void kml_fence_raise(struct kml_fence *f, uint64_t generation, uint64_t version)
{
    KML_BUG_ON(generation <= f->generation);
    f->generation = generation;
    f->version = version;
    for (uint32_t w = 0; w < f->capacity; w++) {
        f->seat[w].closed = f->seat[w].staged;
    }
}
