#ifndef KML_PS_FOLLOW_H
#define KML_PS_FOLLOW_H

#include "base/err.h"
#include "job/job.h"
#include "job/start.h"
#include "rpc/creds.h"
#include "rpc/loop.h"

/*
 * PS-1 and above: a shard that obeys the conductor. It listens for workers, joins PS-0 with its address, and
 * carries out orders until Finished, Stop, or the end of the session. The session is not tried again once it
 * stood: without checkpoints a parameter server that was away has lost the job.
 *
 * Returns the program's exit code: 0 after Finished, the code of Stop, or that of *err, which then says what
 * happened.
 */
int kml_follow(const struct kml_job *job, const struct kml_start *start, struct kml_loop *loop,
               struct kml_creds *creds, int (*stop_asked)(void), struct kml_err *err);

#endif
