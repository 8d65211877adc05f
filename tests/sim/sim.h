#ifndef KML_TESTS_SIM_SIM_H
#define KML_TESTS_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "job/job.h"
#include "ps/conductor.h"
#include "tests/sim/pace.h"
#include "tests/sim/problem.h"

/*
 * A whole job in one process under a virtual clock. The conductor (ps/conductor.c, decide.c, evaluate.c), the
 * shards and their streams' side (ps/shard.c, host.c), lib/sync, lib/math and the bulk framing of lib/wire
 * are the production code; clock, network and workers are simulated. Workers compute real gradients, so the
 * bytes of the parameters mean something.
 *
 * The network: each worker has one stream to the conductor and one to each shard. A message takes latency +
 * an exponential part; within a stream order holds, as in TCP, and a lost packet is a late one; between
 * streams nothing is ordered. Beyond TCP: messages may come twice, and pieces of a gradient may overtake each
 * other.
 *
 * After every event (every `check_every`-th) what must always hold is checked: see check.c. Beside the shards
 * a plain model (shadow.c) replays every commit from what the workers computed; each version that a worker
 * gets, and the one that is saved, must have its bytes. Whatever is wrong ends the run and stands in the
 * report.
 *
 * A run is a function of its configuration and seed alone.
 */
struct sim_faults {
    uint64_t latency_ns; /* at least; 0: 50 us */
    double jitter;       /* mean of the random part, in latencies */
    double late;         /* chance of a message to be late by up to late_ns: lost and sent again */
    uint64_t late_ns;
    double twice;      /* chance of a message to come twice */
    double overtake;   /* chance of a gradient's piece to ignore the order of its stream */
    double disconnect; /* chance of a message to break its stream instead */
};

struct sim_config {
    const struct kml_job *job; /* all borrowed for the life of the simulation */
    const struct sim_problem *problem;
    const struct sim_pace *pace; /* NULL: all run at nominal speed */
    struct sim_faults faults;
    uint64_t seed;
    uint64_t sample_ns;   /* nominal time of a sample; 0: 1 ms */
    uint32_t pieces;      /* a shard's part of a gradient is sent in 1 .. pieces pieces; 0: 1 */
    uint32_t check_every; /* 0: every event */
    bool (*poison)(void *self, uint32_t worker,
                   uint64_t step); /* true: its gradient holds NaN; NULL: never */
    void *poison_self;
    void (*record)(void *self, const struct kml_record *r); /* sees what the conductor records; NULL */
    void *record_self;
    uint64_t limit_ns; /* virtual time after which a run is stuck; 0: a day */
};

struct sim_evaluation {
    uint64_t version, epoch;
    double loss, accuracy;
    bool test;
};

struct sim_report {
    char wrong[256]; /* empty: everything held */
    enum kml_phase phase;
    const char *reason, *message;
    uint32_t exit_code;
    uint64_t elapsed_ns;               /* from the start of training to its end */
    double training_ns, evaluation_ns; /* as the conductor counts */
    double samples_per_second;         /* of training time */
    const uint64_t *worker_samples;    /* [workers] */
    uint64_t versions, samples;
    const float *params; /* what was saved, [floats]; NULL: nothing */
    uint64_t saved_version;
    const struct sim_evaluation *evaluation; /* [evaluations] */
    uint32_t evaluations;
    uint32_t epochs; /* closed */
    uint64_t events, identities, joins, refused, expelled, gone, twice, late, overtaken, disconnected,
        abandoned;
    char refusal[256]; /* of the last join that was refused */
};

struct sim;

struct sim *sim_create(const struct sim_config *config);
void sim_destroy(struct sim *s);

/* ---- Faults at a time. Workers start at 0 unless told otherwise; before sim_run. ---- */
#define SIM_NEVER UINT64_MAX
void sim_start(struct sim *s, uint32_t worker, uint64_t at); /* SIM_NEVER: does not come at all */
/* Dies; a new process starts after `back` ns. Noticed: its connections break; else nobody tells the
 * conductor. */
void sim_kill(struct sim *s, uint32_t worker, uint64_t at, uint64_t back, bool noticed);
void sim_pause(struct sim *s, uint32_t worker, uint64_t at, uint64_t length);
void sim_lose_shard(struct sim *s, uint32_t shard, uint64_t at);
void sim_stop(struct sim *s, uint64_t at, const char *reason);
/* Anything else: calls back at that time. */
void sim_at(struct sim *s, uint64_t at, void (*call)(void *self, void *sim), void *self);

/* Runs to the end of the job. Stuck (nothing happens, or the limit is reached) is wrong. */
const struct sim_report *sim_run(struct sim *s);

struct kml_conductor *sim_conductor(struct sim *s);
uint64_t sim_now(const struct sim *s);

#endif
