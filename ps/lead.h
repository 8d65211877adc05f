#ifndef KML_PS_LEAD_H
#define KML_PS_LEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "job/job.h"
#include "job/start.h"
#include "kunal/v1/control.pb-c.h"
#include "ps/conductor.h"
#include "ps/host.h"
#include "ps/journal.h"
#include "ps/save.h"
#include "rpc/channel.h"
#include "rpc/server.h"

/*
 * PS-0: the conductor, shard 0 and the conversations with everybody else. The conductor decides; this carries
 * decisions to sessions, to the local shard and to the disk, and brings events back. Split over
 *
 *   lead.c      the program object, the server, time
 *   orders.c    the conductor's sink: its decisions become messages, calls and a file
 *   session.c   the Control/Session streams of workers and other shards
 *   driver.c    the unary calls of the operator or `kunal run`
 *   save.c      the finished model
 *   journal.c   JSON lines on stdout
 *
 * Owned by the loop's thread.
 */
#define KML_JOIN_NS (30 * KML_SECOND)

struct kml_session; /* one Control/Session stream */

struct kml_lead {
    const struct kml_job *job;
    const struct kml_start *start;
    struct kml_clock clock;
    bool mutual; /* peers carry certificates */
    struct kml_loop *loop;
    struct kml_creds *creds;
    struct kml_server *server;
    struct kml_host *host;
    struct kml_conductor conductor;
    struct kml_session *sessions;        /* all, a list */
    struct kml_session **worker_session; /* [workers] who sits there now, NULL: nobody */
    struct kml_session **shard_session;  /* [shards] the same; [0] is always NULL, it is us */
    char **shard_address;                /* [shards] owned */
    struct kml_journal journal;
    struct kml_save save;
    struct kml_buf out;              /* scratch of one control message */
    struct kml_shard_member *member; /* [workers] scratch of a commit */
    char *metrics_source;            /* of the node metrics, as the driver said */
    uint64_t next_beat_ns;
    uint64_t over_ns; /* when the job ended; 0: not yet */
    bool told_driver; /* a driver has seen the end */
};

/* Listens; the address that others use is printed as the first line of the metrics. */
int kml_lead_open(struct kml_lead *l, const struct kml_job *job, const struct kml_start *start,
                  struct kml_loop *loop, struct kml_creds *creds, struct kml_err *err) KML_MUST_CHECK;
/* Runs until the job is over and everybody has been told. `stop_asked` is looked at whenever the loop wakes.
 */
void kml_lead_run(struct kml_lead *l, int (*stop_asked)(void));
/* The exit code of the program. */
int kml_lead_close(struct kml_lead *l);

/* ---- Between the files of PS-0 ---- */

uint64_t kml_lead_now(const struct kml_lead *l);

extern const struct kml_conductor_sink kml_orders; /* its `self` is the lead */

extern const struct kml_stream_limits kml_session_limits;
int kml_session_opened(struct kml_lead *l, struct kml_stream *s, const struct kml_peer *peer,
                       const struct kml_stream_ops **ops, void **self, struct kml_err *err) KML_MUST_CHECK;
void kml_session_to_worker(struct kml_lead *l, uint32_t worker, const Kunal__V1__FromConductor *m);
void kml_session_to_shards(struct kml_lead *l, const Kunal__V1__FromConductor *m);
void kml_session_to_shard(struct kml_lead *l, uint32_t shard, const Kunal__V1__FromConductor *m);
void kml_session_to_all(struct kml_lead *l, const Kunal__V1__FromConductor *m);
void kml_session_expel(struct kml_lead *l, uint32_t worker, uint64_t incarnation, enum kml_code code,
                       const char *why);
void kml_session_close_all(struct kml_lead *l);
bool kml_session_any(const struct kml_lead *l);
/* Shards that say nothing, and streams that never join (KML_JOIN_NS). */
void kml_session_drop_silent(struct kml_lead *l, uint64_t now);

/* The unary methods; `self` is the lead. */
int kml_driver_node_metrics(void *self, const struct kml_peer *peer, const struct kml_slices *request,
                            struct kml_buf *reply, struct kml_err *err) KML_MUST_CHECK;
int kml_driver_status(void *self, const struct kml_peer *peer, const struct kml_slices *request,
                      struct kml_buf *reply, struct kml_err *err) KML_MUST_CHECK;
int kml_driver_fetch(void *self, const struct kml_peer *peer, const struct kml_slices *request,
                     struct kml_buf *reply, struct kml_err *err) KML_MUST_CHECK;
int kml_driver_stored(void *self, const struct kml_peer *peer, const struct kml_slices *request,
                      struct kml_buf *reply, struct kml_err *err) KML_MUST_CHECK;
int kml_driver_stop(void *self, const struct kml_peer *peer, const struct kml_slices *request,
                    struct kml_buf *reply, struct kml_err *err) KML_MUST_CHECK;

/* All parts of the model are here: writes it and ends the job. */
void kml_lead_part(struct kml_lead *l, uint32_t shard, uint64_t offset, const void *data, size_t size,
                   bool last);

#endif
