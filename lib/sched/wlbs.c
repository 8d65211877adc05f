#include "sched/wlbs.h"

#include <math.h>

#include "base/mem.h"

/* An imbalance that is less, in deviations of one look, costs less than each step's chance does. */
#define SPREAD_SIGMAS 3.0
/* The weight of a new look is not less, however large the noise. */
#define WEIGHT_LEAST 0.02
/* The weight of a new look in the pooled variance of the costs. */
#define VARIANCE_WEIGHT 0.05
/* A deviation of ln cost that nobody would call a jump, however quiet it has been. */
#define NOISE_LEAST 0.01

bool kml_wlbs_due(const struct kml_wlbs *w, uint64_t steps)
{
    return steps >= w->next_step;
}

uint64_t kml_wlbs_share(const struct kml_wlbs *w, uint32_t worker)
{
    KML_BUG_ON(worker >= w->capacity);
    return w->seat[worker].share;
}

/* ---- The crew of a look: the present, at the front of the scratch arrays ---- */

/* Days for one sample, or less than a picosecond, is no measurement. */
static bool is_cost(struct kml_cost c)
{
    return c.fixed >= 0 && c.fixed <= 1e6 && c.per_sample >= 1e-12 && c.per_sample <= 1e6; /* false for NaN */
}

/* Costs of the present; unknown ones take the mean of the others. Returns how many are known. */
static uint32_t take_costs(struct kml_wlbs *w, const struct kml_share_input *in)
{
    struct kml_cost sum = {0};
    uint32_t known = 0;
    for (uint32_t k = 0; k < w->crew; k++) {
        w->cost[k] = in[w->who[k]].cost;
        if (is_cost(w->cost[k])) {
            sum.fixed += w->cost[k].fixed;
            sum.per_sample += w->cost[k].per_sample;
            known++;
        }
    }
    for (uint32_t k = 0; k < w->crew && known < w->crew; k++) {
        if (!is_cost(w->cost[k])) {
            w->cost[k] = known == 0 ? (struct kml_cost){.per_sample = 1}
                                    : (struct kml_cost){sum.fixed / known, sum.per_sample / known};
        }
    }
    return known;
}

static uint64_t minimum_of(const struct kml_wlbs *w)
{
    uint64_t most = w->total / w->crew;
    uint64_t least = (uint64_t)(w->rule.minimum_share * (double)w->total);
    least = least == 0 ? 1 : least;
    return least < most ? least : most;
}

static void share_equally(struct kml_wlbs *w, uint64_t *share)
{
    for (uint32_t k = 0; k < w->crew; k++) {
        w->real[k] = (double)w->total / w->crew;
    }
    kml_split_round(w->real, w->crew, w->total, share, w->room);
}

static void put_shares(struct kml_wlbs *w, const uint64_t *share)
{
    for (uint32_t i = 0; i < w->capacity; i++) {
        w->seat[i].share = 0;
    }
    for (uint32_t k = 0; k < w->crew; k++) {
        w->seat[w->who[k]].share = share[k];
    }
}

static void forget_looks(struct kml_wlbs *w)
{
    w->history = 0;
    for (uint32_t i = 0; i < w->capacity; i++) {
        w->seat[i].smoothed = 0;
    }
    w->halved = false;
    w->cooling = 0;
    w->waiting = false;
}

void kml_wlbs_equal(struct kml_wlbs *w, uint64_t total, const bool *present)
{
    w->total = total;
    w->crew = 0;
    w->divided = false;
    forget_looks(w);
    for (uint32_t i = 0; i < w->capacity; i++) {
        w->seat[i] = (struct kml_wlbs_seat){.present = present[i]};
        if (present[i]) {
            w->who[w->crew++] = i;
        }
    }
    if (w->crew > 0) {
        share_equally(w, w->best);
        put_shares(w, w->best);
    }
}

/* ---- Noise: what the costs do from look to look ---- */

