#include "sched/groups.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "math/stats.h"

struct kml_group_order {
    double time;
    uint32_t worker;
};

struct kml_group_rule kml_group_rule_default(void)
{
    return (struct kml_group_rule){.ratio = 1.3,
                                   .min_members = 1,
                                   .max_groups = 4,
                                   .hysteresis = 0.08,
                                   .dwell_windows = 3,
                                   .cool_down_windows = 15};
}

static int check_rule(const struct kml_group_rule *r, uint32_t capacity, struct kml_err *err)
{
    if (capacity == 0) {
        return kml_fail(err, KML_INVALID, "groups: of no workers");
    }
    if (!(r->ratio >= 1 && isfinite(r->ratio))) {
        return kml_fail(err, KML_INVALID, "grouping.ratio: %g; 1 or more", r->ratio);
    }
    if (r->min_members == 0 || r->max_groups == 0 || r->dwell_windows == 0) {
        return kml_fail(err, KML_INVALID,
                        "grouping: minMembers %u, maxGroups %u, dwellWindows %u; each 1 or more",
                        r->min_members, r->max_groups, r->dwell_windows);
    }
    if (!(r->hysteresis >= 0 && r->hysteresis < 1)) {
        return kml_fail(err, KML_INVALID, "grouping.hysteresis: %g; from 0 to below 1", r->hysteresis);
    }
    return 0;
}

int kml_groups_init(struct kml_groups *g, const struct kml_group_rule *rule, uint32_t capacity,
                    struct kml_err *err)
{
    if (check_rule(rule, capacity, err) != 0) {
        return -1;
    }
    uint32_t parts = rule->max_groups < capacity ? rule->max_groups : capacity;
    size_t row = (size_t)capacity + 1;
    *g = (struct kml_groups){.rule = *rule, .capacity = capacity};
    g->group = KML_NEW_ARRAY(capacity, uint32_t);
    g->before = KML_NEW_ARRAY(capacity, uint32_t);
    g->after = KML_NEW_ARRAY(capacity, uint32_t);
    g->time = KML_NEW_ARRAY(capacity, double);
    g->order = KML_NEW_ARRAY(capacity, struct kml_group_order);
    g->spare = KML_NEW_ARRAY(capacity, struct kml_group_order);
    g->sorted = KML_NEW_ARRAY(capacity, double);
    g->room = KML_NEW_ARRAY(6 * row, double);
    g->start = KML_NEW_ARRAY(row, uint32_t);
    g->cut = KML_NEW_ARRAY(parts * row, uint32_t);
    for (uint32_t i = 0; i < capacity; i++) {
        g->group[i] = KML_GROUP_NONE;
    }
    return 0;
}

void kml_groups_finish(struct kml_groups *g)
{
    kml_free(g->group);
    kml_free(g->before);
    kml_free(g->after);
    kml_free(g->time);
    kml_free(g->order);
    kml_free(g->spare);
    kml_free(g->sorted);
    kml_free(g->room);
    kml_free(g->start);
    kml_free(g->cut);
    *g = (struct kml_groups){.capacity = 0};
}

static bool is_time(double t)
{
    return isfinite(t) && t > 0;
}

static double median_time(struct kml_groups *g, const struct kml_group_input *in)
{
    uint32_t known = 0;
    for (uint32_t i = 0; i < g->capacity; i++) {
        if (in[i].present && is_time(in[i].time)) {
            g->sorted[known++] = in[i].time;
        }
    }
    return known == 0 ? 1 : kml_median(g->sorted, known);
}

/* The times to act on: the median of the others for who has none; 0 for the absent. */
static void take_times(struct kml_groups *g, const struct kml_group_input *in)
{
    double middle = 0;
    for (uint32_t i = 0; i < g->capacity; i++) {
        bool unknown = in[i].present && !is_time(in[i].time);
        if (unknown && middle == 0) {
            middle = median_time(g, in);
        }
        g->time[i] = !in[i].present ? 0 : unknown ? middle : in[i].time;
    }
}

/* The k-th byte of a positive number's bits; those order as the numbers do. */
static uint32_t byte_of(double t, uint32_t k)
{
    uint64_t bits;
    memcpy(&bits, &t, sizeof bits);
    return (uint32_t)(bits >> (8 * k)) & 255;
}

/* Ascending by time, the present order for equals: radix sort by byte, which for a thousand is several times
 * as fast as comparing. `spare` [count] is overwritten. */
