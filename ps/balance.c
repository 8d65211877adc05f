#include "ps/balance.h"

#include "base/clock.h"
#include "base/mem.h"

/* Forecasts are for the mean over this many looks: shares are divided anew at each, but may stay when the
 * gain is small. */
#define HORIZON 2

/* Weight of the newest look: forecasts are smooth already, measured costs are not (sched/wlbs.h). */
#define SMOOTHING_FORECAST 0.5

static struct kml_wlbs_rule rule_of(const struct kml_job *job)
{
    struct kml_wlbs_rule rule = kml_wlbs_rule_default();
    rule.warmup_steps = job->balancing.warmup_steps;
    rule.every_steps = job->balancing.every_steps;
    rule.minimum_share = job->balancing.minimum_share;
    rule.maximum_change = job->balancing.maximum_change;
    rule.cool_down = job->balancing.cool_down;
    rule.fine_threshold = job->balancing.fine_threshold;
    rule.rapid_threshold = job->balancing.rapid_threshold;
    rule.dry_run = job->balancing.dry_run;
    if (job->balancing.strategy == KML_JOB_STRATEGY_AUTOWLBS) {
        rule.smoothing = SMOOTHING_FORECAST;
    }
    return rule;
}

static void allocate(struct kml_balance *b)
{
    b->speed = KML_NEW_ARRAY(b->workers, struct kml_speed);
    b->readings = KML_NEW_ARRAY(b->workers, struct kml_balance_readings);
    b->present = KML_NEW_ARRAY(b->workers, bool);
    b->window = KML_NEW_ARRAY(b->workers, struct kml_window);
    b->forecast = KML_NEW_ARRAY(b->workers, struct kml_forecast);
    b->input = KML_NEW_ARRAY(b->workers, struct kml_share_input);
    for (uint32_t w = 0; w < b->workers; w++) {
        kml_speed_init(&b->speed[w], b->nominal);
        b->present[w] = true;
    }
}

int kml_balance_init(struct kml_balance *b, const struct kml_job *job, struct kml_err *err)
{
    enum kml_job_strategy strategy = job->balancing.strategy;
    *b =
        (struct kml_balance){.on = strategy == KML_JOB_STRATEGY_WLBS || strategy == KML_JOB_STRATEGY_AUTOWLBS,
                             .forecasts = strategy == KML_JOB_STRATEGY_AUTOWLBS,
                             .workers = job->worker.replicas,
                             .nominal = job->training.batch_size};
    if (!b->on) {
        return 0;
    }
    struct kml_wlbs_rule rule = rule_of(job);
    if (kml_wlbs_init(&b->wlbs, &rule, b->workers, err) < 0) {
        return -1;
    }
    if (b->forecasts && kml_predict_init(&b->predict, b->workers, HORIZON, job->model.seed, err) < 0) {
        kml_wlbs_finish(&b->wlbs);
        return -1;
    }
    allocate(b);
    kml_wlbs_equal(&b->wlbs, b->nominal * b->workers, b->present);
    return 0;
}

void kml_balance_finish(struct kml_balance *b)
{
    if (b->on) {
        kml_wlbs_finish(&b->wlbs);
    }
    if (b->on && b->forecasts) {
        kml_predict_finish(&b->predict);
    }
    kml_free(b->speed);
    kml_free(b->readings);
    kml_free(b->present);
    kml_free(b->window);
    kml_free(b->forecast);
    kml_free(b->input);
    *b = (struct kml_balance){.on = false};
}

void kml_balance_step(struct kml_balance *b, uint32_t worker, uint32_t crew, uint64_t samples,
                      uint64_t compute_ns)
{
    if (b->on) {
        (void)kml_speed_add(&b->speed[worker], samples, (double)compute_ns / 1e9);
        b->rounds += 1 / (double)(crew > 0 ? crew : 1);
    }
}

void kml_balance_cpu(struct kml_balance *b, uint32_t worker, struct kml_balance_reading cores)
{
    if (b->on) {
        b->readings[worker].cpu = cores;
    }
}

