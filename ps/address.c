#include "ps/address.h"

#include <string.h>

#include "base/mem.h"

char *kml_own_address(const struct kml_start *start, const struct kml_server *server)
{
    if (start->advertise != NULL) {
        return kml_strdup(start->advertise);
    }
    const char *colon = strrchr(start->listen, ':');
    int port = kml_server_port(server);
    if (port == 0 || colon == NULL) {
        return kml_strdup(start->listen);
    }
    return kml_format("%.*s:%d", (int)(colon - start->listen), start->listen, port);
}
