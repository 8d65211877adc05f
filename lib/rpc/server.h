#ifndef KML_RPC_SERVER_H
#define KML_RPC_SERVER_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "rpc/creds.h"
#include "rpc/loop.h"
#include "rpc/stream.h"

struct kml_server;

/* A method is a stream or a unary call; the other pointer is NULL. */
struct kml_method {
    const char *name; /* "/kunal.v1.Control/Session" */
    struct kml_stream_limits limits;
    /*
     * A stream came in. Fills in `ops` and `self` and returns 0, or returns -1 with the status to refuse it
     * with (then no callback ever runs for it).
     */
    int (*opened)(void *server_self, struct kml_stream *s, const struct kml_peer *peer,
                  const struct kml_stream_ops **ops, void **self, struct kml_err *err);
    /* Answers at once: fills `reply` or fails with the status. */
    int (*call)(void *server_self, const struct kml_peer *peer, const struct kml_slices *request,
                struct kml_buf *reply, struct kml_err *err);
};

/*
 * Listens at once. `address` "host:port"; port 0 takes a free one, told by kml_server_port. KML_EXISTS: the
 * port is in use. `methods` and what `self` points at must outlive the server.
 */
int kml_server_create(struct kml_loop *loop, const char *address, struct kml_creds *creds,
                      const struct kml_method *methods, uint32_t count, void *self, struct kml_server **out,
                      struct kml_err *err) KML_MUST_CHECK;
int kml_server_port(const struct kml_server *s); /* 0 for unix: and unix-abstract: addresses */

/*
 * Takes no new call, gives the running ones `grace_ns`, cancels the rest, and frees all; runs the loop
 * meanwhile. Not from a callback of one of its own streams. NULL accepted.
 */
void kml_server_destroy(struct kml_server *s, uint64_t grace_ns);

#endif
