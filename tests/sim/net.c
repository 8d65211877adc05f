#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/mem.h"
#include "tests/sim/inside.h"

#define LATENCY_NS 50000u
#define CUTS 4u

/* One message under way. */
struct sim_parcel {
    struct kml_stream *stream;
    struct sim_parcel *next; /* in the list of those held by a paused stream */
    bool up;
    struct sim_message message; /* control */
    uint8_t *bytes;             /* data: the header, and the data unless they are lent */
    size_t size;
    struct kml_payload_ref lent; /* data NULL: nothing is */
    uint32_t crc;                /* of what is lent, when it was sent */
};

/* The end of one side. */
struct ending {
    struct kml_stream *stream;
    struct kml_err why;
};

bool sim_chance(struct sim *s, double chance)
{
    return chance > 0 && kml_rng_unit(&s->net_rng) < chance;
}

uint64_t sim_net_delay(struct sim *s)
{
    const struct sim_faults *f = &s->config.faults;
    double latency = f->latency_ns == 0 ? LATENCY_NS : (double)f->latency_ns;
    uint64_t delay =
        (uint64_t)(latency + (f->jitter > 0 ? latency * kml_rng_exponential(&s->net_rng, 1 / f->jitter) : 0));
    if (sim_chance(s, f->late)) {
        s->report.late++;
        delay += kml_rng_below(&s->net_rng, f->late_ns + 1);
    }
    return delay;
}

/* In order behind what was sent before. */
static uint64_t arrival(struct sim *s, uint64_t *last)
{
    uint64_t at = s->now + sim_net_delay(s);
    at = at > *last ? at : *last + 1;
    *last = at;
    return at;
}

/* ---- Parcels ---- */

static void parcel_drop(void *arg)
{
    struct sim_parcel *p = arg;
    if (p->lent.release != NULL) {
        p->lent.release(p->lent.arg);
    }
    kml_free(p->bytes);
    kml_free(p);
}

static struct sim_parcel *parcel_new(struct kml_stream *t, bool up)
{
    struct sim_parcel *p = KML_NEW(struct sim_parcel);
    p->stream = t;
    p->up = up;
    return p;
}

/* With bytes of its own: what is lent is lent once. */
static struct sim_parcel *parcel_copy(const struct sim_parcel *p)
{
    struct sim_parcel *copy = KML_NEW(struct sim_parcel);
    *copy = *p;
    copy->lent = (struct kml_payload_ref){.data = NULL};
    copy->bytes = kml_alloc(p->size + p->lent.size);
    if (p->size > 0) {
        memcpy(copy->bytes, p->bytes, p->size);
    }
    if (p->lent.size > 0) {
        memcpy(copy->bytes + p->size, p->lent.data, p->lent.size);
    }
    copy->size = p->size + p->lent.size;
    return copy;
}

/* The bytes as they come out of a network: cut anywhere. */
static void hand_over(struct sim *s, const struct sim_parcel *p)
{
    struct kml_view part[CUTS + 2];
    uint32_t count = 0;
    size_t at = 0;
    for (uint32_t i = 0; i < CUTS && at < p->size; i++) {
        size_t size = i + 1 == CUTS ? p->size - at : (size_t)kml_rng_below(&s->net_rng, p->size - at + 1);
        part[count++] = kml_view_of(p->bytes + at, size);
        at += size;
    }
    if (p->lent.data != NULL) {
        part[count++] = kml_view_of(p->lent.data, p->lent.size);
        if (kml_crc32c(0, p->lent.data, p->lent.size) != p->crc) {
            sim_wrong(s, "bytes of a version changed while they were being sent to worker %u",
                      p->stream->worker);
        }
    }
    struct kml_slices bytes = {.part = part, .count = count, .size = p->size + p->lent.size};
    if (p->up) {
        p->stream->ops->message(p->stream->self, p->stream, &bytes);
    } else {
        sim_worker_piece(&s->worker[p->stream->worker], p->stream->shard, &bytes);
    }
}

static void hold(struct kml_stream *t, struct sim_parcel *p)
{
    p->next = NULL;
    *t->held_end = p;
    t->held_end = &p->next;
}

static void deliver_up(struct sim *s, struct sim_parcel *p)
{
    struct kml_stream *t = p->stream;
    if (!t->up) {
        parcel_drop(p);
    } else if (t->control) {
        sim_lead_message(t, &p->message);
        parcel_drop(p);
    } else if (t->paused || t->held != NULL) {
        hold(t, p);
    } else {
        hand_over(s, p);
        parcel_drop(p);
    }
}

