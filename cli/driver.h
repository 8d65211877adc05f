#ifndef KML_CLI_DRIVER_H
#define KML_CLI_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kunal/v1/control.pb-c.h"
#include "rpc/loop.h"

/*
 * Our side of the conversation with the conductor: the unary calls of a driver (control.proto), one channel.
 * Answers come while the loop runs. What fails shows as an answer that does not come; the caller asks again.
 */
struct kml_driver {
    struct kml_loop *loop;       /* borrowed */
    struct kml_channel *channel; /* NULL: not connected */
    char *uid;
    uint32_t calls;               /* under way */
    bool asking;                  /* one of them is GetStatus */
    uint64_t asked_ns;            /* when the running GetStatus was sent */
    uint64_t answered_ns;         /* when the request was sent that `status` answers; 0: none yet */
    Kunal__V1__JobStatus *status; /* the newest; NULL: none yet; owned */
    struct kml_err trouble;       /* of the last call that failed; code KML_OK: none */
};

/* tls: folder with our pair, NULL: plaintext. Connects when first used. */
int kml_driver_open(struct kml_driver *d, struct kml_loop *loop, const char *address, const char *tls,
                    const char *uid, struct kml_err *err) KML_MUST_CHECK;
void kml_driver_close(struct kml_driver *d); /* waits for the calls under way: each has a short timeout */

void kml_driver_ask(struct kml_driver *d, uint64_t now_ns); /* GetStatus, unless one is under way */
void kml_driver_report(struct kml_driver *d, const Kunal__V1__NodeMetrics *metrics);
void kml_driver_stop(struct kml_driver *d, const char *reason);

#endif
