#ifndef KML_TESTS_UNIT_WORKER_FAKE_H
#define KML_TESTS_UNIT_WORKER_FAKE_H

/*
 * A conductor and its shards, as small as a worker's tests need them: one server on the worker's own loop,
 * for both planes. It notes what the worker says; a test's hooks answer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "kunal/v1/control.pb-c.h"
#include "rpc/server.h"
#include "wire/chunk.h"
#include "wire/message.h"

#define FAKE_SHARDS 3u
#define FAKE_JOINS 8u

struct fake {
    struct kml_loop *loop;
    struct kml_server *server;
    uint32_t shards;
    uint64_t floats;
    uint32_t chunk;
    char address[64];
    char data_address[64];
    struct kml_stream *session;
    struct kml_stream *lane[FAKE_SHARDS];
    struct kml_open open[FAKE_SHARDS];
    struct kml_err refuse; /* other than KML_OK: sessions are refused with it */
    bool mute;             /* Join is not answered */

    uint32_t joins, opens, heartbeats, leavings;
    uint64_t incarnation[FAKE_JOINS];
    uint64_t step; /* of the gradient that is coming in */
    uint64_t have; /* floats of it */
    enum kml_payload payload;
    float *gradient;     /* [floats] */
    uint32_t bad_chunks; /* without the checksum that Open promised, or outside of their shard */

    /* A test's script. */
    void (*joined)(struct fake *f); /* all lanes are open */
    void (*gradient_done)(struct fake *f);
    void (*reported)(struct fake *f, const Kunal__V1__StepReport *m);
    void (*evaluated)(struct fake *f, const Kunal__V1__EvaluationResult *m);
    void (*heart)(struct fake *f); /* a heartbeat; NULL allowed */
    void *test;
};

static inline uint64_t fake_cut(const struct fake *f, uint32_t shard)
{
    return f->floats * shard / f->shards;
}

/* ---- Saying something ---- */

static inline void fake_say(struct fake *f, Kunal__V1__FromConductor__MessageCase what, void *message)
{
    struct kml_err err;
    struct kml_buf out;
    Kunal__V1__FromConductor m = KUNAL__V1__FROM_CONDUCTOR__INIT;
    m.message_case = what;
    m.joined = message; /* the arms of the union are all pointers */
    kml_buf_init(&out, KML_CONTROL_MAX);
    assert_int_equal(kml_message_pack(&m.base, &out, &err), 0);
    if (f->session != NULL && kml_stream_send_view(f->session, kml_buf_view(&out), &err) < 0) {
        fail_msg("%s", err.text);
    }
    kml_buf_finish(&out);
}

static inline void fake_assign(struct fake *f, uint64_t step, uint64_t version, uint64_t begin, uint64_t end)
{
    Kunal__V1__SampleRange range = KUNAL__V1__SAMPLE_RANGE__INIT;
    Kunal__V1__SampleRange *ranges = &range;
    Kunal__V1__Assign m = KUNAL__V1__ASSIGN__INIT;
    range.begin = begin;
    range.end = end;
    m.step = step;
    m.version = version;
    m.n_ranges = 1;
    m.ranges = &ranges;
    fake_say(f, KUNAL__V1__FROM_CONDUCTOR__MESSAGE_ASSIGN, &m);
}

static inline void fake_evaluate(struct fake *f, uint64_t lease, uint64_t version, Kunal__V1__Split split,
                                 uint64_t begin, uint64_t end)
{
    Kunal__V1__Evaluate m = KUNAL__V1__EVALUATE__INIT;
    m.lease = lease;
    m.version = version;
    m.split = split;
    m.begin = begin;
    m.end = end;
    fake_say(f, KUNAL__V1__FROM_CONDUCTOR__MESSAGE_EVALUATE, &m);
}

static inline void fake_upload(struct fake *f)
{
    Kunal__V1__Upload m = KUNAL__V1__UPLOAD__INIT;
    fake_say(f, KUNAL__V1__FROM_CONDUCTOR__MESSAGE_UPLOAD, &m);
}

static inline void fake_abandon(struct fake *f, uint64_t step)
{
    Kunal__V1__Abandon m = KUNAL__V1__ABANDON__INIT;
    m.step = step;
    fake_say(f, KUNAL__V1__FROM_CONDUCTOR__MESSAGE_ABANDON, &m);
}

static inline void fake_finish_job(struct fake *f)
{
    Kunal__V1__Finished m = KUNAL__V1__FINISHED__INIT;
    fake_say(f, KUNAL__V1__FROM_CONDUCTOR__MESSAGE_FINISHED, &m);
}

