#ifndef KML_WORKER_TRAIN_H
#define KML_WORKER_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/shared.h"
#include "data/dataset.h"
#include "data/order.h"
#include "worker/batch.h"
#include "worker/model.h"
#include "worker/pace.h"
#include "worker/params.h"
#include "worker/pipe.h"
#include "worker/session.h"
#include "worker/throttle.h"

/*
 * The life of a worker: work comes over the session, parameters over the pipe; when both are there, a step or
 * an evaluation is computed and its result goes back. One thread does it all: between micro-batches and while
 * it waits it looks at the loop.
 *
 * Work waits in a short queue. It starts when all parameters of exactly its version are here, and is thrown
 * away when the conductor abandons it or the session breaks; then no report of it is sent.
 */
#define KML_TRAIN_TASKS 4u /* that may wait; a conductor that sends more breaks the protocol */

struct kml_train_config {
    struct kml_loop *loop;
    struct kml_creds *creds;
    const char *conductor; /* all pointers borrowed for the life of the training */
    const char *uid;
    const Kunal__V1__Join *join; /* with index; the session fills in the incarnation */
    bool mtls;
    bool shared; /* shards run on this machine, for this user: floats go through shared memory */
    uint64_t patience_ns;
    const struct kml_model *model;
    const struct kml_dataset *data;
    enum kml_shuffle shuffle;
    uint64_t seed;
    const char *initial; /* path of a safetensors file to start from; NULL: seeded values */
    const struct kml_pace *pace;
    /* Not 0: leave; the number as kml_signals_taken. NULL allowed. */
    int (*stop_asked)(void);
    const char *root; /* "/", see base/cpus.h */
};

enum kml_task_kind { KML_TASK_STEP, KML_TASK_EVALUATE };

struct kml_task {
    enum kml_task_kind kind;
    struct kml_work work; /* STEP; its version counts for both */
    uint64_t lease;       /* EVALUATE */
    const struct kml_split *split;
    uint32_t begin, end;
};

struct kml_train {
    struct kml_train_config config;
    struct kml_session session;
    struct kml_pipe pipe;
    struct kml_params params;
    struct kml_orders orders;
    struct kml_throttle throttle;
    struct kml_workspace *workspace;
    struct kml_shared memory; /* of gradient and params when config.shared */
    float *gradient;          /* [floats] what is being sent */
    float *part;              /* [floats] of one micro-batch; NULL until a lease needs it */
    uint32_t *index;          /* [KML_MICRO_BATCH] */
    struct kml_batch batch;

    struct kml_task task[KML_TRAIN_TASKS + 1]; /* a ring, with the running one */
    uint32_t first, tasks;
    bool live;        /* the running task still counts */
    uint64_t running; /* its step number; UINT64_MAX: an evaluation */
    bool upload_due;

    uint64_t began_at;  /* first step, 0: none yet */
    uint64_t pushed_at; /* the last time that this worker had nothing more to do */
    uint64_t cpu_at;    /* process CPU time at the last report */
    uint64_t throttled_ns;
    uint64_t steps, samples; /* reported */
};

int kml_train_init(struct kml_train *t, const struct kml_train_config *config,
                   struct kml_err *err) KML_MUST_CHECK;

/*
 * What a worker ends with when it was told to: 128 + signal, or that of CANCELLED when its parent is gone.
 * Never 0, which means that the job has finished and no worker is missing.
 */
int kml_train_exit_of(int taken);

/*
 * Until the end. Returns the exit code; *why is KML_OK when the conductor ended it (the text is its reason,
 * or "") or a signal did.
 */
int kml_train_run(struct kml_train *t, struct kml_err *why);

/* Runs the loop until all streams have ended. The loop must still be there. */
void kml_train_finish(struct kml_train *t);

#endif
