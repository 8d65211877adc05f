#ifndef KML_JOB_JOB_H
#define KML_JOB_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "doc/doc.h"
#include "job/enums.h"

/*
 * A KunalJob, read from its manifest: every field with its default filled in and every rule checked.
 *
 * A field is honoured or refused, never silently ignored:
 *   - an unknown field, a wrong type, a value out of range, a pair of fields that cannot work together: a
 *     problem;
 *   - what is valid but not built yet: a problem, KML_UNSUPPORTED, "not supported yet";
 *   - what belongs to a mode, strategy or kind that is not chosen is checked, named in a note, and then holds
 *     its default here, as if it had not been written;
 *   - what only a cluster can use is named in a note when the driver is LOCAL, and kept.
 *
 * The fields, their defaults and limits are one table (table.h); reading, writing and checking all walk it.
 * A value that is null counts as absent. Plain data: not thread-safe, but many may read it at once.
 */
#define KML_JOB_AUTO UINT32_MAX  /* a number that is chosen when it is needed */
#define KML_JOB_UNSET UINT64_MAX /* ttlSecondsAfterFinished: never */
#define KML_JOB_MAX_LAYERS 8
#define KML_JOB_MAX_PROBLEMS 20
#define KML_JOB_MAX_NOTES 64
#define KML_JOB_NAME_MAX                                                                                     \
    50 /* letters of metadata.name, so that <job>-worker-<index> fits into a DNS label                       \
        */

struct kml_job_file {
    char *file;           /* name under storageUri; NULL: found by itself */
    char *label_column;   /* name of the column in the header line; NULL: see label_index */
    uint32_t label_index; /* 0-based column; KML_JOB_AUTO: the reader's own choice */
    double fraction;      /* validation only: this part of train, cut by seed; 0: none */
};

struct kml_job_env {
    char *name;
    char *value; /* NULL: valueFrom, which only a cluster can resolve */
};

/* A pod template: opaque JSON for the operator; its main container (called "kunal", else the first) read out.
 */
struct kml_job_template {
    char *json; /* NULL: no template; all below is then empty */
    char *image;
    char **command;
    char **args;
    struct kml_job_env *env;
    uint32_t command_count;
    uint32_t args_count;
    uint32_t env_count;
};

struct kml_job_replica {
    uint32_t replicas; /* 1.. */
    enum kml_job_restart restart_policy;
    struct kml_job_template template;
};

/* Strings are owned; NULL is "not given". Fields of an inactive mode hold their defaults. */
struct kml_job {
    char *name;
    char *namespace; /* NULL: the driver's */
    char *uid;
    char *labels; /* JSON map, NULL: none */

    struct {
        enum kml_job_model kind;
        uint32_t hidden[KML_JOB_MAX_LAYERS]; /* widths */
        uint32_t hidden_count;               /* 0 unless MLP */
        enum kml_job_activation activation;
        char *layers;      /* JSON list, CNN; later */
        char *initial_uri; /* NULL: seeded values */
        uint32_t seed;
    } model;

    struct {
        char *uri; /* required unless the model is Custom */
        enum kml_job_format format;
        struct kml_job_file train, validation, test;
        enum kml_job_standardize standardize;
        enum kml_job_shuffle shuffle;
    } dataset;

    struct {
        uint32_t epochs;
        uint32_t batch_size; /* per worker, nominal B */
        struct {
            enum kml_job_optimizer kind;
            double learning_rate, momentum, beta1, beta2, epsilon, weight_decay;
        } optimizer;
        struct {
            enum kml_job_schedule kind;
            double warmup_epochs; /* linear from 0 */
            uint32_t step_epochs; /* Step: every so many epochs ... */
            double factor;        /* ... the rate is multiplied by this */
        } schedule;
        double clip_norm; /* 0: off */
        enum kml_job_nonfinite nonfinite;
        struct {
            bool on;
            enum kml_job_metric metric;
            double value;
            uint32_t patience_epochs; /* 0: wait for the target for ever; else stop after so many without
                                         progress */
        } target;
        struct {
            uint32_t every_epochs;
            bool on_test;
        } evaluation;
        struct {
            bool on;
            char *uri;
            uint32_t every_seconds, every_epochs; /* 0: not by this measure */
            uint32_t keep;
            enum kml_job_resume resume;
        } checkpoint; /* later */
    } training;

    struct {
        enum kml_job_sync mode;
        uint32_t limit; /* LSP's l as written, or KML_JOB_AUTO; see kml_job_limit */
        uint32_t staleness;
        double grace_window; /* fraction of the mean step time */
        enum kml_job_payload payload;
        struct {
            bool on;
            double lambda;
        } compensation; /* later */
    } sync;

