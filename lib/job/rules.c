#include "job/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/*
 * Rules between fields. Each names both paths, stands in a function of its own, and says nothing when one of
 * the two has been refused already: then its value means nothing.
 */

static bool good(const struct kml_job_reader *r, const char *path)
{
    uint32_t count;
    return !r->bad[kml_job_field_of(path) - kml_job_fields(&count)];
}

static const struct kml_node *given(const struct kml_job_reader *r, const char *path)
{
    const struct kml_node *node = kml_doc_find(r->doc, path);
    return node == NULL || node->kind == KML_NODE_NULL ? NULL : node;
}

static bool active(const struct kml_job_reader *r, const char *path)
{
    return kml_job_active(r->job, kml_job_field_of(path));
}

/* The place of `path`, or, if it holds its default, of the other field. */
static void clash(struct kml_job_reader *r, const char *path, const char *other, const char *text)
{
    const struct kml_node *node = given(r, path);
    kml_job_problem(r, node != NULL ? node : given(r, other), false, path, KML_INVALID, "%s", text);
}

#define CLASH(r, path, other, ...)                                                                           \
    do {                                                                                                     \
        char text_[KML_ERR_TEXT];                                                                            \
        snprintf(text_, sizeof(text_), __VA_ARGS__);                                                         \
        clash((r), (path), (other), text_);                                                                  \
    } while (0)

/* A custom worker brings its own model. The seed also orders the samples, so it stays. */
static void custom_has_no_model_fields(struct kml_job_reader *r)
{
    const struct kml_node *model = given(r, "spec.model");
    if (r->job->model.kind != KML_JOB_MODEL_CUSTOM || !good(r, "spec.model.kind") || model == NULL) {
        return;
    }
    for (uint32_t i = 0; i < model->count; i++) {
        const struct kml_node *child = model->child[i];
        char path[KML_DOC_PATH];
        kml_node_path(child, path);
        const struct kml_job_field *field = kml_job_field_of(path);
        if (child->kind == KML_NODE_NULL || field == NULL || field->when == NULL) {
            continue;
        }
        kml_job_problem(r, child, true, path, KML_INVALID,
                        "not allowed with spec.model.kind Custom, which brings its own model; remove it");
    }
}

static void custom_needs_a_command_here(struct kml_job_reader *r)
{
    static const char path[] = "spec.replicaSpecs.Worker.template";
    if (r->driver == KML_JOB_LOCAL && r->job->model.kind == KML_JOB_MODEL_CUSTOM && good(r, path) &&
        r->job->worker.template.command_count == 0) {
        CLASH(r, path, "spec.model.kind",
              "spec.model.kind Custom starts the command of this template's main container, and there is "
              "none; write "
              "{spec: {containers: [{name: kunal, command: [program]}]}}");
    }
}

static void data_is_required(struct kml_job_reader *r)
{
    static const char path[] = "spec.dataset.storageUri";
    if (r->job->dataset.uri == NULL && good(r, path) && good(r, "spec.model.kind") &&
        r->job->model.kind != KML_JOB_MODEL_CUSTOM) {
        CLASH(r, path, "spec",
              "required unless spec.model.kind is Custom, but missing; write it, as in file:///data");
    }
}

static void labels_are_texts(struct kml_job_reader *r)
{
    const struct kml_node *labels = given(r, "metadata.labels");
    for (uint32_t i = 0; labels != NULL && labels->kind == KML_NODE_MAP && i < labels->count; i++) {
        if (labels->child[i]->kind != KML_NODE_TEXT) {
            char path[KML_DOC_PATH];
            kml_node_path(labels->child[i], path);
            kml_job_problem(r, labels->child[i], false, path, KML_INVALID,
                            "a label is a text; put it in quotes");
        }
    }
}

