#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "math/gemm.h"
#include "math/vec.h"
#include "tools/golden.h"
#include "worker/model.h"

#define SEED 31
#define BATCH 17

static const struct kml_model_spec all[] = {
    {.kind = KML_MODEL_LINEAR, .features = 7},
    {.kind = KML_MODEL_LOGISTIC, .features = 9, .classes = 2},
    {.kind = KML_MODEL_SOFTMAX, .features = 12, .classes = 5},
    {.kind = KML_MODEL_MLP, .features = 11, .classes = 4, .hidden = {6}, .hidden_count = 1},
    {.kind = KML_MODEL_MLP,
     .activation = KML_ACTIVATION_TANH,
     .features = 8,
     .classes = 3,
     .hidden = {9, 5},
     .hidden_count = 2},
    {.kind = KML_MODEL_MLP,
     .activation = KML_ACTIVATION_SIGMOID,
     .features = 5,
     .classes = 2,
     .hidden = {7, 4},
     .hidden_count = 2},
    {.kind = KML_MODEL_MLP,
     .features = 6,
     .classes = 10,
     .hidden = {8, 7, 6, 5, 6, 7, 8, 9},
     .hidden_count = 8},
    {.kind = KML_MODEL_MLP, .features = 784, .classes = 10, .hidden = {128}, .hidden_count = 1},
};

/* A model with its parameters and one batch. */
struct bench {
    struct kml_model m;
    struct kml_workspace *w;
    float *params;
    float *grad;
    float *x;
    uint32_t label[BATCH];
    float target[BATCH];
    struct kml_model_batch batch;
};

static void bench_init(struct bench *b, const struct kml_model_spec *spec, uint64_t seed)
{
    struct kml_err err;
    struct kml_rng r;
    kml_rng_init(&r, seed);
    assert_int_equal(kml_model_init(&b->m, spec, &err), 0);
    b->w = kml_workspace_create(&b->m, BATCH, &err);
    assert_non_null(b->w);
    b->params = KML_NEW_ARRAY(b->m.size, float);
    b->grad = KML_NEW_ARRAY(b->m.size, float);
    b->x = KML_NEW_ARRAY((size_t)BATCH * spec->features, float);
    kml_model_seed(&b->m, seed, b->params);
    for (size_t i = 0; i < b->m.size; i++) {
        b->params[i] *= 2; /* deeper activations than the first values give */
    }
    for (size_t i = 0; i < (size_t)BATCH * spec->features; i++) {
        b->x[i] = (float)kml_rng_normal(&r);
    }
    for (size_t i = 0; i < BATCH; i++) {
        b->label[i] = (uint32_t)kml_rng_below(&r, spec->classes == 0 ? 2 : spec->classes);
        b->target[i] = (float)kml_rng_normal(&r);
    }
    b->batch = (struct kml_model_batch){b->x, b->label, b->target, BATCH};
}

static void bench_finish(struct bench *b)
{
    kml_workspace_destroy(b->w);
    kml_free(b->params);
    kml_free(b->grad);
    kml_free(b->x);
}

/* ---- The model once more, naive and in double: the reference. ---- */
static double activate(enum kml_activation a, double v)
{
    return a == KML_ACTIVATION_RELU ? fmax(v, 0) : a == KML_ACTIVATION_TANH ? tanh(v) : 1 / (1 + exp(-v));
}

static void plain_forward(const struct bench *b, const double *params, size_t sample, double *out)
{
    double in[1024];
    for (uint32_t j = 0; j < b->m.spec.features; j++) {
        in[j] = (double)b->x[sample * b->m.spec.features + j];
    }
    for (uint32_t k = 0; k < b->m.layers; k++) {
        const struct kml_model_layer *l = &b->m.layer[k];
        for (uint32_t o = 0; o < l->out; o++) {
            double sum = params[l->bias + o];
            for (uint32_t i = 0; i < l->in; i++) {
                sum += params[l->weight + (size_t)o * l->in + i] * in[i];
            }
            out[o] = k + 1 < b->m.layers ? activate(b->m.spec.activation, sum) : sum;
        }
        memcpy(in, out, l->out * sizeof(double));
    }
}

