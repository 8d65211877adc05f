/* What stands around the looks of wlbs.c: rule, memory, costs, names. */
#include <math.h>

#include "base/mem.h"
#include "sched/wlbs.h"

struct kml_wlbs_rule kml_wlbs_rule_default(void)
{
    return (struct kml_wlbs_rule){.warmup_steps = 10,
                                  .every_steps = 20,
                                  .minimum_share = 0.02,
                                  .maximum_change = 0.5,
                                  .cool_down = 2,
                                  .fine_threshold = 0.05,
                                  .rapid_threshold = 0.3,
                                  .smoothing = 0.1,
                                  .minimum_gain = KML_WLBS_GAIN};
}

static bool within(double x, double least, double most)
{
    return x >= least && x <= most; /* false for NaN */
}

static int check_rule(const struct kml_wlbs_rule *r, uint32_t capacity, struct kml_err *err)
{
    if (capacity == 0) {
        return kml_fail(err, KML_INVALID, "balancing: of no workers");
    }
    if (r->warmup_steps == 0 || r->every_steps == 0) {
        return kml_fail(err, KML_INVALID, "balancing: warmupSteps and everySteps are 1 or more");
    }
    if (!within(r->minimum_share, 0, 1)) {
        return kml_fail(err, KML_INVALID, "balancing.minimumShare: %g; 0 to 1", r->minimum_share);
    }
    if (!(within(r->maximum_change, 0, 1e6) && r->maximum_change > 0)) {
        return kml_fail(err, KML_INVALID, "balancing.maximumChange: %g; above 0", r->maximum_change);
    }
    if (!(within(r->fine_threshold, 0, 100) && within(r->rapid_threshold, r->fine_threshold, 100))) {
        return kml_fail(err, KML_INVALID,
                        "balancing: fineThreshold %g, rapidThreshold %g; 0 <= fine <= rapid <= 100",
                        r->fine_threshold, r->rapid_threshold);
    }
    if (!(within(r->smoothing, 0, 1) && r->smoothing > 0 && within(r->minimum_gain, 0, 1))) {
        return kml_fail(err, KML_INVALID, "balancing: smoothing %g in (0, 1], minimum gain %g in [0, 1]",
                        r->smoothing, r->minimum_gain);
    }
    return 0;
}

int kml_wlbs_init(struct kml_wlbs *w, const struct kml_wlbs_rule *rule, uint32_t capacity,
                  struct kml_err *err)
{
    if (check_rule(rule, capacity, err) != 0) {
        return -1;
    }
    *w = (struct kml_wlbs){.rule = *rule, .capacity = capacity, .next_step = rule->warmup_steps};
    w->seat = KML_NEW_ARRAY(capacity, struct kml_wlbs_seat);
    w->line = KML_NEW_ARRAY(capacity, struct kml_share_line);
    w->cost = KML_NEW_ARRAY(capacity, struct kml_cost);
    w->calm = KML_NEW_ARRAY(capacity, struct kml_cost);
    w->real = KML_NEW_ARRAY(capacity, double);
    w->log = KML_NEW_ARRAY(capacity, double);
    w->old = KML_NEW_ARRAY(capacity, uint64_t);
    w->best = KML_NEW_ARRAY(capacity, uint64_t);
    w->who = KML_NEW_ARRAY(capacity, uint32_t);
    w->room = KML_NEW_ARRAY(capacity, struct kml_split_room);
    return 0;
}

void kml_wlbs_finish(struct kml_wlbs *w)
{
    kml_free(w->seat);
    kml_free(w->line);
    kml_free(w->cost);
    kml_free(w->calm);
    kml_free(w->real);
    kml_free(w->log);
    kml_free(w->old);
    kml_free(w->best);
    kml_free(w->who);
    kml_free(w->room);
    *w = (struct kml_wlbs){.capacity = 0};
}

struct kml_cost kml_cost_in_shards(struct kml_cost batch_form, uint64_t nominal)
{
    return (struct kml_cost){.per_sample = batch_form.per_sample + batch_form.fixed / (double)nominal};
}

struct kml_cost kml_cost_at_speed(struct kml_cost cost, double measured, double predicted)
{
    if (!within(measured, 1e-12, 1e15) || !within(predicted, 1e-12, 1e15)) {
        return cost;
    }
    double factor = measured / predicted;
    return (struct kml_cost){factor * cost.fixed, factor * cost.per_sample};
}

const char *kml_share_kind_name(enum kml_share_kind k)
{
    static const char *const name[] = {"Kept", "Initial", "CrewChanged", "Fine", "Rapid"};
    return name[k];
}

const char *kml_share_reason_name(enum kml_share_reason r)
{
    static const char *const name[] = {"SpeedsUnknown", "Balanced",    "Noise",      "SmallGain",
                                       "WarmedUp",      "Members",     "Total",      "HalfStep",
                                       "WholeStep",     "CoolingDown", "TooFarApart"};
    return name[r];
}
