#include "worker/session.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "wire/message.h"
#include "worker/pipe.h"

#define METHOD "/kunal.v1.Control/Session"
#define LIVED_NS (10 * KML_SECOND)         /* a try that lasted this long had reached the conductor */
#define SERVES_NS (5 * KML_SECOND)         /* so does a join that holds this long */
#define GOODBYE_NS (300 * KML_MILLISECOND) /* to get the last words out */

static void over(struct kml_session *s, int exit_code)
{
    s->state = KML_SESSION_OVER;
    s->exit_code = exit_code;
}

void kml_session_fail(struct kml_session *s, const struct kml_err *why)
{
    if (s->state == KML_SESSION_OVER) {
        return;
    }
    s->why = *why;
    over(s, kml_code_exit(why->code));
    if (s->stream != NULL) {
        kml_stream_cancel(s->stream);
    }
}

/* ---- Losing and trying again ---- */

/* A state that this try cannot change: another conductor's job, an index taken, a protocol of other rules. */
static bool refused(enum kml_code code)
{
    return kml_pipe_hopeless(code) || code == KML_CONFLICT || code == KML_FENCED || code == KML_NOT_FOUND ||
           code == KML_EXISTS;
}

void kml_session_drop(struct kml_session *s, const struct kml_err *why)
{
    if (kml_pipe_hopeless(why->code)) {
        kml_session_fail(s, why);
        return;
    }
    if (s->state != KML_SESSION_JOINING && s->state != KML_SESSION_JOINED) {
        return;
    }
    if (s->outage_since == UINT64_MAX || s->now_ns - s->tried_at >= LIVED_NS) {
        s->outage_since = s->now_ns;
    }
    s->state = KML_SESSION_DOWN;
    s->why = *why;
    s->retry_at = s->now_ns + kml_backoff_failed(&s->backoff);
    if (s->stream != NULL) {
        kml_stream_cancel(s->stream);
    }
    s->config.ops->lost(s->config.self, why);
}

void kml_session_serves(struct kml_session *s)
{
    s->outage_since = UINT64_MAX;
    kml_backoff_succeeded(&s->backoff);
}

static void give_up(struct kml_session *s)
{
    struct kml_err why = s->why;
    (void)kml_fail(&s->why, KML_UNAVAILABLE,
                   "conductor %s unreachable for %" PRIu64
                   " s: %s; check that PS-0 runs and that KUNAL_CONDUCTOR leads to it",
                   s->config.address, s->config.patience_ns / KML_SECOND, why.text);
    over(s, kml_code_exit(KML_UNAVAILABLE));
}

/* ---- Sending ---- */

static int send(struct kml_session *s, Kunal__V1__ToConductor *m, struct kml_err *err)
{
    if (kml_message_pack(&m->base, &s->out, err) < 0 ||
        kml_stream_send_view(s->stream, kml_buf_view(&s->out), err) < 0) {
        return -1;
    }
    s->sent_at = s->now_ns;
    return 0;
}

/* A queue that is full means that the conductor has not read for long: as good as gone. */
static void send_or_drop(struct kml_session *s, Kunal__V1__ToConductor *m)
{
    struct kml_err err;
    if (s->stream != NULL && send(s, m, &err) < 0) {
        (void)kml_wrap(&err, "conductor %s", s->config.address);
        err.code = KML_UNAVAILABLE;
        kml_session_drop(s, &err);
    }
}

static void say_joined(struct kml_session *s, Kunal__V1__ToConductor *m)
{
    if (s->state == KML_SESSION_JOINED) {
        send_or_drop(s, m);
    }
}

void kml_session_report(struct kml_session *s, Kunal__V1__StepReport *m)
{
    Kunal__V1__ToConductor up = KUNAL__V1__TO_CONDUCTOR__INIT;
    up.message_case = KUNAL__V1__TO_CONDUCTOR__MESSAGE_REPORT;
    up.report = m;
    say_joined(s, &up);
}

void kml_session_evaluated(struct kml_session *s, Kunal__V1__EvaluationResult *m)
{
    Kunal__V1__ToConductor up = KUNAL__V1__TO_CONDUCTOR__INIT;
    up.message_case = KUNAL__V1__TO_CONDUCTOR__MESSAGE_EVALUATED;
    up.evaluated = m;
    say_joined(s, &up);
}

static void heartbeat(struct kml_session *s)
{
    Kunal__V1__Heartbeat beat = KUNAL__V1__HEARTBEAT__INIT;
    Kunal__V1__ToConductor up = KUNAL__V1__TO_CONDUCTOR__INIT;
    beat.sent_ns = s->now_ns;
    up.message_case = KUNAL__V1__TO_CONDUCTOR__MESSAGE_HEARTBEAT;
    up.heartbeat = &beat;
    send_or_drop(s, &up);
}