static double plain_loss(const struct bench *b, const double *params)
{
    double loss = 0;
    for (size_t s = 0; s < BATCH; s++) {
        double out[1024];
        plain_forward(b, params, s, out);
        if (b->m.spec.kind == KML_MODEL_LINEAR) {
            loss += (out[0] - (double)b->target[s]) * (out[0] - (double)b->target[s]);
        } else if (b->m.spec.kind == KML_MODEL_LOGISTIC) {
            loss += log(1 + exp(out[0])) - b->label[s] * out[0];
        } else {
            double sum = 0;
            for (uint32_t j = 0; j < b->m.spec.classes; j++) {
                sum += exp(out[j]);
            }
            loss += log(sum) - out[b->label[s]];
        }
    }
    return loss;
}

static void the_gradient_agrees_with_central_differences_for_every_kind_and_activation(void **state)
{
    (void)state;
    print_message("seed %d\n", SEED);
    struct kml_rng pick;
    kml_rng_init(&pick, SEED);
    for (size_t c = 0; c < KML_COUNT(all); c++) {
        struct bench b;
        struct kml_score score = {0};
        bench_init(&b, &all[c], SEED + c);
        kml_model_gradient(&b.m, b.w, b.params, &b.batch, b.grad, NULL, NULL, &score);
        double *params = KML_NEW_ARRAY(b.m.size, double);
        for (size_t i = 0; i < b.m.size; i++) {
            params[i] = (double)b.params[i];
        }
        assert_true(fabs(score.loss_sum - plain_loss(&b, params)) <= 1e-5 * (1 + score.loss_sum));
        double scale = sqrt(kml_vec_square_sum(b.grad, b.m.size) / (double)b.m.size);
        size_t checks = b.m.size < 400 ? b.m.size : 200; /* of a large model, a sample */
        for (size_t n = 0; n < checks; n++) {
            size_t i = b.m.size < 400 ? n : kml_rng_below(&pick, b.m.size);
            double h = 1e-6;
            double keep = params[i];
            params[i] = keep + h;
            double above = plain_loss(&b, params);
            params[i] = keep - h;
            double below = plain_loss(&b, params);
            params[i] = keep;
            double wanted = (above - below) / (2 * h) / BATCH;
            if (!(fabs((double)b.grad[i] - wanted) <= 1e-5 * (fabs(wanted) + scale) + 1e-8)) {
                fail_msg("model %zu, parameter %zu: %.9g, differences say %.9g", c, i, (double)b.grad[i],
                         wanted);
            }
        }
        kml_free(params);
        bench_finish(&b);
    }
}

/* ---- torch ---- */
static void write_case(const char *folder, size_t c, const struct bench *b)
{
    static const char *const kinds[] = {"Linear", "Logistic", "Softmax", "MLP"};
    static const char *const activations[] = {"ReLU", "Tanh", "Sigmoid"};
    kml_auto_free char *at = kml_format("%s/%02zu", folder, c);
    KML_BUG_ON(mkdir(at, 0700) != 0);
    golden_write(at, "params.f32", b->params, b->m.size * sizeof(float));
    golden_write(at, "x.f32", b->x, (size_t)BATCH * b->m.spec.features * sizeof(float));
    golden_write(at, "label.u32", b->label, sizeof(b->label));
    golden_write(at, "target.f32", b->target, sizeof(b->target));
    char *widths = kml_format("%u", b->m.spec.features);
    for (uint32_t k = 0; k < b->m.layers; k++) {
        char *longer = kml_format("%s,%u", widths, b->m.layer[k].out);
        kml_free(widths);
        widths = longer;
    }
    kml_auto_free char *json =
        kml_format("{\"kind\":\"%s\",\"activation\":\"%s\",\"widths\":[%s],\"n\":%d}", kinds[b->m.spec.kind],
                   activations[b->m.spec.activation], widths, BATCH);
    golden_write(at, "case.json", json, strlen(json));
    kml_free(widths);
}

