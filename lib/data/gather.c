#include "data/dataset.h"

#include "base/clones.h"
#include "base/mem.h"

#define LINE 64 /* bytes of a cache line */

KML_CLONES static void bytes_uniform(float *restrict x, const uint8_t *restrict from, float scale, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        x[j] = (float)from[j] * scale;
    }
}

KML_CLONES static void bytes_each(float *restrict x, const uint8_t *restrict from, const float *restrict mean,
                                  const float *restrict scale, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        x[j] = ((float)from[j] - mean[j]) * scale[j];
    }
}

KML_CLONES static void reals_each(float *restrict x, const float *restrict from, const float *restrict mean,
                                  const float *restrict scale, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        x[j] = (from[j] - mean[j]) * scale[j];
    }
}

static void one_row(const struct kml_dataset *d, const struct kml_table *t, uint32_t row, float *x)
{
    size_t at = (size_t)row * d->features;
    if (t->bytes == NULL) {
        reals_each(x, t->reals + at, d->mean, d->scale, d->features);
    } else if (d->standardize == KML_STANDARDIZE_MEANSTD) {
        bytes_each(x, t->bytes + at, d->mean, d->scale, d->features);
    } else {
        bytes_uniform(x, t->bytes + at, d->scale[0], d->features);
    }
}

/*
 * Rows are far apart in a shuffled order: asking for the next one while this one is converted hides the
 * memory's latency.
 */
static void ask_for(const struct kml_dataset *d, const struct kml_table *t, uint32_t row)
{
    if (t->bytes != NULL) {
        const uint8_t *at = t->bytes + (size_t)row * d->features;
        for (size_t j = 0; j < d->features; j += LINE) {
            __builtin_prefetch(at + j);
        }
    }
}

void kml_dataset_gather(const struct kml_dataset *d, const struct kml_split *split, const uint32_t *index,
                        uint32_t n, const struct kml_batch *out)
{
    const struct kml_table *t = split->table;
    for (uint32_t i = 0; i < n; i++) {
        KML_BUG_ON(index[i] >= split->count);
        uint32_t row = split->row == NULL ? index[i] : split->row[index[i]];
        if (i + 1 < n && index[i + 1] < split->count) {
            ask_for(d, t, split->row == NULL ? index[i + 1] : split->row[index[i + 1]]);
        }
        one_row(d, t, row, out->x + (size_t)i * d->features);
        if (d->targets == KML_TARGET_CLASS) {
            out->label[i] = t->label[row];
        } else {
            out->target[i] = t->target[row];
        }
    }
}
