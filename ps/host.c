#include "ps/host.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/shared.h"
#include "ps/hello.h"

/* What waits to be sent is borrowed from the shard, not copied: the limit bounds a stream, not memory. */
const struct kml_stream_limits kml_host_limits = {.receive_max = KML_CHUNK_MESSAGE_MAX,
                                                  .queue_max = (size_t)16 << 30};

/* One data stream of a worker. Alive until `closed` has run. */
struct lane {
    struct kml_host *host;
    struct kml_stream *stream;
    bool bound; /* Open has come */
    uint32_t worker;
    uint64_t incarnation;
    bool checksum;
    uint32_t shared_pid, shared_fd; /* pid 0: floats travel in the messages */
    struct kml_shared memory;       /* mapped once the lane is admitted */
    struct kml_view piece;          /* of the message in hand, in that memory */
};

/* Parameters that wait for a stream. They hold their blocks: others may commit before the stream comes. */
struct due {
    uint64_t version;
    struct kml_block **block; /* [chunks], NULL: not due; allocated with the first */
};

struct kml_host {
    const struct kml_job *job;
    const char *uid;
    bool mutual;
    bool shared; /* workers of this machine may offer shared memory */
    struct kml_host_events events;
    uint32_t workers;
    uint32_t shard_index;
    uint64_t generation;
    struct kml_shard *shard; /* NULL before setup */
    struct lane **lane;      /* [workers] the newest stream, admitted or waiting to be */
    struct due *due;         /* [workers] parameters to send when the stream is there */
};

struct kml_host *kml_host_create(const struct kml_job *job, const struct kml_start *start,
                                 const struct kml_host_events *events)
{
    struct kml_host *h = KML_NEW(struct kml_host);
    h->job = job;
    h->uid = start->uid;
    h->mutual = start->tls_folder != NULL;
    h->shared = start->shared;
    h->events = *events;
    h->workers = job->worker.replicas;
    h->lane = KML_NEW_ARRAY(h->workers, struct lane *);
    h->due = KML_NEW_ARRAY(h->workers, struct due);
    return h;
}

static void drop_due(struct kml_host *h, uint32_t worker)
{
    struct due *d = &h->due[worker];
    for (uint32_t chunk = 0; d->block != NULL && chunk < kml_shard_chunks(h->shard); chunk++) {
        if (d->block[chunk] != NULL) {
            kml_block_drop(d->block[chunk]);
            d->block[chunk] = NULL;
        }
    }
}

void kml_host_destroy(struct kml_host *h)
{
    if (h == NULL) {
        return;
    }
    for (uint32_t w = 0; w < h->workers; w++) {
        drop_due(h, w);
        kml_free(h->due[w].block);
    }
    kml_shard_destroy(h->shard);
    kml_free(h->lane);
    kml_free(h->due);
    kml_free(h);
}

struct kml_shard *kml_host_shard(struct kml_host *h)
{
    return h->shard;
}

static void fail(struct kml_host *h, const struct kml_err *err)
{
    h->events.failed(h->events.self, err);
}

/* ---- Sending parameters ---- */

/* Takes the reference. */
static int send_block(struct lane *l, uint64_t version, uint32_t chunk, struct kml_block *block,
                      struct kml_err *err)
{
    struct kml_host *h = l->host;
    struct kml_span span = kml_shard_span(h->shard, chunk);
    struct kml_chunk c = {.version = version,
                          .shard = h->shard_index,
                          .offset = span.begin,
                          .payload = KML_PAYLOAD_PARAMETERS,
                          .elements = span.end - span.begin};
    struct kml_payload_ref data = {.data = kml_block_data(block),
                                   .size = c.elements * sizeof(float),
                                   .release = kml_block_drop,
                                   .arg = block};
    if (l->checksum) {
        c.has_crc = true;
        c.crc32c = kml_crc32c(0, data.data, data.size);
    }
    uint8_t header[KML_CHUNK_HEADER_MAX];
    size_t size;
    if (kml_chunk_header(&c, header, &size, err) < 0 ||
        kml_stream_send(l->stream, header, size, &data, err) < 0) {
        kml_block_drop(block);
        return -1;
    }
    return 0;
}

static bool admitted(const struct lane *l)
{
    return l != NULL && l->bound && l->host->shard != NULL &&
           kml_shard_admitted(l->host->shard, l->worker, l->incarnation);
}