void kml_balance_throttled(struct kml_balance *b, uint32_t worker, struct kml_balance_reading share)
{
    if (b->on) {
        b->readings[worker].throttled = share;
    }
}

void kml_balance_forget(struct kml_balance *b, uint32_t worker)
{
    if (!b->on) {
        return;
    }
    kml_speed_init(&b->speed[worker], b->nominal);
    b->readings[worker] = (struct kml_balance_readings){.cpu = {.known = false}};
    if (b->forecasts) {
        kml_predict_forget(&b->predict, worker);
        b->forecast[worker] = (struct kml_forecast){.known = false};
    }
}

double kml_balance_measured(const struct kml_balance *b, uint32_t worker)
{
    double seconds =
        b->on && kml_speed_known(&b->speed[worker]) ? kml_speed_nominal_time(&b->speed[worker]) : 0;
    return seconds > 0 ? (double)b->nominal / seconds : 0;
}

double kml_balance_predicted(const struct kml_balance *b, uint32_t worker)
{
    return b->on && b->forecasts && b->forecast[worker].known ? b->forecast[worker].speed : 0;
}

/* ---- A look ---- */

static struct kml_reading reading_at(const struct kml_balance_reading *r, uint64_t now)
{
    double age = now > r->at_ns ? (double)(now - r->at_ns) / (double)KML_SECOND : 0;
    return (struct kml_reading){.known = r->known, .value = r->value, .age = age};
}

static void forecast(struct kml_balance *b, uint64_t now)
{
    for (uint32_t w = 0; w < b->workers; w++) {
        const struct kml_balance_readings *r = &b->readings[w];
        b->window[w] = (struct kml_window){
            .speed = kml_speed_window(&b->speed[w]),
            .usage = {.cpu = reading_at(&r->cpu, now), .throttled = reading_at(&r->throttled, now)}};
    }
    kml_predict_window(&b->predict, b->window, b->forecast);
}

static void fill_input(struct kml_balance *b, uint32_t worker)
{
    const struct kml_speed *s = &b->speed[worker];
    struct kml_cost cost = {.fixed = s->fixed, .per_sample = s->per_sample};
    struct kml_share_input *in = &b->input[worker];
    *in = (struct kml_share_input){.present = b->present[worker], .cost = cost, .expert = KML_EXPERT_LAST};
    if (!b->forecasts || !b->forecast[worker].known) {
        return;
    }
    in->expert = b->forecast[worker].expert;
    /* Where the last value is the best forecast, the measured cost is a newer one than the window's median.
     */
    if (in->expert != KML_EXPERT_LAST) {
        in->cost = kml_cost_at_speed(cost, kml_balance_measured(b, worker), b->forecast[worker].speed);
    }
}

static uint64_t count_present(struct kml_balance *b, const bool *present)
{
    uint64_t count = 0;
    for (uint32_t w = 0; w < b->workers; w++) {
        b->present[w] = present[w];
        count += present[w];
    }
    return count;
}

bool kml_balance_look(struct kml_balance *b, uint64_t now, const bool *present,
                      struct kml_share_decision *out)
{
    uint64_t steps = (uint64_t)(b->rounds + 1e-6); /* it is a sum of parts: 1/3 three times is one round */
    if (!b->on || !kml_wlbs_due(&b->wlbs, steps)) {
        return false;
    }
    uint64_t crew = count_present(b, present);
    if (crew == 0) {
        return false;
    }
    if (b->forecasts) {
        forecast(b, now);
    }
    for (uint32_t w = 0; w < b->workers; w++) {
        fill_input(b, w);
    }
    kml_wlbs_look(&b->wlbs, now, steps, b->nominal * crew, b->input, out);
    if (b->forecasts) {
        kml_predict_train(&b->predict);
    }
    return out->kind != KML_SHARES_KEPT;
}

uint64_t kml_balance_want(const struct kml_balance *b, uint32_t worker)
{
    uint64_t share = b->on ? kml_wlbs_share(&b->wlbs, worker) : b->nominal;
    /* Who came after the last look has no share yet: the nominal batch, until the next one. */
    return share > 0 ? share : b->nominal;
}
