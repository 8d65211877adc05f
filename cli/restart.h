#ifndef KML_CLI_RESTART_H
#define KML_CLI_RESTART_H

#include <stdbool.h>
#include <stdint.h>

#include "job/enums.h"

/*
 * What happens when a worker ends: restartPolicy and backoffLimit, as a state machine without clock or
 * process.
 *
 * Between any two calls: every worker runs, waits for its restart, or is gone for good; `failures` counts the
 * ends that failed, over the whole job; once it is above the limit the job is over. Ends with code 0 never
 * count.
 */
#define KML_RESTART_FIRST_NS UINT64_C(200000000)
#define KML_RESTART_MOST_NS UINT64_C(5000000000)

struct kml_restart_seat {
    bool gone;     /* for good */
    unsigned code; /* of its last end */
    uint32_t restarts;
};

struct kml_restart {
    enum kml_job_restart policy;
    uint32_t limit; /* runPolicy.backoffLimit */
    uint32_t failures;
    uint32_t restarts; /* of all workers */
    uint32_t workers;
    uint32_t gone;
    uint32_t gone_failed;          /* of them, with a code other than 0 */
    struct kml_restart_seat *seat; /* [workers], the caller's array, zeroed */
};

enum kml_restart_what {
    KML_RESTART_AGAIN,      /* start it again after `wait_ns` */
    KML_RESTART_GONE,       /* the others go on without it */
    KML_RESTART_ALL_GONE,   /* it was the last one: nobody trains any more */
    KML_RESTART_OVER_LIMIT, /* too many failures: the job has failed */
};

struct kml_restart_verdict {
    enum kml_restart_what what;
    uint64_t wait_ns; /* doubles with each restart of that worker */
};

void kml_restart_init(struct kml_restart *r, enum kml_job_restart policy, uint32_t limit,
                      struct kml_restart_seat *seat, uint32_t workers);

/* `worker`, which runs, ended with `code` (128 + signal for a signal). */
struct kml_restart_verdict kml_restart_ended(struct kml_restart *r, uint32_t worker, unsigned code);

#endif