/* ln of each one's cost at an equal share, less the crew's mean: does not change when shares do. */
static void take_logs(struct kml_wlbs *w)
{
    double equal = (double)w->total / w->crew;
    double mean = 0;
    for (uint32_t k = 0; k < w->crew; k++) {
        w->log[k] = log(w->cost[k].fixed + w->cost[k].per_sample * equal);
        mean += w->log[k] / w->crew;
    }
    for (uint32_t k = 0; k < w->crew; k++) {
        w->log[k] -= mean;
    }
}

static bool is_quiet(const struct kml_wlbs *w)
{
    return w->differences >= KML_WLBS_QUIET;
}

/* The variance to judge by: wider while it rests on few differences. */
static double cautious_variance(const struct kml_wlbs *w)
{
    return w->variance * (1 + 2.0 * KML_WLBS_QUIET / w->differences);
}

/* What a second difference squared counts for. A second difference of independent numbers has six times their
 * variance; one of a straight line is 0. A single jump must not pass for noise, but noise that has grown must
 * be learned in some looks: so it counts for some times of what is known. */
static double bend_counts(const struct kml_wlbs *w, double bend)
{
    double square = bend * bend / 6;
    double most = KML_WLBS_SIGMAS * KML_WLBS_SIGMAS * w->variance + NOISE_LEAST * NOISE_LEAST;
    return is_quiet(w) && square > most ? most : square;
}

/* After the decision: what is judged is held against what was before. */
static void learn_noise(struct kml_wlbs *w)
{
    double sum = 0;
    for (uint32_t k = 0; k < w->crew; k++) {
        struct kml_wlbs_seat *s = &w->seat[w->who[k]];
        sum += bend_counts(w, w->log[k] - 2 * s->past[0] + s->past[1]);
        s->past[1] = s->past[0];
        s->past[0] = w->log[k];
    }
    if (w->history == 2 && w->crew > 1) {
        double share = 1 / (double)++w->differences;
        share = share > VARIANCE_WEIGHT ? share : VARIANCE_WEIGHT;
        w->variance += share * (sum / (w->crew - 1) - w->variance);
    }
    w->history += w->history < 2;
}

/* Is this look further from the smoothed ones than chance explains? */
static bool is_jump(const struct kml_wlbs *w, const struct kml_wlbs_seat *s, double log_cost)
{
    double off = log_cost - s->smooth;
    double most = KML_WLBS_SIGMAS * KML_WLBS_SIGMAS * w->variance + NOISE_LEAST * NOISE_LEAST;
    return is_quiet(w) && off * off > most * (1 + s->shrink);
}

/* Weight of a new look in the long run: the rule's, or less where noise is so large that the mean would not
 * be exact to an eighth of the fine threshold. A weight of s leaves s / (2 - s) of the variance. */
static double steady_weight(const struct kml_wlbs *w)
{
    double exact = w->rule.fine_threshold / 8;
    double part = is_quiet(w) && w->variance > 0 ? exact * exact / cautious_variance(w) : INFINITY;
    double weight = part < 1 ? 2 * part / (1 + part) : 1;
    weight = weight > WEIGHT_LEAST ? weight : WEIGHT_LEAST;
    return weight < w->rule.smoothing ? weight : w->rule.smoothing;
}

/* `calm` gets the costs as they are over the looks since the worker's last jump. */
static void smooth(struct kml_wlbs *w)
{
    double steady = steady_weight(w);
    for (uint32_t k = 0; k < w->crew; k++) {
        struct kml_wlbs_seat *s = &w->seat[w->who[k]];
        if (s->smoothed > 0 && is_jump(w, s, w->log[k])) {
            s->smoothed = 0;
        }
        double share = 1 / (double)++s->smoothed;
        share = share > steady ? share : steady;
        s->smooth = s->smoothed == 1 ? w->log[k] : s->smooth + share * (w->log[k] - s->smooth);
        s->shrink = s->smoothed == 1 ? 1 : (1 - share) * (1 - share) * s->shrink + share * share;
        double factor = exp(s->smooth - w->log[k]);
        w->calm[k] = (struct kml_cost){factor * w->cost[k].fixed, factor * w->cost[k].per_sample};
    }
}

