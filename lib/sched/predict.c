#include "sched/predict.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

#define MOST KML_PREDICT_HORIZON_MOST
#define LANES KML_NET_LANES

#define AVERAGE_WEIGHT 0.3
#define SLOW_WEIGHT 0.01
#define SCORE_WEIGHT 0.05
#define PAIR_DISCOUNT 0.99
#define PAIRS_LEAST 8.0 /* below, AR(1) says the last value */
#define OWN_SHARE 0.25  /* of the worker's own errors in its gate; the rest is the job's mean */
#define SPEED_SCALE 4.0 /* ln speed ratios are small numbers; this brings them to the size of the others */
#define INPUT_MOST 3.0
#define RESIDUAL_MOST 2.0
#define HISTORY_ALL 65536u /* steps for all workers; but at least and at most so many for each */
#define HISTORY_LEAST 48u
#define HISTORY_MOST 512u

int kml_predict_init(struct kml_predict *p, uint32_t workers, uint32_t horizon, uint64_t seed,
                     struct kml_err *err)
{
    if (workers == 0) {
        return kml_fail(err, KML_INVALID, "forecasts: of no workers");
    }
    if (horizon == 0 || horizon > MOST) {
        return kml_fail(err, KML_INVALID, "forecasts: over %u windows; 1 to %d", horizon, MOST);
    }
    uint32_t length = HISTORY_ALL / workers;
    length = length < HISTORY_LEAST ? HISTORY_LEAST : length > HISTORY_MOST ? HISTORY_MOST : length;
    *p = (struct kml_predict){.workers = workers, .horizon = horizon, .length = length};
    kml_rng_init(&p->rng, seed);
    kml_net_init(&p->net, &p->rng);
    p->track = KML_NEW_ARRAY(workers, struct kml_track);
    p->step = KML_NEW_ARRAY((size_t)workers * length, struct kml_predict_step);
    p->batch = KML_NEW(struct kml_net_batch);
    p->tape = kml_net_tape_create();
    p->eligible = KML_NEW_ARRAY(workers, uint32_t);
    return 0;
}

void kml_predict_finish(struct kml_predict *p)
{
    kml_free(p->track);
    kml_free(p->step);
    kml_free(p->batch);
    kml_net_tape_destroy(p->tape);
    kml_free(p->eligible);
    *p = (struct kml_predict){.workers = 0};
}

void kml_predict_forget(struct kml_predict *p, uint32_t worker)
{
    KML_BUG_ON(worker >= p->workers);
    p->track[worker] = (struct kml_track){.windows = 0};
}

/* Side by side for all workers, who are mostly at the same k: a window runs through memory in order. */
static struct kml_predict_step *step_of(const struct kml_predict *p, uint32_t worker, uint64_t k)
{
    return &p->step[k % p->length * p->workers + worker];
}

/* A mean that begins as a plain one and forgets with `weight` later. */
static void lean(double *mean, double x, uint64_t count, double weight)
{
    double share = 1 / (double)count;
    *mean += (share > weight ? share : weight) * (x - *mean);
}

static double clip(double x, double most)
{
    return x > most ? most : x < -most ? -most : x;
}

/* ---- What a new speed says about the forecasts made `horizon` windows ago ---- */

static void score(const struct kml_predict *p, uint32_t worker, struct kml_track *t, uint64_t k)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->horizon; i++) {
        sum += step_of(p, worker, k - i)->speed;
    }
    double actual = log(sum / p->horizon) - t->origin;
    struct kml_predict_step *then = step_of(p, worker, k - p->horizon);
    t->scored++;
    for (int e = 0; e < KML_EXPERTS; e++) {
        lean(&t->error[e], fabs(then->said[e] - actual), t->scored, SCORE_WEIGHT);
    }
    then->target = (float)(actual - then->said[KML_EXPERT_LAST]);
}

/* ---- The plain experts ---- */

static void add_pair(struct kml_track *t, double before, double now)
{
    t->pairs = PAIR_DISCOUNT * t->pairs + 1;
    t->now = PAIR_DISCOUNT * t->now + now;
    t->before = PAIR_DISCOUNT * t->before + before;
    t->product = PAIR_DISCOUNT * t->product + before * now;
    t->square = PAIR_DISCOUNT * t->square + before * before;
}