static void columns_belong_to_tables(struct kml_job_reader *r)
{
    static const char *const paths[] = {"spec.dataset.train", "spec.dataset.validation", "spec.dataset.test"};
    const struct kml_job_file *const files[] = {&r->job->dataset.train, &r->job->dataset.validation,
                                                &r->job->dataset.test};
    for (size_t i = 0; i < KML_COUNT(paths); i++) {
        bool column = files[i]->label_column != NULL || files[i]->label_index != KML_JOB_AUTO;
        if (column && good(r, paths[i]) && r->job->dataset.format == KML_JOB_FORMAT_IDX) {
            CLASH(r, paths[i], "spec.dataset.format",
                  "labelColumn has no meaning with spec.dataset.format IDX, whose labels have a file of "
                  "their own; "
                  "remove it or change the format");
        }
    }
}

static void accuracy_needs_classes(struct kml_job_reader *r)
{
    const struct kml_job *job = r->job;
    if (!job->training.target.on || job->training.target.metric != KML_JOB_METRIC_ACCURACY ||
        !good(r, "spec.training.target.metric") || !good(r, "spec.model.kind")) {
        return;
    }
    if (job->model.kind == KML_JOB_MODEL_LINEAR) {
        CLASH(r, "spec.training.target.metric", "spec.model.kind",
              "Accuracy has no meaning with spec.model.kind Linear, which predicts numbers; write Loss");
    }
    if (good(r, "spec.training.target.value") && job->training.target.value > 1) {
        CLASH(r, "spec.training.target.value", "spec.training.target.metric",
              "%g is out of range with spec.training.target.metric Accuracy; write at most 1",
              job->training.target.value);
    }
}

static void a_target_needs_an_evaluation(struct kml_job_reader *r)
{
    const struct kml_job *job = r->job;
    const struct kml_job_file *validation = &job->dataset.validation;
    bool none = validation->file == NULL && validation->fraction == 0;
    if (job->training.target.on && !job->training.evaluation.on_test && none &&
        good(r, "spec.dataset.validation") && good(r, "spec.training.evaluation.onTest")) {
        CLASH(r, "spec.training.target", "spec.training.evaluation.onTest",
              "nothing measures it: spec.training.evaluation.onTest is false and spec.dataset.validation is "
              "absent; "
              "change one of them");
    }
}

static void warmup_fits_into_the_epochs(struct kml_job_reader *r)
{
    static const char path[] = "spec.training.learningRateSchedule.warmupEpochs";
    double warmup = r->job->training.schedule.warmup_epochs;
    if (good(r, path) && good(r, "spec.training.epochs") && warmup > r->job->training.epochs) {
        CLASH(r, path, "spec.training.epochs",
              "%g is more than spec.training.epochs, %" PRIu32 "; write less or train longer", warmup,
              r->job->training.epochs);
    }
}

static void shares_fit_the_workers(struct kml_job_reader *r)
{
    static const char path[] = "spec.balancing.minimumShare";
    double least = r->job->balancing.minimum_share;
    uint32_t workers = r->job->worker.replicas;
    if (active(r, path) && good(r, path) && good(r, "spec.replicaSpecs.Worker.replicas") &&
        least * workers > 1) {
        CLASH(r, path, "spec.replicaSpecs.Worker.replicas",
              "%g for each of spec.replicaSpecs.Worker.replicas, %" PRIu32
              ", is more than everything; write at most %g",
              least, workers, 1.0 / workers);
    }
    if (active(r, path) && good(r, "spec.balancing.fineThreshold") &&
        good(r, "spec.balancing.rapidThreshold") &&
        r->job->balancing.fine_threshold > r->job->balancing.rapid_threshold) {
        CLASH(r, "spec.balancing.fineThreshold", "spec.balancing.rapidThreshold",
              "%g is more than spec.balancing.rapidThreshold, %g; write less",
              r->job->balancing.fine_threshold, r->job->balancing.rapid_threshold);
    }
}

