#ifndef KML_PS_CONDUCTOR_H
#define KML_PS_CONDUCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "job/job.h"
#include "math/schedule.h"
#include "ps/balance.h"
#include "sync/barrier.h"
#include "sync/layout.h"
#include "sync/ledger.h"
#include "sync/shardmap.h"
#include "sync/steps.h"

/*
 * The conductor: everything that decides in a job. Who is a member, who gets which samples, who commits
 * together, when an epoch is evaluated, when the job is over. It knows no socket, no clock and no shard's
 * memory: events come in as calls with the time, decisions leave through the sink. The same lines run in
 * kunal-ps and under the simulator.
 *
 * Phases: STARTING (waits for shards, workers, initial parameters) -> TRAINING -> SAVING -> SUCCEEDED, or
 * from anywhere FAILED or STOPPED. The last three never change any more.
 *
 * Between any two calls:
 *   - a present worker trains (holds a lease of the ledger), evaluates (holds one of the evaluation), or is
 *     idle; the idle and the evaluating are excused from the barrier;
 *   - versions made == openings of the barrier == commits sent, in order, each once;
 *   - a step's samples are done in the ledger exactly when its commit was sent;
 *   - with lockstep (BSP, Static) nobody trains while an evaluation runs, so timing never decides who commits
 *     together.
 *
 * Not thread-safe. Worker and shard indices that come from peers are checked here.
 */

enum kml_phase {
    KML_PHASE_STARTING,
    KML_PHASE_TRAINING,
    KML_PHASE_SAVING,
    KML_PHASE_SUCCEEDED,
    KML_PHASE_FAILED,
    KML_PHASE_STOPPED
};

#define KML_SILENCE_NS (15 * KML_SECOND) /* a worker that says nothing for so long is gone */
#define KML_RETURN_NS (10 * KML_SECOND)  /* one that is gone for so long has lost its shard of the data */
#define KML_PATIENCE_NS                                                                                      \
    (120 * KML_SECOND) /* training starts without workers that have not joined so long after the first */
#define KML_DIGEST_MAX 64
#define KML_WARNINGS_MAX 16

struct kml_assignment {
    uint64_t step;
    uint64_t version;
    const struct kml_lease *lease; /* borrowed for the call */
};

struct kml_evaluation_lease {
    uint64_t lease;
    uint64_t version;
    bool test; /* else validation */
    struct kml_range range;
};

struct kml_commit_member {
    uint32_t worker;
    uint64_t incarnation;
    uint64_t step;
    double coefficient; /* 0: refused */
};

struct kml_commit {
    uint64_t version;
    const struct kml_commit_member *member; /* [count], ascending by worker */
    uint32_t count;
    double learning_rate; /* base rate * schedule */
    double step_scale;
    const uint32_t *release; /* [releases]: workers that get the new parameters at once */
    uint32_t releases;
};

/* What is worth a line in the metrics. */
enum kml_record_kind {
    KML_RECORD_PHASE,
    KML_RECORD_WORKER_JOINED,
    KML_RECORD_WORKER_LEFT,
    KML_RECORD_EPOCH, /* all of it is committed */
    KML_RECORD_EVALUATION,
    KML_RECORD_WARNING,
    KML_RECORD_BALANCE /* shares changed, or with dryRun would have */
};

struct kml_record {
    enum kml_record_kind kind;
    uint32_t worker;
    uint64_t incarnation;
    uint64_t epoch; /* EPOCH, EVALUATION: epochs closed */
    uint64_t version;
    double train_loss;     /* EPOCH: mean over its samples */
    double loss, accuracy; /* EVALUATION; accuracy is NaN for regression */
    bool test;
    const char *text;                          /* WORKER_LEFT, WARNING: one line; PHASE: its name */
    const struct kml_share_decision *decision; /* BALANCE; borrowed for the call */
};

/*
 * Where decisions go. Called in the order in which they must be carried out. From inside a call the sink may
 * tell the conductor two things and nothing else: kml_conductor_saved (from `save`), and kml_conductor_fail
 * (from any: a local shard cannot obey). The job is then over; the conductor only ends the decision that it
 * is in, and makes no other commit.
 */