static void compare_case(const char *folder, size_t c, struct bench *b)
{
    kml_auto_free char *at = kml_format("%s/%02zu", folder, c);
    double *wanted = KML_NEW_ARRAY(b->m.size, double);
    double wanted_score[2];
    golden_read(at, "grad.f64", wanted, b->m.size * sizeof(double));
    golden_read(at, "score.f64", wanted_score, sizeof(wanted_score));
    struct kml_score score = {0};
    kml_model_gradient(&b->m, b->w, b->params, &b->batch, b->grad, NULL, NULL, &score);
    for (uint32_t t = 0; t < b->m.tensors; t++) {
        double off = 0;
        double size = 0;
        for (size_t i = b->m.tensor[t].offset; i < b->m.tensor[t].offset + b->m.tensor[t].size; i++) {
            off += ((double)b->grad[i] - wanted[i]) * ((double)b->grad[i] - wanted[i]);
            size += wanted[i] * wanted[i];
        }
        if (!(sqrt(off) <= 1e-5 * sqrt(size))) {
            fail_msg("model %zu, %s: off by %g of %g", c, b->m.tensor[t].name, sqrt(off), sqrt(size));
        }
    }
    assert_true(fabs(score.loss_sum - wanted_score[0]) <= 1e-5 * (1e-3 + fabs(wanted_score[0])));
    assert_int_equal(score.correct, (uint64_t)wanted_score[1]);
    assert_int_equal(score.samples, BATCH);
    kml_free(wanted);
}

static void gradient_loss_and_correct_count_agree_with_torch(void **state)
{
    (void)state;
    print_message("seed %d\n", SEED);
    char *folder = golden_folder();
    struct bench b[KML_COUNT(all)];
    for (size_t c = 0; c < KML_COUNT(all); c++) {
        bench_init(&b[c], &all[c], SEED + c);
        write_case(folder, c, &b[c]);
    }
    assert_int_equal(golden_python("tests/tools/golden_torch.py", "model", folder), 0);
    for (size_t c = 0; c < KML_COUNT(all); c++) {
        compare_case(folder, c, &b[c]);
        bench_finish(&b[c]);
    }
    golden_remove(folder);
}

/* ---- The contract of the calls ---- */
struct seen {
    const struct bench *b;
    float *early; /* what stood in the gradient when its range was said to be final */
    size_t next_end;
    uint32_t calls;
};

static void note(void *self, size_t offset, size_t size)
{
    struct seen *s = self;
    assert_int_equal(offset + size, s->next_end); /* last layer first, no gap, no overlap */
    s->next_end = offset;
    s->calls++;
    memcpy(s->early + offset, s->b->grad + offset, size * sizeof(float));
}

static void ranges_are_final_when_they_are_announced_and_cover_the_vector_from_the_end(void **state)
{
    (void)state;
    for (size_t c = 0; c < KML_COUNT(all); c++) {
        struct bench b;
        struct kml_score score = {0};
        bench_init(&b, &all[c], SEED + c);
        struct seen s = {&b, KML_NEW_ARRAY(b.m.size, float), b.m.size, 0};
        kml_model_gradient(&b.m, b.w, b.params, &b.batch, b.grad, note, &s, &score);
        assert_int_equal(s.next_end, 0);
        assert_int_equal(s.calls, b.m.layers);
        assert_memory_equal(s.early, b.grad, b.m.size * sizeof(float));
        kml_free(s.early);
        bench_finish(&b);
    }
}

