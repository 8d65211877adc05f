#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "math/optimizer.h"
#include "math/vec.h"
#include "tools/golden.h"

#define SEED 77
#define STEPS 20
#define MEMBERS 4

static const struct kml_optimizer all[] = {
    {.kind = KML_OPTIMIZER_SGD},
    {.kind = KML_OPTIMIZER_SGD, .weight_decay = 0.01},
    {.kind = KML_OPTIMIZER_MOMENTUM, .momentum = 0.9, .weight_decay = 0.001},
    {.kind = KML_OPTIMIZER_NESTEROV, .momentum = 0.9, .weight_decay = 0.001},
    {.kind = KML_OPTIMIZER_ADAGRAD, .epsilon = 1e-10, .weight_decay = 0.001},
    {.kind = KML_OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
    {.kind = KML_OPTIMIZER_ADAM, .beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.01},
    {.kind = KML_OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.05},
};
static const char *const names[] = {"SGD", "Momentum", "Nesterov", "Adagrad", "Adam", "AdamW"};

static void fill(struct kml_rng *r, float *x, size_t n, double size)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(size * kml_rng_normal(r));
    }
}

static double rate_of(int step)
{
    return 0.05 / (1 + 0.1 * step); /* changes from step to step, as schedule and step scale make it */
}

#define N 500

static void write_case(const char *folder, size_t c, const float *params, const float *grads)
{
    kml_auto_free char *at = kml_format("%s/%02zu", folder, c);
    KML_BUG_ON(mkdir(at, 0700) != 0);
    golden_write(at, "params.f32", params, N * sizeof(float));
    golden_write(at, "grads.f32", grads, (size_t)N * STEPS * sizeof(float));
    const struct kml_optimizer *o = &all[c];
    char *rates = kml_strdup("");
    for (int s = 0; s < STEPS; s++) {
        char *longer = kml_format("%s%s%.17g", rates, s == 0 ? "" : ",", rate_of(s));
        kml_free(rates);
        rates = longer;
    }
    kml_auto_free char *json = kml_format(
        "{\"kind\":\"%s\",\"n\":%d,\"steps\":%d,\"momentum\":%g,\"beta1\":%g,\"beta2\":%g,\"epsilon\":%g,"
        "\"weightDecay\":%g,\"rates\":[%s]}",
        names[o->kind], N, STEPS, o->momentum, o->beta1, o->beta2, o->epsilon, o->weight_decay, rates);
    golden_write(at, "case.json", json, strlen(json));
    kml_free(rates);
}

static void compare_case(const char *folder, size_t c, const float *params, const float *grads)
{
    kml_auto_free char *at = kml_format("%s/%02zu", folder, c);
    float *expected = KML_NEW_ARRAY((size_t)N * STEPS, float);
    golden_read(at, "expected.f32", expected, (size_t)N * STEPS * sizeof(float));
    float p[N];
    float state[2][N] = {{0}};
    float *slot[] = {state[0], state[1]};
    memcpy(p, params, sizeof(p));
    for (int s = 0; s < STEPS; s++) {
        struct kml_optimizer_step step = {.learning_rate = rate_of(s), .number = (uint64_t)s + 1};
        kml_optimizer_apply(&all[c], &step, p, p, grads + (size_t)s * N, slot, N);
        for (size_t i = 0; i < N; i++) {
            double wanted = expected[(size_t)s * N + i];
            double moved = fabs(wanted - (double)params[i]);
            if (!(fabs((double)p[i] - wanted) <= 1e-5 * (fabs(wanted) + moved))) {
                fail_msg("%s step %d element %zu: %.9g, torch has %.9g", names[all[c].kind], s, i,
                         (double)p[i], wanted);
            }
        }
    }
    kml_free(expected);
}

static void every_optimizer_agrees_with_torch_over_twenty_steps(void **state)
{
    (void)state;
    print_message("seed %d\n", SEED);
    struct kml_rng r;
    kml_rng_init(&r, SEED);
    float params[N];
    static float grads[N * STEPS];
    fill(&r, params, N, 1);
    fill(&r, grads, N * STEPS, 0.5);
    char *folder = golden_folder();
    for (size_t c = 0; c < KML_COUNT(all); c++) {
        write_case(folder, c, params, grads);
    }
    assert_int_equal(golden_python("tests/tools/golden_torch.py", "optimizer", folder), 0);
    for (size_t c = 0; c < KML_COUNT(all); c++) {
        compare_case(folder, c, params, grads);
    }
    golden_remove(folder);
}

/* Parameters, gradients and state of a property test, in one struct so that the two sides are easily alike.
 */
struct side {
    float *param;
    float *out;
    float *slot[2];
};

static void side_init(struct side *s, const float *param, size_t n)
{
    s->param = KML_NEW_ARRAY(n, float);
    s->out = KML_NEW_ARRAY(n, float);
    s->slot[0] = KML_NEW_ARRAY(n, float);
    s->slot[1] = KML_NEW_ARRAY(n, float);
    memcpy(s->param, param, n * sizeof(float));
}

static void side_finish(struct side *s)
{
    kml_free(s->param);
    kml_free(s->out);
    kml_free(s->slot[0]);
    kml_free(s->slot[1]);
}

static void swap(struct side *s)
{
    float *old = s->param;
    s->param = s->out;
    s->out = old;
}

static void commit_range(const struct kml_optimizer *o, const struct kml_optimizer_step *step, struct side *s,
                         float *const *grad, const float *coef, uint32_t members, size_t from, size_t to)
{
    const float *part[MEMBERS];
    for (uint32_t k = 0; k < members; k++) {
        part[k] = grad[k] + from;
    }
    float *const slot[] = {s->slot[0] + from, s->slot[1] + from};
    kml_optimizer_commit(o, step, s->out + from, s->param + from, part, coef, members, slot, to - from);
}