/* ---- Imbalance ---- */

struct spread {
    double imbalance; /* (max - min) / mean */
    double sigmas;    /* largest |ln(T / mean)|, in deviations of one look; 0 while those are not known */
};

/* |ln(ratio)|^2 / shrink if that is more than `best`, else `best`. |ln q| <= |q - 1| / min(q, 1) spares most
 * logarithms. */
static double larger_square(double ratio, double shrink, double best)
{
    double bound = (ratio - 1) / (ratio < 1 ? ratio : 1);
    if (bound * bound <= best * shrink) {
        return best;
    }
    double square = log(ratio) * log(ratio) / shrink;
    return square > best ? square : best;
}

/* Of the newest costs, or of the calm ones, whose deviation is smaller. */
static struct spread spread_of(const struct kml_wlbs *w, bool calm)
{
    const struct kml_cost *cost = calm ? w->calm : w->cost;
    double least = INFINITY;
    double most = 0;
    double sum = 0;
    for (uint32_t k = 0; k < w->crew; k++) {
        double time = cost[k].fixed + cost[k].per_sample * (double)w->old[k];
        w->real[k] = time;
        least = time < least ? time : least;
        most = time > most ? time : most;
        sum += time;
    }
    double mean = sum / w->crew;
    double square = 0;
    for (uint32_t k = 0; k < w->crew && is_quiet(w); k++) {
        square = larger_square(w->real[k] / mean, calm ? w->seat[w->who[k]].shrink : 1, square);
    }
    return (struct spread){.imbalance = (most - least) / mean,
                           .sigmas = is_quiet(w) ? sqrt(square / cautious_variance(w)) : 0};
}

/* ---- Steps ---- */

static uint64_t down_to(uint64_t minimum, uint64_t old, double change)
{
    double least = ceil((double)old * (1 - change));
    uint64_t low = least > 0 ? (uint64_t)least : 0;
    low = old > 0 && low > old - 1 ? old - 1 : low;
    low = low > minimum ? low : minimum;
    return low < old ? low : old;
}

static uint64_t up_to(uint64_t old, double change)
{
    uint64_t high = (uint64_t)floor((double)old * (1 + change));
    return high > old + 1 ? high : old + 1;
}

/* A part of the way from `old` to `best`, nobody further than `change` allows; the moves up and down are
 * scaled to be alike, so the sum stays. The result is in `best`. */
static void step_towards(struct kml_wlbs *w, double part, double change)
{
    uint64_t minimum = minimum_of(w);
    double up = 0;
    double down = 0;
    for (uint32_t k = 0; k < w->crew; k++) {
        double old = (double)w->old[k];
        double to = old + part * ((double)w->best[k] - old);
        double low = (double)down_to(minimum, w->old[k], change);
        double high = (double)up_to(w->old[k], change);
        to = to < low ? low : to > high ? high : to;
        w->real[k] = to - old;
        up += to > old ? to - old : 0;
        down += to < old ? old - to : 0;
    }
    double less = fmin(up, down);
    for (uint32_t k = 0; k < w->crew; k++) {
        double sum = w->real[k] > 0 ? up : down;
        w->real[k] = (double)w->old[k] + (sum > 0 ? w->real[k] * less / sum : 0);
    }
    kml_split_round(w->real, w->crew, w->total, w->best, w->room);
}

static bool changed(const struct kml_wlbs *w)
{
    for (uint32_t k = 0; k < w->crew; k++) {
        if (w->best[k] != w->old[k]) {
            return true;
        }
    }
    return false;
}

