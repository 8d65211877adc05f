#ifndef KML_TESTS_SIM_INSIDE_H
#define KML_TESTS_SIM_INSIDE_H

#include "tests/sim/host_names.h"

#include "base/rng.h"
#include "math/optimizer.h"
#include "ps/host.h"
#include "sync/coverage.h"
#include "tests/sim/heap.h"
#include "tests/sim/sim.h"

/*
 * Inside the simulator: what its files share.
 *   sim.c     life, the loop, faults, the report    net.c     streams and their delays
 *   lead.c    PS-0: sessions, the conductor's sink  worker.c  a worker's process
 *   shadow.c  the plain model beside the shards     check.c   what must always hold
 *   host.c    ps/host.c over the streams of net.c
 */
#define SIM_GENERATION 7u
#define SIM_TASKS 4u

/* ---- Messages between workers and the conductor ---- */

enum sim_word {
    SIM_JOIN,
    SIM_HEARTBEAT,
    SIM_REPORT,
    SIM_EVALUATED,
    SIM_WELCOME,
    SIM_UPLOAD,
    SIM_ASSIGN,
    SIM_EVALUATE,
    SIM_ABANDON,
    SIM_OVER
};

struct sim_message {
    enum sim_word word;
    uint64_t step, version;
    struct kml_lease lease;
    struct kml_step_report report;
    struct kml_evaluation_result result;
    struct kml_evaluation_lease evaluation;
};

/* ---- Streams ---- */

/* One stream between a worker's process and the conductor or a shard. Lives as long as the simulation. */
struct kml_stream {
    struct sim *sim;
    struct kml_stream *next;
    uint32_t worker;
    uint64_t incarnation;
    uint32_t life; /* of the worker: a stream of an earlier one reaches nobody */
    bool control;
    uint32_t shard;                   /* of a data stream */
    const struct kml_stream_ops *ops; /* of the shard's side; NULL: control, or not open yet */
    void *self;
    bool up, down; /* the server still hears, the worker still hears */
    bool ended;    /* the server has been told, or will be */
    bool joined;   /* control: its Join was taken */
    bool paused;
    struct sim_parcel *held, **held_end;    /* come in while paused */
    uint64_t opened_at, last_up, last_down; /* arrivals */
};

struct kml_stream *sim_net_open(struct sim *s, uint32_t worker, uint64_t incarnation, uint32_t life,
                                bool control, uint32_t shard);
void sim_net_finish(struct sim *s);
void sim_net_say_up(struct kml_stream *t, const struct sim_message *m);
void sim_net_say_down(struct kml_stream *t, const struct sim_message *m);
/* A piece on a data stream: header and data; piece: it may overtake. */
void sim_net_send_up(struct kml_stream *t, const uint8_t *header, size_t size, const float *data,
                     size_t floats, bool piece);
void sim_net_leave(struct kml_stream *t);             /* the worker's side is gone, in an orderly way */
void sim_net_cut(struct kml_stream *t, bool noticed); /* it is dead */
uint64_t sim_net_delay(struct sim *s);
bool sim_chance(struct sim *s, double chance);

/* ---- Workers ---- */

enum sim_worker_state { SIM_DOWN, SIM_JOINING, SIM_JOINED, SIM_GONE };

struct sim_task {
    bool evaluate;
    uint64_t step, version;
    struct kml_lease lease;
    struct kml_evaluation_lease evaluation;
};

struct sim_slot {
    bool used;
    uint64_t version;
    float *value;
    struct kml_coverage covered;
};

struct sim_worker {
    struct sim *sim;
    uint32_t index;
    enum sim_worker_state state;
    uint32_t life; /* goes up whenever it starts anew: what belongs to an earlier life means nothing */
    uint64_t incarnation;
    uint64_t start_at, paused_until;
    struct kml_stream *control;
    struct kml_stream **data; /* [shards] */
    struct sim_task task[SIM_TASKS];
    uint32_t first, tasks;
    bool computing;
    uint64_t run; /* computations begun so far */
    uint64_t begun_at;
    struct sim_slot slot[2];
    float *gradient;
};

