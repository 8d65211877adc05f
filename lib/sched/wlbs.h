#ifndef KML_SCHED_WLBS_H
#define KML_SCHED_WLBS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "sched/split.h"

/*
 * WLBS: how many samples each worker gets (docs/algorithms/wlbs.md). Initial division after a warm-up,
 * partial adjustment from then on; the names are those of Zhu et al. 2022, the laws are our reading:
 *
 *   initial   the division with the smallest makespan (sched/split.h) for the costs that were measured;
 *   partial   at every look, T_i = time of worker i for its share, SE = (max T - min T) / mean T:
 *               SE <= fine           nothing;
 *               SE <= rapid          half a step towards the best division, a whole one when the look before
 *                                    made a half step;
 *               SE >  rapid          a whole step, of up to twice maximum_change; not again within cool_down
 *                                    looks, in which it counts as fine.
 *             No share changes by more than maximum_change of itself (at least by one sample), none falls
 *             below the minimum. A change that would gain less than minimum_gain is left.
 *   noise     what may be chance changes nothing. The deviation of ln cost from look to look is learned from
 *             second differences (so a steady drift is none); the largest |ln(T_i / mean T)| must be
 *             KML_WLBS_SIGMAS times its own. Rapid steps act on the newest costs. Fine ones act on costs
 *             smoothed over the looks since the worker's last jump (a look further off than chance explains),
 *             once those are exact to a quarter of the fine threshold or as exact as they get, for an SE of
 *             three deviations of one look. Until there are KML_WLBS_QUIET differences there are only rapid
 *             steps.
 *
 * The caller brings costs: measured (sched/speed.h) for WLBS, predicted (sched/predict.h) for Auto-WLBS.
 * Batch form: `total` = m * B, a share is a batch. Shard form: `total` = the samples to deal, a share is how
 * many of them, the cost is kml_cost_in_shards.
 *
 * Between any two calls: the shares of the present add up to `total`, those of the absent are 0. Pure: no
 * clock (`now` is passed through), no randomness; allocates at init only. Not thread-safe; the conductor owns
 * it, one for each group.
 */
#define KML_WLBS_SIGMAS 4.0
#define KML_WLBS_QUIET 4
#define KML_WLBS_GAIN 0.03

struct kml_wlbs_rule {
    uint64_t warmup_steps, every_steps;
    double minimum_share; /* of total, 0..1/m; every present worker gets 1 sample at least, if they suffice */
    double maximum_change; /* 0.. */
    uint32_t cool_down;    /* looks after a rapid step without another one */
    double fine_threshold, rapid_threshold;
    double
        smoothing; /* most weight of the newest look, in (0, 1]; 0.1 for measured costs, 0.5 for predicted */
    double minimum_gain; /* of the makespan; KML_WLBS_GAIN */
    bool dry_run;        /* decide and record, leave the shares */
};
struct kml_wlbs_rule kml_wlbs_rule_default(void); /* those of the manifest, for measured costs */

enum kml_share_kind {
    KML_SHARES_KEPT,
    KML_SHARES_INITIAL, /* the first division by speed */
    KML_SHARES_CREW,    /* somebody came or went, or `total` changed: divided anew */
    KML_SHARES_FINE,
    KML_SHARES_RAPID
};

enum kml_share_reason {
    KML_SHARES_UNKNOWN,    /* kept: nobody's cost is known */
    KML_SHARES_BALANCED,   /* kept: SE <= fine */
    KML_SHARES_NOISE,      /* kept: may be chance */
    KML_SHARES_SMALL_GAIN, /* kept */
    KML_SHARES_WARM,       /* initial: the warm-up is over */
    KML_SHARES_MEMBERS,    /* crew: who is present changed */
    KML_SHARES_TOTAL,      /* crew: `total` changed */
    KML_SHARES_HALF,       /* fine: half a step */
    KML_SHARES_WHOLE,      /* fine: the second step */
    KML_SHARES_COOLING,    /* fine: would be rapid, but one was made just now */
    KML_SHARES_FAR         /* rapid: SE > rapid */
};