static inline void fake_stop_job(struct fake *f, const char *reason, uint32_t exit_code)
{
    Kunal__V1__Stop m;
    kunal__v1__stop__init(&m);
    kml_auto_free char *text = kml_strdup(reason);
    m.reason = text;
    m.exit_code = exit_code;
    fake_say(f, KUNAL__V1__FROM_CONDUCTOR__MESSAGE_STOP, &m);
}

/* Floats [begin, end) of a version, all of one shard. */
static inline void fake_piece(struct fake *f, uint64_t version, const float *params, uint64_t begin,
                              uint64_t end)
{
    uint32_t shard = 0;
    while (fake_cut(f, shard + 1) <= begin) {
        shard++;
    }
    struct kml_chunk c = {.version = version,
                          .shard = shard,
                          .offset = begin,
                          .payload = KML_PAYLOAD_PARAMETERS,
                          .elements = end - begin,
                          .has_crc = f->open[shard].checksum};
    uint8_t *message = kml_alloc(KML_CHUNK_HEADER_MAX + (end - begin) * sizeof(float));
    size_t size;
    struct kml_err err;
    if (c.has_crc) {
        struct kml_view data = kml_view_of(params + begin, (end - begin) * sizeof(float));
        c.crc32c = kml_crc32c(0, data.data, data.size);
    }
    assert_int_equal(kml_chunk_header(&c, message, &size, &err), 0);
    memcpy(message + size, params + begin, (end - begin) * sizeof(float));
    if (kml_stream_send_view(f->lane[shard], kml_view_of(message, size + (end - begin) * sizeof(float)),
                             &err) < 0) {
        fail_msg("%s", err.text);
    }
    kml_free(message);
}

static inline void fake_parameters(struct fake *f, uint64_t version, const float *params)
{
    for (uint32_t k = 0; k < f->shards; k++) {
        for (uint64_t at = fake_cut(f, k); at < fake_cut(f, k + 1); at += f->chunk) {
            uint64_t end = at + f->chunk < fake_cut(f, k + 1) ? at + f->chunk : fake_cut(f, k + 1);
            fake_piece(f, version, params, at, end);
        }
    }
}

/* The connection to everybody breaks. */
static inline void fake_break(struct fake *f)
{
    if (f->session != NULL) {
        kml_stream_cancel(f->session);
    }
}

/* ---- Hearing something ---- */

static inline void fake_join_reply(struct fake *f)
{
    Kunal__V1__ShardEntry entry[FAKE_SHARDS];
    Kunal__V1__ShardEntry *entries[FAKE_SHARDS];
    Kunal__V1__ShardTable table = KUNAL__V1__SHARD_TABLE__INIT;
    Kunal__V1__JoinReply m = KUNAL__V1__JOIN_REPLY__INIT;
    for (uint32_t k = 0; k < f->shards; k++) {
        kunal__v1__shard_entry__init(&entry[k]);
        entry[k].shard = k;
        entry[k].address = f->data_address;
        entry[k].begin = fake_cut(f, k);
        entry[k].end = fake_cut(f, k + 1);
        entries[f->shards - 1 - k] = &entry[k]; /* the order in the table means nothing */
    }
    table.n_shards = f->shards;
    table.shards = entries;
    table.chunk_elements = f->chunk;
    m.shards = &table;
    m.generation = 7;
    m.workers = 1;
    fake_say(f, KUNAL__V1__FROM_CONDUCTOR__MESSAGE_JOINED, &m);
}

static inline void fake_session_message(void *self, struct kml_stream *s, const struct kml_slices *bytes)
{
    struct fake *f = self;
    ProtobufCMessage *unpacked;
    struct kml_err err;
    (void)s;
    assert_int_equal(kml_message_unpack(&kunal__v1__to_conductor__descriptor, bytes, &unpacked, &err), 0);
    const Kunal__V1__ToConductor *m = (const Kunal__V1__ToConductor *)unpacked;
    switch (m->message_case) {
    case KUNAL__V1__TO_CONDUCTOR__MESSAGE_JOIN:
        assert_true(f->joins < FAKE_JOINS);
        f->incarnation[f->joins++] = m->join->incarnation;
        if (!f->mute) {
            fake_join_reply(f);
        }
        break;
    case KUNAL__V1__TO_CONDUCTOR__MESSAGE_HEARTBEAT:
        f->heartbeats++;
        if (f->heart != NULL) {
            f->heart(f);
        }
        break;
    case KUNAL__V1__TO_CONDUCTOR__MESSAGE_LEAVING:
        f->leavings++;
        break;
    case KUNAL__V1__TO_CONDUCTOR__MESSAGE_REPORT:
        f->reported(f, m->report);
        break;
    case KUNAL__V1__TO_CONDUCTOR__MESSAGE_EVALUATED:
        f->evaluated(f, m->evaluated);
        break;
    default:
        fail_msg("a worker says message %d", (int)m->message_case);
    }
    kml_message_free(unpacked);
}

