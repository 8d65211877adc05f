#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "ps/hello.h"
#include "ps/lead.h"
#include "wire/message.h"

/* The conversation with one worker or one other shard: its first message is Join, the answer JoinReply. */
struct kml_session {
    struct kml_lead *lead;
    struct kml_stream *stream;
    struct kml_session *next;
    bool joined;
    bool shard; /* else a worker */
    uint32_t index;
    uint64_t incarnation;
    uint64_t heard_ns;
    char gone[KML_ERR_TEXT]; /* why it says that it leaves; empty: it did not say */
};

const struct kml_stream_limits kml_session_limits = {.receive_max = KML_CONTROL_MAX,
                                                     .queue_max = (size_t)64 << 20};

/* ---- Sending ---- */

static void send(struct kml_session *s, struct kml_view bytes)
{
    struct kml_err err;
    if (kml_stream_send_view(s->stream, bytes, &err) < 0) {
        kml_stream_close(s->stream, &err); /* it does not read any more, or is going */
    }
}

static struct kml_view pack(struct kml_lead *l, const Kunal__V1__FromConductor *m)
{
    struct kml_err err;
    KML_BUG_ON(kml_message_pack(&m->base, &l->out, &err) < 0);
    return kml_buf_view(&l->out);
}

void kml_session_to_worker(struct kml_lead *l, uint32_t worker, const Kunal__V1__FromConductor *m)
{
    if (l->worker_session[worker] != NULL) {
        send(l->worker_session[worker], pack(l, m));
    }
}

void kml_session_to_shards(struct kml_lead *l, const Kunal__V1__FromConductor *m)
{
    if (l->conductor.shards == 1) {
        return;
    }
    struct kml_view bytes = pack(l, m);
    for (uint32_t s = 1; s < l->conductor.shards; s++) {
        if (l->shard_session[s] != NULL) {
            send(l->shard_session[s], bytes);
        }
    }
}

void kml_session_to_shard(struct kml_lead *l, uint32_t shard, const Kunal__V1__FromConductor *m)
{
    if (l->shard_session[shard] != NULL) {
        send(l->shard_session[shard], pack(l, m));
    }
}

void kml_session_to_all(struct kml_lead *l, const Kunal__V1__FromConductor *m)
{
    struct kml_view bytes = pack(l, m);
    for (struct kml_session *s = l->sessions; s != NULL; s = s->next) {
        if (s->joined) {
            send(s, bytes);
        }
    }
}

void kml_session_close_all(struct kml_lead *l)
{
    for (struct kml_session *s = l->sessions; s != NULL; s = s->next) {
        kml_stream_close(s->stream, NULL);
    }
}

bool kml_session_any(const struct kml_lead *l)
{
    return l->sessions != NULL;
}

void kml_session_expel(struct kml_lead *l, uint32_t worker, uint64_t incarnation, enum kml_code code,
                       const char *why)
{
    for (struct kml_session *s = l->sessions; s != NULL; s = s->next) {
        if (s->joined && !s->shard && s->index == worker && s->incarnation == incarnation) {
            struct kml_err err;
            (void)kml_fail(&err, code, "worker %u: %s", worker, why);
            kml_stream_close(s->stream, &err);
        }
    }
}

static void drop_silent_shards(struct kml_lead *l, uint64_t now)
{
    for (uint32_t i = 1; i < l->conductor.shards; i++) {
        struct kml_session *s = l->shard_session[i];
        if (s != NULL && now >= s->heard_ns + KML_SILENCE_NS) {
            (void)snprintf(s->gone, sizeof s->gone, "silent for too long");
            kml_stream_cancel(s->stream);
        }
    }
}

/* Whoever opens a session and does not join holds memory for nothing. */
static void drop_strangers(struct kml_lead *l, uint64_t now)
{
    for (struct kml_session *s = l->sessions; s != NULL; s = s->next) {
        if (!s->joined && now >= s->heard_ns + KML_JOIN_NS) {
            struct kml_err err;
            (void)kml_fail(&err, KML_TIMEOUT, "no Join within %llu s",
                           (unsigned long long)(KML_JOIN_NS / KML_SECOND));
            kml_stream_close(s->stream, &err);
        }
    }
}