static void deliver(void *self, void *arg);

static void deliver_down(struct sim *s, struct sim_parcel *p)
{
    struct sim_worker *w = &s->worker[p->stream->worker];
    if (p->stream->down && s->now < w->paused_until) {
        sim_heap_post(&s->heap, w->paused_until, deliver, s, p, parcel_drop);
        return;
    }
    if (p->stream->down && p->stream->control) {
        sim_worker_told(w, &p->message);
    } else if (p->stream->down) {
        hand_over(s, p);
    }
    parcel_drop(p);
}

static void deliver(void *self, void *arg)
{
    struct sim_parcel *p = arg;
    p->up ? deliver_up(self, p) : deliver_down(self, p);
}

static void post(struct sim *s, struct sim_parcel *p, bool may_overtake)
{
    struct kml_stream *t = p->stream;
    uint64_t *last = p->up ? &t->last_up : &t->last_down;
    if (sim_chance(s, s->config.faults.disconnect)) {
        s->report.disconnected++;
        parcel_drop(p);
        sim_net_cut(t, true);
        return;
    }
    bool may_come_twice = t->control ? p->message.word == SIM_REPORT || p->message.word == SIM_EVALUATED
                                     : may_overtake || !p->up;
    if (may_come_twice && sim_chance(s, s->config.faults.twice)) {
        s->report.twice++;
        uint64_t at = arrival(s, last);
        uint64_t again = p->up ? at + kml_rng_below(&s->net_rng, 20 * KML_MILLISECOND) : at;
        sim_heap_post(&s->heap, again, deliver, s, parcel_copy(p), parcel_drop);
        sim_heap_post(&s->heap, at, deliver, s, p, parcel_drop);
        return;
    }
    uint64_t at;
    if (may_overtake && sim_chance(s, s->config.faults.overtake)) {
        s->report.overtaken++;
        at = s->now + sim_net_delay(s);
        at = at > t->opened_at ? at : t->opened_at + 1;
    } else {
        at = arrival(s, last);
    }
    sim_heap_post(&s->heap, at, deliver, s, p, parcel_drop);
}

/* ---- Sending ---- */

static void say(struct kml_stream *t, const struct sim_message *m, bool up)
{
    struct sim_parcel *p = parcel_new(t, up);
    p->message = *m;
    post(t->sim, p, false);
}

void sim_net_say_up(struct kml_stream *t, const struct sim_message *m)
{
    say(t, m, true);
}

void sim_net_say_down(struct kml_stream *t, const struct sim_message *m)
{
    say(t, m, false);
}

void sim_net_send_up(struct kml_stream *t, const uint8_t *header, size_t size, const float *data,
                     size_t floats, bool piece)
{
    struct sim_parcel *p = parcel_new(t, true);
    p->size = size + floats * sizeof *data;
    p->bytes = kml_alloc(p->size);
    memcpy(p->bytes, header, size);
    if (floats > 0) {
        memcpy(p->bytes + size, data, floats * sizeof *data);
    }
    post(t->sim, p, piece);
    t->opened_at = piece ? t->opened_at : t->last_up; /* no piece overtakes the Open */
}

/* ---- The side of ps/host.c; see rpc/stream.h for what these mean ---- */

int kml_stream_send(struct kml_stream *t, const void *header, size_t header_size,
                    const struct kml_payload_ref *payload, struct kml_err *err)
{
    if (!t->up) {
        return kml_fail(err, KML_UNAVAILABLE, "the stream is closing");
    }
    struct sim_parcel *p = parcel_new(t, false);
    p->bytes = kml_alloc(header_size);
    p->size = header_size;
    memcpy(p->bytes, header, header_size);
    p->lent = *payload;
    p->crc = kml_crc32c(0, payload->data, payload->size);
    post(t->sim, p, false);
    return 0;
}

/* The simulated wire takes everything at once. */
size_t kml_stream_queued(const struct kml_stream *t)
{
    (void)t;
    return 0;
}

static void drop_held(struct kml_stream *t)
{
    while (t->held != NULL) {
        struct sim_parcel *p = t->held;
        t->held = p->next;
        parcel_drop(p);
    }
    t->held_end = &t->held;
}

static void server_ended(void *self, void *arg)
{
    (void)self;
    struct ending *e = arg;
    struct kml_stream *t = e->stream;
    t->up = false;
    drop_held(t);
    if (t->control) {
        sim_lead_ended(t, e->why.text);
    } else if (t->ops != NULL) {
        t->ops->closed(t->self, t, &e->why);
        t->ops = NULL;
    }
    kml_free(e);
}

