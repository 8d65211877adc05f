#include "worker/pipe.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/mem.h"
#include "sync/shardmap.h"
#include "wire/chunk.h"

#define METHOD "/kunal.v1.Data/Exchange"
#define RELEASE_POLL_NS (KML_MILLISECOND / 10)

static uint64_t now(void)
{
    struct kml_clock clock = kml_clock_monotonic();
    return kml_now(&clock);
}

bool kml_address_is_local(const char *address)
{
    static const char *const scheme[] = {"dns:///", "dns:", "ipv4:", "ipv6:"};
    static const char *const local[] = {"unix:", "unix-abstract:", "127.", "localhost:", "[::1]"};
    for (size_t i = 0; i < KML_COUNT(scheme); i++) {
        if (strncmp(address, scheme[i], strlen(scheme[i])) == 0) {
            address += strlen(scheme[i]);
            break;
        }
    }
    for (size_t i = 0; i < KML_COUNT(local); i++) {
        if (strncmp(address, local[i], strlen(local[i])) == 0) {
            return true;
        }
    }
    return false;
}

bool kml_pipe_hopeless(enum kml_code code)
{
    switch (code) {
    case KML_INVALID:
    case KML_USAGE:
    case KML_DENIED:
    case KML_UNAUTHENTICATED:
    case KML_PROTOCOL:
    case KML_TOO_LARGE:
    case KML_UNSUPPORTED:
        return true;
    default:
        return false; /* FENCED too: joining anew brings the new generation */
    }
}

/* ---- Going down ---- */

void kml_pipe_close(struct kml_pipe *p)
{
    if (p->state != KML_PIPE_OPEN) {
        return;
    }
    p->state = KML_PIPE_CLOSING;
    p->unsent = 0;
    for (uint32_t k = 0; k < p->lanes; k++) {
        if (p->lane[k].stream != NULL) {
            kml_stream_cancel(p->lane[k].stream);
        }
    }
}

static void lose(struct kml_pipe *p, const struct kml_err *why)
{
    if (p->state == KML_PIPE_OPEN) {
        kml_pipe_close(p);
        p->config.lost(p->config.self, why);
    }
}

static void free_lanes(struct kml_pipe *p)
{
    for (uint32_t k = 0; k < p->lanes; k++) {
        kml_channel_destroy(p->lane[k].channel);
        kml_free(p->lane[k].address);
    }
    kml_free(p->lane);
    kml_free(p->piece);
    p->lane = NULL;
    p->piece = NULL;
    p->lanes = 0;
    p->pieces = 0;
    p->state = KML_PIPE_DOWN;
}

/* ---- Parameters coming down ---- */

/* The sender is canonical or not: in proto3 a checksum of 0 may be left out. */
static void complete_checksum(const struct kml_lane *lane, struct kml_chunk *c)
{
    if (lane->checksum && !c->has_crc) {
        c->has_crc = true;
        c->crc32c = 0;
    }
}

static int check(const struct kml_lane *lane, const struct kml_chunk *c, struct kml_err *err)
{
    const uint64_t *cut = lane->pipe->config.params->cut + lane->shard;
    if (c->payload != KML_PAYLOAD_PARAMETERS || c->shard != lane->shard || c->elements == 0 ||
        c->offset < cut[0] || c->offset >= cut[1] || c->elements > cut[1] - c->offset) {
        return kml_fail(err, KML_PROTOCOL,
                        "sent floats [%" PRIu64 ", +%" PRIu64 ") as shard %u, payload %d; it holds [%" PRIu64
                        ", %" PRIu64 ")",
                        c->offset, c->elements, c->shard, (int)c->payload, cut[0], cut[1]);
    }
    return 0;
}

