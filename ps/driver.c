#include <string.h>

#include "base/mem.h"
#include "ps/hello.h"
#include "ps/lead.h"
#include "wire/message.h"

#define MODEL_PIECE ((size_t)1 << 20) /* bytes of the model file in one answer */

/* Only the driver of this job may ask: the operator, or `kunal run`. */
static int admit(struct kml_lead *l, const struct kml_peer *peer, const char *uid, struct kml_err *err)
{
    if (strcmp(uid, l->start->uid) != 0) {
        return kml_fail(err, KML_DENIED, "this is job %s, not %.63s", l->start->uid, uid);
    }
    return kml_check_identity(l->mutual, peer, l->start->uid, "driver", 0, err);
}

/* ---- Node metrics ---- */

static void take_metric(struct kml_lead *l, const Kunal__V1__NodeMetric *n)
{
    if (n->role != KUNAL__V1__ROLE__WORKER) {
        return;
    }
    kml_conductor_cpu(&l->conductor, n->index, n->cpu_known, n->cpu_cores, n->age_ns, kml_lead_now(l));
}

int kml_driver_node_metrics(void *self, const struct kml_peer *peer, const struct kml_slices *request,
                            struct kml_buf *reply, struct kml_err *err)
{
    struct kml_lead *l = self;
    ProtobufCMessage *m;
    if (kml_message_unpack(&kunal__v1__node_metrics__descriptor, request, &m, err) < 0) {
        return -1;
    }
    const Kunal__V1__NodeMetrics *metrics = (const Kunal__V1__NodeMetrics *)m;
    int result = admit(l, peer, metrics->job_uid, err);
    if (result == 0) {
        for (size_t i = 0; i < metrics->n_nodes; i++) {
            take_metric(l, metrics->nodes[i]);
        }
        kml_free(l->metrics_source);
        l->metrics_source = kml_strndup(metrics->source, 64);
        Kunal__V1__NodeMetricsReply answer = KUNAL__V1__NODE_METRICS_REPLY__INIT;
        result = kml_message_pack(&answer.base, reply, err);
    }
    kml_message_free(m);
    return result;
}

/* ---- Status ---- */

static void fill_worker(const struct kml_lead *l, uint32_t index, uint64_t dealt,
                        Kunal__V1__WorkerStatus *out)
{
    const struct kml_conductor_worker *k = &l->conductor.worker[index];
    double busy = (double)(k->compute_ns + k->wait_ns);
    kunal__v1__worker_status__init(out);
    out->index = index;
    out->present = k->state != KML_MEMBER_AWAY;
    out->incarnation = k->incarnation;
    out->steps = k->steps;
    out->samples = k->samples;
    out->share = dealt > 0 ? (double)k->epoch_samples / (double)dealt : 0;
    out->staleness = k->staleness;
    out->samples_per_second = k->speed;
    out->wait_fraction = busy > 0 ? (double)k->wait_ns / busy : 0;
    out->cpu_known = k->cpu_known;
    out->cpu_cores = k->cpu_cores;
    out->joins = k->joins;
    out->refused_gradients = k->refused;
    out->evaluating = k->state == KML_MEMBER_EVALUATING;
}

static void fill_training(struct kml_lead *l, Kunal__V1__JobStatus *out)
{
    const struct kml_conductor *c = &l->conductor;
    out->epoch = c->ledger.closed;
    out->epochs = l->job->training.epochs;
    out->epoch_fraction =
        c->phase == KML_PHASE_STARTING ? 0 : kml_ledger_epoch_progress(&c->ledger, c->ledger.closed);
    out->version = c->barrier.version;
    out->generation = c->generation;
    out->train_loss = c->train_loss;
    if (c->ledger.closed == 0 && c->epoch_count[0] > 0) {
        out->train_loss = c->epoch_loss[0] / (double)c->epoch_count[0];
    }
    out->loss = c->loss;
    out->accuracy = c->has_accuracy ? c->accuracy : 0;
    out->has_accuracy = c->has_accuracy;
    out->has_evaluation = c->has_evaluation;
    out->samples_per_second = kml_journal_rate(&l->journal, c);
    out->training_seconds = c->training_ns / 1e9;
    out->evaluation_seconds = c->evaluation_ns / 1e9;
    out->remaining_seconds = kml_journal_remaining(c);
    out->samples = c->samples;
}

static uint32_t shards_present(const struct kml_conductor *c)
{
    uint32_t present = 0;
    for (uint32_t s = 0; s < c->shards; s++) {
        present += c->shard_present[s];
    }
    return present;
}

static int pack_status(struct kml_lead *l, struct kml_buf *reply, struct kml_err *err)
{
    struct kml_conductor *c = &l->conductor;
    Kunal__V1__JobStatus status = KUNAL__V1__JOB_STATUS__INIT;
    Kunal__V1__WorkerStatus *worker = KML_NEW_ARRAY(c->workers, Kunal__V1__WorkerStatus);
    Kunal__V1__WorkerStatus **workers = KML_NEW_ARRAY(c->workers, Kunal__V1__WorkerStatus *);
    uint64_t dealt = 0;
    for (uint32_t w = 0; w < c->workers; w++) {
        dealt += c->worker[w].epoch_samples;
    }
    for (uint32_t w = 0; w < c->workers; w++) {
        fill_worker(l, w, dealt, &worker[w]);
        workers[w] = &worker[w];
    }
    fill_training(l, &status);
    status.phase = (Kunal__V1__Phase)c->phase;
    status.reason = c->reason;
    status.message = c->message;
    status.exit_code = c->exit_code;
    status.workers = workers;
    status.n_workers = c->workers;
    status.shards = c->shards;
    status.shards_present = shards_present(c);
    status.warnings = c->warning;
    status.n_warnings = c->warnings;
    if (l->metrics_source != NULL) {
        status.metrics_source = l->metrics_source;
    }
    if (l->save.location != NULL) {
        status.model_location = l->save.location;
        status.model_bytes = kml_save_bytes(&l->save);
        status.model_sha256 = (ProtobufCBinaryData){sizeof l->save.sha256, l->save.sha256};
    }
    int result = kml_message_pack(&status.base, reply, err);
    kml_free(worker);
    kml_free(workers);
    return result;
}

