#include "ps/lead.h"

#include "base/mem.h"
#include "base/signals.h"
#include "ps/address.h"
#include "wire/message.h"

#define BEAT_NS (2 * KML_SECOND)   /* a sign of life to every peer */
#define LINGER_NS (3 * KML_SECOND) /* how long after the end a driver may still ask how it went */

uint64_t kml_lead_now(const struct kml_lead *l)
{
    return kml_now(&l->clock);
}

/* ---- What the local shard says ---- */

static void own_staged(void *self, uint32_t worker, uint64_t incarnation, uint64_t step, double square_sum,
                       bool non_finite)
{
    struct kml_lead *l = self;
    kml_conductor_staged(&l->conductor, 0, worker, incarnation, step, square_sum, non_finite,
                         kml_lead_now(l));
}

static void own_failed(void *self, const struct kml_err *err)
{
    struct kml_lead *l = self;
    kml_conductor_fail(&l->conductor, "ParameterServerFailed", err->text, (uint32_t)kml_code_exit(err->code),
                       kml_lead_now(l));
}

/* ---- The server ---- */

static int open_session(void *self, struct kml_stream *s, const struct kml_peer *peer,
                        const struct kml_stream_ops **ops, void **stream_self, struct kml_err *err)
{
    return kml_session_opened(self, s, peer, ops, stream_self, err);
}

static int open_exchange(void *self, struct kml_stream *s, const struct kml_peer *peer,
                         const struct kml_stream_ops **ops, void **stream_self, struct kml_err *err)
{
    return kml_host_opened(((struct kml_lead *)self)->host, s, peer, ops, stream_self, err);
}

static int listen_at(struct kml_lead *l, struct kml_err *err)
{
    static struct kml_method methods[] = {
        {.name = "/kunal.v1.Control/Session", .opened = open_session},
        {.name = "/kunal.v1.Data/Exchange", .opened = open_exchange},
        {.name = "/kunal.v1.Control/ReportNodeMetrics", .call = kml_driver_node_metrics},
        {.name = "/kunal.v1.Control/GetStatus", .call = kml_driver_status},
        {.name = "/kunal.v1.Control/FetchModel", .call = kml_driver_fetch},
        {.name = "/kunal.v1.Control/ReportModelStored", .call = kml_driver_stored},
        {.name = "/kunal.v1.Control/StopJob", .call = kml_driver_stop},
    };
    methods[0].limits = kml_session_limits;
    methods[1].limits = kml_host_limits;
    for (size_t i = 2; i < KML_COUNT(methods); i++) {
        methods[i].limits =
            (struct kml_stream_limits){.receive_max = KML_CONTROL_MAX, .queue_max = KML_CONTROL_MAX};
    }
    return kml_server_create(l->loop, l->start->listen, l->creds, methods, KML_COUNT(methods), l, &l->server,
                             err);
}

int kml_lead_open(struct kml_lead *l, const struct kml_job *job, const struct kml_start *start,
                  struct kml_loop *loop, struct kml_creds *creds, struct kml_err *err)
{
    *l = (struct kml_lead){.job = job,
                           .start = start,
                           .clock = kml_clock_monotonic(),
                           .mutual = start->tls_folder != NULL,
                           .loop = loop,
                           .creds = creds};
    struct kml_host_events events = {.self = l, .staged = own_staged, .failed = own_failed};
    struct kml_conductor_sink sink = kml_orders;
    sink.self = l;
    kml_buf_init(&l->out, KML_CONTROL_MAX);
    kml_journal_init(&l->journal);
    kml_save_init(&l->save, job->ps.replicas);
    l->host = kml_host_create(job, start, &events);
    l->worker_session = KML_NEW_ARRAY(job->worker.replicas, struct kml_session *);
    l->shard_session = KML_NEW_ARRAY(job->ps.replicas, struct kml_session *);
    l->shard_address = KML_NEW_ARRAY(job->ps.replicas, char *);
    l->member = KML_NEW_ARRAY(job->worker.replicas, struct kml_shard_member);
    kml_conductor_init(&l->conductor, job, &sink, 1, kml_lead_now(l));
    if (listen_at(l, err) < 0) {
        (void)kml_lead_close(l);
        return -1;
    }
    l->shard_address[0] = kml_own_address(start, l->server);
    kml_journal_listening(&l->journal, l->shard_address[0]);
    struct kml_err own;
    KML_BUG_ON(kml_conductor_shard_join(&l->conductor, 0, kml_lead_now(l), &own) < 0);
    return 0;
}