static int take(struct kml_lane *lane, const struct kml_slices *m, struct kml_err *err)
{
    struct kml_params *params = lane->pipe->config.params;
    struct kml_chunk c;
    if (kml_chunk_parse(m, &c, err) < 0 || check(lane, &c, err) < 0) {
        return -1;
    }
    uint64_t end = c.offset + c.elements;
    float *to = kml_params_place(params, c.version, lane->shard, c.offset, end);
    if (to == NULL) {
        return 0;
    }
    if (c.shared != (lane->pipe->config.shared != NULL)) {
        return kml_fail(err, KML_PROTOCOL, "floats came by the way that was not agreed");
    }
    complete_checksum(lane, &c);
    if (!c.shared && kml_chunk_copy(&c, to, err) < 0) {
        err->code = KML_UNAVAILABLE; /* damaged on the way: another try may come through */
        return -1;
    }
    return kml_params_put(params, c.version, lane->shard, c.offset, end, err);
}

static void lane_message(void *self, struct kml_stream *s, const struct kml_slices *m)
{
    struct kml_lane *lane = self;
    struct kml_pipe *p = lane->pipe;
    struct kml_err err;
    (void)s;
    if (p->state != KML_PIPE_OPEN) {
        return;
    }
    lane->used = true;
    kml_backoff_succeeded(&lane->backoff);
    if (take(lane, m, &err) < 0) {
        (void)kml_wrap(&err, "shard %u at %s", lane->shard, lane->address);
        lose(p, &err);
    } else if (p->config.arrived != NULL) {
        p->config.arrived(p->config.self);
    }
}

static void lane_closed(void *self, struct kml_stream *s, const struct kml_err *why)
{
    struct kml_lane *lane = self;
    struct kml_pipe *p = lane->pipe;
    (void)s;
    lane->stream = NULL;
    if (p->state != KML_PIPE_OPEN) {
        return;
    }
    if (!lane->used && !kml_pipe_hopeless(why->code) && lane->backoff.failures < 8) {
        lane->retry_at = now() + kml_backoff_failed(&lane->backoff) / 4;
        return;
    }
    struct kml_err err = *why;
    if (why->code == KML_OK) {
        (void)kml_fail(&err, KML_UNAVAILABLE, "it closed the stream");
    }
    (void)kml_wrap(&err, "shard %u at %s", lane->shard, lane->address);
    lose(p, &err);
}

static const struct kml_stream_ops lane_ops = {.message = lane_message, .closed = lane_closed};

/* ---- Opening ---- */

static int send_open(struct kml_lane *lane, struct kml_err *err)
{
    const struct kml_pipe *p = lane->pipe;
    struct kml_chunk c = {.shard = lane->shard, .has_open = true};
    c.open = (struct kml_open){.protocol = KML_PROTOCOL_VERSION,
                               .role = KML_ROLE_WORKER,
                               .index = p->config.index,
                               .incarnation = p->config.incarnation,
                               .generation = p->generation,
                               .checksum = lane->checksum};
    if (p->config.shared != NULL) {
        c.open.shared_pid = (uint32_t)getpid();
        c.open.shared_fd = (uint32_t)p->config.shared->fd;
    }
    (void)snprintf(c.open.job_uid, sizeof(c.open.job_uid), "%s", p->config.uid);
    uint8_t header[KML_CHUNK_HEADER_MAX];
    size_t size;
    if (kml_chunk_header(&c, header, &size, err) < 0) {
        return -1;
    }
    return kml_stream_send(lane->stream, header, size, NULL, err);
}

static int open_lane(struct kml_lane *lane, struct kml_err *err)
{
    struct kml_pipe *p = lane->pipe;
    /* One gradient and the next are the most that ever wait, and they lie in our own memory. */
    struct kml_stream_limits limits = {.receive_max = KML_CHUNK_MESSAGE_MAX,
                                       .queue_max =
                                           3 * p->config.params->floats * sizeof(float) + (1u << 20)};
    if (lane->channel == NULL &&
        kml_channel_create(p->config.loop, lane->address, p->config.creds, &lane->channel, err) < 0) {
        return -1;
    }
    if (kml_stream_call(lane->channel, METHOD, &lane_ops, lane, &limits, &lane->stream, err) < 0) {
        lane->stream = NULL;
        return -1;
    }
    return send_open(lane, err);
}