void kml_session_drop_silent(struct kml_lead *l, uint64_t now)
{
    drop_silent_shards(l, now);
    drop_strangers(l, now);
}

/* ---- Joining ---- */

static int read_layout(const Kunal__V1__Layout *from, struct kml_layout *to, struct kml_err *err)
{
    if (from == NULL || from->n_tensors == 0) {
        return kml_fail(err, KML_INVALID, "a worker joins with the layout of its model");
    }
    for (size_t i = 0; i < from->n_tensors; i++) {
        const Kunal__V1__Tensor *t = from->tensors[i];
        if (t->n_shape > KML_LAYOUT_DIMS) {
            return kml_fail(err, KML_INVALID, "tensor %.128s has more than %d dimensions", t->name,
                            KML_LAYOUT_DIMS);
        }
        if (kml_layout_add(to, t->name, t->shape, (uint32_t)t->n_shape, err) < 0) {
            return -1;
        }
    }
    return 0;
}

/* What the first worker says of the data is kept before it is a member: a refusal leaves nothing behind. */
static int keep_metadata(struct kml_lead *l, const Kunal__V1__Join *j, struct kml_err *err)
{
    if (l->conductor.have_layout) {
        return 0;
    }
    kml_save_forget(&l->save);
    for (size_t i = 0; i < j->n_metadata; i++) {
        if (kml_save_note(&l->save, j->metadata[i]->key, j->metadata[i]->value, err) < 0) {
            return -1;
        }
    }
    return 0;
}

static int join_worker(struct kml_session *s, const Kunal__V1__Join *j, struct kml_err *err)
{
    struct kml_lead *l = s->lead;
    struct kml_worker_join join = {.index = j->index,
                                   .incarnation = j->incarnation,
                                   .train_samples = j->train_samples,
                                   .validation_samples = j->validation_samples,
                                   .test_samples = j->test_samples,
                                   .digest_size = (uint32_t)j->data_digest.len};
    if (j->index >= l->conductor.workers || j->data_digest.len > KML_DIGEST_MAX) {
        return kml_fail(err, KML_INVALID, "worker %u of %u with a digest of %zu bytes", j->index,
                        l->conductor.workers, j->data_digest.len);
    }
    if (j->data_digest.len > 0) {
        memcpy(join.digest, j->data_digest.data, j->data_digest.len);
    }
    struct kml_session *former = l->worker_session[j->index];
    kml_layout_init(&join.layout);
    int result = read_layout(j->layout, &join.layout, err);
    if (result == 0) {
        result = keep_metadata(l, j, err);
    }
    if (result == 0) {
        l->worker_session[j->index] = s; /* the welcome is sent from inside the call */
        result = kml_conductor_worker_join(&l->conductor, &join, kml_lead_now(l), err);
    }
    kml_layout_finish(&join.layout);
    if (result < 0) {
        l->worker_session[j->index] = former;
        return -1;
    }
    return 0;
}

static int join_shard(struct kml_session *s, const Kunal__V1__Join *j, struct kml_err *err)
{
    struct kml_lead *l = s->lead;
    if (j->index == 0 || j->index >= l->conductor.shards || j->address[0] == '\0' ||
        strlen(j->address) > 1024) {
        return kml_fail(err, KML_INVALID, "shard %u of %u joined with address '%.64s'", j->index,
                        l->conductor.shards, j->address);
    }
    if (l->shard_session[j->index] != NULL) {
        return kml_fail(err, KML_EXISTS, "shard %u is here already", j->index);
    }
    kml_free(l->shard_address[j->index]);
    l->shard_address[j->index] = kml_strdup(j->address);
    l->shard_session[j->index] = s;
    Kunal__V1__JoinReply reply = KUNAL__V1__JOIN_REPLY__INIT;
    Kunal__V1__FromConductor m = KUNAL__V1__FROM_CONDUCTOR__INIT;
    reply.generation = l->conductor.generation;
    reply.workers = l->conductor.workers;
    m.message_case = KUNAL__V1__FROM_CONDUCTOR__MESSAGE_JOINED;
    m.joined = &reply;
    send(s, pack(l, &m));
    if (kml_conductor_shard_join(&l->conductor, j->index, kml_lead_now(l), err) < 0) {
        l->shard_session[j->index] = NULL;
        return -1;
    }
    return 0;
}

