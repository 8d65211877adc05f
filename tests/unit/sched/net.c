#include "sched/net.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/unit/seed.h"

#define P KML_NET_PARAMETERS

struct bench {
    struct kml_net net;
    struct kml_net_batch batch;
    struct kml_net_tape *tape;
    double g[P];
};

static void fill(struct bench *b, uint64_t seed, uint32_t lanes)
{
    struct kml_rng rng;
    kml_rng_init(&rng, seed);
    kml_net_init(&b->net, &rng);
    for (int i = 0; i < P; i++) {
        b->net.p[i] += 0.3 * kml_rng_normal(&rng); /* the read-out too */
    }
    b->batch.lanes = lanes;
    for (uint32_t i = 0; i < KML_NET_HIDDEN * lanes; i++) {
        b->batch.h[i] = 2 * kml_rng_unit(&rng) - 1;
    }
    for (int t = 0; t < KML_NET_WINDOW; t++) {
        for (uint32_t i = 0; i < KML_NET_INPUTS * lanes; i++) {
            b->batch.x[t][i] = kml_rng_normal(&rng);
        }
        for (uint32_t l = 0; l < lanes; l++) {
            b->batch.target[t][l] = 0.3 * kml_rng_normal(&rng);
        }
    }
}

static int set_up(void **state)
{
    struct bench *b = KML_NEW(struct bench);
    b->tape = kml_net_tape_create();
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;
    kml_net_tape_destroy(b->tape);
    kml_free(b);
    return 0;
}

static double loss_at(struct bench *b, int parameter, double shift)
{
    double kept = b->net.p[parameter];
    b->net.p[parameter] = kept + shift;
    double loss = kml_net_loss(&b->net, &b->batch, b->tape, NULL);
    b->net.p[parameter] = kept;
    return loss;
}

static void the_gradient_equals_finite_differences_to_a_millionth(void **state)
{
    struct bench *b = *state;
    uint64_t seed = test_seed();
    for (uint32_t lanes = 1; lanes <= 13; lanes += 4) {
        fill(b, seed + lanes, lanes);
        (void)kml_net_loss(&b->net, &b->batch, b->tape, b->g);
        double norm = 0;
        double apart = 0;
        for (int i = 0; i < P; i++) {
            const double shift = 1e-5;
            double slope = (loss_at(b, i, shift) - loss_at(b, i, -shift)) / (2 * shift);
            norm = fmax(norm, fabs(b->g[i]));
            apart = fmax(apart, fabs(slope - b->g[i]));
        }
        assert_true(norm > 1e-3);
        if (apart > 1e-6) {
            fail_msg("lanes %u: apart %g, largest slope %g", lanes, apart, norm);
        }
    }
}

static void lanes_do_not_know_of_one_another(void **state)
{
    struct bench *b = *state;
    fill(b, test_seed(), KML_NET_LANES);
    double x[KML_NET_INPUTS * KML_NET_LANES];
    double h[KML_NET_HIDDEN * KML_NET_LANES];
    double y[KML_NET_LANES];
    memcpy(x, b->batch.x[0], sizeof x);
    memcpy(h, b->batch.h, sizeof h);
    kml_net_step(&b->net, KML_NET_LANES, x, h, y);
    for (uint32_t l = 0; l < KML_NET_LANES; l++) {
        double x1[KML_NET_INPUTS];
        double h1[KML_NET_HIDDEN];
        double y1;
        for (int i = 0; i < KML_NET_INPUTS; i++) {
            x1[i] = x[i * KML_NET_LANES + (int)l];
        }
        for (int i = 0; i < KML_NET_HIDDEN; i++) {
            h1[i] = b->batch.h[i * KML_NET_LANES + (int)l];
        }
        kml_net_step(&b->net, 1, x1, h1, &y1);
        assert_memory_equal(&y1, &y[l], sizeof y1);
        assert_memory_equal(&h1[3], &h[3 * KML_NET_LANES + l], sizeof h1[3]);
    }
}

