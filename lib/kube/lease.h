#ifndef KML_KUBE_LEASE_H
#define KML_KUBE_LEASE_H

#include <stdbool.h>

#include "kube/client.h"
#include "kube/elector.h"

/* Carries out an elector over a client, one of its own at best. All on the client's thread. */
struct kml_kube_lease;

struct kml_kube_lease_options {
    const char *ns;       /* copied, like all texts here */
    const char *name;     /* of the Lease */
    const char *identity; /* unique: pod name and a random number */
    uint64_t seed;
    void (*changed)(void *self, enum kml_elector_state state); /* LEADING, LOST, RELEASED, each once */
    void (*trouble)(void *self, const struct kml_err *err);    /* a call failed; for the log. May be NULL */
    void *self;
};

struct kml_kube_lease *kml_kube_lease_start(struct kml_kube_client *client,
                                            const struct kml_kube_lease_options *options);
bool kml_kube_lease_leads(const struct kml_kube_lease *l);
void kml_kube_lease_release(
    struct kml_kube_lease *l);                      /* then step until changed(RELEASED) or patience ends */
void kml_kube_lease_stop(struct kml_kube_lease *l); /* without a release; before the client; NULL accepted */

#endif
