#include "worker/calibrate.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "worker/batch.h"

#define MEASURE_NS (300 * KML_MILLISECOND)
#define WARM_BATCHES 3
#define BATCHES_MOST 4096

/* What is computed with; all of it on one float array but for the integers. */
struct bench {
    struct kml_workspace *workspace;
    float *params;
    float *gradient;
    uint32_t *index;
    struct kml_batch batch;
    uint32_t n;
};

static int open_bench(struct bench *b, const struct kml_input *in, struct kml_err *err)
{
    uint32_t n = in->job.training.batch_size;
    n = n < KML_MICRO_BATCH ? n : KML_MICRO_BATCH; /* larger ones are computed in such pieces */
    b->n = n < in->data.train.count ? n : in->data.train.count;
    b->index = KML_NEW_ARRAY(b->n, uint32_t);
    b->batch.label = KML_NEW_ARRAY(b->n, uint32_t);
    b->batch.target = KML_NEW_ARRAY(b->n, float);
    b->batch.x = kml_try_alloc((size_t)b->n * in->data.features * sizeof(float));
    b->params = kml_try_alloc(in->model.size * sizeof(float));
    b->gradient = kml_try_alloc(in->model.size * sizeof(float));
    if (b->batch.x == NULL || b->params == NULL || b->gradient == NULL) {
        return kml_fail(err, KML_NO_MEMORY, "no memory for a model of %zu parameters", in->model.size);
    }
    kml_model_seed(&in->model, in->job.model.seed, b->params);
    b->workspace = kml_workspace_create(&in->model, b->n, err);
    return b->workspace == NULL ? -1 : 0;
}

static void close_bench(struct bench *b)
{
    kml_workspace_destroy(b->workspace);
    kml_free(b->params);
    kml_free(b->gradient);
    kml_free(b->index);
    kml_free(b->batch.x);
    kml_free(b->batch.label);
    kml_free(b->batch.target);
}

static uint64_t one_batch(struct bench *b, const struct kml_input *in, uint32_t number)
{
    struct kml_clock clock = kml_clock_monotonic();
    struct kml_score score = {0};
    uint64_t begin = kml_now(&clock);
    for (uint32_t i = 0; i < b->n; i++) {
        b->index[i] = (uint32_t)(((uint64_t)number * b->n + i) % in->data.train.count);
    }
    kml_dataset_gather(&in->data, &in->data.train, b->index, b->n, &b->batch);
    struct kml_model_batch batch = {
        .x = b->batch.x, .label = b->batch.label, .target = b->batch.target, .n = b->n};
    kml_model_gradient(&in->model, b->workspace, b->params, &batch, b->gradient, NULL, NULL, &score);
    return kml_now(&clock) - begin;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static double median_batch(struct bench *b, const struct kml_input *in)
{
    uint64_t *took = KML_NEW_ARRAY(BATCHES_MOST, uint64_t);
    uint64_t total = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < WARM_BATCHES; i++) {
        (void)one_batch(b, in, i);
    }
    while (count == 0 || (total < MEASURE_NS && count < BATCHES_MOST)) {
        took[count] = one_batch(b, in, count);
        total += took[count++];
    }
    qsort(took, count, sizeof(*took), ascending);
    double median = (double)took[count / 2];
    kml_free(took);
    return median;
}

int kml_calibrate(const struct kml_input *in, double *seconds_per_sample, struct kml_err *err)
{
    struct bench b = {.n = 0};
    int result = open_bench(&b, in, err);
    if (result == 0) {
        *seconds_per_sample = median_batch(&b, in) / (double)b.n / (double)KML_SECOND;
    }
    close_bench(&b);
    return result;
}
