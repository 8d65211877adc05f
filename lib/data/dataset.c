#include "data/dataset.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/find.h"

/* A stream of the job's seed that nothing else draws from: epochs are streams 0 .. 2^32 - 1 and shards lie
 * above. */
#define VALIDATION_STREAM UINT64_MAX

static int read_idx(struct kml_table *t, const struct kml_found *found, enum kml_target_kind targets,
                    struct kml_err *err)
{
    struct kml_source *images;
    struct kml_source *labels;
    if (kml_source_open(&images, found->file, err) != 0) {
        return -1;
    }
    if (kml_source_open(&labels, found->labels, err) != 0) {
        kml_source_close(images);
        return -1;
    }
    int code = kml_table_read_idx(t, images, labels, targets, err);
    kml_source_close(labels);
    kml_source_close(images);
    return code;
}

static int read_text(struct kml_table *t, const struct kml_found *found, const char *label_column,
                     enum kml_target_kind targets, struct kml_err *err)
{
    struct kml_source *source;
    if (kml_source_open(&source, found->file, err) != 0) {
        return -1;
    }
    char separator = found->format == KML_FORMAT_TSV ? '\t' : ',';
    int code = kml_table_read_text(t, source, separator, label_column, targets, err);
    kml_source_close(source);
    return code;
}

/* What a split is made of must fit what the training set said. */
static int check_fit(const struct kml_dataset *d, const struct kml_table *t, const char *name,
                     struct kml_err *err)
{
    if (t->features != d->features) {
        return kml_fail(err, KML_INVALID, "%s has %u features, the training set has %u", name, t->features,
                        d->features);
    }
    for (uint32_t i = 0; t->classes > d->classes && i < t->rows; i++) {
        if (t->label[i] >= d->classes) {
            return kml_fail(err, KML_INVALID,
                            "%s: sample %u has label %u, which is out of range: the training set has the "
                            "classes 0 to %u",
                            name, i, t->label[i], d->classes - 1);
        }
    }
    return 0;
}

static int read_split(struct kml_dataset *d, enum kml_split_kind kind, const struct kml_data_file *file,
                      enum kml_data_format *format, struct kml_err *err)
{
    struct kml_found found;
    if (kml_data_find(&found, d->path, kind, file->file, *format, err) != 0) {
        return -1;
    }
    if (found.file == NULL) {
        return 0;
    }
    struct kml_table *t = &d->tables[kind];
    int code = found.format == KML_FORMAT_IDX ? read_idx(t, &found, d->targets, err)
                                              : read_text(t, &found, file->label_column, d->targets, err);
    if (code == 0 && kind != KML_SPLIT_TRAIN) {
        code = check_fit(d, t, found.file, err);
    }
    *format = found.format;
    kml_found_finish(&found);
    return code;
}

static struct kml_split whole(const struct kml_table *t)
{
    return (struct kml_split){.table = t, .row = NULL, .count = t->rows};
}

/* Draws which rows validate; both sides keep the file's order, so that sorted files stay sorted. */
static int cut_validation(struct kml_dataset *d, double fraction, uint64_t seed, struct kml_err *err)
{
    uint32_t rows = d->train.count;
    uint32_t count = (uint32_t)floor(fraction * rows + 0.5);
    if (count == 0 || count == rows) {
        return kml_fail(err, KML_INVALID, "a validation fraction of %g of %u samples leaves %s empty",
                        fraction, rows, count == 0 ? "the validation set" : "the training set");
    }
    uint32_t *drawn = kml_try_alloc((size_t)rows * sizeof(*drawn));
    uint32_t *validation = kml_try_alloc((size_t)count * sizeof(*validation));
    kml_auto_free uint8_t *validates = kml_try_alloc(rows);
    d->validation = (struct kml_split){&d->tables[KML_SPLIT_TRAIN], validation, 0};
    d->train = (struct kml_split){&d->tables[KML_SPLIT_TRAIN], drawn, 0};
    if (drawn == NULL || validation == NULL || validates == NULL) {
        return kml_fail(err, KML_NO_MEMORY, "no memory to cut %u samples for validation", count);
    }
    for (uint32_t i = 0; i < rows; i++) {
        drawn[i] = i;
        validates[i] = 0;
    }
    struct kml_rng rng;
    kml_rng_init2(&rng, seed, VALIDATION_STREAM);
    kml_rng_shuffle(&rng, drawn, rows);
    for (uint32_t i = 0; i < count; i++) {
        validates[drawn[i]] = 1;
    }
    for (uint32_t i = 0; i < rows; i++) {
        struct kml_split *s = validates[i] != 0 ? &d->validation : &d->train;
        s->row[s->count++] = i;
    }
    return 0;
}

static uint32_t row_of(const struct kml_split *s, uint32_t sample)
{
    return s->row == NULL ? sample : s->row[sample];
}

