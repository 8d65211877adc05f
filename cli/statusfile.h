#ifndef KML_CLI_STATUSFILE_H
#define KML_CLI_STATUSFILE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "kunal/v1/control.pb-c.h"

/*
 * The status of a KunalJob as JSON, with the names of the CRD's status (docs: manifest): what --status-file
 * holds. Lists are capped at KML_STATUS_WORKERS_MAX workers, then `sharesLeftOut` counts the rest. Pure.
 */
#define KML_STATUS_WORKERS_MAX 64

struct kml_status_role {
    uint32_t desired, active, ready, succeeded, failed, restarts;
};

struct kml_status_view {
    const char *phase;  /* Created, Running, Restarting, Succeeded, Failed, Stopped */
    const char *reason; /* of the end; NULL: it has not come */
    const char *message;
    uint64_t start_ns, running_ns, completion_ns; /* since 1970; 0: not yet */
    struct kml_status_role ps, worker;
    const char *model;                    /* location; NULL: not saved yet */
    const Kunal__V1__JobStatus *training; /* what the conductor said; NULL: nothing yet */
    uint64_t updated_ns;                  /* training.lastUpdatedTime; 0: left out */
};

int kml_status_json(const struct kml_status_view *v, struct kml_buf *out, struct kml_err *err) KML_MUST_CHECK;

#endif
