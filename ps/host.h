#ifndef KML_PS_HOST_H
#define KML_PS_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "job/job.h"
#include "job/start.h"
#include "ps/shard.h"
#include "rpc/server.h"
#include "rpc/stream.h"

/*
 * A shard and its data streams: what is the same in PS-0 and in every other PS. The conductor's orders come
 * in as calls, by function in PS-0, by message elsewhere; what workers staged goes out through `staged`.
 *
 * A worker has one lane, its newest stream. Parameters that are due to a worker whose stream is not there yet
 * are sent when it comes. Owned by the loop's thread.
 */
struct kml_host;

struct kml_host_events {
    void *self;
    void (*staged)(void *self, uint32_t worker, uint64_t incarnation, uint64_t step, double square_sum,
                   bool non_finite);
    /* An order cannot be carried out: the job cannot go on. */
    void (*failed)(void *self, const struct kml_err *err);
};

/* `job` and `start` must outlive the host. With a TLS folder peers carry certificates, and their names are
 * checked. */
struct kml_host *kml_host_create(const struct kml_job *job, const struct kml_start *start,
                                 const struct kml_host_events *events);
void kml_host_destroy(struct kml_host *h); /* after the server: no stream is left */

extern const struct kml_stream_limits kml_host_limits;
/* For the method table of the server: kunal.v1.Data/Exchange. */
int kml_host_opened(struct kml_host *h, struct kml_stream *s, const struct kml_peer *peer,
                    const struct kml_stream_ops **ops, void **self, struct kml_err *err) KML_MUST_CHECK;

/* The conductor's orders. A failure goes to events.failed. */
void kml_host_setup(struct kml_host *h, const struct kml_shardmap *map, uint32_t shard, uint64_t generation);
void kml_host_admit(struct kml_host *h, uint32_t worker, uint64_t incarnation);
void kml_host_dismiss(struct kml_host *h, uint32_t worker, uint64_t incarnation);
void kml_host_commit(struct kml_host *h, const struct kml_shard_commit *c, const uint32_t *release,
                     uint32_t releases);
void kml_host_release(struct kml_host *h, uint64_t version, const uint32_t *workers, uint32_t count);
void kml_host_pin(struct kml_host *h, uint64_t version);
void kml_host_unpin(struct kml_host *h, uint64_t version);
/* Ends all streams in an orderly way. */
void kml_host_close(struct kml_host *h);

struct kml_shard *kml_host_shard(struct kml_host *h); /* NULL before setup */

#endif
