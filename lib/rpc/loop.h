#ifndef KML_RPC_LOOP_H
#define KML_RPC_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * The event loop under servers, channels and streams: one gRPC completion queue, polled by one thread.
 * Everything in lib/rpc that calls back does so from kml_loop_run, on the thread that calls it; nothing here
 * needs a lock.
 */
struct kml_loop;

/*
 * First thing in main of every program that talks, before any thread: sets the heap up for message-sized
 * buffers (mallopt; MALLOC_* in the environment win), routes gRPC's own log into ours, initialises the
 * library.
 */
void kml_rpc_init(void);
void kml_rpc_shutdown(void); /* last thing; waits until gRPC is down */

struct kml_loop *kml_loop_create(void);

/* Everything made on the loop must be destroyed first (a bug otherwise). NULL accepted. */
void kml_loop_destroy(struct kml_loop *loop);

/*
 * Handles events until `deadline_ns` (CLOCK_MONOTONIC, as kml_now of the monotonic clock) or, with `once`,
 * until at least one event was handled. deadline 0 only looks. Returns how many events were handled. Events
 * that are ready together are handled in one call.
 */
unsigned kml_loop_run(struct kml_loop *loop, uint64_t deadline_ns, bool once);

/* From any thread or a signal-handling thread: kml_loop_run(…, once) returns soon. */
void kml_loop_wake(struct kml_loop *loop);

#endif
