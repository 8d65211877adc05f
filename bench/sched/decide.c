/*
 * What one decision of the scheduler costs: 1,000 workers, speeds -> forecasts -> shares -> groups, on one
 * core. Prints the median and the largest CPU time over the decisions, in microseconds; beside it what is not
 * waited for: taking in a step, and training the network.
 *
 *     decide [workers [decisions]]
 */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "base/mem.h"
#include "base/parse.h"
#include "base/rng.h"
#include "math/stats.h"
#include "sched/groups.h"
#include "sched/predict.h"
#include "sched/speed.h"
#include "sched/wlbs.h"

#define NOMINAL 64
#define STEPS 20 /* a window */

struct crew {
    uint32_t workers;
    struct kml_rng rng;
    double *base; /* seconds per sample */
    struct kml_speed *speed;
    struct kml_window *window;
    struct kml_forecast *forecast;
    struct kml_share_input *share;
    struct kml_group_input *group;
    struct kml_predict predict;
    struct kml_wlbs wlbs;
    struct kml_groups groups;
    double part[4];             /* CPU time of the parts of all decisions */
    uint64_t changes, regroups; /* so that nothing is computed for nobody */
};

static double cpu_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* Speeds that differ by up to four times, wander, and now and then jump, so that shares and groups do change.
 */
static void steps_of_a_window(struct crew *c)
{
    for (uint32_t i = 0; i < c->workers; i++) {
        c->base[i] *= exp(0.01 * kml_rng_normal(&c->rng));
        c->base[i] *= kml_rng_below(&c->rng, 5000) == 0 ? 2 : 1;
        uint64_t n = kml_wlbs_share(&c->wlbs, i);
        for (int k = 0; k < STEPS; k++) {
            double seconds = (0.002 + c->base[i] * (double)n) * (1 + 0.05 * kml_rng_unit(&c->rng));
            (void)kml_speed_add(&c->speed[i], n, seconds);
        }
        c->window[i].usage.cpu =
            (struct kml_reading){.known = true, .value = 0.5 + kml_rng_unit(&c->rng), .age = 5};
        c->window[i].usage.throttled = (struct kml_reading){.known = true, .value = 0.1, .age = 5};
    }
}

static void decide(struct crew *c, uint64_t now)
{
    double at[5] = {cpu_us()};
    for (uint32_t i = 0; i < c->workers; i++) {
        c->window[i].speed = kml_speed_window(&c->speed[i]);
    }
    at[1] = cpu_us();
    kml_predict_window(&c->predict, c->window, c->forecast);
    at[2] = cpu_us();
    for (uint32_t i = 0; i < c->workers; i++) {
        struct kml_cost measured = {c->speed[i].fixed, c->speed[i].per_sample};
        const struct kml_forecast *f = &c->forecast[i];
        c->share[i].cost = kml_cost_at_speed(measured, c->window[i].speed, f->speed);
        c->share[i].expert = (uint32_t)f->expert;
        c->group[i].time = c->share[i].cost.fixed + NOMINAL * c->share[i].cost.per_sample;
    }
    struct kml_share_decision shares;
    struct kml_group_decision groups;
    kml_wlbs_look(&c->wlbs, now, now * STEPS, (uint64_t)NOMINAL * c->workers, c->share, &shares);
    at[3] = cpu_us();
    kml_groups_look(&c->groups, now, c->group, &groups);
    at[4] = cpu_us();
    for (int k = 0; k < 4; k++) {
        c->part[k] += at[k + 1] - at[k];
    }
    c->changes += shares.kind != KML_SHARES_KEPT;
    c->regroups += groups.kind != KML_GROUPS_KEPT;
}

static void begin(struct crew *c, uint32_t workers)
{
    struct kml_err err;
    struct kml_wlbs_rule rule = kml_wlbs_rule_default();
    struct kml_group_rule group_rule = kml_group_rule_default();
    rule.minimum_share = 0;
    rule.smoothing = 0.5;
    *c = (struct crew){.workers = workers};
    kml_rng_init(&c->rng, 1);
    c->base = KML_NEW_ARRAY(workers, double);
    c->speed = KML_NEW_ARRAY(workers, struct kml_speed);
    c->window = KML_NEW_ARRAY(workers, struct kml_window);
    c->forecast = KML_NEW_ARRAY(workers, struct kml_forecast);
    c->share = KML_NEW_ARRAY(workers, struct kml_share_input);
    c->group = KML_NEW_ARRAY(workers, struct kml_group_input);
    bool *present = KML_NEW_ARRAY(workers, bool);
    KML_BUG_ON(kml_predict_init(&c->predict, workers, 4, 1, &err) != 0);
    KML_BUG_ON(kml_wlbs_init(&c->wlbs, &rule, workers, &err) != 0);
    KML_BUG_ON(kml_groups_init(&c->groups, &group_rule, workers, &err) != 0);
    for (uint32_t i = 0; i < workers; i++) {
        present[i] = c->share[i].present = c->group[i].present = true;
        c->base[i] = 0.001 * exp(1.4 * kml_rng_unit(&c->rng));
        kml_speed_init(&c->speed[i], NOMINAL);
    }
    kml_wlbs_equal(&c->wlbs, (uint64_t)NOMINAL * workers, present);
    kml_free(present);
}

static void finish(struct crew *c)
{
    kml_free(c->base);
    kml_free(c->speed);
    kml_free(c->window);
    kml_free(c->forecast);
    kml_free(c->share);
    kml_free(c->group);
    kml_predict_finish(&c->predict);
    kml_wlbs_finish(&c->wlbs);
    kml_groups_finish(&c->groups);
}

static void measure(struct crew *c, uint64_t decisions)
{
    double *decision = KML_NEW_ARRAY(decisions, double);
    double step = 0;
    double training = 0;
    for (uint64_t k = 0; k < decisions; k++) {
        double a = cpu_us();
        steps_of_a_window(c);
        double b = cpu_us();
        decide(c, k);
        double d = cpu_us();
        kml_predict_train(&c->predict);
        training += (cpu_us() - d) / (double)decisions;
        decision[k] = d - b;
        step += (b - a) / (double)decisions / c->workers / STEPS;
    }
    double median = kml_median(decision, decisions); /* sorts */
    printf(
        "workers=%u decisions=%llu median_us=%.0f largest_us=%.0f step_us=%.2f training_us=%.0f changes=%llu "
        "regroups=%llu\n",
        c->workers, (unsigned long long)decisions, median, decision[decisions - 1], step, training,
        (unsigned long long)c->changes, (unsigned long long)c->regroups);
    const char *const part[] = {"speeds", "forecasts", "shares", "groups"};
    for (int k = 0; k < 4; k++) {
        printf("  %s_us=%.0f", part[k], c->part[k] / (double)decisions);
    }
    printf("\n");
    kml_free(decision);
}

int main(int argc, char **argv)
{
    uint64_t workers = 1000;
    uint64_t decisions = 300;
    bool fine = argc <= 3 && (argc < 2 || kml_parse_u64(argv[1], &workers, NULL) == 0) &&
                (argc < 3 || kml_parse_u64(argv[2], &decisions, NULL) == 0);
    if (!fine || workers == 0 || workers > 100000 || decisions == 0 || decisions > 1000000) {
        (void)fprintf(stderr, "usage: decide [workers 1..100000 [decisions 1..1000000]]\n");
        return 64;
    }
    struct crew c;
    begin(&c, (uint32_t)workers);
    measure(&c, decisions);
    finish(&c);
    return 0;
}
