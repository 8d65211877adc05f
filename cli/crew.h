#ifndef KML_CLI_CREW_H
#define KML_CLI_CREW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "cli/child.h"
#include "cli/folder.h"
#include "cli/pace.h"
#include "job/job.h"

/*
 * The processes of a job: [0, shards) are parameter servers, [shards, shards + workers) are workers. Knows
 * how each is started: its program, its arguments, its environment (job/start.h). Who is started when is the
 * supervisor's affair.
 */
struct kml_crew {
    const struct kml_job *job; /* borrowed, like all pointers here but `child` and `conductor` */
    const struct kml_run_folder *folder;
    const char *uid;
    const char *listen; /* TCP address of PS-0; NULL: unix sockets */
    bool tls;
    const struct kml_pace *pace; /* NULL: as fast as it goes */
    double nominal_ns;
    char *conductor; /* where PS-0 listens; owned; NULL until it is known */
    uint32_t shards;
    uint32_t workers;
    struct kml_child *child; /* [shards + workers] */
};

void kml_crew_init(struct kml_crew *c, const struct kml_job *job, const struct kml_run_folder *folder,
                   const char *uid);
void kml_crew_finish(struct kml_crew *c); /* nobody may run */

uint32_t kml_crew_size(const struct kml_crew *c);

/* Starts process `i`, first or again. The conductor must be known but for PS-0, whose stdout comes to us. */
int kml_crew_start(struct kml_crew *c, uint32_t i, struct kml_err *err) KML_MUST_CHECK;

/*
 * How long a worker works on one sample, in ns of one core: from `kunal-worker --calibrate`, which prints
 * seconds_per_sample=…. `signals` is a signalfd: a signal there ends the wait with KML_CANCELLED.
 */
int kml_crew_calibrate(struct kml_crew *c, int signals, double *cost_ns, struct kml_err *err) KML_MUST_CHECK;

/* Reads "seconds_per_sample=…" out of what a calibration printed. Pure. */
int kml_crew_calibration(const char *text, double *cost_ns, struct kml_err *err) KML_MUST_CHECK;

/*
 * The address out of a line {"event":"listening","address":"…"}; the caller frees. NULL: another line. An
 * address that means "every interface" becomes the loopback, by which we reach it.
 */
char *kml_crew_listening(const char *line);

#endif