    struct {
        enum kml_job_strategy strategy;
        enum kml_job_form form;
        uint32_t warmup_steps, every_steps;
        double minimum_share, maximum_change;
        uint32_t cool_down;
        double fine_threshold, rapid_threshold;
        bool dry_run;
    } balancing;

    struct {
        double ratio;
        uint32_t min_members, max_groups;
        uint32_t staleness_bound; /* or KML_JOB_AUTO */
        enum kml_job_damping damping;
        double hysteresis;
        uint32_t dwell_windows, cool_down_windows;
        enum kml_job_coding scheme;
        uint32_t stragglers; /* 0..4 or KML_JOB_AUTO */
    } grouping;              /* mode Hybrid */

    struct {
        char *uri;        /* NULL: the driver's own place */
        uint32_t formats; /* bit 1 << enum kml_job_output */
    } output;

    struct {
        enum kml_job_clean clean;
        uint32_t backoff_limit;
        uint64_t active_deadline_seconds;      /* 0: none */
        uint64_t pre_running_deadline_seconds; /* 0: none */
        uint64_t ttl_seconds;                  /* KML_JOB_UNSET: never */
        bool suspend;
        enum kml_job_manager managed_by;
        struct {
            bool on;
            uint32_t min_available; /* 0: all */
            char *queue;
            char *min_resources; /* JSON map */
            char *priority_class;
            uint32_t timeout_seconds; /* 0: none */
        } scheduling;
    } run_policy;

    struct {
        bool on;
        uint32_t min_replicas, max_replicas; /* 0: not given */
    } elastic;                               /* later */

    enum kml_job_scope restart_scope;
    struct kml_job_replica ps, worker;
    enum kml_job_transport transport;
};

/*
 * Who reads. CLUSTER: the operator. LOCAL: `kunal run`. PROCESS: kunal-ps and kunal-worker, which read the
 * normalised manifest that a driver wrote, add no defaults of a driver and take any URI.
 */
enum kml_job_driver { KML_JOB_CLUSTER, KML_JOB_LOCAL, KML_JOB_PROCESS };

/* What reading had to say, one line each: "job.yaml:3:7: spec.model.kind: what; what to do". NULL where
 * unwanted. */
struct kml_job_notes {
    char *note[KML_JOB_MAX_NOTES];       /* inactive fields, clamps, fields that only a cluster uses */
    char *problem[KML_JOB_MAX_PROBLEMS]; /* in the order of the table, then the rules between fields */
    uint32_t notes;
    uint32_t problems;
    uint32_t problems_left_out; /* found, but more than KML_JOB_MAX_PROBLEMS */
};

void kml_job_notes_init(struct kml_job_notes *notes);
void kml_job_notes_finish(struct kml_job_notes *notes);

void kml_job_init(struct kml_job *job); /* all defaults that do not depend on the driver */
void kml_job_finish(struct kml_job *job);

/*
 * Reads, completes and checks. `job` is initialised and fresh. On failure `err` is the first problem and
 * `job` holds nothing of use, but may be finished. KML_INVALID, KML_UNSUPPORTED, KML_NO_MEMORY.
 */
int kml_job_read(struct kml_job *job, const struct kml_doc *doc, enum kml_job_driver driver,
                 struct kml_job_notes *notes, struct kml_err *err) KML_MUST_CHECK;

/* The whole way: bytes or a file (YAML or JSON), then the overrides ("spec.x.y=value", as behind --set), then
 * kml_job_read. */
int kml_job_load(struct kml_job *job, const char *name, struct kml_view text, const char *const *overrides,
                 uint32_t override_count, enum kml_job_driver driver, struct kml_job_notes *notes,
                 struct kml_err *err) KML_MUST_CHECK;
int kml_job_load_file(struct kml_job *job, const char *path, const char *const *overrides,
                      uint32_t override_count, enum kml_job_driver driver, struct kml_job_notes *notes,
                      struct kml_err *err) KML_MUST_CHECK;

/*
 * Appends the normalised manifest as one line of JSON: every active field with its value, in the order of the
 * table. Reading it back with PROCESS gives an equal job and no notes; the same job gives the same bytes.
 */
int kml_job_to_json(const struct kml_job *job, struct kml_buf *out, struct kml_err *err) KML_MUST_CHECK;

bool kml_job_equal(const struct kml_job *a, const struct kml_job *b);

/*
 * LSP's effective l for `workers` (1..) live workers: the written limit clamped to them, or for auto the
 * divisor of m nearest to m/2, the smaller on a tie; for an odd prime m, ceil(m/2). BSP and Hybrid: m. ASP
 * and SSP: 1.
 */
uint32_t kml_job_limit(const struct kml_job *job, uint32_t workers);

#endif