static void worker_lost(void *self, void *arg)
{
    struct sim *s = self;
    struct ending *e = arg;
    struct kml_stream *t = e->stream;
    if (t->down) {
        t->down = false;
        sim_worker_lost(&s->worker[t->worker], &e->why);
    }
    kml_free(e);
}

static void tell(struct kml_stream *t, uint64_t at, void (*whom)(void *self, void *arg),
                 const struct kml_err *why)
{
    struct ending *e = KML_NEW(struct ending);
    e->stream = t;
    e->why = *why;
    sim_heap_post(&t->sim->heap, at, whom, t->sim, e, kml_free);
}

/* The server's side is told once, behind what is still on its way to it. */
static void end_server(struct kml_stream *t, uint64_t at, const struct kml_err *why)
{
    if (!t->ended) {
        t->ended = true;
        tell(t, at, server_ended, why);
    }
}

void kml_stream_close(struct kml_stream *t, const struct kml_err *why)
{
    struct kml_err fine = {.code = KML_OK};
    t->up = false;
    tell(t, arrival(t->sim, &t->last_down), worker_lost, why == NULL ? &fine : why);
    end_server(t, t->sim->now, why == NULL ? &fine : why);
}

void kml_stream_cancel(struct kml_stream *t)
{
    struct kml_err why = {.code = KML_CANCELLED, .text = "cancelled"};
    kml_stream_close(t, &why);
}

void kml_stream_pause(struct kml_stream *t)
{
    t->paused = true;
}

static void hand_over_held(void *self, void *arg)
{
    struct kml_stream *t = arg;
    while (t->held != NULL && !t->paused && t->up) {
        struct sim_parcel *p = t->held;
        t->held = p->next;
        t->held_end = t->held == NULL ? &t->held : t->held_end;
        hand_over(self, p);
        parcel_drop(p);
    }
}

void kml_stream_resume(struct kml_stream *t)
{
    t->paused = false;
    sim_heap_post(&t->sim->heap, t->sim->now, hand_over_held, t->sim, t, NULL);
}

const struct kml_peer *kml_stream_peer(const struct kml_stream *t)
{
    (void)t;
    static const struct kml_peer peer = {.address = "simulated"};
    return &peer;
}

/* ---- Life ---- */

static void data_opened(void *self, void *arg)
{
    struct sim *s = self;
    struct kml_stream *t = arg;
    struct kml_err err;
    if (t->up) {
        KML_BUG_ON(kml_host_opened(s->shard[t->shard].host, t, kml_stream_peer(t), &t->ops, &t->self, &err) <
                   0);
    }
}

struct kml_stream *sim_net_open(struct sim *s, uint32_t worker, uint64_t incarnation, uint32_t life,
                                bool control, uint32_t shard)
{
    struct kml_stream *t = KML_NEW(struct kml_stream);
    *t = (struct kml_stream){.sim = s,
                             .next = s->streams,
                             .worker = worker,
                             .incarnation = incarnation,
                             .life = life,
                             .control = control,
                             .shard = shard,
                             .up = true,
                             .down = true};
    t->held_end = &t->held;
    s->streams = t;
    t->opened_at = arrival(s, &t->last_up);
    if (!control) {
        sim_heap_post(&s->heap, t->opened_at, data_opened, s, t, NULL);
    }
    return t;
}

void sim_net_leave(struct kml_stream *t)
{
    struct kml_err why = {.code = KML_OK};
    t->down = false;
    end_server(t, arrival(t->sim, &t->last_up), &why);
}

void sim_net_cut(struct kml_stream *t, bool noticed)
{
    struct sim *s = t->sim;
    struct kml_err why = {.code = KML_UNAVAILABLE, .text = "the connection broke"};
    if (kml_rng_below(&s->net_rng, 2) == 0) {
        t->up = false; /* what was under way is lost as well */
    }
    if (noticed) {
        end_server(t, arrival(s, &t->last_up), &why);
        tell(t, arrival(s, &t->last_down), worker_lost, &why);
    } else {
        t->up = false;
    }
}

void sim_net_finish(struct sim *s)
{
    while (s->streams != NULL) {
        struct kml_stream *t = s->streams;
        s->streams = t->next;
        drop_held(t);
        if (t->ops != NULL) {
            struct kml_err why = {.code = KML_CANCELLED};
            t->ops->closed(t->self, t, &why);
        }
        kml_free(t);
    }
}