static void evaluation_scores_as_the_gradient_does_and_scores_add_up(void **state)
{
    (void)state;
    for (size_t c = 0; c < KML_COUNT(all); c++) {
        struct bench b;
        bench_init(&b, &all[c], SEED + c);
        struct kml_score one = {0};
        struct kml_score two = {0};
        kml_model_gradient(&b.m, b.w, b.params, &b.batch, b.grad, NULL, NULL, &one);
        kml_model_evaluate(&b.m, b.w, b.params, &b.batch, &two);
        assert_true(one.loss_sum == two.loss_sum);
        assert_int_equal(one.correct, two.correct);
        kml_model_evaluate(&b.m, b.w, b.params, &b.batch, &two);
        assert_true(two.loss_sum > 1.99 * one.loss_sum);
        assert_int_equal(two.samples, 2 * BATCH);
        bench_finish(&b);
    }
}

static void a_smaller_batch_in_a_larger_workspace_gives_its_own_mean(void **state)
{
    (void)state;
    struct bench b;
    struct kml_score score = {0};
    bench_init(&b, &all[3], SEED);
    float *sum = KML_NEW_ARRAY(b.m.size, float);
    kml_model_gradient(&b.m, b.w, b.params, &b.batch, b.grad, NULL, NULL, &score);
    float *one = KML_NEW_ARRAY(b.m.size, float);
    for (uint32_t i = 0; i < BATCH; i++) {
        struct kml_model_batch single = {b.x + i * b.m.spec.features, b.label + i, NULL, 1};
        kml_model_gradient(&b.m, b.w, b.params, &single, one, NULL, NULL, &score);
        kml_vec_axpy(sum, one, 1.0f / BATCH, b.m.size);
    }
    for (size_t i = 0; i < b.m.size; i++) {
        assert_true(fabsf(sum[i] - b.grad[i]) <= 1e-6f);
    }
    kml_free(sum);
    kml_free(one);
    bench_finish(&b);
}

static void the_same_step_gives_the_same_bytes(void **state)
{
    (void)state;
    struct bench b;
    struct bench again;
    struct kml_score score = {0};
    bench_init(&b, &all[7], SEED);
    bench_init(&again, &all[7], SEED);
    assert_memory_equal(b.params, again.params, b.m.size * sizeof(float));
    kml_model_gradient(&b.m, b.w, b.params, &b.batch, b.grad, NULL, NULL, &score);
    for (int i = 0; i < 3; i++) {
        kml_model_gradient(&again.m, again.w, again.params, &again.batch, again.grad, NULL, NULL, &score);
        assert_memory_equal(b.grad, again.grad, b.m.size * sizeof(float));
    }
    bench_finish(&b);
    bench_finish(&again);
}

static void first_values_have_the_bounds_of_torchs_linear_layer_and_fill_them(void **state)
{
    (void)state;
    struct kml_model m;
    struct kml_err err;
    assert_int_equal(kml_model_init(&m, &all[7], &err), 0);
    float *a = KML_NEW_ARRAY(m.size, float);
    float *b = KML_NEW_ARRAY(m.size, float);
    kml_model_seed(&m, 1, a);
    kml_model_seed(&m, 2, b);
    assert_memory_not_equal(a, b, m.size * sizeof(float));
    for (uint32_t k = 0; k < m.layers; k++) {
        double bound = 1 / sqrt((double)m.layer[k].in);
        size_t count = (size_t)m.layer[k].out * (m.layer[k].in + 1);
        double least = 1;
        double most = -1;
        for (size_t i = m.layer[k].weight; i < m.layer[k].weight + count; i++) {
            least = fmin(least, (double)a[i]);
            most = fmax(most, (double)a[i]);
        }
        assert_true(least >= -bound && most <= bound);
        assert_true(least < -0.98 * bound && most > 0.98 * bound);
        double spread = kml_vec_square_sum(a + m.layer[k].weight, count) / (double)count;
        assert_true(fabs(spread - bound * bound / 3) < 0.1 * bound * bound / 3);
    }
    kml_free(a);
    kml_free(b);
}

