#include "ps/follow.h"

#include <stdio.h>
#include <string.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/signals.h"
#include "kunal/v1/control.pb-c.h"
#include "ps/address.h"
#include "ps/host.h"
#include "rpc/channel.h"
#include "wire/message.h"

#define BEAT_NS (2 * KML_SECOND)
#define SILENCE_NS (30 * KML_SECOND) /* a conductor that says nothing for so long is gone */
#define REACH_NS (60 * KML_SECOND)   /* how long to try to reach it at first */

struct follow {
    const struct kml_job *job;
    const struct kml_start *start;
    struct kml_clock clock;
    struct kml_loop *loop;
    struct kml_server *server;
    struct kml_channel *channel;
    struct kml_stream *session; /* NULL: none now */
    struct kml_host *host;
    struct kml_buf out;
    struct kml_backoff backoff;
    uint64_t incarnation;
    char *address; /* where workers reach us */
    bool joined;
    bool over;
    int code;           /* when over */
    struct kml_err why; /* when code is not 0 */
    uint64_t heard_ns, next_beat_ns, retry_ns, reach_until_ns;
    struct kml_shard_member *member; /* [workers] scratch of a commit */
};

static void end(struct follow *f, int code, enum kml_code kind, const char *text)
{
    if (!f->over) {
        f->over = true;
        f->code = code;
        (void)kml_fail(&f->why, kind, "%s", text);
    }
}

static void tell(struct follow *f, const Kunal__V1__ToConductor *m)
{
    struct kml_err err;
    KML_BUG_ON(kml_message_pack(&m->base, &f->out, &err) < 0);
    if (f->session != NULL && kml_stream_send_view(f->session, kml_buf_view(&f->out), &err) < 0) {
        kml_stream_close(f->session, NULL);
    }
}

/* ---- What the host says ---- */

static void host_staged(void *self, uint32_t worker, uint64_t incarnation, uint64_t step, double square_sum,
                        bool non_finite)
{
    Kunal__V1__Staged staged = KUNAL__V1__STAGED__INIT;
    Kunal__V1__ToConductor m = KUNAL__V1__TO_CONDUCTOR__INIT;
    staged.worker = worker;
    staged.incarnation = incarnation;
    staged.step = step;
    staged.square_sum = square_sum;
    staged.non_finite = non_finite;
    m.message_case = KUNAL__V1__TO_CONDUCTOR__MESSAGE_STAGED;
    m.staged = &staged;
    tell(self, &m);
}

static void host_failed(void *self, const struct kml_err *err)
{
    struct follow *f = self;
    char text[KML_ERR_TEXT];
    (void)snprintf(text, sizeof text, "%s", err->text);
    Kunal__V1__Leaving leaving = KUNAL__V1__LEAVING__INIT;
    Kunal__V1__ToConductor m = KUNAL__V1__TO_CONDUCTOR__INIT;
    leaving.reason = text;
    leaving.failed = true;
    leaving.exit_code = (uint32_t)kml_code_exit(err->code);
    m.message_case = KUNAL__V1__TO_CONDUCTOR__MESSAGE_LEAVING;
    m.leaving = &leaving;
    tell(f, &m);
    end(f, kml_code_exit(err->code), err->code, err->text);
}

/* ---- Orders ---- */

static int need_shard(struct follow *f, struct kml_err *err)
{
    return kml_host_shard(f->host) != NULL ? 0 : kml_fail(err, KML_PROTOCOL, "an order before Setup");
}

static int take_setup(struct follow *f, const Kunal__V1__Setup *s, struct kml_err *err)
{
    struct kml_shardmap map;
    if (kml_shardmap_init(&map, s->elements, f->job->ps.replicas, s->chunk_elements, err) < 0) {
        return -1;
    }
    struct kml_span span = kml_shardmap_shard(&map, f->start->index);
    if (span.begin != s->begin || span.end != s->end) {
        return kml_fail(err, KML_PROTOCOL,
                        "the conductor cuts the shards in another way; use one release for the whole job");
    }
    kml_host_setup(f->host, &map, f->start->index, s->generation);
    return 0;
}