static int hold_due(struct kml_host *h, uint32_t worker, uint64_t version, struct kml_err *err)
{
    struct due *d = &h->due[worker];
    drop_due(h, worker);
    if (d->block == NULL) {
        d->block = KML_NEW_ARRAY(kml_shard_chunks(h->shard), struct kml_block *);
    }
    d->version = version;
    for (uint32_t chunk = 0; chunk < kml_shard_chunks(h->shard); chunk++) {
        d->block[chunk] = kml_shard_block(h->shard, version, chunk);
        if (d->block[chunk] == NULL) {
            drop_due(h, worker);
            return kml_fail(err, KML_INTERNAL, "shard %u: version %llu is due to worker %u, but is not here",
                            h->shard_index, (unsigned long long)version, worker);
        }
    }
    return 0;
}

static void copy_block(struct lane *l, uint64_t version, uint32_t chunk, const struct kml_block *block)
{
    struct kml_shard *shard = l->host->shard;
    struct kml_span span = kml_shard_span(shard, chunk);
    float *to = kml_area_parameters(l->memory.at, kml_shard_floats(shard), version) + span.begin;
    memcpy(to, kml_block_data(block), (span.end - span.begin) * sizeof(float));
}

/* Through shared memory: all chunks there, then one message that says so. */
static int send_shared(struct lane *l, struct kml_err *err)
{
    struct kml_host *h = l->host;
    struct due *d = &h->due[l->worker];
    uint32_t chunks = kml_shard_chunks(h->shard);
    if (d->block == NULL || d->block[0] == NULL) {
        return 0; /* nothing is due */
    }
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        copy_block(l, d->version, chunk, d->block[chunk]);
    }
    uint64_t begin = kml_shard_span(h->shard, 0).begin;
    struct kml_chunk c = {.version = d->version,
                          .shard = h->shard_index,
                          .offset = begin,
                          .payload = KML_PAYLOAD_PARAMETERS,
                          .shared = true,
                          .elements = kml_shard_span(h->shard, chunks - 1).end - begin};
    uint8_t header[KML_CHUNK_HEADER_MAX];
    size_t size;
    if (kml_chunk_header(&c, header, &size, err) < 0) {
        return -1;
    }
    return kml_stream_send(l->stream, header, size, NULL, err);
}

/*
 * Who gets parameters has read the ones before: it computed on them. So a stream that still holds more than
 * one version belongs to a worker that pushes without reading, and each version in its queue would keep all
 * of its blocks alive.
 */
static bool reads(const struct lane *l)
{
    const struct kml_shard *shard = l->host->shard;
    struct kml_span first = kml_shard_span(shard, 0);
    struct kml_span last = kml_shard_span(shard, kml_shard_chunks(shard) - 1);
    size_t version =
        (last.end - first.begin) * sizeof(float) + kml_shard_chunks(shard) * KML_CHUNK_HEADER_MAX;
    return kml_stream_queued(l->stream) <= version;
}

static void send_due(struct lane *l)
{
    struct kml_host *h = l->host;
    struct due *d = &h->due[l->worker];
    struct kml_err err;
    if (!reads(l)) {
        kml_warn("a worker does not read its parameters", kv_u("worker", l->worker));
        kml_stream_cancel(l->stream); /* a status would wait behind what is not read */
        drop_due(h, l->worker);
        return;
    }
    if (l->shared_pid != 0) {
        if (send_shared(l, &err) < 0) {
            kml_stream_close(l->stream, &err);
        }
        drop_due(h, l->worker);
        return;
    }
    for (uint32_t chunk = 0; d->block != NULL && chunk < kml_shard_chunks(h->shard); chunk++) {
        struct kml_block *block = d->block[chunk];
        d->block[chunk] = NULL;
        if (block != NULL && send_block(l, d->version, chunk, block, &err) < 0) {
            kml_stream_close(l->stream, &err); /* the worker joins again */
            break;
        }
    }
    drop_due(h, l->worker);
}

static void send_version(struct kml_host *h, uint32_t worker, uint64_t version)
{
    struct kml_err err;
    if (hold_due(h, worker, version, &err) < 0) {
        fail(h, &err);
        return;
    }
    if (admitted(h->lane[worker])) {
        send_due(h->lane[worker]);
    }
}

/* ---- Streams ---- */

