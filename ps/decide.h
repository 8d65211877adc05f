#ifndef KML_PS_DECIDE_H
#define KML_PS_DECIDE_H

#include "ps/conductor.h"

/*
 * Inside the conductor: the parts that its files share. conductor.c holds the phases and takes events,
 * members.c says who takes part, decide.c deals work and commits, evaluate.c runs evaluations.
 */
bool kml_conductor_is_bsp(const struct kml_job *job); /* everybody commits together */
void kml_conductor_enter(struct kml_conductor *c, enum kml_phase phase);
/* Training begins when everybody is there, or patience is over. */
void kml_conductor_maybe_start(struct kml_conductor *c, uint64_t now);
/* A shard holds all of version 0. */
void kml_conductor_initial_staged(struct kml_conductor *c, uint32_t shard, uint32_t worker,
                                  uint64_t incarnation, bool non_finite, uint64_t now);

void kml_conductor_say(struct kml_conductor *c, const struct kml_record *r);
void kml_conductor_warn(struct kml_conductor *c, const char *text); /* owned copy is made */

/* Commits what the barrier opened, then deals work to whoever can take some, until nothing moves any more. */
void kml_conductor_settle(struct kml_conductor *c, struct kml_opening *opening, uint64_t now);
struct kml_opening kml_conductor_opening(struct kml_conductor *c); /* an empty one over the scratch arrays */
void kml_conductor_join_training(struct kml_conductor *c,
                                 uint32_t worker); /* takes its seat at the barrier */

/* Training is over (epochs, target, stop): saves when nothing else is to be done. */
void kml_conductor_wind_up(struct kml_conductor *c, uint64_t now);

/* Changes a member's state and the counts by state. */
void kml_conductor_set_state(struct kml_conductor *c, uint32_t worker, enum kml_member_state state);

/* An epoch closed: begins an evaluation when one is due. */
void kml_evaluation_consider(struct kml_conductor *c);
/* A piece of the running evaluation for this worker; false: there is none left, or none is running. */
bool kml_evaluation_lease(struct kml_conductor *c, uint32_t worker, struct kml_evaluation_lease *out);
/* A worker that held a piece is gone. */
void kml_evaluation_lost(struct kml_conductor *c, uint32_t worker);

#endif