struct kml_share_input {
    bool present;
    struct kml_cost
        cost;        /* per_sample 0, or anything that is no cost: not known, takes the mean of the others */
    uint32_t expert; /* enum kml_expert that gave it, for the record */
};

struct kml_share_line {
    bool present;
    struct kml_cost cost; /* as acted on: smoothed for fine steps */
    uint32_t expert;
    uint64_t before, after;
};

/* The record of a look. `line` [capacity] is the wlbs's own array, valid until the next look. */
struct kml_share_decision {
    uint64_t now;
    enum kml_share_kind kind;
    enum kml_share_reason reason;
    bool applied;         /* false when kept, or dry run */
    double imbalance;     /* SE of the shares before */
    double noise;         /* deviation of ln cost from look to look; 0 while unknown */
    double expected_gain; /* 1 - makespan after / before, by the costs of `line`; initial and crew: against
                             equal shares */
    double realised_gain; /* of the change before this look: 1 - makespan now / makespan then; NaN: none */
    uint64_t total;
    const struct kml_share_line *line;
    uint32_t lines;
};

struct kml_wlbs_seat {
    bool present;
    uint64_t share;
    double smooth;     /* of ln cost relative to the crew */
    double shrink;     /* variance of `smooth` over that of one look */
    uint32_t smoothed; /* looks in `smooth`; it begins anew after a jump */
    double past[2];    /* the last two such values */
};

struct kml_wlbs {
    struct kml_wlbs_rule rule;
    uint32_t capacity;
    uint64_t total;
    bool divided; /* by speed; before: equal shares */
    bool halved;  /* the look before made a half step */
    uint32_t cooling;
    uint64_t looks, next_step, changes;
    uint32_t history;           /* values in `past`, 0..2 */
    uint32_t differences;       /* looks in `variance` */
    double variance;            /* pooled */
    uint32_t smoothed;          /* looks in `smooth` */
    double shrink;              /* variance of `smooth` over that of one look */
    bool waiting;               /* the last change's gain is not realised yet */
    double makespan;            /* before the last change */
    struct kml_wlbs_seat *seat; /* [capacity] */
    struct kml_share_line *line;
    /* scratch, [capacity] each, of the crew of the last look: the present, ascending */
    uint32_t crew;
    uint32_t *who;
    struct kml_cost *cost, *calm; /* newest, smoothed */
    double *real, *log;
    uint64_t *old, *best;
    struct kml_split_room *room;
};

/* KML_INVALID names the field of a rule that cannot be. */
int kml_wlbs_init(struct kml_wlbs *w, const struct kml_wlbs_rule *rule, uint32_t capacity,
                  struct kml_err *err) KML_MUST_CHECK;
void kml_wlbs_finish(struct kml_wlbs *w);

/* Equal shares of `total` for the warm-up; the crew are those with present[i]. */
void kml_wlbs_equal(struct kml_wlbs *w, uint64_t total, const bool *present);

/* Is it time for a look, after so many steps per worker? Then every `every_steps`. */
bool kml_wlbs_due(const struct kml_wlbs *w, uint64_t steps);

/* Looks at the costs [capacity] and acts. `steps` is the number that kml_wlbs_due was asked with. */
void kml_wlbs_look(struct kml_wlbs *w, uint64_t now, uint64_t steps, uint64_t total,
                   const struct kml_share_input *in, struct kml_share_decision *out);

uint64_t kml_wlbs_share(const struct kml_wlbs *w, uint32_t worker);

/* The cost of one sample that comes in steps of the nominal batch. */
struct kml_cost kml_cost_in_shards(struct kml_cost batch_form, uint64_t nominal);

/* A cost for a worker that is predicted to run at `predicted` samples/s where it was measured at `measured`;
 * unchanged when one of them is no speed. */
struct kml_cost kml_cost_at_speed(struct kml_cost cost, double measured, double predicted);

const char *kml_share_kind_name(enum kml_share_kind k);     /* "Rapid" */
const char *kml_share_reason_name(enum kml_share_reason r); /* "TooFarApart" */

#endif