static void sort_by_time(struct kml_group_order *order, struct kml_group_order *spare, uint32_t count)
{
    struct kml_group_order *from = order;
    struct kml_group_order *to = spare;
    for (uint32_t k = 0; k < sizeof(double); k++) {
        uint32_t at[257] = {0}; /* at[b]: where the next one with byte b goes */
        for (uint32_t i = 0; i < count; i++) {
            at[byte_of(from[i].time, k) + 1]++;
        }
        for (uint32_t b = 0; b < 256; b++) {
            at[b + 1] += at[b];
        }
        for (uint32_t i = 0; i < count; i++) {
            to[at[byte_of(from[i].time, k)]++] = from[i];
        }
        struct kml_group_order *swap = from;
        from = to;
        to = swap;
    }
    /* an even number of passes: it ends where it began */
}

/* The present in order of time, into `order` and `sorted`. */
static uint32_t sort_present(struct kml_groups *g)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < g->capacity; i++) {
        if (g->time[i] > 0) {
            g->order[count++] = (struct kml_group_order){.time = g->time[i], .worker = i};
        }
    }
    sort_by_time(g->order, g->spare, count);
    for (uint32_t k = 0; k < count; k++) {
        g->sorted[k] = g->order[k].time;
    }
    return count;
}

static uint32_t cut_row(struct kml_groups *g, uint32_t count)
{
    uint32_t parts = kml_partition_cover(g->sorted, count, g->rule.ratio, g->start);
    parts = kml_partition_merge(g->sorted, g->start, parts, g->rule.min_members);
    if (parts <= g->rule.max_groups) {
        return parts;
    }
    double *logs = g->room + 5 * ((size_t)g->capacity + 1);
    for (uint32_t k = 0; k < count; k++) {
        logs[k] = log(g->sorted[k]);
    }
    /* More parts than max_groups, each with min_members: so there are workers enough. */
    kml_partition_best(logs, count, g->rule.max_groups, g->rule.min_members, g->start, g->room, g->cut);
    return g->rule.max_groups;
}

/* The candidate, into `after`; its rate. */
static double make_candidate(struct kml_groups *g, uint32_t *parts)
{
    uint32_t count = sort_present(g);
    for (uint32_t i = 0; i < g->capacity; i++) {
        g->after[i] = KML_GROUP_NONE;
    }
    *parts = count == 0 ? 0 : cut_row(g, count);
    for (uint32_t p = 0; p < *parts; p++) {
        for (uint32_t k = g->start[p]; k < g->start[p + 1]; k++) {
            g->after[g->order[k].worker] = p;
        }
    }
    return count == 0 ? 0 : kml_partition_rate(g->sorted, g->start, *parts);
}

/* Rate of the groups in force by the times of now. */
static double rate_in_force(struct kml_groups *g)
{
    double *slowest = g->room;
    uint32_t *members = g->start; /* free once the candidate is made */
    memset(members, 0, (g->count + (size_t)1) * sizeof *members);
    for (uint32_t k = 0; k < g->count; k++) {
        slowest[k] = 0;
    }
    for (uint32_t i = 0; i < g->capacity; i++) {
        if (g->group[i] != KML_GROUP_NONE && g->time[i] > 0) {
            members[g->group[i]]++;
            double *most = &slowest[g->group[i]];
            *most = g->time[i] > *most ? g->time[i] : *most;
        }
    }
    double rate = 0;
    for (uint32_t k = 0; k < g->count; k++) {
        rate += members[k] == 0 ? 0 : members[k] / slowest[k];
    }
    return rate;
}

static bool crew_changed(const struct kml_groups *g)
{
    for (uint32_t i = 0; i < g->capacity; i++) {
        if ((g->group[i] != KML_GROUP_NONE) != (g->time[i] > 0)) {
            return true;
        }
    }
    return false;
}

/* The same sets of workers, however numbered? Both are numbered from the fastest group of their time. */
static bool same_groups(const struct kml_groups *g, uint32_t parts)
{
    if (parts != g->count) {
        return false;
    }
    uint32_t *match = g->start;
    for (uint32_t k = 0; k < parts; k++) {
        match[k] = KML_GROUP_NONE;
    }
    for (uint32_t i = 0; i < g->capacity; i++) {
        uint32_t k = g->group[i];
        if (k == KML_GROUP_NONE) {
            continue;
        }
        if (match[k] == KML_GROUP_NONE) {
            match[k] = g->after[i];
        }
        if (match[k] != g->after[i]) {
            return false;
        }
    }
    return true; /* as many parts, and each of ours lies in one of theirs */
}

