#ifndef KML_CLI_SUPERVISE_H
#define KML_CLI_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "cli/crew.h"
#include "cli/driver.h"
#include "cli/outcome.h"
#include "cli/procstat.h"
#include "cli/restart.h"
#include "obs/progress.h"

/*
 * Watches over the processes of a run from the first start to the last end.
 *
 *   LAUNCHING  PS-0 runs; the others are started as soon as it says where it listens
 *   RUNNING    the conductor is asked for its status every 200 ms; workers that die are started again by
 *              restartPolicy
 *   SAVING     a stop was asked for; the conductor has 10 s to save what it has
 *   CLOSING    the outcome is known; who still runs gets TERM after a grace, KILL 5 s later
 *
 * Who has ended is judged after the conductor had its say: a status that was asked for after that end tells
 * whether the job had failed or finished anyway, and the worker only obeyed. PS-0, which is the conductor, is
 * judged at once.
 *
 * One thread. When kml_supervise returns, no child runs, whatever happened.
 */
#define KML_STOP_SIGNAL "Interrupted" /* reasons of a stop */
#define KML_STOP_DEADLINE "DeadlineExceeded"

enum kml_stage { KML_STAGE_LAUNCHING, KML_STAGE_RUNNING, KML_STAGE_SAVING, KML_STAGE_CLOSING };

struct kml_supervise_options {
    int signals;             /* signalfd of INT, TERM, HUP, CHLD, which are blocked */
    bool quiet;              /* no progress */
    const char *status_file; /* NULL: none */
};

struct kml_supervised {  /* one process */
    bool judged;         /* its end was looked at; true while it runs */
    uint64_t restart_at; /* ns; 0: not waiting */
    struct kml_procstat before;
};

struct kml_supervisor {
    struct kml_crew *crew;
    const struct kml_supervise_options *options;
    struct kml_outcome *outcome;
    struct kml_clock clock;
    struct kml_loop *loop;
    struct kml_driver driver;
    enum kml_stage stage;
    uint64_t stage_until;    /* LAUNCHING, SAVING: when patience ends; CLOSING: when TERM is sent */
    bool terminated;         /* CLOSING: TERM was sent */
    int signal;              /* the first one that asked for a stop; 0: none */
    const char *stop_reason; /* SAVING: why */
    uint64_t started_ns, next_ask, next_metrics, idle_since;
    bool trained;                   /* the phase was TRAINING or later */
    uint64_t heard_ns;              /* driver.answered_ns of the status that was handled last */
    struct kml_supervised *process; /* [size of the crew] */
    struct kml_restart restart;
    struct kml_restart_seat *seat; /* [workers] */

    /* PS-0's stdout */
    int metrics;         /* metrics.jsonl */
    struct kml_buf line; /* the line that is not whole yet */
    char *finished;      /* its "finished" line; NULL: has not come */

    /* for people and files */
    struct kml_progress_line progress;
    struct kml_progress_worker *shown; /* [workers] */
    uint64_t warnings;                 /* how many of the conductor's were printed */
    struct kml_buf written;            /* the status file as it is, without its time */
    uint64_t written_ns;
    uint64_t wall_start, wall_running, wall_end;
};

/* Starts everything, returns when nothing runs any more; `out` is set. KML_* only when the first step failed.
 */
int kml_supervise(struct kml_crew *crew, const struct kml_supervise_options *options, struct kml_outcome *out,
                  struct kml_err *err) KML_MUST_CHECK;

/* ---- The parts of it: report.c ---- */
void kml_supervisor_say(struct kml_supervisor *s, const char *format, ...)
    KML_PRINTF(2, 3); /* a line on stderr */
void kml_supervisor_progress(struct kml_supervisor *s, uint64_t now);
int kml_supervisor_write_status(struct kml_supervisor *s, uint64_t now, struct kml_err *err) KML_MUST_CHECK;
void kml_supervisor_metrics(struct kml_supervisor *s, uint64_t now); /* node metrics to the conductor */

/* ---- judge.c ---- */
void kml_supervisor_status(struct kml_supervisor *s, uint64_t now); /* a new status came */
void kml_supervisor_judge(struct kml_supervisor *s, uint64_t now);  /* whoever has ended */
void kml_supervisor_stop(struct kml_supervisor *s, const char *reason, uint64_t now);
void kml_supervisor_stopped(struct kml_supervisor *s, const char *why_not,
                            uint64_t now); /* the end of SAVING */
void kml_supervisor_close(struct kml_supervisor *s, uint64_t grace_ns, uint64_t now);

#endif