static int take_admit(struct follow *f, const Kunal__V1__Admit *a, struct kml_err *err)
{
    if (a->worker >= f->job->worker.replicas) {
        return kml_fail(err, KML_PROTOCOL, "admit of worker %u", a->worker);
    }
    if (a->withdrawn) {
        kml_host_dismiss(f->host, a->worker, a->incarnation);
    } else {
        kml_host_admit(f->host, a->worker, a->incarnation);
    }
    return 0;
}

static int check_workers(const struct follow *f, const uint32_t *worker, size_t count, struct kml_err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (worker[i] >= f->job->worker.replicas) {
            return kml_fail(err, KML_PROTOCOL, "an order names worker %u", worker[i]);
        }
    }
    return 0;
}

static int take_commit(struct follow *f, const Kunal__V1__Commit *c, struct kml_err *err)
{
    if (c->n_members > f->job->worker.replicas) {
        return kml_fail(err, KML_PROTOCOL, "a commit of %zu workers", c->n_members);
    }
    for (size_t i = 0; i < c->n_members; i++) {
        const Kunal__V1__CommitMember *m = c->members[i];
        f->member[i] = (struct kml_shard_member){m->worker, m->incarnation, m->step, m->coefficient};
    }
    if (check_workers(f, c->release, c->n_release, err) < 0) {
        return -1;
    }
    struct kml_shard_commit commit = {.version = c->version,
                                      .member = f->member,
                                      .count = (uint32_t)c->n_members,
                                      .learning_rate = c->learning_rate * c->step_scale};
    kml_host_commit(f->host, &commit, c->release, (uint32_t)c->n_release);
    return 0;
}

static int take_release(struct follow *f, const Kunal__V1__Release *r, struct kml_err *err)
{
    if (check_workers(f, r->workers, r->n_workers, err) < 0) {
        return -1;
    }
    kml_host_release(f->host, r->version, r->workers, (uint32_t)r->n_workers);
    return 0;
}

static int take_gather(struct follow *f, const Kunal__V1__Gather *g, struct kml_err *err)
{
    struct kml_shard *shard = kml_host_shard(f->host);
    for (uint32_t c = 0; c < kml_shard_chunks(shard); c++) {
        struct kml_span span = kml_shard_span(shard, c);
        struct kml_block *block = kml_shard_block(shard, g->version, c);
        if (block == NULL) {
            return kml_fail(err, KML_CONFLICT, "version %llu is not here", (unsigned long long)g->version);
        }
        size_t size = (span.end - span.begin) * sizeof(float);
        kml_auto_free uint8_t *copy = kml_alloc(size);
        memcpy(copy, kml_block_data(block), size);
        kml_block_drop(block);
        Kunal__V1__ModelPart part = KUNAL__V1__MODEL_PART__INIT;
        Kunal__V1__ToConductor m = KUNAL__V1__TO_CONDUCTOR__INIT;
        part.offset = span.begin;
        part.last = c + 1 == kml_shard_chunks(shard);
        part.data = (ProtobufCBinaryData){size, copy};
        m.message_case = KUNAL__V1__TO_CONDUCTOR__MESSAGE_PART;
        m.part = &part;
        tell(f, &m);
    }
    return 0;
}

static int take_order(struct follow *f, const Kunal__V1__FromConductor *m, struct kml_err *err)
{
    if (need_shard(f, err) < 0) {
        return -1;
    }
    switch (m->message_case) {
    case KUNAL__V1__FROM_CONDUCTOR__MESSAGE_ADMIT:
        return take_admit(f, m->admit, err);
    case KUNAL__V1__FROM_CONDUCTOR__MESSAGE_COMMIT:
        return take_commit(f, m->commit, err);
    case KUNAL__V1__FROM_CONDUCTOR__MESSAGE_RELEASE:
        return take_release(f, m->release, err);
    case KUNAL__V1__FROM_CONDUCTOR__MESSAGE_GATHER:
        return take_gather(f, m->gather, err);
    case KUNAL__V1__FROM_CONDUCTOR__MESSAGE_PIN:
        if (m->pin->unpin) {
            kml_host_unpin(f->host, m->pin->version);
        } else {
            kml_host_pin(f->host, m->pin->version);
        }
        return 0;
    default:
        return kml_fail(err, KML_PROTOCOL, "the conductor sent message %d to a PS", (int)m->message_case);
    }
}