static void beat(struct kml_lead *l, uint64_t now)
{
    if (now < l->next_beat_ns) {
        return;
    }
    l->next_beat_ns = now + BEAT_NS;
    Kunal__V1__Heartbeat heartbeat = KUNAL__V1__HEARTBEAT__INIT;
    Kunal__V1__FromConductor m = KUNAL__V1__FROM_CONDUCTOR__INIT;
    heartbeat.sent_ns = now;
    m.message_case = KUNAL__V1__FROM_CONDUCTOR__MESSAGE_HEARTBEAT;
    m.heartbeat = &heartbeat;
    kml_session_to_all(l, &m);
    kml_session_drop_silent(l, now);
}

static bool done(const struct kml_lead *l, uint64_t now)
{
    if (!kml_conductor_over(&l->conductor)) {
        return false;
    }
    return now >= l->over_ns + LINGER_NS || (l->told_driver && !kml_session_any(l));
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t next_deadline(const struct kml_lead *l)
{
    uint64_t soonest = least(kml_conductor_deadline(&l->conductor), l->next_beat_ns);
    if (l->conductor.phase == KML_PHASE_TRAINING) {
        soonest = least(soonest, l->journal.next_ns);
    }
    return kml_conductor_over(&l->conductor) ? least(soonest, l->over_ns + LINGER_NS) : soonest;
}

static void obey(struct kml_lead *l, int signal_taken)
{
    if (signal_taken == KML_SIGNALS_PARENT) {
        kml_conductor_fail(&l->conductor, "DriverLost", "the process that started this job is gone",
                           (uint32_t)kml_code_exit(KML_CANCELLED), kml_lead_now(l));
        l->told_driver = true;
    } else if (signal_taken != 0) {
        kml_conductor_stop(&l->conductor, "Terminated", kml_lead_now(l));
        l->told_driver = kml_conductor_over(&l->conductor);
    }
}

void kml_lead_run(struct kml_lead *l, int (*stop_asked)(void))
{
    uint64_t now = kml_lead_now(l);
    while (!done(l, now)) {
        (void)kml_loop_run(l->loop, next_deadline(l), true);
        now = kml_lead_now(l);
        obey(l, stop_asked());
        if (now >= kml_conductor_deadline(&l->conductor)) {
            kml_conductor_tick(&l->conductor, now);
        }
        if (now >= l->journal.next_ns) {
            kml_conductor_account(&l->conductor, now);
            kml_journal_progress(&l->journal, &l->conductor, now);
        }
        beat(l, now);
    }
}

int kml_lead_close(struct kml_lead *l)
{
    int code = l->conductor.phase == KML_PHASE_FAILED ? (int)l->conductor.exit_code : 0;
    if (l->server != NULL) {
        kml_session_close_all(l);
        kml_host_close(l->host);
        kml_server_destroy(l->server, KML_SECOND);
    }
    kml_host_destroy(l->host);
    for (uint32_t s = 0; s < l->job->ps.replicas; s++) {
        kml_free(l->shard_address[s]);
    }
    kml_conductor_finish(&l->conductor);
    kml_save_finish(&l->save);
    kml_journal_finish(&l->journal);
    kml_buf_finish(&l->out);
    kml_free(l->worker_session);
    kml_free(l->shard_session);
    kml_free(l->shard_address);
    kml_free(l->member);
    kml_free(l->metrics_source);
    return code;
}