struct kml_conductor_sink {
    void *self;
    /* to all shards, the local one included */
    void (*setup)(void *self, const struct kml_shardmap *map, uint64_t generation);
    void (*admit)(void *self, uint32_t worker, uint64_t incarnation);
    void (*dismiss)(void *self, uint32_t worker, uint64_t incarnation);
    void (*commit)(void *self, const struct kml_commit *c);
    void (*release)(void *self, uint64_t version, const uint32_t *workers, uint32_t count);
    void (*pin)(void *self, uint64_t version);
    void (*unpin)(void *self, uint64_t version);
    /* to one worker */
    void (*welcome)(void *self, uint32_t worker, uint64_t last_step);
    void (*upload)(void *self, uint32_t worker);
    void (*assign)(void *self, uint32_t worker, const struct kml_assignment *a);
    void (*evaluate)(void *self, uint32_t worker, const struct kml_evaluation_lease *e);
    void (*abandon)(void *self, uint32_t worker, uint64_t step);
    /* its process is given up; whatever it still says is not heard. AGAIN: it may join anew; FENCED: it may
     * not */
    void (*expel)(void *self, uint32_t worker, uint64_t incarnation, enum kml_code code, const char *why);
    /* the end: gather `version` from the shards, store the model, call kml_conductor_saved */
    void (*save)(void *self, uint64_t version);
    /* to everybody: the job is over; exit_code 0 after SUCCEEDED and STOPPED */
    void (*over)(void *self, enum kml_phase phase, const char *reason, uint32_t exit_code);
    void (*record)(void *self, const struct kml_record *r);
};

struct kml_worker_join {
    uint32_t index;
    uint64_t incarnation;
    struct kml_layout layout; /* borrowed for the call */
    uint64_t train_samples, validation_samples, test_samples;
    uint8_t digest[KML_DIGEST_MAX];
    uint32_t digest_size;
};

struct kml_step_report {
    uint64_t step;
    uint64_t samples;
    double loss_sum;
    uint64_t correct;
    uint64_t compute_ns, wait_ns, cpu_ns, throttled_ns;
    bool throttled_known;
};

struct kml_evaluation_result {
    uint64_t lease;
    uint64_t samples;
    double loss_sum;
    uint64_t correct;
    bool has_accuracy;
};

enum kml_member_state { KML_MEMBER_AWAY, KML_MEMBER_IDLE, KML_MEMBER_TRAINING, KML_MEMBER_EVALUATING };

struct kml_conductor_worker {
    enum kml_member_state state;
    bool welcomed;
    uint64_t incarnation;
    uint64_t joins;
    uint64_t heard_ns; /* last sign of life */
    uint64_t left_ns;  /* when it went away */
    bool forfeited;    /* what it owned was dealt to others */
    uint64_t step;     /* the last one given to it; steps of an index rise over all its incarnations */
    bool reported;     /* of the step in flight */
    uint32_t staged;   /* shards that hold the step in flight whole */
    struct kml_step_report report;
    uint64_t evaluation_lease; /* EVALUATING: which */
    /* for status */
    uint64_t steps, samples, staleness, refused;
    uint64_t epoch_samples; /* committed since the running epoch opened */
    double speed;           /* samples/s while computing, smoothed */
    uint64_t compute_ns, wait_ns;
    double cpu_cores; /* what the driver said */
    bool cpu_known;
};

struct kml_evaluation {
    bool running;
    bool wanted; /* an epoch closed while another evaluation ran */
    bool to_pin; /* begun, but the shards do not know yet */
    bool test;
    uint64_t version;
    uint64_t epoch; /* epochs closed when it began */
    struct kml_ledger ledger;
    uint64_t leases; /* handed out so far, over the whole job: also their ids */
    double loss_sum;
    uint64_t correct, samples;
    bool has_accuracy;
};

struct kml_conductor {
    const struct kml_job *job;
    struct kml_conductor_sink sink;
    enum kml_phase phase;
    char reason[64]; /* FAILED, STOPPED: CamelCase */
    char message[KML_ERR_TEXT];
    uint32_t exit_code;
    uint64_t generation;

    uint32_t workers, shards;            /* m, n: the manifest's */
    struct kml_conductor_worker *worker; /* [workers] */
    uint32_t members[4];                 /* how many workers are in each state */
    double *square_sum;                  /* [workers * shards] of the step in flight */
    bool *shard_staged;                  /* [workers * shards] */
    bool *non_finite;                    /* [workers] */
    bool *shard_present;                 /* [shards] */
    bool *shard_ready;                   /* [shards]: holds all of version 0 */

    bool have_layout;
    struct kml_layout layout;
    struct kml_shardmap map;
    bool set_up; /* shards know their ranges */
    bool uploading;
    uint32_t uploader;
    bool parameters; /* version 0 is on every shard */
    uint64_t first_join_ns;
    uint64_t train_samples, validation_samples, test_samples;
    uint8_t digest[KML_DIGEST_MAX];
    uint32_t digest_size;

