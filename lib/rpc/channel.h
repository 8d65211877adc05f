#ifndef KML_RPC_CHANNEL_H
#define KML_RPC_CHANNEL_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "rpc/creds.h"
#include "rpc/loop.h"
#include "wire/slices.h"

/*
 * A client's connection to one address. Each channel has a connection of its own: data and control never
 * share one, so a heartbeat never queues behind 64 MiB. Keepalive both ways: a dead peer is noticed within 30
 * s (KUNAL_KEEPALIVE_MS, 20000 by default, and half of it for the answer; the same on both sides). After a
 * failure streams and calls fail at once until the next attempt to connect, 0.1 to 2 s later.
 * KUNAL_NET_PROFILE=wan: for round trips above half a millisecond.
 */
struct kml_channel;

/* `address`: a gRPC target, "127.0.0.1:4242", "fashion-ps-0.fashion.ns.svc:4242", "unix:/path". Connects when
 * first used. */
int kml_channel_create(struct kml_loop *loop, const char *address, struct kml_creds *creds,
                       struct kml_channel **out, struct kml_err *err) KML_MUST_CHECK;
void kml_channel_destroy(struct kml_channel *c); /* its streams and calls must have ended; NULL accepted */

/* `reply` is borrowed for the call and NULL when `why` has a code other than KML_OK. */
typedef void kml_reply_fn(void *self, const struct kml_slices *reply, const struct kml_err *why);

/* One request, one reply, each of at most 4 MiB, within `timeout_ns`. An error returned: never calls back; 0:
 * calls back exactly once. */
int kml_call(struct kml_channel *c, const char *method, struct kml_view request, uint64_t timeout_ns,
             kml_reply_fn *done, void *self, struct kml_err *err) KML_MUST_CHECK;

/* The same, running the loop until the reply is in `reply`. Other events of the loop are handled meanwhile.
 */
int kml_call_wait(struct kml_channel *c, const char *method, struct kml_view request, uint64_t timeout_ns,
                  struct kml_buf *reply, struct kml_err *err) KML_MUST_CHECK;

#endif