static const Kunal__V1__ShardEntry *entry_of(const Kunal__V1__ShardTable *t, uint32_t shard)
{
    for (size_t i = 0; i < t->n_shards; i++) {
        if (t->shards[i]->shard == shard) {
            return t->shards[i];
        }
    }
    return NULL;
}

/* cut[k] .. cut[k + 1] is what shard k holds. */
static int read_cuts(const Kunal__V1__ShardTable *t, uint64_t floats, uint64_t *cut, struct kml_err *err)
{
    uint64_t at = 0;
    for (uint32_t k = 0; k < t->n_shards; k++) {
        const Kunal__V1__ShardEntry *e = entry_of(t, k);
        if (e == NULL || e->begin != at || e->end <= at || e->end > floats) {
            return kml_fail(err, KML_PROTOCOL,
                            "shard table: shard %u of %zu is missing or not the next range", k, t->n_shards);
        }
        cut[k] = at;
        at = e->end;
    }
    cut[t->n_shards] = at;
    if (at != floats) {
        return kml_fail(err, KML_PROTOCOL, "shard table: %" PRIu64 " floats, the model has %" PRIu64, at,
                        floats);
    }
    return 0;
}

static void cut_pieces(struct kml_pipe *p, const uint64_t *cut, uint32_t chunk)
{
    for (uint32_t k = 0; k < p->lanes; k++) {
        p->pieces += (uint32_t)((cut[k + 1] - cut[k] + chunk - 1) / chunk);
    }
    p->piece = KML_NEW_ARRAY(p->pieces, struct kml_piece);
    uint32_t n = 0;
    for (uint32_t k = 0; k < p->lanes; k++) {
        for (uint64_t at = cut[k]; at < cut[k + 1]; at += chunk) {
            uint64_t left = cut[k + 1] - at;
            p->piece[n++] = (struct kml_piece){k, at, left < chunk ? (uint32_t)left : chunk};
        }
    }
}

static void make_lanes(struct kml_pipe *p, const Kunal__V1__ShardTable *t)
{
    p->lanes = (uint32_t)t->n_shards;
    p->lane = KML_NEW_ARRAY(p->lanes, struct kml_lane);
    for (uint32_t k = 0; k < p->lanes; k++) {
        struct kml_lane *lane = &p->lane[k];
        lane->pipe = p;
        lane->shard = k;
        lane->address = kml_strdup(entry_of(t, k)->address);
        lane->checksum = !p->config.mtls && p->config.shared == NULL && !kml_address_is_local(lane->address);
        kml_backoff_init(&lane->backoff, p->config.incarnation + k);
    }
}

void kml_pipe_init(struct kml_pipe *p, const struct kml_pipe_config *config)
{
    *p = (struct kml_pipe){.config = *config, .state = KML_PIPE_DOWN};
    atomic_init(&p->held, 0);
}

int kml_pipe_open(struct kml_pipe *p, const Kunal__V1__ShardTable *table, uint64_t generation,
                  struct kml_err *err)
{
    KML_BUG_ON(p->state != KML_PIPE_DOWN);
    /* What lies in shared memory needs no cutting: one message a shard. */
    uint32_t chunk = p->config.shared != NULL ? UINT32_MAX : table->chunk_elements;
    if (table->n_shards == 0 || table->n_shards > KML_SHARDS_MAX || table->chunk_elements == 0 ||
        table->chunk_elements > KML_CHUNK_FLOATS_MAX) {
        return kml_fail(err, KML_PROTOCOL, "shard table: %zu shards, chunks of %u floats", table->n_shards,
                        table->chunk_elements);
    }
    uint64_t cut[KML_SHARDS_MAX + 1];
    if (read_cuts(table, p->config.params->floats, cut, err) < 0) {
        return -1;
    }
    kml_params_cut(p->config.params, cut, (uint32_t)table->n_shards);
    make_lanes(p, table);
    cut_pieces(p, cut, chunk);
    p->generation = generation;
    p->state = KML_PIPE_OPEN;
    for (uint32_t k = 0; k < p->lanes; k++) {
        if (open_lane(&p->lane[k], err) < 0) {
            kml_pipe_close(p);
            return kml_wrap(err, "shard %u at %s", k, p->lane[k].address);
        }
    }
    return 0;
}