static double gain(const struct kml_wlbs *w, const struct kml_cost *cost)
{
    double before = kml_split_makespan(cost, w->old, w->crew);
    return before > 0 ? 1 - kml_split_makespan(cost, w->best, w->crew) / before : 0;
}

/* ---- Decisions ---- */

/* Are the calm costs exact enough to act on, or as exact as they will ever be? */
static bool is_settled(const struct kml_wlbs *w)
{
    double most = w->rule.fine_threshold / 4;
    double steady = steady_weight(w);
    for (uint32_t k = 0; k < w->crew; k++) {
        const struct kml_wlbs_seat *s = &w->seat[w->who[k]];
        if (cautious_variance(w) * s->shrink > most * most && s->smoothed * steady < 1) {
            return false;
        }
    }
    return true;
}

/* Not asked again after a half step: that one has shown that it is none, and stopping in the middle would
 * leave an imbalance near the threshold, where chance would bring it up again and again. */
static bool may_be_chance(const struct kml_wlbs *w, const struct spread *calm)
{
    return calm->sigmas < KML_WLBS_SIGMAS || calm->imbalance < SPREAD_SIGMAS * sqrt(cautious_variance(w)) ||
           !is_settled(w);
}

/* Fine, rapid or nothing, by the imbalance alone. */
static void judge(const struct kml_wlbs *w, struct kml_share_decision *d)
{
    struct spread newest = spread_of(w, false);
    struct spread calm = spread_of(w, true);
    d->imbalance = newest.imbalance;
    d->noise = is_quiet(w) ? sqrt(w->variance) : 0;
    bool far = newest.imbalance > w->rule.rapid_threshold;
    if (far && w->cooling == 0 && (newest.sigmas >= KML_WLBS_SIGMAS || !is_quiet(w))) {
        d->kind = KML_SHARES_RAPID;
        d->reason = KML_SHARES_FAR;
    } else if (calm.imbalance <= w->rule.fine_threshold) {
        d->reason = newest.imbalance <= w->rule.fine_threshold ? KML_SHARES_BALANCED : KML_SHARES_NOISE;
    } else if (!w->halved && may_be_chance(w, &calm)) {
        d->reason = KML_SHARES_NOISE;
    } else {
        d->kind = KML_SHARES_FINE;
        d->reason = far ? KML_SHARES_COOLING : w->halved ? KML_SHARES_WHOLE : KML_SHARES_HALF;
    }
}

static void adjust(struct kml_wlbs *w, struct kml_share_decision *d)
{
    judge(w, d);
    if (d->kind == KML_SHARES_KEPT) {
        return;
    }
    bool rapid = d->kind == KML_SHARES_RAPID;
    const struct kml_cost *cost = rapid ? w->cost : w->calm;
    double change = w->rule.maximum_change * (rapid ? 2 : 1);
    kml_split_optimal(cost, w->crew, w->total, minimum_of(w), w->best, w->real, w->room);
    bool worth_it = gain(w, cost) >= w->rule.minimum_gain;
    step_towards(w, rapid || w->halved ? 1 : 0.5, change);
    if (!worth_it || !changed(w)) {
        d->kind = KML_SHARES_KEPT;
        d->reason = KML_SHARES_SMALL_GAIN;
        return;
    }
    d->expected_gain = gain(w, cost);
}

/* Divides anew; what it gains is counted against equal shares. */
static void divide(struct kml_wlbs *w, struct kml_share_decision *d, uint32_t known)
{
    share_equally(w, w->old);
    kml_split_optimal(w->cost, w->crew, w->total, minimum_of(w), w->best, w->real, w->room);
    d->imbalance = spread_of(w, false).imbalance;
    d->expected_gain = gain(w, w->cost);
    w->divided = w->divided || known > 0;
}

