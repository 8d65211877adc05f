#ifndef KML_PS_HELLO_H
#define KML_PS_HELLO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "rpc/stream.h"

/* What a peer says of itself in its first message, held against what we expect and what its certificate says.
 */

/* "kunal://uid/worker/3" against the certificate of the peer. KML_DENIED; fine when `mutual` is false. */
int kml_check_identity(bool mutual, const struct kml_peer *peer, const char *uid, const char *role,
                       uint32_t index, struct kml_err *err) KML_MUST_CHECK;

/* Job and protocol of a peer's first message. KML_PROTOCOL, KML_DENIED. */
int kml_check_hello(uint32_t protocol, const char *uid, const char *expected_uid,
                    struct kml_err *err) KML_MUST_CHECK;

#endif