static int bind_lane(struct lane *l, const struct kml_open *o, struct kml_err *err)
{
    struct kml_host *h = l->host;
    if (kml_check_hello(o->protocol, o->job_uid, h->uid, err) < 0) {
        return -1;
    }
    if (o->role != KML_ROLE_WORKER || o->index >= h->workers || o->incarnation == 0) {
        return kml_fail(err, KML_INVALID,
                        "a data stream is opened by a worker of 0 .. %u with an incarnation", h->workers - 1);
    }
    if (h->shard != NULL && o->generation != h->generation) {
        return kml_fail(err, KML_FENCED, "generation %llu is over, the job is at %llu",
                        (unsigned long long)o->generation, (unsigned long long)h->generation);
    }
    if (kml_check_identity(h->mutual, kml_stream_peer(l->stream), h->uid, "worker", o->index, err) < 0) {
        return -1;
    }
    if (o->shared_pid != 0 && !h->shared) {
        return kml_fail(err, KML_INVALID, "worker %u offers shared memory, but KUNAL_SHARED is not set here",
                        o->index);
    }
    struct lane *old = h->lane[o->index];
    if (admitted(old) && old->incarnation != o->incarnation &&
        !kml_shard_admitted(h->shard, o->index, o->incarnation)) {
        return kml_fail(err, KML_UNAVAILABLE, "worker %u: another process holds this place; join first",
                        o->index);
    }
    l->bound = true;
    l->worker = o->index;
    l->incarnation = o->incarnation;
    l->checksum = o->checksum;
    l->shared_pid = o->shared_pid;
    l->shared_fd = o->shared_fd;
    h->lane[o->index] = l;
    if (old != NULL) {
        kml_stream_cancel(old->stream); /* one stream per worker: the newest */
    }
    return 0;
}

/* The stream's worker is known to the conductor: hear it, and send what it is owed. */
static void lane_ready(struct lane *l)
{
    struct kml_err err;
    size_t bytes = KML_AREAS * kml_area_bytes(kml_shard_floats(l->host->shard));
    if (l->shared_pid != 0 && l->memory.at == NULL &&
        kml_shared_open(&l->memory, l->shared_pid, l->shared_fd, bytes, &err) < 0) {
        (void)kml_wrap(&err, "worker %u", l->worker);
        kml_stream_close(l->stream, &err);
        return;
    }
    kml_stream_resume(l->stream);
    send_due(l);
}

/* Where the floats of a message lie that says that they are in shared memory. */
static int find_shared(struct lane *l, struct kml_chunk *c, struct kml_err *err)
{
    uint64_t floats = kml_shard_floats(l->host->shard);
    if (l->memory.at == NULL || c->offset > floats || c->elements > floats - c->offset) {
        return kml_fail(err, KML_INVALID, "worker %u: %llu elements at %llu are not in its shared memory",
                        l->worker, (unsigned long long)c->elements, (unsigned long long)c->offset);
    }
    l->piece = kml_view_of(kml_area_gradient(l->memory.at) + c->offset, c->elements * sizeof(float));
    struct kml_slices one = kml_slices_of(&l->piece);
    c->data = kml_cursor_of(&one);
    return 0;
}

static int take_open(struct lane *l, const struct kml_chunk *c, struct kml_err *err)
{
    if (!c->has_open) {
        return kml_fail(err, KML_PROTOCOL, "the first message of a data stream must be Open");
    }
    if (bind_lane(l, &c->open, err) < 0) {
        return -1;
    }
    if (admitted(l)) {
        lane_ready(l);
    } else {
        kml_stream_pause(l->stream); /* the conductor's Admit is on its way by another connection */
    }
    return 0;
}

static int take_piece(struct lane *l, struct kml_chunk *c, struct kml_err *err)
{
    struct kml_host *h = l->host;
    struct kml_shard_staged staged;
    if (h->shard == NULL) {
        return kml_fail(err, KML_PROTOCOL, "a piece before the job's layout is known");
    }
    if (c->shared && find_shared(l, c, err) < 0) {
        return -1;
    }
    if (kml_shard_stage(h->shard, l->worker, l->incarnation, c, &staged, err) < 0) {
        return -1;
    }
    if (staged.complete) {
        h->events.staged(h->events.self, l->worker, l->incarnation, c->step, staged.square_sum,
                         staged.non_finite);
    }
    return 0;
}

static void lane_message(void *self, struct kml_stream *s, const struct kml_slices *m)
{
    struct lane *l = self;
    struct kml_chunk c;
    struct kml_err err;
    if (kml_chunk_parse(m, &c, &err) < 0 ||
        (l->bound ? take_piece(l, &c, &err) : take_open(l, &c, &err)) < 0) {
        kml_stream_close(s, &err);
    }
}

static void lane_closed(void *self, struct kml_stream *s, const struct kml_err *why)
{
    (void)s;
    (void)why; /* the worker's session with the conductor tells what became of it */
    struct lane *l = self;
    if (l->bound && l->host->lane[l->worker] == l) {
        l->host->lane[l->worker] = NULL;
    }
    kml_shared_finish(&l->memory);
    kml_free(l);
}

static const struct kml_stream_ops lane_ops = {.message = lane_message, .closed = lane_closed};