static double ar1_says(const struct kml_track *t, uint32_t horizon)
{
    if (t->pairs < PAIRS_LEAST) {
        return t->x;
    }
    double mean = t->now / t->pairs;
    double mean_before = t->before / t->pairs;
    double variance = t->square / t->pairs - mean_before * mean_before;
    double covariance = t->product / t->pairs - mean_before * mean;
    double phi = variance > 1e-12 ? fmax(0, fmin(covariance / variance, 0.999)) : 1;
    double factor = 0;
    for (uint32_t k = 0; k < horizon; k++) {
        factor = phi * (1 + factor);
    }
    return mean + factor / horizon * (t->x - mean);
}

/* ---- One window ---- */

static bool is_speed(double v)
{
    return isfinite(v) && v > 0;
}

static void take_in(const struct kml_predict *p, uint32_t worker, double speed)
{
    struct kml_track *t = &p->track[worker];
    uint64_t k = t->windows++;
    double before = t->x;
    double log_speed = log(speed);
    if (k == 0) {
        t->origin = log_speed;
    }
    struct kml_predict_step *step = step_of(p, worker, k);
    step->speed = speed;
    t->x = log_speed - t->origin;
    if (k >= p->horizon) {
        score(p, worker, t, k);
    }
    if (k > 0) {
        add_pair(t, before, t->x);
    }
    lean(&t->slow, t->x, k + 1, SLOW_WEIGHT);
    t->average = k == 0 ? t->x : t->average + AVERAGE_WEIGHT * (t->x - t->average);
    step->said[KML_EXPERT_LAST] = t->x;
    step->said[KML_EXPERT_AVERAGE] = t->average;
    step->said[KML_EXPERT_AR1] = ar1_says(t, p->horizon);
}

static void fill_inputs(struct kml_track *t, const struct kml_usage *usage, float *x)
{
    struct kml_signals s = kml_usage_signals(usage);
    double cpu = 0;
    if (s.cpu_known) {
        double cores = log(s.cpu);
        lean(&t->slow_cpu, cores, ++t->cpu_windows, SLOW_WEIGHT);
        cpu = cores - t->slow_cpu;
    }
    x[0] = (float)clip(SPEED_SCALE * (t->x - t->slow), INPUT_MOST);
    x[1] = (float)clip(cpu, INPUT_MOST);
    x[2] = s.cpu_known;
    x[3] = (float)s.throttled;
    x[4] = s.throttled_known;
    x[5] = (float)s.pressure;
    x[6] = s.pressure_known;
}

/* The network's forecast for workers who[0 .. lanes - 1], which have just got a speed. */
static void run_network(const struct kml_predict *p, const struct kml_window *in, const uint32_t *who,
                        uint32_t lanes)
{
    double x[KML_NET_INPUTS * LANES] = {0};
    double h[KML_NET_HIDDEN * LANES] = {0};
    double y[LANES];
    for (uint32_t l = 0; l < lanes; l++) {
        struct kml_track *t = &p->track[who[l]];
        struct kml_predict_step *step = step_of(p, who[l], t->windows - 1);
        fill_inputs(t, &in[who[l]].usage, step->x);
        for (int i = 0; i < KML_NET_INPUTS; i++) {
            x[i * lanes + l] = step->x[i];
        }
        for (int i = 0; i < KML_NET_HIDDEN; i++) {
            step->h[i] = (float)t->h[i];
            h[i * lanes + l] = t->h[i];
        }
    }
    kml_net_step(&p->net, lanes, x, h, y);
    for (uint32_t l = 0; l < lanes; l++) {
        struct kml_track *t = &p->track[who[l]];
        for (int i = 0; i < KML_NET_HIDDEN; i++) {
            t->h[i] = isfinite(y[l]) ? h[i * lanes + l] : 0;
        }
        /* Weights beyond all measure would give NaN; then the network says nothing and loses at the gate. */
        double residual = isfinite(y[l]) ? clip(y[l], RESIDUAL_MOST) : 0;
        step_of(p, who[l], t->windows - 1)->said[KML_EXPERT_NETWORK] = t->x + residual;
    }
}

/* ---- The gate ---- */

static void mean_errors(const struct kml_predict *p, double *mean)
{
    uint64_t scored = 0;
    memset(mean, 0, KML_EXPERTS * sizeof *mean);
    for (uint32_t i = 0; i < p->workers; i++) {
        const struct kml_track *t = &p->track[i];
        scored += t->scored > 0;
        for (int e = 0; e < KML_EXPERTS; e++) {
            mean[e] += t->error[e];
        }
    }
    for (int e = 0; e < KML_EXPERTS; e++) {
        mean[e] /= scored > 0 ? (double)scored : 1;
    }
}