void kml_session_leave(struct kml_session *s, const char *reason, int exit_code)
{
    if (s->state == KML_SESSION_OVER) {
        return;
    }
    Kunal__V1__Leaving leaving;
    Kunal__V1__ToConductor up = KUNAL__V1__TO_CONDUCTOR__INIT;
    kunal__v1__leaving__init(&leaving);
    /* protobuf-c takes char *, and only reads it. */
    kml_auto_free char *text = kml_strdup(reason);
    leaving.reason = text;
    up.message_case = KUNAL__V1__TO_CONDUCTOR__MESSAGE_LEAVING;
    up.leaving = &leaving;
    say_joined(s, &up);
    over(s, exit_code);
    s->why = (struct kml_err){.code = KML_OK};
    (void)snprintf(s->why.text, sizeof(s->why.text), "%s", reason);
    if (s->stream != NULL) {
        kml_stream_close(s->stream, NULL);
    }
}

/* ---- Receiving ---- */

static int on_joined(struct kml_session *s, const Kunal__V1__FromConductor *m, struct kml_err *err)
{
    if (s->state != KML_SESSION_JOINING || m->joined->shards == NULL) {
        return kml_fail(err, KML_PROTOCOL, "JoinReply comes twice or without a shard table");
    }
    s->state = KML_SESSION_JOINED;
    return s->config.ops->joined(s->config.self, m->joined, err);
}

static void on_end(struct kml_session *s, const char *reason, int exit_code)
{
    s->why = (struct kml_err){.code = KML_OK};
    (void)snprintf(s->why.text, sizeof(s->why.text), "%s", reason);
    over(s, exit_code);
    kml_stream_close(s->stream, NULL);
}

static void on_stop(struct kml_session *s, const Kunal__V1__Stop *m)
{
    s->stopped = true;
    on_end(s, m->reason, m->exit_code <= 255 ? (int)m->exit_code : kml_code_exit(KML_PROTOCOL));
}

static int dispatch(struct kml_session *s, const Kunal__V1__FromConductor *m, struct kml_err *err)
{
    const struct kml_session_ops *ops = s->config.ops;
    void *self = s->config.self;
    if (m->message_case == KUNAL__V1__FROM_CONDUCTOR__MESSAGE_JOINED) {
        return on_joined(s, m, err);
    }
    if (m->message_case == KUNAL__V1__FROM_CONDUCTOR__MESSAGE_STOP) {
        on_stop(s, m->stop);
        return 0;
    }
    if (m->message_case == KUNAL__V1__FROM_CONDUCTOR__MESSAGE_FINISHED) {
        on_end(s, "finished", 0);
        return 0;
    }
    if (s->state != KML_SESSION_JOINED) {
        return m->message_case == KUNAL__V1__FROM_CONDUCTOR__MESSAGE_HEARTBEAT
                   ? 0
                   : kml_fail(err, KML_PROTOCOL, "message %d came before JoinReply", (int)m->message_case);
    }
    switch (m->message_case) {
    case KUNAL__V1__FROM_CONDUCTOR__MESSAGE_ASSIGN:
        return ops->assign(self, m->assign, err);
    case KUNAL__V1__FROM_CONDUCTOR__MESSAGE_EVALUATE:
        return ops->evaluate(self, m->evaluate, err);
    case KUNAL__V1__FROM_CONDUCTOR__MESSAGE_SHARDS:
        return ops->shards(self, m->shards, err);
    case KUNAL__V1__FROM_CONDUCTOR__MESSAGE_UPLOAD:
        ops->upload(self);
        return 0;
    case KUNAL__V1__FROM_CONDUCTOR__MESSAGE_ABANDON:
        ops->abandon(self, m->abandon->step);
        return 0;
    default:
        return 0; /* a heartbeat, or what a later conductor may say: nothing that a worker must know */
    }
}

static void on_message(void *self, struct kml_stream *stream, const struct kml_slices *bytes)
{
    struct kml_session *s = self;
    ProtobufCMessage *m = NULL;
    struct kml_err err;
    (void)stream;
    if (s->state != KML_SESSION_JOINING && s->state != KML_SESSION_JOINED) {
        return;
    }
    int failed = kml_message_unpack(&kunal__v1__from_conductor__descriptor, bytes, &m, &err);
    if (failed == 0) {
        failed = dispatch(s, (const Kunal__V1__FromConductor *)m, &err);
        kml_message_free(m);
    }
    if (failed < 0) {
        (void)kml_wrap(&err, "conductor %s", s->config.address);
        kml_session_fail(s, &err);
    }
}