/* Would the candidate be worth it, if it stays so? */
static enum kml_group_kind worth(const struct kml_groups *g, const struct kml_group_decision *d)
{
    if (d->candidate >= (1 + g->rule.hysteresis) * d->rate) {
        return KML_GROUPS_SPLIT;
    }
    if (d->groups_after < g->count && d->candidate >= (1 - g->rule.hysteresis / 2) * d->rate) {
        return KML_GROUPS_MERGED;
    }
    return KML_GROUPS_KEPT;
}

static void decide(struct kml_groups *g, struct kml_group_decision *d)
{
    if (crew_changed(g)) {
        d->kind = g->count == 0 ? KML_GROUPS_FIRST : KML_GROUPS_CREW;
        d->reason = g->count == 0 ? KML_GROUPS_START : KML_GROUPS_MEMBERS;
        return;
    }
    bool same = same_groups(g, d->groups_after);
    enum kml_group_kind kind = same ? KML_GROUPS_KEPT : worth(g, d);
    g->streak = kind == KML_GROUPS_KEPT ? 0 : g->streak + 1;
    d->streak = g->streak;
    if (kind == KML_GROUPS_KEPT) {
        d->reason = same ? KML_GROUPS_SAME : KML_GROUPS_SMALL_GAIN;
    } else if (g->cooling > 0) {
        d->reason = KML_GROUPS_COOLING;
    } else if (g->streak < g->rule.dwell_windows) {
        d->reason = KML_GROUPS_DWELLING;
    } else {
        d->kind = kind;
        d->reason = kind == KML_GROUPS_SPLIT ? KML_GROUPS_FASTER : KML_GROUPS_SIMPLER;
    }
}

static void realise(struct kml_groups *g, struct kml_group_decision *d)
{
    d->realised_gain = g->waiting && g->rate_before > 0 ? d->rate / g->rate_before - 1 : NAN;
    g->waiting = false;
}

static void adopt(struct kml_groups *g, struct kml_group_decision *d)
{
    bool regroup = d->kind == KML_GROUPS_SPLIT || d->kind == KML_GROUPS_MERGED;
    g->streak = 0;
    g->cooling = regroup ? g->rule.cool_down_windows : g->cooling;
    /* A dry run changes nothing but who is there: then one group for all, as without groups. */
    if (g->rule.dry_run && regroup) {
        return;
    }
    for (uint32_t i = 0; i < g->capacity; i++) {
        bool present = g->after[i] != KML_GROUP_NONE;
        g->group[i] = !present ? KML_GROUP_NONE : g->rule.dry_run ? 0 : g->after[i];
    }
    g->count = g->rule.dry_run && d->groups_after > 1 ? 1 : d->groups_after;
    g->plan++;
    g->waiting = regroup;
    g->rate_before = d->rate;
    d->applied = !g->rule.dry_run;
}

void kml_groups_look(struct kml_groups *g, uint64_t now, const struct kml_group_input *in,
                     struct kml_group_decision *out)
{
    *out = (struct kml_group_decision){.now = now, .groups_before = g->count, .time = g->time};
    memcpy(g->before, g->group, g->capacity * sizeof *g->group);
    take_times(g, in);
    out->candidate = make_candidate(g, &out->groups_after);
    out->rate = rate_in_force(g);
    out->expected_gain = out->rate > 0 ? out->candidate / out->rate - 1 : 0;
    realise(g, out);
    decide(g, out);
    if (out->kind != KML_GROUPS_KEPT) {
        adopt(g, out);
    } else if (g->cooling > 0) {
        g->cooling--;
    }
    out->before = g->before;
    out->after = g->after;
    out->plan = g->plan;
}

const char *kml_group_kind_name(enum kml_group_kind k)
{
    static const char *const name[] = {"Kept", "First", "Crew", "Split", "Merged"};
    return name[k];
}

const char *kml_group_reason_name(enum kml_group_reason r)
{
    static const char *const name[] = {"SameGroups", "SmallGain", "Dwelling", "CoolingDown",
                                       "Start",      "Members",   "Faster",   "Simpler"};
    return name[r];
}
