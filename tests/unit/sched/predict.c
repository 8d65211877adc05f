#include "sched/predict.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "sched/split.h"

#define M 4
#define WARM 80 /* windows that are not counted */
#ifdef KML_SANITIZED
#define WINDOWS 320
#define SEEDS 1
#else
#define WINDOWS 600
#define SEEDS 3
#endif
#define ALL (WINDOWS + KML_PREDICT_HORIZON_MOST)

/* What M workers do: speed, and the CPU that their pods report. */
struct trace {
    double speed[ALL][M], cpu[ALL][M];
};

static double base_of(int worker)
{
    return 100 * (1 + 0.2 * worker);
}

/* A neighbour comes and goes; the pod's CPU shows it at once, the speed falls by a fifth three windows later.
 */
static void cpu_leads_speed(struct trace *t, struct kml_rng *rng)
{
    for (int w = 0; w < M; w++) {
        bool busy = false;
        for (int k = 0; k < ALL; k++) {
            busy = kml_rng_unit(rng) < 0.05 ? !busy : busy;
            double load = (busy ? 0.8 : 0.1) * (1 + 0.05 * kml_rng_normal(rng));
            t->cpu[k][w] = 0.2 + load;
            double felt = k < 3 ? 0.1 : t->cpu[k - 3][w] - 0.2;
            t->speed[k][w] = base_of(w) * (1 - 0.3 * felt) * exp(0.02 * kml_rng_normal(rng));
        }
    }
}

static void ar1(struct trace *t, struct kml_rng *rng)
{
    for (int w = 0; w < M; w++) {
        double x = 0;
        for (int k = 0; k < ALL; k++) {
            x = 0.95 * x + 0.035 * kml_rng_normal(rng);
            t->speed[k][w] = base_of(w) * exp(x);
            t->cpu[k][w] = 0.5 + 0.1 * kml_rng_unit(rng);
        }
    }
}

static void noise(struct trace *t, struct kml_rng *rng)
{
    for (int w = 0; w < M; w++) {
        for (int k = 0; k < ALL; k++) {
            t->speed[k][w] = base_of(w) * exp(0.02 * kml_rng_normal(rng));
            t->cpu[k][w] = 0.5 + 0.1 * kml_rng_unit(rng);
        }
    }
}

static struct kml_predict start(uint32_t horizon, uint64_t seed)
{
    struct kml_predict p;
    struct kml_err err;
    assert_int_equal(kml_predict_init(&p, M, horizon, seed, &err), 0);
    return p;
}

static void window_of(const struct trace *t, int k, struct kml_window *in)
{
    for (int w = 0; w < M; w++) {
        in[w] = (struct kml_window){.speed = t->speed[k][w]};
        in[w].usage.cpu = (struct kml_reading){.known = true, .value = t->cpu[k][w], .age = 1};
    }
}

#define GATE KML_EXPERTS

/* Mean |ln(predicted / actual)| of each expert and, last, of the gate. */
static void errors_on(const struct trace *t, uint32_t horizon, uint64_t seed, double *error)
{
    struct kml_predict p = start(horizon, seed);
    memset(error, 0, (GATE + 1) * sizeof *error);
    for (int k = 0; k < WINDOWS; k++) {
        struct kml_window in[M];
        struct kml_forecast f[M];
        window_of(t, k, in);
        kml_predict_window(&p, in, f);
        kml_predict_train(&p);
        for (int w = 0; k >= WARM && w < M; w++) {
            double sum = 0;
            for (uint32_t i = 1; i <= horizon; i++) {
                sum += t->speed[k + (int)i][w];
            }
            double actual = sum / horizon;
            for (int e = 0; e < KML_EXPERTS; e++) {
                error[e] += fabs(log(kml_predict_by(&p, (uint32_t)w, (enum kml_expert)e) / actual)) /
                            ((WINDOWS - WARM) * M);
            }
            error[GATE] += fabs(log(f[w].speed / actual)) / ((WINDOWS - WARM) * M);
        }
    }
    kml_predict_finish(&p);
}

static double best_of(const double *error)
{
    double best = error[0];
    for (int e = 1; e < KML_EXPERTS; e++) {
        best = fmin(best, error[e]);
    }
    return best;
}