static double value_at(const struct kml_table *t, size_t at)
{
    return t->bytes != NULL ? t->bytes[at] : (double)t->reals[at];
}

static void set_mean_std(struct kml_dataset *d)
{
    const struct kml_split *s = &d->train;
    double *mean = KML_NEW_ARRAY(d->features, double);
    double *squares = KML_NEW_ARRAY(d->features, double);
    for (uint32_t i = 0; i < s->count; i++) {
        size_t at = (size_t)row_of(s, i) * d->features;
        for (uint32_t j = 0; j < d->features; j++) {
            mean[j] += value_at(s->table, at + j);
        }
    }
    for (uint32_t j = 0; j < d->features; j++) {
        mean[j] /= s->count;
    }
    for (uint32_t i = 0; i < s->count; i++) {
        size_t at = (size_t)row_of(s, i) * d->features;
        for (uint32_t j = 0; j < d->features; j++) {
            double off = value_at(s->table, at + j) - mean[j];
            squares[j] += off * off;
        }
    }
    for (uint32_t j = 0; j < d->features; j++) {
        double deviation = sqrt(squares[j] / s->count);
        d->mean[j] = (float)mean[j];
        d->scale[j] =
            deviation > 0 && isfinite(1 / deviation) ? (float)(1 / deviation) : 1.0f; /* a constant feature */
        if (!isfinite(d->scale[j])) {
            d->scale[j] = 1.0f;
        }
    }
    kml_free(mean);
    kml_free(squares);
}

static void set_standardisation(struct kml_dataset *d, enum kml_standardize wanted)
{
    if (wanted == KML_STANDARDIZE_AUTO) {
        wanted = d->format == KML_FORMAT_IDX ? KML_STANDARDIZE_SCALE255 : KML_STANDARDIZE_MEANSTD;
    }
    d->standardize = wanted;
    d->mean = KML_NEW_ARRAY(d->features, float);
    d->scale = KML_NEW_ARRAY(d->features, float);
    for (uint32_t j = 0; j < d->features; j++) {
        d->scale[j] = wanted == KML_STANDARDIZE_SCALE255 ? 1.0f / 255.0f : 1.0f;
    }
    if (wanted == KML_STANDARDIZE_MEANSTD) {
        set_mean_std(d);
    }
}

static int open_validation(struct kml_dataset *d, const struct kml_dataset_spec *spec, struct kml_err *err)
{
    if (spec->validation_fraction != 0) {
        if (spec->validation.file != NULL) {
            return kml_fail(err, KML_INVALID,
                            "dataset.validation is a file or a fraction of the training set, not both");
        }
        if (!(spec->validation_fraction > 0 && spec->validation_fraction < 1)) {
            return kml_fail(err, KML_INVALID, "a validation fraction of %g; it lies between 0 and 1",
                            spec->validation_fraction);
        }
        return cut_validation(d, spec->validation_fraction, spec->seed, err);
    }
    enum kml_data_format format = spec->format;
    if (read_split(d, KML_SPLIT_VALIDATION, &spec->validation, &format, err) != 0) {
        return -1;
    }
    d->validation = whole(&d->tables[KML_SPLIT_VALIDATION]);
    return 0;
}

static int open_train(struct kml_dataset *d, const struct kml_dataset_spec *spec, struct kml_err *err)
{
    if (read_split(d, KML_SPLIT_TRAIN, &spec->train, &d->format, err) != 0) {
        return -1;
    }
    const struct kml_table *t = &d->tables[KML_SPLIT_TRAIN];
    d->features = t->features;
    d->classes = t->classes;
    d->train = whole(t);
    return 0;
}

int kml_dataset_open(struct kml_dataset *d, const struct kml_dataset_spec *spec, struct kml_err *err)
{
    *d = (struct kml_dataset){
        .targets = spec->targets,
        .test_file = spec->test,
        .path = spec->path,
        .format = spec->format,
        .test_format = spec->format,
    };
    if (open_train(d, spec, err) != 0 || open_validation(d, spec, err) != 0) {
        kml_dataset_finish(d);
        return -1;
    }
    set_standardisation(d, spec->standardize);
    return 0;
}

int kml_dataset_open_test(struct kml_dataset *d, struct kml_err *err)
{
    enum kml_data_format format = d->test_format;
    if (read_split(d, KML_SPLIT_TEST, &d->test_file, &format, err) != 0) {
        kml_table_finish(&d->tables[KML_SPLIT_TEST]);
        return -1;
    }
    d->test = whole(&d->tables[KML_SPLIT_TEST]);
    return 0;
}

void kml_dataset_finish(struct kml_dataset *d)
{
    kml_free(d->train.row);
    kml_free(d->validation.row);
    kml_free(d->mean);
    kml_free(d->scale);
    for (size_t i = 0; i < KML_COUNT(d->tables); i++) {
        kml_table_finish(&d->tables[i]);
    }
    *d = (struct kml_dataset){0};
}
