#ifndef KML_PS_ADDRESS_H
#define KML_PS_ADDRESS_H

#include "job/start.h"
#include "rpc/server.h"

/* How others reach this server: KUNAL_ADVERTISE, else KUNAL_LISTEN with the port that was taken. The caller
 * frees. */
char *kml_own_address(const struct kml_start *start, const struct kml_server *server);

#endif