static double plain_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* The formulas of the header, one unit after the other, with the C library's functions. */
static void a_step_follows_the_formulas(void **state)
{
    struct bench *b = *state;
    fill(b, test_seed(), 1);
    const double *w = b->net.p;
    const double *u = w + KML_NET_GATES * KML_NET_INPUTS;
    const double *bias = u + KML_NET_GATES * KML_NET_HIDDEN;
    const double *v = bias + KML_NET_GATES;
    double wx[KML_NET_GATES];
    double uh[KML_NET_GATES];
    for (int k = 0; k < KML_NET_GATES; k++) {
        wx[k] = bias[k];
        uh[k] = 0;
        for (int i = 0; i < KML_NET_INPUTS; i++) {
            wx[k] += w[k * KML_NET_INPUTS + i] * b->batch.x[0][i];
        }
        for (int i = 0; i < KML_NET_HIDDEN; i++) {
            uh[k] += u[k * KML_NET_HIDDEN + i] * b->batch.h[i];
        }
    }
    double wanted = v[KML_NET_HIDDEN];
    for (int i = 0; i < KML_NET_HIDDEN; i++) {
        double z = plain_sigmoid(wx[i] + uh[i]);
        double r = plain_sigmoid(wx[KML_NET_HIDDEN + i] + uh[KML_NET_HIDDEN + i]);
        double n = tanh(wx[2 * KML_NET_HIDDEN + i] + r * uh[2 * KML_NET_HIDDEN + i]);
        wanted += v[i] * ((1 - z) * n + z * b->batch.h[i]);
    }
    double h[KML_NET_HIDDEN];
    double y;
    memcpy(h, b->batch.h, sizeof h);
    kml_net_step(&b->net, 1, b->batch.x[0], h, &y);
    assert_true(fabs(y - wanted) < 1e-13);
}

static void an_untrained_network_says_nothing(void **state)
{
    struct bench *b = *state;
    struct kml_rng rng;
    fill(b, 1, 4);
    kml_rng_init(&rng, test_seed());
    kml_net_init(&b->net, &rng);
    double y[4];
    kml_net_step(&b->net, 4, b->batch.x[0], b->batch.h, y);
    for (int l = 0; l < 4; l++) {
        assert_true(y[l] == 0);
    }
}

static void updates_lower_the_loss(void **state)
{
    struct bench *b = *state;
    fill(b, test_seed(), KML_NET_LANES);
    double first = kml_net_loss(&b->net, &b->batch, b->tape, b->g);
    double last = first;
    for (int i = 0; i < 100; i++) {
        last = kml_net_loss(&b->net, &b->batch, b->tape, b->g);
        kml_net_update(&b->net, b->g);
    }
    assert_true(last < 0.7 * first);
}

static void a_gradient_that_is_not_finite_is_left_out(void **state)
{
    struct bench *b = *state;
    fill(b, 3, 4);
    (void)kml_net_loss(&b->net, &b->batch, b->tape, b->g);
    struct kml_net before = b->net;
    b->g[7] = (double)NAN;
    kml_net_update(&b->net, b->g);
    assert_memory_equal(&before, &b->net, sizeof before);
}

/* Adam's first step is the rate in each direction, however long the gradient. */
static void the_first_update_moves_each_parameter_by_the_rate(void **state)
{
    struct bench *b = *state;
    fill(b, 5, 4);
    struct kml_net before = b->net;
    for (int i = 0; i < P; i++) {
        b->g[i] = i % 2 == 0 ? 1e6 : -1e6;
    }
    kml_net_update(&b->net, b->g);
    for (int i = 0; i < P; i++) {
        double moved = b->net.p[i] - before.p[i];
        assert_true(fabs(moved - (i % 2 == 0 ? -KML_NET_RATE : KML_NET_RATE)) < 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gradient_equals_finite_differences_to_a_millionth),
        cmocka_unit_test(lanes_do_not_know_of_one_another),
        cmocka_unit_test(a_step_follows_the_formulas),
        cmocka_unit_test(an_untrained_network_says_nothing),
        cmocka_unit_test(updates_lower_the_loss),
        cmocka_unit_test(a_gradient_that_is_not_finite_is_left_out),
        cmocka_unit_test(the_first_update_moves_each_parameter_by_the_rate),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
