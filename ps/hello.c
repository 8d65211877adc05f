#include "ps/hello.h"

#include <stdio.h>
#include <string.h>

#include "wire/chunk.h"

int kml_check_identity(bool mutual, const struct kml_peer *peer, const char *uid, const char *role,
                       uint32_t index, struct kml_err *err)
{
    if (!mutual) {
        return 0;
    }
    char wanted[160];
    (void)snprintf(wanted, sizeof wanted, "kunal://%s/%s/%u", uid, role, index);
    if (peer->identity == NULL || strcmp(peer->identity, wanted) != 0) {
        return kml_fail(err, KML_DENIED, "the certificate of %s is for %s, not for %s", peer->address,
                        peer->identity == NULL ? "nobody" : peer->identity, wanted);
    }
    return 0;
}

int kml_check_hello(uint32_t protocol, const char *uid, const char *expected_uid, struct kml_err *err)
{
    if (protocol != KML_PROTOCOL_VERSION) {
        return kml_fail(err, KML_PROTOCOL,
                        "the peer speaks protocol %u, this side %u; use one release for the whole job",
                        protocol, KML_PROTOCOL_VERSION);
    }
    if (strcmp(uid, expected_uid) != 0) {
        return kml_fail(err, KML_DENIED, "the peer belongs to job %.63s, not to %s", uid, expected_uid);
    }
    return 0;
}