static int take_join(struct kml_session *s, const Kunal__V1__Join *j, struct kml_err *err)
{
    struct kml_lead *l = s->lead;
    bool shard = j->role == KUNAL__V1__ROLE__PS;
    if (kml_check_hello(j->protocol, j->job_uid, l->start->uid, err) < 0) {
        return -1;
    }
    if (!shard && j->role != KUNAL__V1__ROLE__WORKER) {
        return kml_fail(err, KML_INVALID, "a session is joined by a worker or a PS");
    }
    if (kml_check_identity(l->mutual, kml_stream_peer(s->stream), l->start->uid, shard ? "ps" : "worker",
                           j->index, err) < 0) {
        return -1;
    }
    s->joined = true;
    s->shard = shard;
    s->index = j->index;
    s->incarnation = j->incarnation;
    s->heard_ns = kml_lead_now(l);
    if ((shard ? join_shard(s, j, err) : join_worker(s, j, err)) < 0) {
        s->joined = false;
        return -1;
    }
    return 0;
}

/* ---- What joined peers say ---- */

static void take_report(struct kml_session *s, const Kunal__V1__StepReport *r)
{
    struct kml_step_report report = {.step = r->step,
                                     .samples = r->samples,
                                     .loss_sum = r->loss_sum,
                                     .correct = r->correct,
                                     .compute_ns = r->compute_ns,
                                     .wait_ns = r->wait_ns,
                                     .cpu_ns = r->cpu_ns,
                                     .throttled_ns = r->throttled_ns,
                                     .throttled_known = r->throttled_known};
    kml_conductor_report(&s->lead->conductor, s->index, s->incarnation, &report, kml_lead_now(s->lead));
}

static void take_result(struct kml_session *s, const Kunal__V1__EvaluationResult *r)
{
    struct kml_evaluation_result result = {.lease = r->lease,
                                           .samples = r->samples,
                                           .loss_sum = r->loss_sum,
                                           .correct = r->correct,
                                           .has_accuracy = r->has_accuracy};
    kml_conductor_evaluated(&s->lead->conductor, s->index, s->incarnation, &result, kml_lead_now(s->lead));
}

/* A job that failed never ends with 0, whatever the peer says or forgets to say. */
static uint32_t failure_code(uint32_t said)
{
    return said > 0 && said < 126 ? said : (uint32_t)kml_code_exit(KML_INTERNAL);
}

static void take_leaving(struct kml_session *s, const Kunal__V1__Leaving *leaving)
{
    (void)snprintf(s->gone, sizeof s->gone, "%s", leaving->reason[0] != '\0' ? leaving->reason : "it left");
    if (leaving->failed) {
        char text[KML_ERR_TEXT];
        (void)snprintf(text, sizeof text, "%s %u: %.400s", s->shard ? "PS" : "worker", s->index, s->gone);
        kml_conductor_fail(&s->lead->conductor, s->shard ? "ParameterServerFailed" : "WorkerFailed", text,
                           failure_code(leaving->exit_code), kml_lead_now(s->lead));
    }
    kml_stream_close(s->stream, NULL);
}

static int from_worker(struct kml_session *s, const Kunal__V1__ToConductor *m, struct kml_err *err)
{
    kml_conductor_heard(&s->lead->conductor, s->index, s->incarnation, kml_lead_now(s->lead));
    switch (m->message_case) {
    case KUNAL__V1__TO_CONDUCTOR__MESSAGE_HEARTBEAT:
        return 0;
    case KUNAL__V1__TO_CONDUCTOR__MESSAGE_REPORT:
        take_report(s, m->report);
        return 0;
    case KUNAL__V1__TO_CONDUCTOR__MESSAGE_EVALUATED:
        take_result(s, m->evaluated);
        return 0;
    case KUNAL__V1__TO_CONDUCTOR__MESSAGE_LEAVING:
        take_leaving(s, m->leaving);
        return 0;
    default:
        return kml_fail(err, KML_PROTOCOL, "a worker does not send message %d", (int)m->message_case);
    }
}