static void write_lines(struct kml_wlbs *w, const struct kml_share_input *in, struct kml_share_decision *d)
{
    bool calm = d->kind == KML_SHARES_FINE;
    for (uint32_t i = 0; i < w->capacity; i++) {
        w->line[i] = (struct kml_share_line){
            .present = in[i].present, .expert = in[i].expert, .before = w->seat[i].share};
    }
    for (uint32_t k = 0; k < w->crew; k++) {
        struct kml_share_line *line = &w->line[w->who[k]];
        line->cost = calm ? w->calm[k] : w->cost[k];
        line->after = d->kind == KML_SHARES_KEPT ? line->before : w->best[k];
    }
    d->line = w->line;
    d->lines = w->capacity;
}

static void apply(struct kml_wlbs *w, struct kml_share_decision *d)
{
    bool anew = d->kind == KML_SHARES_CREW || d->kind == KML_SHARES_INITIAL;
    d->applied = !w->rule.dry_run;
    if (d->applied) {
        w->waiting = true;
        w->makespan = kml_split_makespan(w->cost, w->old, w->crew);
        put_shares(w, w->best);
        w->changes++;
    } else if (anew) {
        put_shares(w, w->old); /* equal: somebody may have come or gone */
    }
    w->halved = d->kind == KML_SHARES_FINE && !w->halved;
    if (d->kind == KML_SHARES_RAPID) {
        w->cooling = w->rule.cool_down + 1; /* this look ends by taking one off */
    }
}

/* Who is present, into `who`. */
static bool take_crew(struct kml_wlbs *w, const struct kml_share_input *in)
{
    bool other = false;
    w->crew = 0;
    for (uint32_t i = 0; i < w->capacity; i++) {
        other = other || w->seat[i].present != in[i].present;
        w->seat[i].present = in[i].present;
        if (in[i].present) {
            w->who[w->crew++] = i;
        }
    }
    return other;
}

static void realise(struct kml_wlbs *w, struct kml_share_decision *d)
{
    if (w->waiting && w->makespan > 0) {
        d->realised_gain = 1 - kml_split_makespan(w->cost, w->old, w->crew) / w->makespan;
    }
    w->waiting = false;
}

static void look_at_crew(struct kml_wlbs *w, const struct kml_share_input *in, bool other_crew,
                         bool other_total, struct kml_share_decision *d)
{
    uint32_t known = take_costs(w, in);
    for (uint32_t k = 0; k < w->crew; k++) {
        w->old[k] = w->seat[w->who[k]].share;
    }
    if (other_crew || other_total) {
        d->kind = KML_SHARES_CREW;
        d->reason = other_crew ? KML_SHARES_MEMBERS : KML_SHARES_TOTAL;
        forget_looks(w);
        divide(w, d, known);
    } else if (known == 0) {
        d->reason = KML_SHARES_UNKNOWN;
    } else if (!w->divided) {
        d->kind = KML_SHARES_INITIAL;
        d->reason = KML_SHARES_WARM;
        divide(w, d, known);
    } else {
        realise(w, d);
        take_logs(w);
        smooth(w);
        adjust(w, d);
        learn_noise(w);
    }
}

void kml_wlbs_look(struct kml_wlbs *w, uint64_t now, uint64_t steps, uint64_t total,
                   const struct kml_share_input *in, struct kml_share_decision *out)
{
    *out = (struct kml_share_decision){.now = now,
                                       .kind = KML_SHARES_KEPT,
                                       .reason = KML_SHARES_UNKNOWN,
                                       .realised_gain = NAN,
                                       .total = total};
    bool other_total = w->total != total;
    bool other_crew = take_crew(w, in);
    w->total = total;
    w->looks++;
    w->next_step = steps + w->rule.every_steps;
    if (w->crew > 0) {
        look_at_crew(w, in, other_crew, other_total, out);
    }
    write_lines(w, in, out);
    if (out->kind != KML_SHARES_KEPT) {
        apply(w, out);
    } else {
        w->halved = false;
        if (w->crew == 0) {
            put_shares(w, w->best);
        }
    }
    w->cooling -= w->cooling > 0;
}
