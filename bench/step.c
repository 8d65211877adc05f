/*
 * Our side of P6: one worker's step without a network: forward, backward and the SGD update of worker/model,
 * one thread.
 *
 *     step mlp|softmax BATCH MILLISECONDS      one line of JSON: median seconds of a step
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/rng.h"
#include "math/gemm.h"
#include "math/vec.h"
#include "worker/model.h"

#define BLOCK 10 /* steps between two looks at the clock */
#define BLOCKS_MAX 100000

struct data {
    float *x;
    uint32_t *label;
    float *params, *grad;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void fill(struct data *d, const struct kml_model *m, uint32_t batch)
{
    struct kml_rng rng;
    kml_rng_init(&rng, 1);
    d->x = KML_NEW_ARRAY((size_t)batch * m->spec.features, float);
    d->label = KML_NEW_ARRAY(batch, uint32_t);
    d->params = KML_NEW_ARRAY(m->size, float);
    d->grad = KML_NEW_ARRAY(m->size, float);
    for (size_t i = 0; i < (size_t)batch * m->spec.features; i++) {
        d->x[i] = (float)kml_rng_unit(&rng);
    }
    for (uint32_t i = 0; i < batch; i++) {
        d->label[i] = i % m->spec.classes;
    }
    kml_model_seed(m, 1, d->params);
}

static void measure(const struct kml_model *m, struct kml_workspace *w, struct data *d, uint32_t batch,
                    uint64_t for_ns)
{
    struct kml_clock clock = kml_clock_monotonic();
    struct kml_model_batch b = {.x = d->x, .label = d->label, .n = batch};
    struct kml_score score = {0};
    double *took = KML_NEW_ARRAY(BLOCKS_MAX, double);
    size_t blocks = 0;
    uint64_t end = kml_now(&clock) + for_ns;
    while (blocks < BLOCKS_MAX && kml_now(&clock) < end) {
        uint64_t begin = kml_now(&clock);
        for (int i = 0; i < BLOCK; i++) {
            kml_model_gradient(m, w, d->params, &b, d->grad, NULL, NULL, &score);
            kml_vec_axpy(d->params, d->grad, -0.1f, m->size);
        }
        took[blocks++] = (double)(kml_now(&clock) - begin) / 1e9 / BLOCK;
    }
    qsort(took, blocks, sizeof *took, by_value);
    (void)printf("{\"step_seconds\": %.9g, \"steps\": %zu, \"loss\": %.6g}\n", took[blocks / 2],
                 blocks * BLOCK, score.loss_sum / (double)score.samples);
    kml_free(took);
}

static int run(const struct kml_model_spec *spec, uint32_t batch, uint64_t for_ns)
{
    struct kml_model m;
    struct data d;
    struct kml_err err;
    struct kml_workspace *w = NULL;
    if (kml_model_init(&m, spec, &err) < 0 || (w = kml_workspace_create(&m, batch, &err)) == NULL) {
        kml_error("step ends", kv_err(&err));
        return kml_code_exit(err.code);
    }
    fill(&d, &m, batch);
    measure(&m, w, &d, batch, for_ns);
    kml_free(d.x);
    kml_free(d.label);
    kml_free(d.params);
    kml_free(d.grad);
    kml_workspace_destroy(w);
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t batch = 0;
    uint64_t milliseconds = 0;
    bool good = argc == 4 && (strcmp(argv[1], "mlp") == 0 || strcmp(argv[1], "softmax") == 0) &&
                kml_parse_u64(argv[2], &batch, NULL) == 0 && kml_parse_u64(argv[3], &milliseconds, NULL) == 0;
    kml_log_init("step", KML_INFO, false);
    if (!good || batch == 0 || batch > 65536 || milliseconds == 0) {
        (void)fprintf(stderr, "usage: step mlp|softmax BATCH MILLISECONDS\n");
        return 64;
    }
    kml_math_threads(1, argv);
    struct kml_model_spec spec = {.kind = KML_MODEL_SOFTMAX, .features = 784, .classes = 10};
    if (argv[1][0] == 'm') {
        spec.kind = KML_MODEL_MLP;
        spec.hidden[0] = 128;
        spec.hidden_count = 1;
    }
    return run(&spec, (uint32_t)batch, milliseconds * KML_MILLISECOND);
}