/* One row of the table in docs/algorithms/predict.md; the mean over the seeds. */
static void row(const char *name, void (*make)(struct trace *, struct kml_rng *), uint32_t horizon,
                uint64_t seeds, double *mean)
{
    struct trace *t = KML_NEW(struct trace);
    memset(mean, 0, (GATE + 1) * sizeof *mean);
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct kml_rng rng;
        double error[GATE + 1];
        kml_rng_init(&rng, seed);
        make(t, &rng);
        errors_on(t, horizon, seed, error);
        for (int e = 0; e <= GATE; e++) {
            mean[e] += error[e] / (double)seeds;
        }
    }
    printf("%s h=%u: last %.4f average %.4f AR(1) %.4f network %.4f gate %.4f\n", name, horizon, mean[0],
           mean[1], mean[2], mean[3], mean[GATE]);
    kml_free(t);
}

static void where_cpu_leads_speed_the_network_has_four_fifths_of_the_last_values_error_or_less(void **state)
{
    (void)state;
    double error[GATE + 1];
    row("CPU leads speed", cpu_leads_speed, 4, SEEDS, error);
    assert_true(error[KML_EXPERT_NETWORK] <= 0.8 * error[KML_EXPERT_LAST]);
    assert_true(error[GATE] <= 0.8 * error[KML_EXPERT_LAST]);
    assert_true(error[GATE] <= 1.03 * best_of(error));
}

static void on_ar1_the_gate_is_within_three_percent_of_the_best_expert(void **state)
{
    (void)state;
    double error[GATE + 1];
    row("AR(1)", ar1, 4, SEEDS, error);
    assert_true(error[GATE] <= 1.03 * best_of(error));
}

static void on_noise_the_gate_is_within_three_percent_of_the_best_expert(void **state)
{
    (void)state;
    double error[GATE + 1];
    row("noise", noise, 4, SEEDS, error);
    assert_true(error[GATE] <= 1.03 * best_of(error));
    assert_true(error[GATE] <= 0.7 * error[KML_EXPERT_LAST]);
}

static void at_other_horizons_the_gate_is_not_worse_than_the_last_value(void **state)
{
    (void)state;
    double error[GATE + 1];
    row("CPU leads speed", cpu_leads_speed, 1, 1, error);
    assert_true(error[GATE] <= 0.8 * error[KML_EXPERT_LAST]);
#ifndef KML_SANITIZED
    row("CPU leads speed", cpu_leads_speed, 10, 1, error);
    assert_true(error[GATE] <= error[KML_EXPERT_LAST]);
#endif
}

static void the_network_decides_only_after_64_scored_forecasts(void **state)
{
    (void)state;
    struct trace *t = KML_NEW(struct trace);
    struct kml_rng rng;
    struct kml_predict p = start(4, 1);
    bool decided = false;
    kml_rng_init(&rng, 1);
    cpu_leads_speed(t, &rng);
    for (int k = 0; k < 200; k++) {
        struct kml_window in[M];
        struct kml_forecast f[M];
        window_of(t, k, in);
        kml_predict_window(&p, in, f);
        kml_predict_train(&p);
        for (int w = 0; w < M; w++) {
            assert_true(f[w].speed == kml_predict_by(&p, (uint32_t)w, f[w].expert));
            assert_true(k >= KML_PREDICT_SAMPLES + 3 || f[w].expert != KML_EXPERT_NETWORK);
            decided = decided || f[w].expert == KML_EXPERT_NETWORK;
        }
    }
    assert_true(decided);
    kml_predict_finish(&p);
    kml_free(t);
}

/* Runs two predictors over one trace; `change` alters what the second one sees. All forecasts must be the
 * same bytes. */
static void must_forecast_alike(void (*change)(struct kml_window *, int),
                                void (*first)(struct kml_window *, int))
{
    struct trace *t = KML_NEW(struct trace);
    struct kml_rng rng;
    struct kml_predict p = start(4, 7);
    struct kml_predict q = start(4, 7);
    kml_rng_init(&rng, 7);
    cpu_leads_speed(t, &rng);
    for (int k = 0; k < 150; k++) {
        struct kml_window in[M];
        struct kml_window other[M];
        struct kml_forecast f[M];
        struct kml_forecast g[M];
        window_of(t, k, in);
        memcpy(other, in, sizeof in);
        first(in, k);
        change(other, k);
        memset(f, 0, sizeof f);
        memset(g, 0, sizeof g);
        kml_predict_window(&p, in, f);
        kml_predict_window(&q, other, g);
        kml_predict_train(&p);
        kml_predict_train(&q);
        for (int w = 0; w < M; w++) {
            assert_int_equal(f[w].expert, g[w].expert);
            for (enum kml_expert e = KML_EXPERT_LAST; e < KML_EXPERTS; e++) {
                double a = kml_predict_by(&p, (uint32_t)w, e);
                double b = kml_predict_by(&q, (uint32_t)w, e);
                assert_memory_equal(&a, &b, sizeof a);
            }
        }
    }
    assert_memory_equal(&p.net, &q.net, sizeof p.net);
    kml_predict_finish(&p);
    kml_predict_finish(&q);
    kml_free(t);
}

