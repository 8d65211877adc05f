#include "sched/split.h"

#include <math.h>
#include <stdbool.h>

#include "base/mem.h"

/* Larger key first, the lower index of equals: no two are alike. */
static bool before(const struct kml_split_room *a, const struct kml_split_room *b)
{
    return a->key > b->key || (a->key == b->key && a->index < b->index);
}

static void swap(struct kml_split_room *a, struct kml_split_room *b)
{
    struct kml_split_room kept = *a;
    *a = *b;
    *b = kept;
}

/* Brings the first `wanted` in the order of `before` to the front, in any order (Hoare's selection; the
 * middle one of three as pivot). */
static void select_first(struct kml_split_room *room, uint32_t count, uint32_t wanted)
{
    uint32_t low = 0;
    uint32_t high = count; /* the border lies in [low, high) */
    while (high - low > 1 && wanted > low) {
        struct kml_split_room *middle = &room[low + (high - low) / 2];
        struct kml_split_room *last = &room[high - 1];
        if (before(middle, &room[low])) {
            swap(middle, &room[low]);
        }
        if (before(last, &room[low])) {
            swap(last, &room[low]);
        }
        if (before(middle, last)) {
            swap(middle, last);
        }
        uint32_t border = low; /* the pivot is last; what comes before it is gathered at the front */
        for (uint32_t k = low; k < high - 1; k++) {
            if (before(&room[k], last)) {
                swap(&room[k], &room[border++]);
            }
        }
        swap(&room[border], last);
        if (border >= wanted) {
            high = border;
        } else {
            low = border + 1;
        }
    }
}

void kml_split_round(const double *real, uint32_t count, uint64_t total, uint64_t *share,
                     struct kml_split_room *room)
{
    uint64_t given = 0;
    for (uint32_t i = 0; i < count; i++) {
        double whole = floor(real[i] + 1e-9); /* 2.9999999999 is a 3 that was rounded on its way */
        share[i] = (uint64_t)whole;
        given += share[i];
        room[i] = (struct kml_split_room){.key = real[i] - whole, .index = i};
    }
    /* The sum of `real` is total but for rounding errors, so less than `count` are left. */
    KML_BUG_ON(given > total || total - given > count);
    if (given == total) {
        return;
    }
    select_first(room, count, (uint32_t)(total - given));
    for (uint64_t k = 0; k < total - given; k++) {
        share[room[k].index]++;
    }
}

void kml_split_proportional(const double *weight, uint32_t count, uint64_t total, uint64_t minimum,
                            uint64_t *share, double *real, struct kml_split_room *room)
{
    KML_BUG_ON(minimum * count > total);
    double floor_share = (double)minimum;
    for (uint32_t i = 0; i < count; i++) {
        real[i] = -1; /* not held at the minimum */
    }
    for (bool again = true; again;) {
        double weights = 0;
        double rest = (double)total;
        for (uint32_t i = 0; i < count; i++) {
            rest -= real[i] < 0 ? 0 : floor_share;
            weights += real[i] < 0 ? weight[i] : 0;
        }
        again = false;
        for (uint32_t i = 0; i < count; i++) {
            if (real[i] < 0 && rest * weight[i] < floor_share * weights) {
                real[i] = floor_share;
                again = true;
            }
        }
        for (uint32_t i = 0; !again && i < count; i++) {
            real[i] = real[i] < 0 ? rest * weight[i] / weights : real[i];
        }
    }
    kml_split_round(real, count, total, share, room);
}

/* The water level; real[i] is -1 for who is above the minimum. Who is held at it gets more than the level
 * gives it, so the level of the rest only sinks: nobody who is held comes up again, and there are at most
 * `count` rounds. */