static void one_round(struct kml_rng *r, const struct kml_optimizer *o)
{
    size_t n = 1 + kml_rng_below(r, 9000);
    size_t cut = kml_rng_below(r, n + 1);
    uint32_t members = 1 + (uint32_t)kml_rng_below(r, MEMBERS);
    float *first = KML_NEW_ARRAY(n, float);
    float *sum = KML_NEW_ARRAY(n, float);
    float *grad[MEMBERS];
    float coef[MEMBERS];
    fill(r, first, n, 1);
    for (uint32_t k = 0; k < members; k++) {
        grad[k] = KML_NEW_ARRAY(n, float);
        coef[k] = (float)kml_rng_unit(r);
    }
    struct side whole;
    struct side pieces;
    struct side plain;
    side_init(&whole, first, n);
    side_init(&pieces, first, n);
    side_init(&plain, first, n);
    for (int s = 0; s < 3; s++) {
        struct kml_optimizer_step step = {.learning_rate = rate_of(s), .number = (uint64_t)s + 1};
        for (uint32_t k = 0; k < members; k++) {
            fill(r, grad[k], n, 0.1);
        }
        commit_range(o, &step, &whole, grad, coef, members, 0, n);
        commit_range(o, &step, &pieces, grad, coef, members, cut, n);
        commit_range(o, &step, &pieces, grad, coef, members, 0, cut);
        kml_vec_weighted_sum(sum, (const float *const *)grad, coef, members, n);
        kml_optimizer_apply(o, &step, plain.out, plain.param, sum, plain.slot, n);
        assert_memory_equal(whole.out, pieces.out, n * sizeof(float));
        assert_memory_equal(whole.out, plain.out, n * sizeof(float));
        for (uint32_t k = 0; k < kml_optimizer_slots(o->kind); k++) {
            assert_memory_equal(whole.slot[k], pieces.slot[k], n * sizeof(float));
            assert_memory_equal(whole.slot[k], plain.slot[k], n * sizeof(float));
        }
        assert_memory_not_equal(whole.out, whole.param, n * sizeof(float));
        swap(&whole);
        swap(&pieces);
        swap(&plain);
    }
    side_finish(&whole);
    side_finish(&pieces);
    side_finish(&plain);
    for (uint32_t k = 0; k < members; k++) {
        kml_free(grad[k]);
    }
    kml_free(first);
    kml_free(sum);
}

static void a_commit_in_ranges_gives_the_bytes_of_one_commit_of_the_whole(void **state)
{
    (void)state;
    print_message("seed %d\n", SEED + 1);
    struct kml_rng r;
    kml_rng_init(&r, SEED + 1);
    for (size_t c = 0; c < KML_COUNT(all); c++) {
        for (int round = 0; round < 30; round++) {
            one_round(&r, &all[c]);
        }
    }
}

/* The formulas of the header once more, one element, each operation rounded by itself. */
static float plain_step(const struct kml_optimizer *o, const struct kml_optimizer_step *step, float p,
                        float g, float s[2])
{
    volatile float rate = (float)step->learning_rate;
    volatile float decayed = (float)o->weight_decay * p;
    volatile float d = g + decayed;
    volatile float a;
    volatile float b;
    if (o->kind == KML_OPTIMIZER_SGD) {
        a = rate * d;
        return p - a;
    }
    if (o->kind == KML_OPTIMIZER_MOMENTUM) {
        a = (float)o->momentum * s[0];
        s[0] = a + d;
        a = rate * s[0];
        return p - a;
    }
    if (o->kind == KML_OPTIMIZER_NESTEROV) {
        a = (float)o->momentum * s[0];
        s[0] = a + d;
        a = (float)o->momentum * s[0];
        a = d + a;
        a = rate * a;
        return p - a;
    }
    a = d * d;
    s[0] = s[0] + a;
    b = sqrtf(s[0]);
    b = b + (float)o->epsilon;
    a = d / b;
    a = rate * a;
    return p - a;
}

static void the_fast_kernels_are_bit_for_bit_the_plain_ones(void **state)
{
    (void)state;
    print_message("seed %d\n", SEED + 2);
    struct kml_rng r;
    kml_rng_init(&r, SEED + 2);
    for (size_t c = 0; c < KML_COUNT(all) && all[c].kind <= KML_OPTIMIZER_ADAGRAD; c++) {
        float p[131];
        float g[131];
        float out[131];
        float s0[131] = {0};
        float plain_state[131][2] = {{0}};
        float *slot[] = {s0, NULL};
        fill(&r, p, KML_COUNT(p), 1);
        for (int s = 0; s < 5; s++) {
            struct kml_optimizer_step step = {.learning_rate = rate_of(s), .number = (uint64_t)s + 1};
            fill(&r, g, KML_COUNT(g), 1);
            kml_optimizer_apply(&all[c], &step, out, p, g, slot, KML_COUNT(p));
            for (size_t i = 0; i < KML_COUNT(p); i++) {
                float wanted = plain_step(&all[c], &step, p[i], g[i], plain_state[i]);
                assert_memory_equal(&out[i], &wanted, sizeof(wanted));
            }
            memcpy(p, out, sizeof(p));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer_agrees_with_torch_over_twenty_steps),
        cmocka_unit_test(a_commit_in_ranges_gives_the_bytes_of_one_commit_of_the_whole),
        cmocka_unit_test(the_fast_kernels_are_bit_for_bit_the_plain_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