static int take(struct follow *f, const Kunal__V1__FromConductor *m, struct kml_err *err)
{
    switch (m->message_case) {
    case KUNAL__V1__FROM_CONDUCTOR__MESSAGE_JOINED:
        f->joined = true;
        kml_info("joined", kv_u("generation", m->joined->generation));
        return 0;
    case KUNAL__V1__FROM_CONDUCTOR__MESSAGE_HEARTBEAT:
        return 0;
    case KUNAL__V1__FROM_CONDUCTOR__MESSAGE_SETUP:
        return take_setup(f, m->setup, err);
    case KUNAL__V1__FROM_CONDUCTOR__MESSAGE_FINISHED:
        end(f, 0, KML_OK, "finished");
        return 0;
    case KUNAL__V1__FROM_CONDUCTOR__MESSAGE_STOP:
        end(f, (int)(m->stop->exit_code & 0xff), KML_CANCELLED, m->stop->reason);
        return 0;
    default:
        return take_order(f, m, err);
    }
}

/* ---- The session ---- */

static void session_message(void *self, struct kml_stream *s, const struct kml_slices *bytes)
{
    struct follow *f = self;
    struct kml_err err;
    ProtobufCMessage *m = NULL;
    f->heard_ns = kml_now(&f->clock);
    int result = kml_message_unpack(&kunal__v1__from_conductor__descriptor, bytes, &m, &err);
    if (result == 0) {
        result = take(f, (const Kunal__V1__FromConductor *)m, &err);
    }
    kml_message_free(m);
    if (result < 0) {
        host_failed(f, &err);
        kml_stream_close(s, NULL);
    }
}

static void session_closed(void *self, struct kml_stream *s, const struct kml_err *why)
{
    (void)s;
    struct follow *f = self;
    f->session = NULL;
    char text[KML_ERR_TEXT];
    if (f->joined) {
        (void)snprintf(text, sizeof text, "the conductor at %s is gone: %.300s", f->start->conductor,
                       why->code == KML_OK ? "it closed the session" : why->text);
        end(f, kml_code_exit(KML_UNAVAILABLE), KML_UNAVAILABLE, text);
    } else if (why->code != KML_OK && !kml_code_retryable(why->code)) {
        end(f, kml_code_exit(why->code), why->code, why->text);
    } else {
        uint64_t now = kml_now(&f->clock);
        f->retry_ns = now + kml_backoff_failed(&f->backoff);
        if (now >= f->reach_until_ns) {
            (void)snprintf(text, sizeof text, "the conductor at %s cannot be reached: %.300s",
                           f->start->conductor, why->text);
            end(f, kml_code_exit(KML_UNAVAILABLE), KML_UNAVAILABLE, text);
        }
    }
}

static const struct kml_stream_ops session_ops = {.message = session_message, .closed = session_closed};

static int call(struct follow *f, struct kml_err *err)
{
    static const struct kml_stream_limits limits = {.receive_max = KML_CONTROL_MAX,
                                                    .queue_max = (size_t)16 << 30};
    char uid[KML_JOB_UID_MAX + 1];
    if (kml_stream_call(f->channel, "/kunal.v1.Control/Session", &session_ops, f, &limits, &f->session, err) <
        0) {
        return -1;
    }
    (void)snprintf(uid, sizeof uid, "%s", f->start->uid);
    Kunal__V1__Join join = KUNAL__V1__JOIN__INIT;
    Kunal__V1__ToConductor m = KUNAL__V1__TO_CONDUCTOR__INIT;
    join.protocol = KML_PROTOCOL_VERSION;
    join.job_uid = uid;
    join.role = KUNAL__V1__ROLE__PS;
    join.index = f->start->index;
    join.incarnation = f->incarnation;
    join.address = f->address;
    m.message_case = KUNAL__V1__TO_CONDUCTOR__MESSAGE_JOIN;
    m.join = &join;
    tell(f, &m);
    f->heard_ns = kml_now(&f->clock);
    return 0;
}

/* ---- The program ---- */

static int open_exchange(void *self, struct kml_stream *s, const struct kml_peer *peer,
                         const struct kml_stream_ops **ops, void **stream_self, struct kml_err *err)
{
    return kml_host_opened(((struct follow *)self)->host, s, peer, ops, stream_self, err);
}