static void as_it_is(struct kml_window *in, int k)
{
    (void)in;
    (void)k;
}

static void without_readings(struct kml_window *in, int k)
{
    (void)k;
    for (int w = 0; w < M; w++) {
        in[w].usage = (struct kml_usage){.cpu = {.known = false}};
    }
}

static void with_absurd_readings(struct kml_window *in, int k)
{
    for (int w = 0; w < M; w++) {
        const struct kml_reading bad[] = {
            {true, 0.7, KML_READING_OLDEST + 1}, {true, (double)NAN, 1}, {true, -3, 1}, {true, 1e30, 1},
            {true, (double)INFINITY, 1},         {true, 0.7, -1},
        };
        struct kml_reading r = bad[(k + w) % 6];
        in[w].usage = (struct kml_usage){.cpu = r, .throttled = r, .pressure = r};
        if ((k + w) % 7 == 0) {
            in[w].usage.cpu = (struct kml_reading){true, 0, 1}; /* zero: the metrics API has no sample yet */
        }
    }
}

static void same_seed_same_bytes(void **state)
{
    (void)state;
    must_forecast_alike(as_it_is, as_it_is);
}

static void missing_stale_zero_and_absurd_readings_are_one_and_the_same(void **state)
{
    (void)state;
    must_forecast_alike(with_absurd_readings, without_readings);
}

static void another_seed_is_another_network(void **state)
{
    (void)state;
    struct kml_predict p = start(4, 1);
    struct kml_predict q = start(4, 2);
    assert_memory_not_equal(&p.net, &q.net, sizeof p.net);
    kml_predict_finish(&p);
    kml_predict_finish(&q);
}

/* Speeds in another unit: the forecasts are the same ones in that unit. A logarithm rounds otherwise, and
 * training carries that on, so they are not the same bits. */
static void forecasts_scale_with_the_speeds(void **state)
{
    (void)state;
    struct trace *t = KML_NEW(struct trace);
    struct kml_rng rng;
    struct kml_predict p = start(4, 3);
    struct kml_predict q = start(4, 3);
    kml_rng_init(&rng, 3);
    cpu_leads_speed(t, &rng);
    for (int k = 0; k < 150; k++) {
        struct kml_window in[M];
        struct kml_forecast f[M];
        struct kml_forecast g[M];
        window_of(t, k, in);
        kml_predict_window(&p, in, f);
        for (int w = 0; w < M; w++) {
            in[w].speed *= 1000;
        }
        kml_predict_window(&q, in, g);
        kml_predict_train(&p);
        kml_predict_train(&q);
        for (int w = 0; w < M; w++) {
            for (enum kml_expert e = KML_EXPERT_LAST; e < KML_EXPERTS; e++) {
                double a = kml_predict_by(&p, (uint32_t)w, e);
                double b = kml_predict_by(&q, (uint32_t)w, e);
                assert_true(fabs(b / (1000 * a) - 1) < 1e-4);
            }
        }
    }
    kml_predict_finish(&p);
    kml_predict_finish(&q);
    kml_free(t);
}

static void a_worker_without_a_speed_keeps_its_forecast_and_one_that_never_had_any_is_unknown(void **state)
{
    (void)state;
    struct kml_predict p = start(4, 1);
    struct kml_window in[M] = {{.speed = 100}, {.speed = 50}, {.speed = 0}, {.speed = (double)NAN}};
    struct kml_forecast f[M];
    kml_predict_window(&p, in, f);
    assert_true(fabs(f[0].speed - 100) < 1e-9 && f[0].expert == KML_EXPERT_LAST);
    assert_false(f[2].known || f[3].known);
    in[0].speed = -1;
    in[1].speed = (double)INFINITY;
    kml_predict_window(&p, in, f);
    assert_true(fabs(f[0].speed - 100) < 1e-9);
    assert_true(fabs(f[1].speed - 50) < 1e-9);
    assert_int_equal(p.track[0].windows, 1);
    kml_predict_forget(&p, 0);
    kml_predict_window(&p, in, f);
    assert_false(f[0].known);
    kml_predict_finish(&p);
}

