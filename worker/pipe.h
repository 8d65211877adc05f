#ifndef KML_WORKER_PIPE_H
#define KML_WORKER_PIPE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/backoff.h"
#include "base/err.h"
#include "base/shared.h"
#include "kunal/v1/control.pb-c.h"
#include "rpc/channel.h"
#include "rpc/creds.h"
#include "rpc/loop.h"
#include "rpc/stream.h"
#include "wire/chunk.h"
#include "worker/params.h"

/*
 * The data plane of a worker: one Exchange stream to every shard (proto/kunal/v1/data.proto). Parameters come
 * down into kml_params, gradients go up from where they lie.
 *
 * A lane is the stream to one shard. A lane that breaks before anything but Open went over it is opened again
 * with back-off: the conductor may have told us of the shard before it told the shard of us. One that breaks
 * later takes the pipe down, because nobody knows what got through: all lanes are cancelled, `lost` is called
 * once, and the session joins anew.
 *
 * The loop's thread owns it. Nothing is allocated for a step.
 */
struct kml_pipe_config {
    struct kml_loop *loop;
    struct kml_creds *creds;
    struct kml_params *params;
    const char *uid; /* borrowed */
    uint32_t index;
    uint64_t incarnation;
    const struct kml_shared *shared; /* what config.params lies in; NULL: floats travel in the messages */
    bool mtls;                       /* no checksums then: TLS has better ones */
    /* A piece of parameters came; NULL allowed. */
    void (*arrived)(void *self);
    /* The lanes are going down. A code that kml_pipe_hopeless names will not get better by trying again. */
    void (*lost)(void *self, const struct kml_err *why);
    void *self;
};

struct kml_lane {
    struct kml_pipe *pipe;
    uint32_t shard;
    char *address;
    struct kml_channel *channel; /* NULL: not connected */
    struct kml_stream *stream;   /* NULL: ended, or not begun */
    bool checksum;
    bool used;         /* more than Open went over it */
    uint64_t retry_at; /* ns; while stream is NULL and the pipe is open */
    struct kml_backoff backoff;
};

/* What is sent as one message: never across two shards, at most the table's chunk size. */
struct kml_piece {
    uint32_t shard;
    uint64_t offset;
    uint32_t floats;
};

enum kml_pipe_state { KML_PIPE_DOWN, KML_PIPE_OPEN, KML_PIPE_CLOSING };

struct kml_pipe {
    struct kml_pipe_config config;
    enum kml_pipe_state state;
    uint64_t generation;
    struct kml_lane *lane; /* [lanes], index = shard */
    uint32_t lanes;
    struct kml_piece *piece; /* [pieces], ascending */
    uint32_t pieces;
    atomic_uint held; /* messages whose bytes the transport still reads */

    /* What is being sent: pieces below `unsent` are still to go. */
    const float *data;
    uint64_t step;
    enum kml_payload payload;
    uint32_t unsent;
};

void kml_pipe_init(struct kml_pipe *p, const struct kml_pipe_config *config);

/*
 * Opens a lane to every shard of the table, and cuts config.params by it. The pipe must be down.
 * KML_PROTOCOL: the table is no partition of the whole vector; UNAVAILABLE, INVALID: an address is nonsense.
 */
int kml_pipe_open(struct kml_pipe *p, const Kunal__V1__ShardTable *table, uint64_t generation,
                  struct kml_err *err) KML_MUST_CHECK;

/* Cancels everything; the pipe is down when kml_pipe_tick says so. `lost` is not called. */
void kml_pipe_close(struct kml_pipe *p);

/* Opens lanes whose time has come, frees what has ended. Returns when to be called again (UINT64_MAX: never).
 */
uint64_t kml_pipe_tick(struct kml_pipe *p, uint64_t now_ns);

/* Closes, runs the loop until all has ended and no byte is read any more, frees. */
void kml_pipe_finish(struct kml_pipe *p);

/*
 * Sends a vector of all floats, as they become final from the top down. `data` must not change from then on
 * until kml_pipe_free_to_write. KML_UNAVAILABLE when the pipe is not open or a lane breaks (then `lost`
 * follows or was called).
 *
 * ready: floats [low, end) are final. `low` falls from call to call; 0 sends the rest.
 */
void kml_pipe_begin(struct kml_pipe *p, const float *data, enum kml_payload payload, uint64_t step);
int kml_pipe_ready(struct kml_pipe *p, uint64_t low, struct kml_err *err) KML_MUST_CHECK;

/* No byte of what was sent is read any more. */
bool kml_pipe_free_to_write(const struct kml_pipe *p);

/* Pure: does the address lead to this machine (loopback, unix)? Other plaintext ways are checksummed. */
bool kml_address_is_local(const char *address);

/* Pure: is it in vain to try again after this status? */
bool kml_pipe_hopeless(enum kml_code code);

#endif