static void groups_fit_the_workers(struct kml_job_reader *r)
{
    const struct kml_job *job = r->job;
    if (!active(r, "spec.grouping") || !good(r, "spec.grouping.minMembers")) {
        return;
    }
    uint32_t members = job->grouping.min_members;
    uint64_t most = (uint64_t)members * job->grouping.max_groups;
    bool written =
        given(r, "spec.grouping.minMembers") != NULL || given(r, "spec.grouping.maxGroups") != NULL;
    if (written && good(r, "spec.grouping.maxGroups") && most > job->worker.replicas) {
        CLASH(r, "spec.grouping.minMembers", "spec.grouping.maxGroups",
              "%" PRIu32 " times spec.grouping.maxGroups, %" PRIu32
              ", is more than spec.replicaSpecs.Worker.replicas, "
              "%" PRIu32 "; write less",
              members, job->grouping.max_groups, job->worker.replicas);
    }
    uint32_t spare = job->grouping.stragglers;
    if (job->grouping.scheme != KML_JOB_CODING_NONE && spare != KML_JOB_AUTO && spare > 0 &&
        members < spare + 2 && good(r, "spec.grouping.coding.stragglers")) {
        CLASH(r, "spec.grouping.coding.stragglers", "spec.grouping.minMembers",
              "a group that can spare %" PRIu32 " needs %" PRIu32
              " members, and spec.grouping.minMembers is %" PRIu32,
              spare, spare + 2, members);
    }
}

static void the_gang_fits_the_pods(struct kml_job_reader *r)
{
    static const char path[] = "spec.runPolicy.schedulingPolicy.minAvailable";
    const struct kml_job *job = r->job;
    uint64_t pods = (uint64_t)job->ps.replicas + job->worker.replicas;
    if (good(r, path) && good(r, "spec.replicaSpecs.PS.replicas") &&
        good(r, "spec.replicaSpecs.Worker.replicas") && job->run_policy.scheduling.min_available > pods) {
        CLASH(
            r, path, "spec.replicaSpecs.Worker.replicas",
            "%" PRIu32
            " is more than the pods of spec.replicaSpecs.PS.replicas and spec.replicaSpecs.Worker.replicas, "
            "%" PRIu64 "; write less",
            job->run_policy.scheduling.min_available, pods);
    }
}

static void elastic_bounds_hold_the_workers(struct kml_job_reader *r)
{
    const struct kml_job *job = r->job;
    uint32_t low = job->elastic.min_replicas;
    uint32_t high = job->elastic.max_replicas;
    if (job->elastic.on && low > 0 && high > 0 && low > high) {
        CLASH(r, "spec.elasticPolicy.minReplicas", "spec.elasticPolicy.maxReplicas",
              "%" PRIu32 " is more than spec.elasticPolicy.maxReplicas, %" PRIu32 "; write less", low, high);
    }
}

/* Scaling down is never refused, so a limit above the workers is no problem, only worth a line. */
static void note_a_clamped_limit(struct kml_job_reader *r)
{
    static const char path[] = "spec.synchronization.limit";
    uint32_t limit = r->job->sync.limit;
    uint32_t workers = r->job->worker.replicas;
    if (active(r, path) && good(r, path) && limit != KML_JOB_AUTO && limit > workers) {
        kml_job_note(r, given(r, path), path,
                     "%" PRIu32 " is more than spec.replicaSpecs.Worker.replicas, %" PRIu32
                     "; it is clamped to %" PRIu32,
                     limit, workers, workers);
    }
}

void kml_job_check_rules(struct kml_job_reader *r)
{
    labels_are_texts(r);
    custom_has_no_model_fields(r);
    custom_needs_a_command_here(r);
    data_is_required(r);
    columns_belong_to_tables(r);
    accuracy_needs_classes(r);
    a_target_needs_an_evaluation(r);
    warmup_fits_into_the_epochs(r);
    shares_fit_the_workers(r);
    groups_fit_the_workers(r);
    the_gang_fits_the_pods(r);
    elastic_bounds_hold_the_workers(r);
    note_a_clamped_limit(r);
}
