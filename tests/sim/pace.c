#include "tests/sim/pace.h"

#include <math.h>

#include "base/mem.h"

uint64_t sim_pace_duration(const struct sim_pace *p, uint32_t worker, uint64_t now, uint64_t work_ns)
{
    uint64_t at = now;
    double left = (double)work_ns;
    for (;;) {
        uint64_t window = at / p->window_ns;
        double speed = p->speed(p->self, worker, window);
        KML_BUG_ON(!(speed > 0));
        double room = (double)((window + 1) * p->window_ns - at) * speed;
        if (left <= room) {
            return at - now + (uint64_t)ceil(left / speed);
        }
        left -= room;
        at = (window + 1) * p->window_ns;
    }
}

static double base_of(const struct sim_paces *p, uint32_t worker)
{
    return p->bases == 0 ? 1 : p->base[worker % p->bases];
}

/* Chance without a memory: any window can be asked for at any time. */
static struct kml_rng chance(const struct sim_paces *p, uint32_t worker, uint64_t window)
{
    struct kml_rng rng;
    kml_rng_init2(&rng, p->seed + worker * UINT64_C(0x9e3779b97f4a7c15), window);
    return rng;
}

static double drift(const struct sim_paces *p, uint32_t worker, uint64_t window)
{
    struct kml_rng rng = chance(p, worker, UINT64_MAX);
    double phase = kml_rng_unit(&rng) + (double)window / p->period;
    return 1 + p->spread * sin(2 * 3.14159265358979 * phase);
}

/* The sum of the last shocks that still matter, so that no state is needed. */
static double ar1(const struct sim_paces *p, uint32_t worker, uint64_t window)
{
    double weight = sqrt(1 - p->correlation * p->correlation);
    double x = 0;
    for (uint64_t back = 0; back <= window && weight > 1e-3; back++) {
        struct kml_rng rng = chance(p, worker, window - back);
        x += weight * kml_rng_normal(&rng);
        weight *= p->correlation;
    }
    return exp(p->spread * x);
}

static double burst(const struct sim_paces *p, uint32_t worker, uint64_t window)
{
    struct kml_rng rng = chance(p, worker, window);
    return kml_rng_below(&rng, p->period) == 0 ? 1 / (1 + p->spread) : 1;
}

static double speed(void *self, uint32_t worker, uint64_t window)
{
    const struct sim_paces *p = self;
    switch (p->kind) {
    case SIM_PACE_DRIFT:
        return base_of(p, worker) * drift(p, worker, window);
    case SIM_PACE_AR1:
        return base_of(p, worker) * ar1(p, worker, window);
    case SIM_PACE_BURST:
        return base_of(p, worker) * burst(p, worker, window);
    case SIM_PACE_STATIC:
        break;
    }
    return base_of(p, worker);
}

struct sim_pace sim_paces_of(struct sim_paces *p, uint64_t window_ns)
{
    return (struct sim_pace){.speed = speed, .self = p, .window_ns = window_ns};
}