static inline void fake_session_closed(void *self, struct kml_stream *s, const struct kml_err *why)
{
    struct fake *f = self;
    (void)why;
    if (f->session == s) {
        f->session = NULL;
    }
}

static inline void fake_lane_opened(struct fake *f, struct kml_stream *s, const struct kml_chunk *c)
{
    assert_true(c->shard < f->shards);
    f->lane[c->shard] = s;
    f->open[c->shard] = c->open;
    f->opens++;
    for (uint32_t k = 0; k < f->shards; k++) {
        if (f->lane[k] == NULL) {
            return;
        }
    }
    f->have = 0;
    f->joined(f);
}

static inline void fake_take(struct fake *f, const struct kml_chunk *c)
{
    struct kml_err err;
    if (c->step != f->step || c->payload != f->payload) {
        f->step = c->step;
        f->payload = c->payload;
        f->have = 0;
    }
    if (c->has_crc != f->open[c->shard].checksum || c->offset < fake_cut(f, c->shard) ||
        c->offset + c->elements > fake_cut(f, c->shard + 1)) {
        f->bad_chunks++;
        return;
    }
    assert_int_equal(kml_chunk_copy(c, f->gradient + c->offset, &err), 0);
    f->have += c->elements;
    if (f->have == f->floats && f->gradient_done != NULL) {
        f->gradient_done(f);
    }
}

static inline void fake_lane_message(void *self, struct kml_stream *s, const struct kml_slices *bytes)
{
    struct fake *f = self;
    struct kml_chunk c;
    struct kml_err err;
    assert_int_equal(kml_chunk_parse(bytes, &c, &err), 0);
    if (c.has_open) {
        fake_lane_opened(f, s, &c);
    } else {
        fake_take(f, &c);
    }
}

static inline void fake_lane_closed(void *self, struct kml_stream *s, const struct kml_err *why)
{
    struct fake *f = self;
    (void)why;
    for (uint32_t k = 0; k < f->shards; k++) {
        if (f->lane[k] == s) {
            f->lane[k] = NULL;
        }
    }
}

static const struct kml_stream_ops fake_session_ops = {.message = fake_session_message,
                                                       .closed = fake_session_closed};
static const struct kml_stream_ops fake_lane_ops = {.message = fake_lane_message, .closed = fake_lane_closed};

static inline int fake_open_session(void *self, struct kml_stream *s, const struct kml_peer *peer,
                                    const struct kml_stream_ops **ops, void **stream_self,
                                    struct kml_err *err)
{
    struct fake *f = self;
    (void)peer;
    if (f->refuse.code != KML_OK) {
        *err = f->refuse;
        return -1;
    }
    f->session = s;
    *ops = &fake_session_ops;
    *stream_self = f;
    return 0;
}

static inline int fake_open_lane(void *self, struct kml_stream *s, const struct kml_peer *peer,
                                 const struct kml_stream_ops **ops, void **stream_self, struct kml_err *err)
{
    (void)s;
    (void)peer;
    (void)err;
    *ops = &fake_lane_ops;
    *stream_self = self;
    return 0;
}

static const struct kml_method fake_methods[] = {
    {.name = "/kunal.v1.Control/Session", .limits = {4u << 20, 64u << 20}, .opened = fake_open_session},
    {.name = "/kunal.v1.Data/Exchange",
     .limits = {KML_CHUNK_MESSAGE_MAX, 64u << 20},
     .opened = fake_open_lane},
};

/* ---- Life ---- */

static inline void fake_init(struct fake *f, struct kml_loop *loop, uint64_t floats, uint32_t shards,
                             uint32_t chunk)
{
    *f = (struct fake){.loop = loop, .shards = shards, .floats = floats, .chunk = chunk, .step = UINT64_MAX};
    struct kml_err err;
    struct kml_creds *creds = kml_creds_plaintext();
    f->gradient = kml_alloc_array(floats, sizeof(float));
    if (kml_server_create(loop, "127.0.0.1:0", creds, fake_methods, KML_COUNT(fake_methods), f, &f->server,
                          &err) < 0) {
        fail_msg("%s", err.text);
    }
    kml_creds_destroy(creds);
    (void)snprintf(f->address, sizeof(f->address), "127.0.0.1:%d", kml_server_port(f->server));
    (void)snprintf(f->data_address, sizeof(f->data_address), "%s", f->address);
}

static inline void fake_finish(struct fake *f)
{
    kml_server_destroy(f->server, 0);
    kml_free(f->gradient);
}

#endif
