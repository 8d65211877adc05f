#ifndef KML_OBS_HTTP_H
#define KML_OBS_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * The small HTTP server of a program: GET and HEAD of
 *   /metrics  200 with the text of `metrics`, 500 with the error's line when that fails
 *   /healthz  200 "ok", 503 with the reason: the process is stuck and should be restarted
 *   /readyz   200 "ok", 503 with the reason: the process should get no work yet
 * Anything else is 404, another method 405. Bodies are text/plain and end with a newline.
 *
 * One thread of its own answers; the hooks run on that thread, one at a time, and must not block. At most 32
 * connections, closed after 10 seconds of silence. No TLS: bind it to an address that only the pod network
 * sees.
 */
struct kml_http_hooks {
    int (*metrics)(void *self, struct kml_buf *out, struct kml_err *err); /* NULL: /metrics is 404 */
    int (*healthy)(void *self, struct kml_err *err); /* NULL: always; -1 and the reason */
    int (*ready)(void *self, struct kml_err *err);   /* NULL: always; -1 and the reason */
    void *self;
};

struct kml_http;

/* `address`: "127.0.0.1:9090", "[::1]:9090", ":9090" for all interfaces; port 0 lets the system choose.
 * Numbers only. */
int kml_http_start(struct kml_http **out, const char *address, const struct kml_http_hooks *hooks,
                   struct kml_err *err) KML_MUST_CHECK;
uint16_t kml_http_port(const struct kml_http *h); /* the port that it listens on */

/* Waits for a hook that is running, closes all connections, joins the thread. After it no hook runs. NULL
 * accepted. */
void kml_http_stop(struct kml_http *h);

/* The pure part: the status for a request, its body appended to `out`. Split off so that it can be tested
 * alone. */
unsigned kml_http_answer(const struct kml_http_hooks *hooks, const char *method, const char *path,
                         struct kml_buf *out);

#endif
