#include "sched/partition.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"

uint32_t kml_partition_cover(const double *t, uint32_t count, double ratio, uint32_t *start)
{
    uint32_t parts = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || t[i] > ratio * t[start[parts - 1]]) {
            start[parts++] = i;
        }
    }
    start[parts] = count;
    return parts;
}

static uint32_t smallest_below(const uint32_t *start, uint32_t parts, uint32_t least)
{
    uint32_t found = parts;
    uint32_t members = least;
    for (uint32_t g = 0; g < parts; g++) {
        if (start[g + 1] - start[g] < members) {
            members = start[g + 1] - start[g];
            found = g;
        }
    }
    return found;
}

/* How far part g is from the one before it; the quotient orders as the difference of logarithms does. */
static double gap_before(const double *t, const uint32_t *start, uint32_t parts, uint32_t g)
{
    return g == 0 || g == parts ? INFINITY : t[start[g]] / t[start[g] - 1];
}

uint32_t kml_partition_merge(const double *t, uint32_t *start, uint32_t parts, uint32_t least)
{
    while (parts > 1) {
        uint32_t g = smallest_below(start, parts, least);
        if (g == parts) {
            break;
        }
        bool down = gap_before(t, start, parts, g) <= gap_before(t, start, parts, g + 1);
        for (uint32_t k = down ? g : g + 1; k < parts; k++) {
            start[k] = start[k + 1];
        }
        parts--;
    }
    return parts;
}

/* One row of the table: the best costs of the first j elements in p parts, from those in p - 1. */
struct row {
    const double *sum, *square; /* of the first j elements, centred */
    const double *inverse;      /* 1 / n */
    const double *fewer;        /* in p - 1 parts */
    double *best;
    uint32_t *cut; /* where the last part begins */
    uint32_t least;
};

static double spread(const struct row *r, uint32_t from, uint32_t to)
{
    double sum = r->sum[to] - r->sum[from];
    return r->square[to] - r->square[from] - sum * sum * r->inverse[to - from];
}

/* Fills best[low .. high], whose cuts lie in [first, last]: the middle one's cut bounds those of both halves.
 */
static void fill(const struct row *r, uint32_t low, uint32_t high, uint32_t first, uint32_t last)
{
    uint32_t j = low + (high - low) / 2;
    uint32_t end = last < j - r->least ? last : j - r->least;
    r->best[j] = INFINITY;
    r->cut[j] = first;
    for (uint32_t i = first; i <= end; i++) {
        double cost = r->fewer[i] + spread(r, i, j);
        if (cost < r->best[j]) {
            r->best[j] = cost;
            r->cut[j] = i;
        }
    }
    if (j > low) {
        fill(r, low, j - 1, first, r->cut[j]);
    }
    if (j < high) {
        fill(r, j + 1, high, r->cut[j], last);
    }
}

void kml_partition_best(const double *x, uint32_t count, uint32_t parts, uint32_t least, uint32_t *start,
                        double *room, uint32_t *cut)
{
    KML_BUG_ON(parts == 0 || (uint64_t)parts * least > count || parts > count);
    least = least == 0 ? 1 : least;
    double *sum = room;
    double *square = room + (count + 1);
    double *fewer = room + 2 * (count + 1);
    double *best = room + 3 * (count + 1);
    double *inverse = room + 4 * (count + 1);
    double mean = 0;
    for (uint32_t i = 0; i < count; i++) {
        mean += x[i] / count;
    }
    sum[0] = square[0] = 0;
    for (uint32_t i = 0; i < count; i++) {
        inverse[i + 1] = 1.0 / (i + 1);
        sum[i + 1] = sum[i] + (x[i] - mean);
        square[i + 1] = square[i] + (x[i] - mean) * (x[i] - mean);
    }
    struct row r = {
        .sum = sum, .square = square, .inverse = inverse, .fewer = fewer, .best = best, .least = least};
    for (uint32_t j = least; j <= count; j++) {
        fewer[j] = spread(&r, 0, j);
    }
    for (uint32_t p = 2; p <= parts; p++) {
        r.cut = cut + (size_t)(p - 1) * (count + 1);
        fill(&r, p * least, count, (p - 1) * least, count - least);
        double *swap = fewer;
        fewer = best;
        best = swap;
        r.fewer = fewer;
        r.best = best;
    }
    start[0] = 0;
    start[parts] = count;
    for (uint32_t p = parts; p > 1; p--) {
        start[p - 1] = cut[(size_t)(p - 1) * (count + 1) + start[p]];
    }
}

double kml_partition_cost(const double *x, const uint32_t *start, uint32_t parts)
{
    double cost = 0;
    for (uint32_t g = 0; g < parts; g++) {
        double mean = 0;
        for (uint32_t i = start[g]; i < start[g + 1]; i++) {
            mean += x[i] / (start[g + 1] - start[g]);
        }
        for (uint32_t i = start[g]; i < start[g + 1]; i++) {
            cost += (x[i] - mean) * (x[i] - mean);
        }
    }
    return cost;
}

double kml_partition_rate(const double *t, const uint32_t *start, uint32_t parts)
{
    double rate = 0;
    for (uint32_t g = 0; g < parts; g++) {
        rate += (start[g + 1] - start[g]) / t[start[g + 1] - 1];
    }
    return rate;
}