static int open_all(struct follow *f, struct kml_creds *creds, struct kml_err *err)
{
    static struct kml_method method = {.name = "/kunal.v1.Data/Exchange", .opened = open_exchange};
    method.limits = kml_host_limits;
    if (kml_server_create(f->loop, f->start->listen, creds, &method, 1, f, &f->server, err) < 0 ||
        kml_channel_create(f->loop, f->start->conductor, creds, &f->channel, err) < 0) {
        return -1;
    }
    f->address = kml_own_address(f->start, f->server);
    return call(f, err);
}

static void beat(struct follow *f, uint64_t now)
{
    if (now >= f->next_beat_ns) {
        f->next_beat_ns = now + BEAT_NS;
        Kunal__V1__Heartbeat heartbeat = KUNAL__V1__HEARTBEAT__INIT;
        Kunal__V1__ToConductor m = KUNAL__V1__TO_CONDUCTOR__INIT;
        heartbeat.sent_ns = now;
        m.message_case = KUNAL__V1__TO_CONDUCTOR__MESSAGE_HEARTBEAT;
        m.heartbeat = &heartbeat;
        tell(f, &m);
    }
}

static void tick(struct follow *f, uint64_t now, struct kml_err *err)
{
    if (f->session == NULL && now >= f->retry_ns && call(f, err) < 0) {
        end(f, kml_code_exit(err->code), err->code, err->text);
    }
    if (f->session != NULL && now >= f->heard_ns + SILENCE_NS) {
        kml_stream_cancel(f->session);
    }
    if (f->joined) {
        beat(f, now);
    }
}

static void run(struct follow *f, int (*stop_asked)(void), struct kml_err *err)
{
    while (!f->over) {
        uint64_t now = kml_now(&f->clock);
        uint64_t until = f->session == NULL ? f->retry_ns : now + KML_SECOND;
        (void)kml_loop_run(f->loop, until, true);
        int taken = stop_asked();
        if (taken != 0) {
            /* The conductor decides what becomes of the job; without it there is nothing to wait for. */
            end(f, kml_code_exit(KML_CANCELLED), KML_CANCELLED,
                taken == KML_SIGNALS_PARENT ? "the process that started this one is gone"
                                            : "stopped by a signal");
        }
        tick(f, kml_now(&f->clock), err);
    }
}

static void close_all(struct follow *f)
{
    if (f->session != NULL) {
        kml_stream_close(f->session, NULL);
    }
    kml_host_close(f->host);
    uint64_t until = kml_now(&f->clock) + KML_SECOND;
    while (f->session != NULL && kml_now(&f->clock) < until) {
        (void)kml_loop_run(f->loop, until, true);
    }
    if (f->session != NULL) {
        kml_stream_cancel(f->session);
        while (f->session != NULL) {
            (void)kml_loop_run(f->loop, UINT64_MAX, true);
        }
    }
}

int kml_follow(const struct kml_job *job, const struct kml_start *start, struct kml_loop *loop,
               struct kml_creds *creds, int (*stop_asked)(void), struct kml_err *err)
{
    struct follow f = {.job = job,
                       .start = start,
                       .clock = kml_clock_monotonic(),
                       .loop = loop,
                       .incarnation = kml_random_secret(),
                       .member = KML_NEW_ARRAY(job->worker.replicas, struct kml_shard_member)};
    struct kml_host_events events = {.self = &f, .staged = host_staged, .failed = host_failed};
    f.reach_until_ns = kml_now(&f.clock) + REACH_NS;
    kml_buf_init(&f.out, KML_CONTROL_MAX);
    kml_backoff_init(&f.backoff, f.incarnation);
    f.host = kml_host_create(job, start, &events);
    if (open_all(&f, creds, err) < 0) {
        end(&f, kml_code_exit(err->code), err->code, err->text);
    } else {
        run(&f, stop_asked, err);
        close_all(&f);
    }
    if (f.server != NULL) {
        kml_server_destroy(f.server, KML_SECOND);
    }
    kml_channel_destroy(f.channel);
    kml_host_destroy(f.host);
    kml_buf_finish(&f.out);
    kml_free(f.address);
    kml_free(f.member);
    if (f.code != 0) {
        *err = f.why;
    }
    return f.code;
}