    struct kml_barrier barrier;
    struct kml_barrier_seat *seat; /* [workers] */
    struct kml_ledger ledger;
    struct kml_steps steps;
    struct kml_schedule schedule;
    struct kml_balance balance; /* how many samples a worker's step gets */
    struct kml_evaluation evaluation;
    bool stopping;       /* target reached, patience over or a stop asked for: no more work */
    bool save_evaluated; /* the model is the version that was evaluated last, not the newest */
    double step_ns;      /* smoothed time of a step, for the grace window */

    /* accounts */
    uint64_t last_ns; /* up to which time is accounted */
    double training_ns, evaluation_ns;
    uint64_t samples;     /* committed over all epochs */
    double epoch_loss[2]; /* sums of the two epochs that can be open */
    uint64_t epoch_count[2];
    uint64_t recorded_epochs;
    double train_loss;
    double loss, accuracy;
    bool has_evaluation, has_accuracy;
    double best;         /* of the target's metric */
    uint64_t best_epoch; /* when it was reached: epochs closed */
    bool target_reached;
    char *warning[KML_WARNINGS_MAX];
    uint32_t warnings;

    /* scratch of one opening */
    uint32_t *o_worker, *o_staleness, *o_released; /* [workers] */
    uint32_t *train_list, *evaluation_list;        /* [workers] */
    struct kml_evaluation_lease *evaluation_lease; /* [workers] */
    struct kml_member *member;                     /* [workers] */
    struct kml_commit_member *commit_member;       /* [workers] */
    struct kml_lease *lease;                       /* [workers] */
    bool *present;                                 /* [workers] */
};

/* `job` must outlive the conductor. */
void kml_conductor_init(struct kml_conductor *c, const struct kml_job *job,
                        const struct kml_conductor_sink *sink, uint64_t generation, uint64_t now);
void kml_conductor_finish(struct kml_conductor *c);

/* ---- Members. A refused join says why: KML_INVALID, KML_PROTOCOL, KML_FENCED, KML_EXISTS; the caller ends
 * the session. ---- */
int kml_conductor_shard_join(struct kml_conductor *c, uint32_t shard, uint64_t now,
                             struct kml_err *err) KML_MUST_CHECK;
void kml_conductor_shard_left(struct kml_conductor *c, uint32_t shard, const char *why, uint64_t now);

int kml_conductor_worker_join(struct kml_conductor *c, const struct kml_worker_join *join, uint64_t now,
                              struct kml_err *err) KML_MUST_CHECK;
/* A session ended or the worker said Leaving. An incarnation that is not there changes nothing. */
void kml_conductor_worker_left(struct kml_conductor *c, uint32_t worker, uint64_t incarnation,
                               const char *why, uint64_t now);
void kml_conductor_heard(struct kml_conductor *c, uint32_t worker, uint64_t incarnation, uint64_t now);

/* ---- Training. Late and repeated messages change nothing. ---- */
void kml_conductor_staged(struct kml_conductor *c, uint32_t shard, uint32_t worker, uint64_t incarnation,
                          uint64_t step, double square_sum, bool non_finite, uint64_t now);
void kml_conductor_report(struct kml_conductor *c, uint32_t worker, uint64_t incarnation,
                          const struct kml_step_report *r, uint64_t now);
void kml_conductor_evaluated(struct kml_conductor *c, uint32_t worker, uint64_t incarnation,
                             const struct kml_evaluation_result *r, uint64_t now);

/* What a driver says of a worker's machine: cores in use, measured age_ns ago. */
void kml_conductor_cpu(struct kml_conductor *c, uint32_t worker, bool known, double cores, uint64_t age_ns,
                       uint64_t now);

/* ---- The end ---- */
void kml_conductor_saved(struct kml_conductor *c, uint64_t now);
void kml_conductor_fail(struct kml_conductor *c, const char *reason, const char *message, uint32_t exit_code,
                        uint64_t now);
/* Saves what is there and ends as STOPPED; without parameters it ends at once. */
void kml_conductor_stop(struct kml_conductor *c, const char *reason, uint64_t now);

/* Call it at kml_conductor_deadline or a little later. */
void kml_conductor_tick(struct kml_conductor *c, uint64_t now);
uint64_t kml_conductor_deadline(const struct kml_conductor *c); /* UINT64_MAX: nothing to wait for */

/* Brings the accounts of time up to `now`, for a status. */
void kml_conductor_account(struct kml_conductor *c, uint64_t now);

bool kml_conductor_over(const struct kml_conductor *c);        /* SUCCEEDED, FAILED or STOPPED */
uint32_t kml_conductor_present(const struct kml_conductor *c); /* workers */
double kml_conductor_fraction(const struct kml_conductor *c);  /* of all epochs' samples committed, 0..1 */
const char *kml_phase_name(enum kml_phase p);                  /* "Training" */

#endif