int kml_driver_status(void *self, const struct kml_peer *peer, const struct kml_slices *request,
                      struct kml_buf *reply, struct kml_err *err)
{
    struct kml_lead *l = self;
    ProtobufCMessage *m;
    if (kml_message_unpack(&kunal__v1__status_request__descriptor, request, &m, err) < 0) {
        return -1;
    }
    int result = admit(l, peer, ((const Kunal__V1__StatusRequest *)m)->job_uid, err);
    kml_message_free(m);
    if (result < 0) {
        return -1;
    }
    kml_conductor_account(&l->conductor, kml_lead_now(l));
    if (pack_status(l, reply, err) < 0) {
        return -1;
    }
    l->told_driver = kml_conductor_over(&l->conductor);
    return 0;
}

/* ---- The model ---- */

static int pack_piece(const struct kml_lead *l, uint64_t offset, struct kml_buf *reply, struct kml_err *err)
{
    uint64_t total = kml_save_bytes(&l->save);
    if (!l->save.made) {
        return kml_fail(err, KML_NOT_FOUND, "the model is not finished yet");
    }
    if (offset > total) {
        return kml_fail(err, KML_INVALID, "the model has %llu bytes", (unsigned long long)total);
    }
    size_t size = total - offset < MODEL_PIECE ? (size_t)(total - offset) : MODEL_PIECE;
    kml_auto_free uint8_t *data = kml_alloc(size);
    uint8_t sha256[KML_SHA256_BYTES];
    memcpy(sha256, l->save.sha256, sizeof sha256);
    kml_save_read(&l->save, offset, data, size);
    Kunal__V1__ModelPart part = KUNAL__V1__MODEL_PART__INIT;
    part.offset = offset;
    part.total = total;
    part.last = offset + size == total;
    part.sha256 = (ProtobufCBinaryData){sizeof sha256, sha256};
    part.data = (ProtobufCBinaryData){size, data};
    return kml_message_pack(&part.base, reply, err);
}

int kml_driver_fetch(void *self, const struct kml_peer *peer, const struct kml_slices *request,
                     struct kml_buf *reply, struct kml_err *err)
{
    struct kml_lead *l = self;
    ProtobufCMessage *m;
    if (kml_message_unpack(&kunal__v1__fetch_model_request__descriptor, request, &m, err) < 0) {
        return -1;
    }
    const Kunal__V1__FetchModelRequest *r = (const Kunal__V1__FetchModelRequest *)m;
    int result = admit(l, peer, r->job_uid, err);
    if (result == 0) {
        result = pack_piece(l, r->offset, reply, err);
    }
    kml_message_free(m);
    return result;
}

/* The driver has stored the model itself (output configmap://): with that the job is done. */
static int take_stored(struct kml_lead *l, const Kunal__V1__ModelStored *stored, struct kml_err *err)
{
    if (!l->save.made || stored->sha256.len != KML_SHA256_BYTES ||
        memcmp(stored->sha256.data, l->save.sha256, KML_SHA256_BYTES) != 0) {
        return kml_fail(err, KML_CONFLICT, "what was stored is not this job's model");
    }
    if (l->save.location == NULL) {
        l->save.location = kml_strdup(l->job->output.uri != NULL ? l->job->output.uri : "driver");
        kml_conductor_saved(&l->conductor, kml_lead_now(l));
    }
    return 0;
}

int kml_driver_stored(void *self, const struct kml_peer *peer, const struct kml_slices *request,
                      struct kml_buf *reply, struct kml_err *err)
{
    struct kml_lead *l = self;
    ProtobufCMessage *m;
    if (kml_message_unpack(&kunal__v1__model_stored__descriptor, request, &m, err) < 0) {
        return -1;
    }
    const Kunal__V1__ModelStored *stored = (const Kunal__V1__ModelStored *)m;
    int result = admit(l, peer, stored->job_uid, err) < 0 ? -1 : take_stored(l, stored, err);
    kml_message_free(m);
    if (result == 0) {
        Kunal__V1__ModelStoredReply answer = KUNAL__V1__MODEL_STORED_REPLY__INIT;
        result = kml_message_pack(&answer.base, reply, err);
    }
    return result;
}

/* ---- Stop ---- */

int kml_driver_stop(void *self, const struct kml_peer *peer, const struct kml_slices *request,
                    struct kml_buf *reply, struct kml_err *err)
{
    struct kml_lead *l = self;
    ProtobufCMessage *m;
    if (kml_message_unpack(&kunal__v1__stop_job_request__descriptor, request, &m, err) < 0) {
        return -1;
    }
    const Kunal__V1__StopJobRequest *r = (const Kunal__V1__StopJobRequest *)m;
    int result = admit(l, peer, r->job_uid, err);
    if (result == 0) {
        kml_conductor_stop(&l->conductor, r->reason, kml_lead_now(l));
        Kunal__V1__StopJobReply answer = KUNAL__V1__STOP_JOB_REPLY__INIT;
        result = kml_message_pack(&answer.base, reply, err);
    }
    kml_message_free(m);
    return result;
}