static void the_layout_is_that_of_torchs_state_dict(void **state)
{
    (void)state;
    struct kml_model m;
    struct kml_err err;
    assert_int_equal(kml_model_init(&m, &all[7], &err), 0);
    assert_int_equal(m.size, 101770);
    assert_int_equal(m.tensors, 4);
    assert_string_equal(m.tensor[0].name, "layer.0.weight");
    assert_string_equal(m.tensor[3].name, "layer.1.bias");
    assert_int_equal(m.tensor[0].dim[0], 128);
    assert_int_equal(m.tensor[0].dim[1], 784);
    assert_int_equal(m.tensor[1].dims, 1);
    assert_int_equal(m.tensor[2].offset, 784 * 128 + 128);
    size_t next = 0;
    for (uint32_t t = 0; t < m.tensors; t++) {
        assert_int_equal(m.tensor[t].offset, next);
        next += m.tensor[t].size;
    }
    assert_int_equal(next, m.size);
}

static void a_model_that_does_not_fit_its_data_is_refused(void **state)
{
    (void)state;
    static const struct {
        struct kml_model_spec spec;
        enum kml_code code;
        const char *says;
    } bad[] = {
        {{.kind = KML_MODEL_LOGISTIC, .features = 3, .classes = 10}, KML_INVALID, "2 classes"},
        {{.kind = KML_MODEL_SOFTMAX, .features = 3, .classes = 1}, KML_INVALID, "at least 2"},
        {{.kind = KML_MODEL_MLP, .features = 3, .classes = 2}, KML_INVALID, "1 to 8 hidden"},
        {{.kind = KML_MODEL_MLP, .features = 3, .classes = 2, .hidden = {0}, .hidden_count = 1},
         KML_INVALID,
         "width of 0"},
        {{.kind = KML_MODEL_LINEAR}, KML_INVALID, "no features"},
        {{.kind = KML_MODEL_MLP, .features = 1 << 20, .classes = 2, .hidden = {1 << 20}, .hidden_count = 1},
         KML_TOO_LARGE,
         "parameters"},
    };
    for (size_t i = 0; i < KML_COUNT(bad); i++) {
        struct kml_model m;
        struct kml_err err;
        assert_int_equal(kml_model_init(&m, &bad[i].spec, &err), -1);
        assert_int_equal(err.code, bad[i].code);
        assert_non_null(strstr(err.text, bad[i].says));
    }
}

static void nan_in_the_parameters_reaches_the_loss_and_the_gradient(void **state)
{
    (void)state;
    for (size_t c = 0; c < KML_COUNT(all); c++) {
        struct bench b;
        struct kml_score score = {0};
        bench_init(&b, &all[c], SEED + c);
        b.params[0] = NAN;
        kml_model_gradient(&b.m, b.w, b.params, &b.batch, b.grad, NULL, NULL, &score);
        assert_true(isnan(score.loss_sum));
        assert_false(kml_vec_all_finite(b.grad, b.m.size));
        bench_finish(&b);
    }
}

int main(void)
{
    kml_math_threads(1, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gradient_agrees_with_central_differences_for_every_kind_and_activation),
        cmocka_unit_test(gradient_loss_and_correct_count_agree_with_torch),
        cmocka_unit_test(ranges_are_final_when_they_are_announced_and_cover_the_vector_from_the_end),
        cmocka_unit_test(evaluation_scores_as_the_gradient_does_and_scores_add_up),
        cmocka_unit_test(a_smaller_batch_in_a_larger_workspace_gives_its_own_mean),
        cmocka_unit_test(the_same_step_gives_the_same_bytes),
        cmocka_unit_test(first_values_have_the_bounds_of_torchs_linear_layer_and_fill_them),
        cmocka_unit_test(the_layout_is_that_of_torchs_state_dict),
        cmocka_unit_test(a_model_that_does_not_fit_its_data_is_refused),
        cmocka_unit_test(nan_in_the_parameters_reaches_the_loss_and_the_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
