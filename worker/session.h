#ifndef KML_WORKER_SESSION_H
#define KML_WORKER_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/backoff.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "kunal/v1/control.pb-c.h"
#include "rpc/channel.h"
#include "rpc/creds.h"
#include "rpc/loop.h"
#include "rpc/stream.h"

/*
 * A worker's conversation with the conductor: the Session stream (proto/kunal/v1/control.proto).
 *
 *   DOWN --(time to try)--> JOINING --JoinReply--> JOINED
 *     ^-- the stream broke, or kml_session_drop ------|
 *   any --Finished, Stop, a refusal, too long an outage--> OVER
 *
 * Leaving JOINING or JOINED for DOWN calls `lost` once; all that was agreed is void then, and the next Join,
 * with a fresh incarnation, begins anew: one that was given up never counts again (lib/sync/fence.h).
 * Refusals that will not change (kml_pipe_hopeless, or another state at the conductor) are not tried again.
 * The loop's thread owns it; time comes with kml_session_tick.
 */
#define KML_SESSION_PATIENCE_NS (60 * KML_SECOND) /* without the conductor */
#define KML_SESSION_HEARTBEAT_NS (2 * KML_SECOND)

/* From the conductor; messages are borrowed for the call. An error returned ends the session with it. */
struct kml_session_ops {
    int (*joined)(void *self, const Kunal__V1__JoinReply *m, struct kml_err *err);
    int (*assign)(void *self, const Kunal__V1__Assign *m, struct kml_err *err);
    int (*evaluate)(void *self, const Kunal__V1__Evaluate *m, struct kml_err *err);
    int (*shards)(void *self, const Kunal__V1__ShardTable *m, struct kml_err *err);
    void (*upload)(void *self);
    void (*abandon)(void *self, uint64_t step);
    void (*lost)(void *self, const struct kml_err *why);
};

struct kml_session_config {
    struct kml_loop *loop;
    struct kml_creds *creds;
    const char *address;         /* of the conductor, borrowed */
    const Kunal__V1__Join *join; /* sent at each try, borrowed */
    uint64_t patience_ns;
    const struct kml_session_ops *ops;
    void *self;
};

enum kml_session_state { KML_SESSION_DOWN, KML_SESSION_JOINING, KML_SESSION_JOINED, KML_SESSION_OVER };

struct kml_session {
    struct kml_session_config config;
    enum kml_session_state state;
    struct kml_channel *channel; /* NULL: none */
    struct kml_stream *stream;   /* NULL: ended */
    struct kml_backoff backoff;
    uint64_t now_ns;   /* of the last tick */
    uint64_t tried_at; /* when the running try began */
    uint64_t retry_at;
    uint64_t outage_since; /* since when there is no conversation to speak of; UINT64_MAX: there is one */
    uint64_t sent_at;
    struct kml_buf out;   /* messages are packed here */
    struct kml_err why;   /* OVER: KML_OK and exit_code, or what failed. DOWN: what broke last */
    bool stopped;         /* OVER by Stop: why.text is its reason */
    uint64_t incarnation; /* of the last Join; 0: none yet */
    int exit_code;        /* OVER */
};

void kml_session_init(struct kml_session *s, const struct kml_session_config *config, uint64_t now_ns);

/* Frees all; runs the loop until the stream has ended. */
void kml_session_finish(struct kml_session *s);

/*
 * Does what is due: heartbeat, next try. `may_try`: the data streams of the last try have ended. Returns when
 * to be called again at the latest.
 */
uint64_t kml_session_tick(struct kml_session *s, uint64_t now_ns, bool may_try);

/* The conversation serves: a later outage has the whole patience. */
void kml_session_serves(struct kml_session *s);

/* Starts over (`why` can be tried again) or ends (it cannot). */
void kml_session_drop(struct kml_session *s, const struct kml_err *why);
void kml_session_fail(struct kml_session *s, const struct kml_err *why);

/* While not JOINED these do nothing: what they report is void. */
void kml_session_report(struct kml_session *s, Kunal__V1__StepReport *m);
void kml_session_evaluated(struct kml_session *s, Kunal__V1__EvaluationResult *m);

/* Says goodbye and ends: OVER with `exit_code`. kml_session_finish waits until it is said, but not for long.
 */
void kml_session_leave(struct kml_session *s, const char *reason, int exit_code);

#endif
