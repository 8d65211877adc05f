#ifndef KML_JOB_START_H
#define KML_JOB_START_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * How a process of a job learns who it is: the one start contract of pods and of `kunal run`
 * (docs/PROTOCOL.md). All of it comes by environment; a command line is only needed by people.
 *
 *   KUNAL_ROLE       PS or Worker
 *   KUNAL_INDEX      0 .. replicas - 1
 *   KUNAL_JOB_UID    the job's uid: at most 63 letters
 *   KUNAL_CONDUCTOR  where PS-0 listens: a gRPC target ("job-ps-0.job.ns.svc:4242", "127.0.0.1:4242",
 *                    "unix:/path")
 *   KUNAL_JOB        path of the normalised manifest (JSON)
 *   KUNAL_TLS_DIR    folder with ca.crt, tls.crt, tls.key; unset or empty: plaintext
 *   KUNAL_LISTEN     PS: what to listen on ("0.0.0.0:4242", "127.0.0.1:0", "unix:/path")
 *   KUNAL_ADVERTISE  PS: how others reach it; unset: KUNAL_LISTEN with the port that was taken
 *   KUNAL_OUTPUT     PS-0: folder for the model file; unset: output.storageUri decides
 *   KUNAL_PACE_NS    worker: nominal nanoseconds per sample; unset or 0: as fast as it goes
 *   KUNAL_SPEED      worker: its speed relative to nominal, > 0 (1 when unset)
 *   KUNAL_PROFILE    worker: file of "seconds speed" lines; speed from that second of training on, before it
 *                    KUNAL_SPEED
 *   KUNAL_SHARED     1: all processes of the job are one user's on one machine, floats go through shared
 *                    memory
 *   KUNAL_LOG        json (default) or text
 *   KUNAL_PARENT_FD  a file descriptor that its parent holds open: at its end the parent is gone and so is
 *                    the job (base/signals.h reads it)
 */
#define KML_JOB_UID_MAX 63

enum kml_start_role { KML_START_PS, KML_START_WORKER };

struct kml_start {
    enum kml_start_role role;
    uint32_t index;
    const char *uid; /* all borrowed from the environment; NULL when unset */
    const char *conductor;
    const char *job;
    const char *tls_folder;
    const char *listen;
    const char *advertise;
    const char *output;
    double pace_ns;
    double speed;
    const char *profile;
    bool shared;
    bool log_text;
};

/* Reads the environment of this process. KML_USAGE names the variable that is missing or wrong. */
int kml_start_read(enum kml_start_role role, struct kml_start *out, struct kml_err *err) KML_MUST_CHECK;

#endif