uint64_t kml_pipe_tick(struct kml_pipe *p, uint64_t now_ns)
{
    uint64_t next = UINT64_MAX;
    uint32_t alive = 0;
    for (uint32_t k = 0; k < p->lanes && p->state != KML_PIPE_DOWN; k++) {
        struct kml_lane *lane = &p->lane[k];
        struct kml_err err;
        if (lane->stream == NULL && p->state == KML_PIPE_OPEN) {
            if (lane->retry_at > now_ns) {
                next = lane->retry_at < next ? lane->retry_at : next;
            } else if (open_lane(lane, &err) < 0) {
                lose(p, &err);
            }
        }
        alive += lane->stream != NULL ? 1 : 0;
    }
    if (p->state == KML_PIPE_CLOSING && alive == 0) {
        free_lanes(p);
    }
    return next;
}

void kml_pipe_finish(struct kml_pipe *p)
{
    kml_pipe_close(p);
    while (kml_pipe_tick(p, now()), p->state != KML_PIPE_DOWN || !kml_pipe_free_to_write(p)) {
        (void)kml_loop_run(p->config.loop, now() + RELEASE_POLL_NS, true);
    }
}

/* ---- Sending ---- */

/* Often on one of gRPC's own threads. The memory order puts its reads of the bytes before our next writes. */
static void released(void *arg)
{
    struct kml_pipe *p = arg;
    (void)atomic_fetch_sub_explicit(&p->held, 1, memory_order_release);
}

bool kml_pipe_free_to_write(const struct kml_pipe *p)
{
    return atomic_load_explicit(&p->held, memory_order_acquire) == 0;
}

void kml_pipe_begin(struct kml_pipe *p, const float *data, enum kml_payload payload, uint64_t step)
{
    p->data = data;
    p->payload = payload;
    p->step = step;
    p->unsent = p->pieces;
}

static int send_piece(struct kml_pipe *p, const struct kml_piece *piece, struct kml_err *err)
{
    struct kml_lane *lane = &p->lane[piece->shard];
    const float *data = p->data + piece->offset;
    struct kml_chunk c = {.step = p->step,
                          .shard = piece->shard,
                          .offset = piece->offset,
                          .payload = p->payload,
                          .elements = piece->floats,
                          .shared = p->config.shared != NULL,
                          .has_crc = lane->checksum};
    uint8_t header[KML_CHUNK_HEADER_MAX];
    size_t size;
    if (lane->stream == NULL) {
        return kml_fail(err, KML_UNAVAILABLE, "shard %u at %s: not connected", piece->shard, lane->address);
    }
    if (lane->checksum) {
        c.crc32c = kml_crc32c(0, data, piece->floats * sizeof(float));
    }
    if (kml_chunk_header(&c, header, &size, err) < 0) {
        return -1;
    }
    if (c.shared) {
        lane->used = true;
        return kml_stream_send(lane->stream, header, size, NULL, err);
    }
    struct kml_payload_ref ref = {
        .data = data, .size = piece->floats * sizeof(float), .release = released, .arg = p};
    (void)atomic_fetch_add_explicit(&p->held, 1, memory_order_relaxed);
    if (kml_stream_send(lane->stream, header, size, &ref, err) < 0) {
        (void)atomic_fetch_sub_explicit(&p->held, 1, memory_order_relaxed);
        return kml_wrap(err, "shard %u at %s", piece->shard, lane->address);
    }
    lane->used = true;
    return 0;
}

int kml_pipe_ready(struct kml_pipe *p, uint64_t low, struct kml_err *err)
{
    if (p->state != KML_PIPE_OPEN) {
        return kml_fail(err, KML_UNAVAILABLE, "no connection to the shards");
    }
    while (p->unsent > 0 && p->piece[p->unsent - 1].offset >= low) {
        if (send_piece(p, &p->piece[p->unsent - 1], err) < 0) {
            lose(p, err);
            return -1;
        }
        p->unsent--;
    }
    return 0;
}