static enum kml_expert choose(const struct kml_track *t, const double *job)
{
    double error[KML_EXPERTS];
    for (int e = 0; e < KML_EXPERTS; e++) {
        error[e] = OWN_SHARE * t->error[e] + (1 - OWN_SHARE) * job[e];
    }
    enum kml_expert best = KML_EXPERT_LAST;
    if (t->scored == 0) {
        return best;
    }
    for (enum kml_expert e = KML_EXPERT_AVERAGE; e <= KML_EXPERT_AR1; e++) {
        best = error[e] < error[best] ? e : best;
    }
    bool better = error[KML_EXPERT_NETWORK] <= KML_PREDICT_BETTER * error[best];
    return t->scored >= KML_PREDICT_SAMPLES && better ? KML_EXPERT_NETWORK : best;
}

static double said_by(const struct kml_predict *p, uint32_t worker, enum kml_expert e)
{
    const struct kml_track *t = &p->track[worker];
    return t->windows == 0 ? 0 : exp(step_of(p, worker, t->windows - 1)->said[e] + t->origin);
}

static struct kml_forecast answer(const struct kml_predict *p, uint32_t worker, const double *job)
{
    struct kml_track *t = &p->track[worker];
    t->expert = choose(t, job);
    return (struct kml_forecast){
        .known = t->windows > 0, .speed = said_by(p, worker, t->expert), .expert = t->expert};
}

void kml_predict_window(struct kml_predict *p, const struct kml_window *in, struct kml_forecast *out)
{
    uint32_t who[LANES];
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < p->workers; i++) {
        if (is_speed(in[i].speed)) {
            take_in(p, i, in[i].speed);
            who[lanes++] = i;
        }
        if (lanes == LANES || (i + 1 == p->workers && lanes > 0)) {
            run_network(p, in, who, lanes);
            lanes = 0;
        }
    }
    double job[KML_EXPERTS];
    mean_errors(p, job);
    for (uint32_t i = 0; i < p->workers; i++) {
        out[i] = answer(p, i, job);
    }
}

double kml_predict_by(const struct kml_predict *p, uint32_t worker, enum kml_expert e)
{
    KML_BUG_ON(worker >= p->workers || e >= KML_EXPERTS);
    return said_by(p, worker, e);
}

/* ---- Training ---- */

/* Steps of a worker whose target is known, [*first, *end). */
static void trainable(const struct kml_predict *p, uint32_t worker, uint64_t *first, uint64_t *end)
{
    uint64_t windows = p->track[worker].windows;
    *first = windows > p->length ? windows - p->length : 0;
    *end = windows > p->horizon ? windows - p->horizon : 0;
}

static uint32_t find_eligible(const struct kml_predict *p)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->workers; i++) {
        uint64_t first;
        uint64_t end;
        trainable(p, i, &first, &end);
        if (end >= first + KML_NET_WINDOW) {
            p->eligible[count++] = i;
        }
    }
    return count;
}

static void fill_lane(const struct kml_predict *p, uint32_t lane, uint32_t worker, uint64_t from)
{
    struct kml_net_batch *b = p->batch;
    const struct kml_predict_step *begin = step_of(p, worker, from);
    for (int i = 0; i < KML_NET_HIDDEN; i++) {
        b->h[i * LANES + lane] = begin->h[i];
    }
    for (uint32_t t = 0; t < KML_NET_WINDOW; t++) {
        const struct kml_predict_step *step = step_of(p, worker, from + t);
        for (int i = 0; i < KML_NET_INPUTS; i++) {
            b->x[t][i * LANES + lane] = step->x[i];
        }
        b->target[t][lane] = step->target;
    }
}

void kml_predict_train(struct kml_predict *p)
{
    uint32_t eligible = find_eligible(p);
    for (int k = 0; eligible > 0 && k < KML_PREDICT_BATCHES; k++) {
        double g[KML_NET_PARAMETERS];
        p->batch->lanes = LANES;
        for (uint32_t lane = 0; lane < LANES; lane++) {
            uint32_t worker = p->eligible[kml_rng_below(&p->rng, eligible)];
            uint64_t first;
            uint64_t end;
            trainable(p, worker, &first, &end);
            uint64_t starts = end - first - KML_NET_WINDOW + 1;
            fill_lane(p, lane, worker, first + kml_rng_below(&p->rng, starts));
        }
        (void)kml_net_loss(&p->net, p->batch, p->tape, g);
        kml_net_update(&p->net, g);
    }
}

const char *kml_expert_name(enum kml_expert e)
{
    static const char *const name[] = {"LastValue", "Average", "AR1", "Network"};
    return name[e];
}