static void on_closed(void *self, struct kml_stream *stream, const struct kml_err *why)
{
    struct kml_session *s = self;
    struct kml_err err = *why;
    (void)stream;
    s->stream = NULL;
    if (s->state != KML_SESSION_JOINING && s->state != KML_SESSION_JOINED) {
        return;
    }
    if (why->code == KML_OK) {
        (void)kml_fail(&err, KML_UNAVAILABLE, "it closed the session");
    }
    if (refused(err.code)) {
        (void)kml_wrap(&err, "conductor %s", s->config.address);
        /* FAILED_PRECONDITION of a peer that does not name our codes: another protocol, layout or data. */
        err.code = err.code == KML_CONFLICT ? KML_PROTOCOL : err.code;
        kml_session_fail(s, &err);
        return;
    }
    kml_session_drop(s, &err);
}

static const struct kml_stream_ops stream_ops = {.message = on_message, .closed = on_closed};

/* ---- Time ---- */

static int try_to_join(struct kml_session *s, struct kml_err *err)
{
    struct kml_stream_limits limits = {.receive_max = KML_CONTROL_MAX,
                                       .queue_max = 2 * (size_t)KML_CONTROL_MAX};
    Kunal__V1__ToConductor up = KUNAL__V1__TO_CONDUCTOR__INIT;
    Kunal__V1__Join join = *s->config.join;
    join.incarnation = s->incarnation = kml_random_secret();
    up.message_case = KUNAL__V1__TO_CONDUCTOR__MESSAGE_JOIN;
    up.join = &join;
    s->tried_at = s->now_ns;
    s->state = KML_SESSION_JOINING;
    if (s->channel == NULL &&
        kml_channel_create(s->config.loop, s->config.address, s->config.creds, &s->channel, err) < 0) {
        return -1;
    }
    if (kml_stream_call(s->channel, METHOD, &stream_ops, s, &limits, &s->stream, err) < 0) {
        s->stream = NULL;
        return -1;
    }
    return send(s, &up, err);
}

static uint64_t tick_down(struct kml_session *s, bool may_try)
{
    struct kml_err err;
    if (s->stream != NULL || !may_try) {
        return s->now_ns + KML_SECOND; /* the loop comes back at once when it ends */
    }
    if (s->channel != NULL) { /* a fresh one resolves the name again and keeps no back-off of its own */
        kml_channel_destroy(s->channel);
        s->channel = NULL;
    }
    if (s->backoff.failures > 0 && s->outage_since != UINT64_MAX &&
        s->now_ns - s->outage_since >= s->config.patience_ns) {
        give_up(s);
        return s->now_ns;
    }
    if (s->now_ns < s->retry_at) {
        return s->retry_at;
    }
    if (try_to_join(s, &err) < 0) {
        (void)kml_wrap(&err, "conductor %s", s->config.address);
        kml_session_drop(s, &err);
    }
    return s->now_ns + KML_SECOND;
}

static uint64_t tick_alive(struct kml_session *s)
{
    if (s->now_ns - s->sent_at >= KML_SESSION_HEARTBEAT_NS) {
        heartbeat(s);
    }
    return s->sent_at + KML_SESSION_HEARTBEAT_NS;
}

uint64_t kml_session_tick(struct kml_session *s, uint64_t now_ns, bool may_try)
{
    s->now_ns = now_ns;
    switch (s->state) {
    case KML_SESSION_DOWN:
        return tick_down(s, may_try);
    case KML_SESSION_JOINING: /* the answer comes when all shards are there: until then we are alive too */
        return tick_alive(s);
    case KML_SESSION_JOINED:
        if (now_ns - s->tried_at >= SERVES_NS && s->outage_since != UINT64_MAX) {
            kml_session_serves(s);
        }
        return tick_alive(s);
    default:
        return now_ns + KML_SECOND;
    }
}

/* ---- Life ---- */

void kml_session_init(struct kml_session *s, const struct kml_session_config *config, uint64_t now_ns)
{
    *s = (struct kml_session){.config = *config, .state = KML_SESSION_DOWN, .now_ns = now_ns};
    s->retry_at = now_ns;
    s->outage_since = now_ns;
    s->why = (struct kml_err){.code = KML_UNAVAILABLE, .text = "no answer"};
    kml_backoff_init(&s->backoff, kml_random_secret());
    kml_buf_init(&s->out, KML_CONTROL_MAX);
}

void kml_session_finish(struct kml_session *s)
{
    struct kml_clock clock = kml_clock_monotonic();
    uint64_t until = kml_now(&clock) + GOODBYE_NS;
    bool cancelled = false;
    while (s->stream != NULL) {
        if (!cancelled && kml_now(&clock) >= until) {
            kml_stream_cancel(s->stream);
            cancelled = true;
        }
        (void)kml_loop_run(s->config.loop, cancelled ? UINT64_MAX : until, true);
    }
    kml_channel_destroy(s->channel);
    kml_buf_finish(&s->out);
    s->channel = NULL;
}