static int from_shard(struct kml_session *s, const Kunal__V1__ToConductor *m, struct kml_err *err)
{
    struct kml_lead *l = s->lead;
    s->heard_ns = kml_lead_now(l);
    switch (m->message_case) {
    case KUNAL__V1__TO_CONDUCTOR__MESSAGE_HEARTBEAT:
        return 0;
    case KUNAL__V1__TO_CONDUCTOR__MESSAGE_STAGED:
        kml_conductor_staged(&l->conductor, s->index, m->staged->worker, m->staged->incarnation,
                             m->staged->step, m->staged->square_sum, m->staged->non_finite, kml_lead_now(l));
        return 0;
    case KUNAL__V1__TO_CONDUCTOR__MESSAGE_PART:
        kml_lead_part(l, s->index, m->part->offset, m->part->data.data, m->part->data.len, m->part->last);
        return 0;
    case KUNAL__V1__TO_CONDUCTOR__MESSAGE_LEAVING:
        take_leaving(s, m->leaving);
        return 0;
    default:
        return kml_fail(err, KML_PROTOCOL, "a PS does not send message %d", (int)m->message_case);
    }
}

static int take(struct kml_session *s, const Kunal__V1__ToConductor *m, struct kml_err *err)
{
    if (!s->joined) {
        return m->message_case == KUNAL__V1__TO_CONDUCTOR__MESSAGE_JOIN
                   ? take_join(s, m->join, err)
                   : kml_fail(err, KML_PROTOCOL, "the first message of a session must be Join");
    }
    return s->shard ? from_shard(s, m, err) : from_worker(s, m, err);
}

static void session_message(void *self, struct kml_stream *stream, const struct kml_slices *bytes)
{
    struct kml_session *s = self;
    struct kml_err err;
    ProtobufCMessage *m = NULL;
    int result = kml_message_unpack(&kunal__v1__to_conductor__descriptor, bytes, &m, &err);
    if (result == 0) {
        result = take(s, (const Kunal__V1__ToConductor *)m, &err);
    }
    kml_message_free(m);
    if (result < 0) {
        kml_warn("session refused", kv_s("peer", kml_stream_peer(stream)->address), kv_err(&err));
        kml_stream_close(stream, &err);
    }
}

static void unlink_session(struct kml_session *s)
{
    struct kml_session **at = &s->lead->sessions;
    while (*at != s) {
        at = &(*at)->next;
    }
    *at = s->next;
}

static void session_closed(void *self, struct kml_stream *stream, const struct kml_err *why)
{
    (void)stream;
    struct kml_session *s = self;
    struct kml_lead *l = s->lead;
    unlink_session(s);
    const char *text = s->gone[0] != '\0' ? s->gone : why->code == KML_OK ? "its session ended" : why->text;
    if (s->joined && s->shard && l->shard_session[s->index] == s) {
        l->shard_session[s->index] = NULL;
        kml_conductor_shard_left(&l->conductor, s->index, text, kml_lead_now(l));
    } else if (s->joined && !s->shard && l->worker_session[s->index] == s) {
        l->worker_session[s->index] = NULL;
        kml_conductor_worker_left(&l->conductor, s->index, s->incarnation, text, kml_lead_now(l));
    }
    kml_free(s);
}

static const struct kml_stream_ops session_ops = {.message = session_message, .closed = session_closed};

int kml_session_opened(struct kml_lead *l, struct kml_stream *stream, const struct kml_peer *peer,
                       const struct kml_stream_ops **ops, void **self, struct kml_err *err)
{
    (void)peer;
    (void)err;
    struct kml_session *s = KML_NEW(struct kml_session);
    s->lead = l;
    s->stream = stream;
    s->heard_ns = kml_lead_now(l);
    s->next = l->sessions;
    l->sessions = s;
    *ops = &session_ops;
    *self = s;
    return 0;
}