static double find_level(const struct kml_cost *cost, uint32_t count, uint64_t total, uint64_t minimum,
                         double *real)
{
    double least = (double)minimum;
    double level = 0;
    for (uint32_t i = 0; i < count; i++) {
        real[i] = -1; /* not held */
    }
    for (bool again = true; again;) {
        double rest = (double)total;
        double rate = 0;
        for (uint32_t i = 0; i < count; i++) {
            rest += real[i] < 0 ? cost[i].fixed / cost[i].per_sample : -least;
            rate += real[i] < 0 ? 1 / cost[i].per_sample : 0;
        }
        if (rate == 0) {
            return level; /* all are held: minimum * count == total, up to rounding */
        }
        level = rest / rate;
        again = false;
        for (uint32_t i = 0; i < count; i++) {
            if (real[i] < 0 && level - cost[i].fixed < least * cost[i].per_sample) {
                real[i] = least;
                again = true;
            }
        }
    }
    return level;
}

double kml_split_level(const struct kml_cost *cost, uint32_t count, uint64_t total, uint64_t minimum,
                       double *real)
{
    KML_BUG_ON(count == 0 || minimum * count > total);
    double level = find_level(cost, count, total, minimum, real);
    for (uint32_t i = 0; i < count; i++) {
        real[i] = real[i] < 0 ? (level - cost[i].fixed) / cost[i].per_sample : real[i];
    }
    return level;
}

static bool sooner(const struct kml_split_room *a, const struct kml_split_room *b)
{
    return a->key < b->key || (a->key == b->key && a->index < b->index);
}

static void sift_down(struct kml_split_room *heap, uint32_t count, uint32_t i)
{
    for (;;) {
        uint32_t least = i;
        for (uint32_t child = 2 * i + 1; child <= 2 * i + 2 && child < count; child++) {
            least = sooner(&heap[child], &heap[least]) ? child : least;
        }
        if (least == i) {
            return;
        }
        swap(&heap[i], &heap[least]);
        i = least;
    }
}

/* When worker c would end with one task more. */
static double key_of(const struct kml_cost *c, uint64_t share)
{
    return c->fixed + (double)(share + 1) * c->per_sample;
}

/* The tasks below the level: the level of whole numbers is not lower, so they all belong to the best
 * division. A hair below it, so that rounding takes none too many. Returns the tasks that are left. */
static uint64_t take_below(const struct kml_cost *cost, uint32_t count, uint64_t total, uint64_t minimum,
                           double level, uint64_t *share)
{
    uint64_t left = total - minimum * count;
    for (uint32_t i = 0; i < count; i++) {
        double whole = floor((level * (1 - 1e-12) - cost[i].fixed) / cost[i].per_sample) - (double)minimum;
        uint64_t more = whole <= 0 ? 0 : whole < (double)left ? (uint64_t)whole : left;
        share[i] = minimum + more;
        left -= more;
    }
    return left;
}

void kml_split_optimal(const struct kml_cost *cost, uint32_t count, uint64_t total, uint64_t minimum,
                       uint64_t *share, double *real, struct kml_split_room *room)
{
    KML_BUG_ON(count == 0 || minimum * count > total);
    double level = find_level(cost, count, total, minimum, real);
    uint64_t left = take_below(cost, count, total, minimum, level, share);
    for (uint32_t i = 0; i < count; i++) {
        room[i] = (struct kml_split_room){.key = key_of(&cost[i], share[i]), .index = i};
    }
    for (uint32_t i = count / 2; i > 0; i--) {
        sift_down(room, count, i - 1);
    }
    for (; left > 0; left--) {
        uint32_t i = room[0].index;
        share[i]++;
        room[0].key = key_of(&cost[i], share[i]);
        sift_down(room, count, 0);
    }
}

double kml_split_makespan(const struct kml_cost *cost, const uint64_t *share, uint32_t count)
{
    double most = 0;
    for (uint32_t i = 0; i < count; i++) {
        double time = cost[i].fixed + cost[i].per_sample * (double)share[i];
        most = share[i] > 0 && time > most ? time : most;
    }
    return most;
}
