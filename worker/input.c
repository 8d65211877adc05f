#include "worker/input.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"

/* ---- Manifest words to the words of lib/data and the model ---- */

static const enum kml_data_format formats[] = {
    [KML_JOB_FORMAT_AUTO] = KML_FORMAT_AUTO,
    [KML_JOB_FORMAT_IDX] = KML_FORMAT_IDX,
    [KML_JOB_FORMAT_CSV] = KML_FORMAT_CSV,
    [KML_JOB_FORMAT_TSV] = KML_FORMAT_TSV,
};

static const enum kml_standardize standardizes[] = {
    [KML_JOB_STANDARDIZE_AUTO] = KML_STANDARDIZE_AUTO,
    [KML_JOB_STANDARDIZE_NONE] = KML_STANDARDIZE_NONE,
    [KML_JOB_STANDARDIZE_SCALE255] = KML_STANDARDIZE_SCALE255,
    [KML_JOB_STANDARDIZE_MEANSTD] = KML_STANDARDIZE_MEANSTD,
};

static const enum kml_shuffle shuffles[] = {
    [KML_JOB_SHUFFLE_GLOBAL] = KML_SHUFFLE_GLOBAL,
    [KML_JOB_SHUFFLE_SHARD] = KML_SHUFFLE_SHARD,
    [KML_JOB_SHUFFLE_NONE] = KML_SHUFFLE_NONE,
};

static const enum kml_model_kind kinds[] = {
    [KML_JOB_MODEL_LINEAR] = KML_MODEL_LINEAR,
    [KML_JOB_MODEL_LOGISTIC] = KML_MODEL_LOGISTIC,
    [KML_JOB_MODEL_SOFTMAX] = KML_MODEL_SOFTMAX,
    [KML_JOB_MODEL_MLP] = KML_MODEL_MLP,
};

static const enum kml_activation activations[] = {
    [KML_JOB_ACTIVATION_RELU] = KML_ACTIVATION_RELU,
    [KML_JOB_ACTIVATION_TANH] = KML_ACTIVATION_TANH,
    [KML_JOB_ACTIVATION_SIGMOID] = KML_ACTIVATION_SIGMOID,
};

enum kml_shuffle kml_input_shuffle(const struct kml_input *in)
{
    return shuffles[in->job.dataset.shuffle];
}

/* ---- Data ---- */

/* lib/data takes a column by name, or by number as text, which `column` holds. */
static struct kml_data_file data_file(const struct kml_job_file *f, char column[16])
{
    struct kml_data_file file = {.file = f->file, .label_column = f->label_column};
    if (f->label_column == NULL && f->label_index != KML_JOB_AUTO) {
        (void)snprintf(column, 16, "%u", f->label_index);
        file.label_column = column;
    }
    return file;
}

static int open_data(struct kml_input *in, struct kml_err *err)
{
    const struct kml_job *job = &in->job;
    char column[3][16];
    struct kml_dataset_spec spec = {
        .format = formats[job->dataset.format],
        .train = data_file(&job->dataset.train, column[0]),
        .validation = data_file(&job->dataset.validation, column[1]),
        .test = data_file(&job->dataset.test, column[2]),
        .validation_fraction = job->dataset.validation.fraction,
        .standardize = standardizes[job->dataset.standardize],
        .targets = job->model.kind == KML_JOB_MODEL_LINEAR ? KML_TARGET_REAL : KML_TARGET_CLASS,
        .seed = job->model.seed,
    };
    if (kml_file_uri_path(job->dataset.uri, &spec.path, err) < 0 ||
        kml_dataset_open(&in->data, &spec, err) < 0) {
        return kml_wrap(err, "dataset");
    }
    if (job->training.evaluation.on_test && kml_dataset_open_test(&in->data, err) < 0) {
        kml_dataset_finish(&in->data);
        return kml_wrap(err, "dataset");
    }
    return 0;
}

/* ---- Model ---- */

static int make_model(struct kml_input *in, struct kml_err *err)
{
    const struct kml_job *job = &in->job;
    struct kml_model_spec spec = {
        .kind = kinds[job->model.kind],
        .activation = activations[job->model.activation],
        .features = in->data.features,
        .classes = in->data.classes,
        .hidden_count = job->model.hidden_count,
    };
    memcpy(spec.hidden, job->model.hidden, job->model.hidden_count * sizeof(spec.hidden[0]));
    return kml_model_init(&in->model, &spec, err) < 0 ? kml_wrap(err, "model") : 0;
}

static int read_job(struct kml_input *in, const char *manifest, struct kml_err *err)
{
    struct kml_job *job = &in->job;
    if (kml_job_load_file(job, manifest, NULL, 0, KML_JOB_PROCESS, NULL, err) < 0) {
        return kml_wrap(err, "KUNAL_JOB");
    }
    if (job->model.kind == KML_JOB_MODEL_CUSTOM || job->model.kind == KML_JOB_MODEL_CNN) {
        return kml_fail(
            err, KML_UNSUPPORTED,
            "%s: model.kind: this program has no such model; a Custom model brings its own worker program",
            manifest);
    }
    if (job->model.initial_uri != NULL && kml_file_uri_path(job->model.initial_uri, &in->initial, err) < 0) {
        return kml_wrap(err, "model.initialModelUri");
    }
    return 0;
}

int kml_input_open(struct kml_input *in, const char *manifest, struct kml_err *err)
{
    *in = (struct kml_input){.initial = NULL};
    kml_job_init(&in->job);
    if (read_job(in, manifest, err) < 0 || open_data(in, err) < 0) {
        kml_job_finish(&in->job);
        return -1;
    }
    if (make_model(in, err) < 0) {
        kml_input_finish(in);
        return -1;
    }
    return 0;
}

void kml_input_finish(struct kml_input *in)
{
    kml_dataset_finish(&in->data);
    kml_job_finish(&in->job);
}
