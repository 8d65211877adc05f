#include "sched/speed.h"

#include <math.h>
#include <stddef.h>

#include "base/mem.h"
#include "math/stats.h"

#define LONGEST_STEP 86400.0 /* seconds */
#define PAIRS_MOST (KML_SPEED_RING * (KML_SPEED_RING - 1) / 2)
#define APART 1.25 /* batches that differ by less say too little about a slope */

void kml_speed_init(struct kml_speed *s, uint64_t nominal)
{
    KML_BUG_ON(nominal == 0);
    *s = (struct kml_speed){.nominal = (double)nominal};
}

/*
 * kml_median for a handful: counts how many stand before each value. No branch depends on the data, so for
 * two dozen values that is several times as fast as sorting them.
 */
static double median_of_few(const double *x, uint32_t n)
{
    double below = 0;
    double above = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t rank = 0;
        for (uint32_t j = 0; j < i; j++) {
            rank += x[j] <= x[i];
        }
        for (uint32_t j = i + 1; j < n; j++) {
            rank += x[j] < x[i];
        }
        below = rank == (n - 1) / 2 ? x[i] : below;
        above = rank == n / 2 ? x[i] : above;
    }
    return 0.5 * (below + above);
}

/* The k-th newest step, 0 the newest. */
static struct kml_speed_step recent(const struct kml_speed *s, uint64_t k)
{
    return s->ring[(s->steps - 1 - k) % KML_SPEED_RING];
}

static uint32_t kept(const struct kml_speed *s)
{
    return s->steps < KML_SPEED_RING ? (uint32_t)s->steps : KML_SPEED_RING;
}

static uint32_t slopes_of(const struct kml_speed *s, double *slope)
{
    uint32_t count = kept(s);
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct kml_speed_step p = s->ring[i];
        for (uint32_t j = i + 1; j < count; j++) {
            struct kml_speed_step q = s->ring[j];
            if (p.batch >= APART * q.batch || q.batch >= APART * p.batch) {
                slope[found++] = (p.seconds - q.seconds) / (p.batch - q.batch);
            }
        }
    }
    return found;
}

/* The Theil-Sen line: median slope, then the median of what it leaves. */
static double fixed_part(const struct kml_speed *s)
{
    double slope[PAIRS_MOST];
    uint32_t pairs = slopes_of(s, slope);
    if (pairs < KML_SPEED_PAIRS) {
        return s->fixed;
    }
    double rise = kml_median(slope, pairs);
    double rest[KML_SPEED_RING];
    for (uint32_t i = 0; i < kept(s); i++) {
        rest[i] = s->ring[i].seconds - rise * s->ring[i].batch;
    }
    return median_of_few(rest, kept(s));
}

static double shortest(const struct kml_speed *s, uint32_t count)
{
    double least = INFINITY;
    for (uint32_t k = 0; k < count; k++) {
        double seconds = recent(s, k).seconds;
        least = seconds < least ? seconds : least;
    }
    return least;
}

static void refit(struct kml_speed *s)
{
    uint32_t count = kept(s) < KML_SPEED_RECENT ? kept(s) : KML_SPEED_RECENT;
    double most = KML_SPEED_FIXED_MOST * shortest(s, kept(s));
    s->fixed = fmax(0, fmin(fixed_part(s), most));
    double rest[KML_SPEED_RECENT];
    for (uint32_t k = 0; k < count; k++) {
        rest[k] = (recent(s, k).seconds - s->fixed) / recent(s, k).batch;
    }
    s->per_sample = median_of_few(rest, count);
}

bool kml_speed_known(const struct kml_speed *s)
{
    return s->per_sample > 0;
}

double kml_speed_time(const struct kml_speed *s, double batch)
{
    return kml_speed_known(s) ? s->fixed + s->per_sample * batch : 0;
}

double kml_speed_nominal_time(const struct kml_speed *s)
{
    return kml_speed_time(s, s->nominal);
}

bool kml_speed_add(struct kml_speed *s, uint64_t batch, double seconds)
{
    /* A tiny time would overflow its own speed; no step is that short. */
    if (batch == 0 || !(seconds >= 1e-12) || !(seconds <= LONGEST_STEP)) {
        return false;
    }
    s->ring[s->steps % KML_SPEED_RING] = (struct kml_speed_step){.batch = (double)batch, .seconds = seconds};
    s->steps++;
    refit(s);
    double nominal = s->fixed + (seconds - s->fixed) * s->nominal / (double)batch;
    double most = KML_SPEED_BURST * kml_speed_nominal_time(s);
    s->window++;
    s->window_seconds += nominal < most ? nominal : most;
    return true;
}

double kml_speed_window(struct kml_speed *s)
{
    double speed = s->window == 0 ? 0 : s->nominal * s->window / s->window_seconds;
    s->window = 0;
    s->window_seconds = 0;
    return speed;
}

/* Every comparison is false for NaN, so a NaN is not usable. */
static bool usable(const struct kml_reading *r, double least, double most)
{
    return r->known && r->age >= 0 && r->age <= KML_READING_OLDEST && r->value >= least && r->value <= most;
}

struct kml_signals kml_usage_signals(const struct kml_usage *u)
{
    struct kml_signals s = {.cpu_known = usable(&u->cpu, 1e-9, KML_CORES_MOST),
                            .throttled_known = usable(&u->throttled, 0, 1),
                            .pressure_known = usable(&u->pressure, 0, 1)};
    s.cpu = s.cpu_known ? u->cpu.value : 0;
    s.throttled = s.throttled_known ? u->throttled.value : 0;
    s.pressure = s.pressure_known ? u->pressure.value : 0;
    return s;
}
