#ifndef KML_JOB_EXITCODE_H
#define KML_JOB_EXITCODE_H

#include <stdbool.h>

#include "job/enums.h"

/*
 * What the exit code of a job's process means: one table for the programs that exit (base/err.h has the codes
 * of our own) and for the drivers that read it. A process that a signal ended counts as 128 + signal, as
 * shells and containers say.
 *
 *   0                         well
 *   69, 75                    may go better next time: the peer was away, or "try again"
 *   other 1..127              will fail again: usage, bad data, missing input, protocol, refused, not
 * runnable 130, 137, 138, 143        stopped from outside (INT, KILL, USR1, TERM): may go better next time
 *   128, 132, 134, 136, 139   will fail again: crashed (ILL, ABRT, FPE, SEGV)
 *   others from 129 on        may go better next time
 */
enum kml_exit_class { KML_EXIT_GOOD, KML_EXIT_PERMANENT, KML_EXIT_RETRYABLE };

/* Pure. Codes above 255 do not exist; they count as KML_EXIT_RETRYABLE, as 0xbeef of a container that never
 * started. */
enum kml_exit_class kml_exit_classify(unsigned code);

/* Does the role's restartPolicy ask for a new process after one that ended with `code`? (Not: is the limit
 * reached?) */
bool kml_exit_restarts(enum kml_job_restart policy, unsigned code);

/* A few words for messages: "bad data", "killed (signal 9)". Never NULL. Constant texts. */
const char *kml_exit_meaning(unsigned code);

#endif