int kml_host_opened(struct kml_host *h, struct kml_stream *s, const struct kml_peer *peer,
                    const struct kml_stream_ops **ops, void **self, struct kml_err *err)
{
    (void)peer;
    (void)err;
    struct lane *l = KML_NEW(struct lane);
    l->host = h;
    l->stream = s;
    *ops = &lane_ops;
    *self = l;
    return 0;
}

void kml_host_close(struct kml_host *h)
{
    for (uint32_t w = 0; w < h->workers; w++) {
        if (h->lane[w] != NULL) {
            kml_stream_close(h->lane[w]->stream, NULL);
        }
    }
}

/* ---- Orders. Without a shard, when it could not be set up, the job has failed and they mean nothing. ----
 */

static struct kml_optimizer optimizer_of(const struct kml_job *job)
{
    static const enum kml_optimizer_kind kinds[] = {
        [KML_JOB_OPTIMIZER_SGD] = KML_OPTIMIZER_SGD,
        [KML_JOB_OPTIMIZER_MOMENTUM] = KML_OPTIMIZER_MOMENTUM,
        [KML_JOB_OPTIMIZER_NESTEROV] = KML_OPTIMIZER_NESTEROV,
        [KML_JOB_OPTIMIZER_ADAGRAD] = KML_OPTIMIZER_ADAGRAD,
        [KML_JOB_OPTIMIZER_ADAM] = KML_OPTIMIZER_ADAM,
        [KML_JOB_OPTIMIZER_ADAMW] = KML_OPTIMIZER_ADAMW,
    };
    return (struct kml_optimizer){
        .kind = kinds[job->training.optimizer.kind],
        .momentum = job->training.optimizer.momentum,
        .beta1 = job->training.optimizer.beta1,
        .beta2 = job->training.optimizer.beta2,
        .epsilon = job->training.optimizer.epsilon,
        .weight_decay = job->training.optimizer.weight_decay,
    };
}

void kml_host_setup(struct kml_host *h, const struct kml_shardmap *map, uint32_t shard, uint64_t generation)
{
    struct kml_err err;
    struct kml_shard_setup setup = {.map = *map,
                                    .shard = shard,
                                    .workers = h->workers,
                                    .generation = generation,
                                    .square_sums = h->job->training.clip_norm > 0,
                                    .optimizer = optimizer_of(h->job)};
    if (h->shard != NULL) {
        (void)kml_fail(&err, KML_PROTOCOL, "shard %u was set up already", shard);
        fail(h, &err);
        return;
    }
    h->shard_index = shard;
    h->generation = generation;
    if (kml_shard_create(&setup, &h->shard, &err) < 0) {
        fail(h, &err);
    }
}

void kml_host_admit(struct kml_host *h, uint32_t worker, uint64_t incarnation)
{
    struct kml_err err;
    if (h->shard == NULL) {
        return;
    }
    if (kml_shard_admit(h->shard, worker, incarnation, &err) < 0) {
        fail(h, &err);
        return;
    }
    struct lane *l = h->lane[worker];
    if (admitted(l)) {
        lane_ready(l);
    }
}

void kml_host_dismiss(struct kml_host *h, uint32_t worker, uint64_t incarnation)
{
    if (h->shard != NULL) {
        kml_shard_dismiss(h->shard, worker, incarnation);
    }
    drop_due(h, worker);
    struct lane *l = h->lane[worker];
    if (l != NULL && l->incarnation == incarnation) {
        struct kml_err err;
        (void)kml_fail(&err, KML_FENCED, "worker %u: the conductor gave this process up", worker);
        kml_stream_close(l->stream, &err);
    }
}

void kml_host_release(struct kml_host *h, uint64_t version, const uint32_t *workers, uint32_t count)
{
    for (uint32_t i = 0; h->shard != NULL && i < count; i++) {
        send_version(h, workers[i], version);
    }
}

void kml_host_commit(struct kml_host *h, const struct kml_shard_commit *c, const uint32_t *release,
                     uint32_t releases)
{
    struct kml_err err;
    if (h->shard == NULL || c->version <= kml_shard_version(h->shard)) {
        return; /* a repeated order: those it releases have been sent theirs */
    }
    if (kml_shard_commit(h->shard, c, &err) < 0) {
        fail(h, &err);
        return;
    }
    kml_host_release(h, c->version, release, releases);
}

void kml_host_pin(struct kml_host *h, uint64_t version)
{
    struct kml_err err;
    if (h->shard != NULL && kml_shard_pin(h->shard, version, &err) < 0) {
        fail(h, &err);
    }
}

void kml_host_unpin(struct kml_host *h, uint64_t version)
{
    (void)version; /* one pin at a time */
    if (h->shard != NULL) {
        kml_shard_unpin(h->shard);
    }
}
