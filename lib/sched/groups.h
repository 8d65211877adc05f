#ifndef KML_SCHED_GROUPS_H
#define KML_SCHED_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "sched/partition.h"

/*
 * Which workers form a group: synchronous inside, asynchronous across (docs/algorithms/groups.md). The cut is
 * made on the predicted time of the nominal batch, not on that of the batch that balancing gave, which
 * balancing makes equal. The rules are our reading:
 *
 *   candidate   greedy ratio cover; parts below min_members merge; more than max_groups: the best partition
 *               into max_groups of ln t (sched/partition.h);
 *   rate        sum over groups of members / time of the slowest: steps per second;
 *   split       the candidate's rate is (1 + hysteresis) times that of the groups in force, or more;
 *   merge       it has fewer groups (less staleness) and a rate of (1 - hysteresis / 2) times or more. The
 *               two bounds lie apart, so noise does not swing between them;
 *   dwell       one of both must hold in dwell_windows looks in a row;
 *   cool-down   then cool_down_windows looks follow without a regroup (the row may begin in them).
 * Who comes or goes regroups at once: a group must hold everybody who is present, nobody else.
 *
 * Between any two calls: groups are numbered 0 .. count - 1, from the fastest when they were cut; the absent
 * have KML_GROUP_NONE; `plan` goes up by one with each change. max_groups 1 is one group for all (BSP);
 * ratio and min_members 1 with max_groups >= m and all different, one for each (ASP).
 * Pure: no clock (`now` is passed through), no randomness; allocates at init only. Not thread-safe.
 */
#define KML_GROUP_NONE UINT32_MAX

struct kml_group_rule {
    double ratio; /* >= 1 */
    uint32_t min_members, max_groups;
    double hysteresis;
    uint32_t dwell_windows, cool_down_windows;
    bool dry_run; /* decide and record, leave the groups */
};
struct kml_group_rule kml_group_rule_default(void); /* those of the manifest */

enum kml_group_kind {
    KML_GROUPS_KEPT,
    KML_GROUPS_FIRST, /* there were none */
    KML_GROUPS_CREW,  /* somebody came or went */
    KML_GROUPS_SPLIT, /* for a higher rate */
    KML_GROUPS_MERGED /* fewer groups at about the same rate */
};

enum kml_group_reason {
    KML_GROUPS_SAME,       /* kept: the candidate is what is in force */
    KML_GROUPS_SMALL_GAIN, /* kept: within the hysteresis */
    KML_GROUPS_DWELLING,   /* kept: not long enough yet */
    KML_GROUPS_COOLING,    /* kept: a regroup was made just now */
    KML_GROUPS_START,      /* first */
    KML_GROUPS_MEMBERS,    /* crew */
    KML_GROUPS_FASTER,     /* split */
    KML_GROUPS_SIMPLER     /* merged */
};

struct kml_group_input {
    bool present;
    double time; /* predicted seconds of the nominal batch; no time (0, NaN ..): the median of the others */
};

/* The record of a look. The arrays are the struct's own, [capacity], valid until the next look. */
struct kml_group_decision {
    uint64_t now;
    uint64_t plan; /* in force after the look */
    enum kml_group_kind kind;
    enum kml_group_reason reason;
    bool applied;                         /* false when kept, or dry run */
    uint32_t streak;                      /* looks in a row for which the candidate was better */
    double rate, candidate;               /* steps/s by the times of now; rate 0 without groups in force */
    double expected_gain;                 /* candidate / rate - 1; 0 for the first */
    double realised_gain;                 /* of the regroup before: rate now / rate then - 1; NaN: none */
    uint32_t groups_before, groups_after; /* after: the candidate's, also when kept */
    const uint32_t *before, *after;       /* group of each worker */
    const double *time;                   /* as acted on */
};

struct kml_groups {
    struct kml_group_rule rule;
    uint32_t capacity, count;
    uint64_t plan;
    uint32_t streak, cooling;
    bool waiting;       /* the last regroup's gain is not realised yet */
    double rate_before; /* the last regroup */
    uint32_t *group;    /* [capacity] */
    /* scratch */
    uint32_t *before, *after;              /* [capacity] */
    double *time;                          /* [capacity] */
    struct kml_group_order *order, *spare; /* [capacity] */
    double *sorted, *room;
    uint32_t *start, *cut;
};

/* KML_INVALID names the field of a rule that cannot be. */
int kml_groups_init(struct kml_groups *g, const struct kml_group_rule *rule, uint32_t capacity,
                    struct kml_err *err) KML_MUST_CHECK;
void kml_groups_finish(struct kml_groups *g);

/* One look, once a window, at [capacity] inputs. */
void kml_groups_look(struct kml_groups *g, uint64_t now, const struct kml_group_input *in,
                     struct kml_group_decision *out);

const char *kml_group_kind_name(enum kml_group_kind k);     /* "Split" */
const char *kml_group_reason_name(enum kml_group_reason r); /* "Faster" */

#endif
