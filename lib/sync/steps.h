#ifndef KML_SYNC_STEPS_H
#define KML_SYNC_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * Step arithmetic: from the members of an opening to the numbers of a commit (method.md 2.1).
 *
 * A member i stages the MEAN gradient g_i over its n_i samples. A commit applies
 *
 *     g = sum_i coefficient_i * g_i,      coefficient_i = n_i / sum n * clip_i
 *     step = learning rate * scale * optimiser(g),     scale = sum n / reference * damping
 *
 * over the members that are not refused. Without clipping the coefficients sum to 1: each sample weighs the
 * same, and g is the gradient of the union of the batches. The scale multiplies the learning rate, never the
 * gradient (Adam would cancel it), so that a runt batch makes a small step and an epoch moves equally far in
 * any order.
 *
 * Clipping, our reading: each member's gradient is clipped by its own global norm before it is summed,
 * clip_i = min(1, limit / ||g_i||). The norm of the sum would need a second round over the shards. The norm
 * comes from the partial square sums of all shards; clip_i is rounded down to 16 significant bits, so that
 * the last bits of a norm, which depend on where the shards are cut, do not reach the parameters (but for
 * about one clipped gradient in 10^10, whose factor lies that near to a step).
 *
 * A gradient with NaN or Inf: `Refuse` drops it (coefficient 0, not among n; its samples count as dealt, else
 * one bad sample would come back for ever), 10 in a row fail the job; `Fail` fails at the first.
 *
 * Pure; not thread-safe; the conductor owns one per job.
 */

#define KML_REFUSED_IN_A_ROW 10

struct kml_member {
    /* in */
    uint32_t worker;
    uint64_t step;     /* for the error text */
    uint64_t samples;  /* n_i >= 1 */
    double square_sum; /* ||g_i||^2, the shards' sums added in shard order; NaN or Inf counts as non-finite */
    bool non_finite;   /* some shard saw NaN or Inf */
    /* out */
    bool refused;
    double coefficient; /* 0 when refused */
};

struct kml_steps {
    double reference;     /* B_ref = m * B, samples */
    double clip;          /* largest norm of one member's gradient; 0: off */
    bool fail_non_finite; /* policy Fail */
    uint32_t refused_in_a_row;
    uint64_t refused; /* in all */
    uint64_t clipped; /* gradients made shorter */
};

struct kml_step_plan {
    double scale;     /* multiplies the learning rate; 0 when every member was refused */
    uint64_t samples; /* of the members that count */
    uint32_t members; /* that count; 0: the commit changes no parameter, yet makes a version */
    uint32_t refused;
};

/* workers m >= 1 and batch B >= 1 are the manifest's, not those alive: the step of a sample never depends
 * on who lives. */
void kml_steps_init(struct kml_steps *s, uint32_t workers, uint64_t batch, double clip, bool fail_non_finite);

/*
 * Fills the out fields of member[0..count), which come in worker order, and *out. `damping` is the staleness
 * factor of the commit, 1 for none. Fails with KML_INVALID, naming worker and step, when the policy for NaN
 * and Inf says so; then nothing may be committed.
 */
int kml_steps_plan(struct kml_steps *s, struct kml_member *member, uint32_t count, double damping,
                   struct kml_step_plan *out, struct kml_err *err) KML_MUST_CHECK;

#endif
