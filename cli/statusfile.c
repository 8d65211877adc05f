#include "cli/statusfile.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "doc/json.h"
#include "pki/pki.h"

static void time_of(struct kml_json *w, const char *key, uint64_t ns)
{
    char text[32];
    if (ns > 0) {
        kml_format_time(ns, text);
        kml_json_text(w, key, text);
    }
}

static void condition(struct kml_json *w, const char *type, bool yes, const char *reason, const char *message,
                      uint64_t ns)
{
    kml_json_map(w, NULL);
    kml_json_text(w, "type", type);
    kml_json_text(w, "status", yes ? "True" : "False");
    kml_json_text(w, "reason", reason);
    kml_json_text(w, "message", message == NULL ? "" : message);
    time_of(w, "lastTransitionTime", ns);
    kml_json_close(w);
}

static void conditions(struct kml_json *w, const struct kml_status_view *v)
{
    bool over = v->completion_ns > 0;
    bool well = strcmp(v->phase, "Succeeded") == 0;
    kml_json_list(w, "conditions");
    condition(w, "Created", true, "KunalJobCreated", "", v->start_ns);
    if (v->running_ns > 0) {
        condition(w, "Running", !over, "KunalJobRunning", "", over ? v->completion_ns : v->running_ns);
    }
    if (over) {
        condition(w, well ? "Succeeded" : "Failed", true, v->reason == NULL ? "KunalJobSucceeded" : v->reason,
                  v->message, v->completion_ns);
    }
    kml_json_close(w);
}

static void role(struct kml_json *w, const char *name, const struct kml_status_role *r)
{
    kml_json_map(w, name);
    kml_json_uint(w, "desired", r->desired);
    kml_json_uint(w, "active", r->active);
    kml_json_uint(w, "ready", r->ready);
    kml_json_uint(w, "succeeded", r->succeeded);
    kml_json_uint(w, "failed", r->failed);
    kml_json_uint(w, "restarts", r->restarts);
    kml_json_close(w);
}

static void roles(struct kml_json *w, const struct kml_status_view *v)
{
    char text[32];
    kml_json_map(w, "replicaStatuses");
    role(w, "PS", &v->ps);
    role(w, "Worker", &v->worker);
    kml_json_close(w);
    kml_json_uint(w, "restarts", v->ps.restarts + v->worker.restarts);
    (void)snprintf(text, sizeof text, "%u/%u", (unsigned)v->worker.ready, (unsigned)v->worker.desired);
    kml_json_text(w, "workersReady", text);
    (void)snprintf(text, sizeof text, "%u/%u", (unsigned)v->ps.ready, (unsigned)v->ps.desired);
    kml_json_text(w, "psReady", text);
}

static void metric(struct kml_json *w, const char *name, double value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%.6g", value); /* metrics are texts, as those of Kubeflow are */
    kml_json_map(w, NULL);
    kml_json_text(w, "name", name);
    kml_json_text(w, "value", text);
    kml_json_close(w);
}

static uint64_t percentage(const Kunal__V1__JobStatus *s)
{
    double done = s->epochs == 0 ? 0 : ((double)s->epoch + s->epoch_fraction) / (double)s->epochs;
    return s->phase == KUNAL__V1__PHASE__SUCCEEDED || done > 1 ? 100 : done > 0 ? (uint64_t)(done * 100) : 0;
}

static void training(struct kml_json *w, const Kunal__V1__JobStatus *s, uint64_t updated_ns)
{
    kml_json_map(w, "training");
    kml_json_uint(w, "progressPercentage", percentage(s));
    kml_json_uint(w, "estimatedRemainingSeconds",
                  s->remaining_seconds > 0 ? (uint64_t)ceil(s->remaining_seconds) : 0);
    time_of(w, "lastUpdatedTime", updated_ns);
    kml_json_list(w, "metrics");
    metric(w, "train_loss", s->train_loss);
    if (s->has_evaluation) {
        metric(w, "loss", s->loss);
    }
    if (s->has_accuracy) {
        metric(w, "accuracy", s->accuracy);
    }
    metric(w, "samples_per_second", s->samples_per_second);
    metric(w, "training_seconds", s->training_seconds);
    metric(w, "samples", (double)s->samples);
    kml_json_close(w);
    kml_json_uint(w, "epoch", s->epoch);
    kml_json_uint(w, "version", s->version);
    kml_json_uint(w, "generation", s->generation);
    kml_json_close(w);
}

static void scheduling(struct kml_json *w, const Kunal__V1__JobStatus *s)
{
    size_t shown = s->n_workers < KML_STATUS_WORKERS_MAX ? s->n_workers : KML_STATUS_WORKERS_MAX;
    kml_json_map(w, "scheduling");
    kml_json_list(w, "shares");
    for (size_t i = 0; i < shown; i++) {
        const Kunal__V1__WorkerStatus *one = s->workers[i];
        kml_json_map(w, NULL);
        kml_json_uint(w, "worker", one->index);
        kml_json_real(w, "share", one->share);
        kml_json_real(w, "speed", one->samples_per_second);
        kml_json_uint(w, "staleness", one->staleness);
        kml_json_close(w);
    }
    kml_json_close(w);
    if (shown < s->n_workers) {
        kml_json_uint(w, "sharesLeftOut", s->n_workers - shown);
    }
    kml_json_text(w, "metricsSource", s->metrics_source);
    kml_json_close(w);
}

static void model(struct kml_json *w, const struct kml_status_view *v)
{
    const Kunal__V1__JobStatus *s = v->training;
    kml_json_map(w, "model");
    kml_json_text(w, "location", v->model);
    if (s != NULL && s->model_bytes > 0) {
        kml_json_uint(w, "bytes", s->model_bytes);
    }
    if (s != NULL && s->model_sha256.len == KML_SHA256_BYTES) {
        char hex[2 * KML_SHA256_BYTES + 1];
        kml_hex(s->model_sha256.data, s->model_sha256.len, hex);
        kml_json_text(w, "sha256", hex);
    }
    if (s != NULL && s->has_accuracy) {
        kml_json_real(w, "accuracy", s->accuracy);
    }
    kml_json_close(w);
}

int kml_status_json(const struct kml_status_view *v, struct kml_buf *out, struct kml_err *err)
{
    struct kml_json w;
    kml_json_begin(&w, out);
    kml_json_text(&w, "phase", v->phase);
    conditions(&w, v);
    time_of(&w, "startTime", v->start_ns);
    time_of(&w, "completionTime", v->completion_ns);
    roles(&w, v);
    if (v->training != NULL) {
        training(&w, v->training, v->updated_ns);
        scheduling(&w, v->training);
    }
    if (v->model != NULL) {
        model(&w, v);
    }
    return kml_json_end(&w, err);
}