static void the_plain_experts_follow_their_formulas(void **state)
{
    (void)state;
    struct kml_predict p = start(2, 1);
    struct kml_window in[M] = {{.speed = 100}};
    struct kml_forecast f[M];
    double x = log(100);
    double average = x;
    for (int k = 0; k < 400; k++) {
        in[0].speed = k % 2 == 0 ? 100 : 200;
        x = log(in[0].speed);
        average = k == 0 ? x : average + 0.3 * (x - average);
        kml_predict_window(&p, in, f);
        assert_true(fabs(kml_predict_by(&p, 0, KML_EXPERT_LAST) / in[0].speed - 1) < 1e-12);
        assert_true(fabs(log(kml_predict_by(&p, 0, KML_EXPERT_AVERAGE)) - average) < 1e-9);
        /* untrained, it says the last value */
        assert_true(fabs(kml_predict_by(&p, 0, KML_EXPERT_NETWORK) / in[0].speed - 1) < 1e-12);
    }
    /* alternating: phi < 0, held at 0, so it says the mean of the logarithms */
    assert_true(fabs(kml_predict_by(&p, 0, KML_EXPERT_AR1) / sqrt(100.0 * 200.0) - 1) < 0.01);
    kml_predict_finish(&p);
}

/* Hamilton's method, one remainder after the other. */
static void largest_remainder(const double *v, uint64_t total, uint64_t *share)
{
    double sum = v[0] + v[1] + v[2] + v[3];
    uint64_t left = total;
    double rest[M];
    for (int w = 0; w < M; w++) {
        double exact = (double)total * v[w] / sum;
        share[w] = (uint64_t)exact;
        rest[w] = exact - (double)share[w];
        left -= share[w];
    }
    for (; left > 0; left--) {
        int most = 0;
        for (int w = 1; w < M; w++) {
            most = rest[w] > rest[most] ? w : most;
        }
        share[most]++;
        rest[most] = -1;
    }
}

static void shares_of_forecasts_are_those_of_the_largest_remainder(void **state)
{
    (void)state;
    struct trace *t = KML_NEW(struct trace);
    struct kml_rng rng;
    struct kml_predict p = start(4, 1);
    kml_rng_init(&rng, 11);
    ar1(t, &rng);
    for (int k = 0; k < 120; k++) {
        struct kml_window in[M];
        struct kml_forecast f[M];
        double v[M];
        double real[M];
        uint64_t share[M];
        uint64_t wanted[M];
        struct kml_split_room room[M];
        window_of(t, k, in);
        kml_predict_window(&p, in, f);
        for (int w = 0; w < M; w++) {
            v[w] = f[w].speed;
        }
        kml_split_proportional(v, M, 256, 1, share, real, room);
        largest_remainder(v, 256, wanted);
        assert_memory_equal(share, wanted, sizeof share);
    }
    kml_predict_finish(&p);
    kml_free(t);
}

static void what_cannot_be_forecast_is_refused(void **state)
{
    (void)state;
    struct kml_predict p;
    struct kml_err err;
    assert_int_equal(kml_predict_init(&p, 0, 4, 1, &err), -1);
    assert_int_equal(kml_predict_init(&p, 4, 0, 1, &err), -1);
    assert_int_equal(kml_predict_init(&p, 4, KML_PREDICT_HORIZON_MOST + 1, 1, &err), -1);
    assert_int_equal(err.code, KML_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_cpu_leads_speed_the_network_has_four_fifths_of_the_last_values_error_or_less),
        cmocka_unit_test(on_ar1_the_gate_is_within_three_percent_of_the_best_expert),
        cmocka_unit_test(on_noise_the_gate_is_within_three_percent_of_the_best_expert),
        cmocka_unit_test(at_other_horizons_the_gate_is_not_worse_than_the_last_value),
        cmocka_unit_test(the_network_decides_only_after_64_scored_forecasts),
        cmocka_unit_test(same_seed_same_bytes),
        cmocka_unit_test(missing_stale_zero_and_absurd_readings_are_one_and_the_same),
        cmocka_unit_test(another_seed_is_another_network),
        cmocka_unit_test(forecasts_scale_with_the_speeds),
        cmocka_unit_test(a_worker_without_a_speed_keeps_its_forecast_and_one_that_never_had_any_is_unknown),
        cmocka_unit_test(the_plain_experts_follow_their_formulas),
        cmocka_unit_test(shares_of_forecasts_are_those_of_the_largest_remainder),
        cmocka_unit_test(what_cannot_be_forecast_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