void sim_worker_init(struct sim_worker *w, struct sim *s, uint32_t index);
void sim_worker_finish(struct sim_worker *w);
void sim_worker_start(struct sim_worker *w);
void sim_worker_die(struct sim_worker *w, bool noticed);
/* From the network. */
void sim_worker_told(struct sim_worker *w, const struct sim_message *m);
void sim_worker_piece(struct sim_worker *w, uint32_t shard, const struct kml_slices *bytes);
void sim_worker_lost(struct sim_worker *w, const struct kml_err *why);

/* ---- PS-0 and the other shards ---- */

struct sim_shard {
    struct sim *sim;
    uint32_t index;
    struct kml_host *host;
    bool here, gathered;
    uint64_t last_order, last_answer; /* arrivals on the connection between the conductor and this shard */
    uint64_t version;                 /* when it was last looked at */
};

void sim_lead_init(struct sim *s);
void sim_lead_message(struct kml_stream *t, const struct sim_message *m);
void sim_lead_ended(struct kml_stream *t, const char *why); /* a control stream */
void sim_lead_tick_soon(struct sim *s);                     /* asks for a tick at the conductor's deadline */
struct kml_optimizer sim_optimizer_of(const struct kml_job *job);

/* ---- The oracle ---- */

/* The last step that a worker's process computed, or was given. */
struct sim_deal {
    uint64_t incarnation, step, version;
    struct kml_lease lease;
    bool computed;
    float *gradient; /* [floats] */
};

struct sim_shadow {
    struct kml_optimizer optimizer;
    float *params, *sum, *slot[KML_OPTIMIZER_SLOTS];
    uint64_t updates, version;
    uint32_t *crc; /* [version + 1] */
    uint64_t crc_room;
    struct sim_deal *deal; /* [workers] */
    const float **grad;
    float *coefficient;
    uint8_t *seen; /* [epochs * positions] commits of each sample in each epoch */
    float *pinned; /* parameters of the version that is evaluated */
    uint64_t pinned_version;
    bool steady; /* the crew never changed so far */
    uint64_t commits;
    uint64_t identities; /* commits at which the crew was steady */
};

void sim_shadow_init(struct sim *s);
void sim_shadow_finish(struct sim *s);
void sim_shadow_assigned(struct sim *s, uint32_t worker, const struct kml_assignment *a);
/* The worker has these parameters and computed this. */
void sim_shadow_computed(struct sim *s, uint32_t worker, uint64_t incarnation, const struct sim_task *t,
                         const float *params, const float *gradient);
void sim_shadow_got(struct sim *s, uint32_t worker, uint64_t version, const float *params);
void sim_shadow_commit(struct sim *s, const struct kml_commit *c);
void sim_shadow_pin(struct sim *s, uint64_t version);
void sim_shadow_evaluated(struct sim *s, const struct kml_record *r);
void sim_shadow_saved(struct sim *s, uint64_t version, const float *params);

void sim_check(struct sim *s);     /* between two events */
void sim_check_end(struct sim *s); /* the job is over */

/* ---- All of it ---- */

struct sim {
    struct sim_config config;
    struct kml_job job; /* a copy of the struct, its strings borrowed */
    uint32_t workers, shards, floats;
    struct kml_layout layout;
    uint64_t now;
    struct kml_rng net_rng, worker_rng;
    struct sim_heap heap;
    struct kml_conductor conductor;
    struct kml_stream *streams;
    struct kml_stream **session;     /* [workers] the newest control stream whose Join was taken */
    struct sim_worker *worker;       /* [workers] */
    struct sim_shard *shard;         /* [shards] */
    struct kml_shard_member *member; /* [workers] scratch of a commit */
    struct sim_shadow shadow;
    uint64_t tick_at; /* when the next tick is posted for */
    uint64_t started_ns, ended_ns;
    uint32_t away; /* members away when the deadline was last asked for */
    uint64_t barrier_deadline;
    enum kml_phase seen_phase;
    bool over;
    float *saved;
    uint32_t parts;
    uint64_t saved_version;
    uint64_t *worker_samples;
    struct sim_evaluation *evaluation;
    uint32_t evaluation_room;
    struct sim_report report;
};

/* Remembers the first thing that is wrong. */
void sim_wrong(struct sim *s, const char *format, ...) KML_PRINTF(2, 3);

#endif
