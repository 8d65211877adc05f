#include <math.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "math/vec.h"
#include "tests/sim/inside.h"

static uint32_t crc_of(const struct sim *s, const float *params)
{
    return kml_crc32c(0, params, s->floats * sizeof *params);
}

static void keep_crc(struct sim *s)
{
    struct sim_shadow *h = &s->shadow;
    if (h->version == h->crc_room) {
        h->crc_room = h->crc_room == 0 ? 64 : 2 * h->crc_room;
        h->crc = kml_realloc(h->crc, h->crc_room * sizeof *h->crc);
    }
    h->crc[h->version] = crc_of(s, h->params);
}

void sim_shadow_init(struct sim *s)
{
    struct sim_shadow *h = &s->shadow;
    h->optimizer = sim_optimizer_of(&s->job);
    h->params = KML_NEW_ARRAY(s->floats, float);
    h->sum = KML_NEW_ARRAY(s->floats, float);
    h->pinned = KML_NEW_ARRAY(s->floats, float);
    for (uint32_t k = 0; k < KML_OPTIMIZER_SLOTS; k++) {
        h->slot[k] = KML_NEW_ARRAY(s->floats, float);
    }
    h->deal = KML_NEW_ARRAY(s->workers, struct sim_deal);
    for (uint32_t w = 0; w < s->workers; w++) {
        h->deal[w].gradient = KML_NEW_ARRAY(s->floats, float);
    }
    h->grad = KML_NEW_ARRAY(s->workers, const float *);
    h->coefficient = KML_NEW_ARRAY(s->workers, float);
    h->seen = KML_NEW_ARRAY((size_t)s->job.training.epochs * s->config.problem->count[SIM_TRAIN], uint8_t);
    h->steady = true;
    sim_problem_start(s->config.problem, h->params);
    keep_crc(s);
}

void sim_shadow_finish(struct sim *s)
{
    struct sim_shadow *h = &s->shadow;
    for (uint32_t w = 0; w < s->workers; w++) {
        kml_free(h->deal[w].gradient);
    }
    void *const owned[] = {h->params, h->sum,  h->pinned,      h->slot[0], h->slot[1],
                           h->deal,   h->grad, h->coefficient, h->seen,    h->crc};
    for (size_t i = 0; i < KML_COUNT(owned); i++) {
        kml_free(owned[i]);
    }
}

/* A bound of SSP says how far ahead of the slowest a worker may start. */
static void check_bound(struct sim *s, uint32_t worker)
{
    const struct kml_barrier *b = &s->conductor.barrier;
    if (b->rule.bound == KML_BARRIER_UNBOUNDED || s->workers > 64) {
        return;
    }
    for (uint32_t w = 0; w < s->workers; w++) {
        bool crew = b->seat[w].state != KML_SEAT_AWAY && b->seat[w].state != KML_SEAT_EXCUSED;
        if (crew && b->seat[worker].clock > b->seat[w].clock + b->rule.bound) {
            sim_wrong(s, "SSP: worker %u starts at clock %llu while worker %u is at %llu", worker,
                      (unsigned long long)b->seat[worker].clock, w, (unsigned long long)b->seat[w].clock);
        }
    }
}

void sim_shadow_assigned(struct sim *s, uint32_t worker, const struct kml_assignment *a)
{
    struct sim_deal *d = &s->shadow.deal[worker];
    uint64_t incarnation = s->conductor.worker[worker].incarnation;
    if (a->step <= d->step) {
        sim_wrong(s, "worker %u was given step %llu after step %llu", worker, (unsigned long long)a->step,
                  (unsigned long long)d->step);
    }
    if (a->version != s->shadow.version) {
        sim_wrong(s, "worker %u was given version %llu while the newest is %llu", worker,
                  (unsigned long long)a->version, (unsigned long long)s->shadow.version);
    }
    d->incarnation = incarnation;
    d->step = a->step;
    d->version = a->version;
    d->lease = *a->lease;
    d->computed = false;
    check_bound(s, worker);
}

void sim_shadow_got(struct sim *s, uint32_t worker, uint64_t version, const float *params)
{
    if (version > s->shadow.version || crc_of(s, params) != s->shadow.crc[version]) {
        sim_wrong(s, "what worker %u has got are not the bytes of version %llu", worker,
                  (unsigned long long)version);
    }
}

void sim_shadow_computed(struct sim *s, uint32_t worker, uint64_t incarnation, const struct sim_task *t,
                         const float *params, const float *gradient)
{
    struct sim_deal *d = &s->shadow.deal[worker];
    sim_shadow_got(s, worker, t->version, params);
    if (d->incarnation == incarnation && d->step == t->step) {
        d->computed = true;
        memcpy(d->gradient, gradient, s->floats * sizeof *gradient);
    }
}

/* ---- Commits ---- */

static void count_samples(struct sim *s, const struct sim_deal *d)
{
    uint64_t positions = s->config.problem->count[SIM_TRAIN];
    for (uint32_t r = 0; r < d->lease.count; r++) {
        for (uint64_t p = d->lease.range[r].begin; p < d->lease.range[r].end; p++) {
            if (s->shadow.seen[d->lease.epoch * positions + p]++ > 0) {
                sim_wrong(s, "sample %llu of epoch %u was committed twice", (unsigned long long)p,
                          d->lease.epoch);
                return;
            }
        }
    }
}

static bool check_member(struct sim *s, const struct kml_commit_member *m)
{
    struct sim_deal *d = &s->shadow.deal[m->worker];
    if (d->incarnation != m->incarnation || d->step != m->step || !d->computed) {
        sim_wrong(s, "step %llu of worker %u is committed, but was not computed by that process",
                  (unsigned long long)m->step, m->worker);
        return false;
    }
    d->computed = false; /* a second commit of it is wrong */
    return true;
}

/* Without clipping and refusals: by samples. */
static void check_coefficients(struct sim *s, const struct kml_commit *c)
{
    uint64_t samples = 0;
    bool plain = s->job.training.clip_norm == 0;
    for (uint32_t i = 0; i < c->count; i++) {
        samples += s->shadow.deal[c->member[i].worker].lease.samples;
        plain = plain && c->member[i].coefficient != 0;
    }
    double reference = (double)s->workers * s->job.training.batch_size;
    for (uint32_t i = 0; plain && i < c->count; i++) {
        double wanted = (double)s->shadow.deal[c->member[i].worker].lease.samples / (double)samples;
        if (c->member[i].coefficient != wanted || c->step_scale != (double)samples / reference) {
            sim_wrong(s, "version %llu: a coefficient or the step's scale is not by samples",
                      (unsigned long long)c->version);
        }
    }
}

/* method.md 2.3: with a fixed crew of m, right after an opening. */
static void check_identity(struct sim *s)
{
    const struct kml_barrier *b = &s->conductor.barrier;
    s->shadow.steady = s->shadow.steady && b->excused == 0 && b->live == s->workers && b->rule.grace == 0 &&
                       b->rule.bound == KML_BARRIER_UNBOUNDED;
    if (!s->shadow.steady || (s->workers > 64 && b->version % 64 != 0)) {
        return;
    }
    uint64_t ages = 0;
    for (uint32_t w = 0; w < s->workers; w++) {
        ages += b->version - b->seat[w].pulled;
    }
    uint32_t limit = b->rule.limit < s->workers ? b->rule.limit : s->workers;
    if (b->applied + ages != (uint64_t)(s->workers - limit) * b->version) {
        sim_wrong(s, "the staleness identity does not hold at version %llu", (unsigned long long)b->version);
    }
}

static void apply(struct sim *s, const struct kml_commit *c)
{
    struct sim_shadow *h = &s->shadow;
    uint32_t counted = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->member[i].coefficient != 0) {
            h->grad[counted] = h->deal[c->member[i].worker].gradient;
            h->coefficient[counted++] = (float)c->member[i].coefficient;
        }
    }
    if (counted > 0) {
        struct kml_optimizer_step step = {.learning_rate = c->learning_rate * c->step_scale,
                                          .number = ++h->updates};
        kml_vec_weighted_sum(h->sum, h->grad, h->coefficient, counted, s->floats);
        kml_optimizer_apply(&h->optimizer, &step, h->params, h->params, h->sum, h->slot, s->floats);
    }
}

void sim_shadow_commit(struct sim *s, const struct kml_commit *c)
{
    struct sim_shadow *h = &s->shadow;
    h->commits++;
    if (c->version != h->version + 1 || c->version != s->conductor.barrier.version || c->count == 0) {
        sim_wrong(s, "version %llu follows version %llu", (unsigned long long)c->version,
                  (unsigned long long)h->version);
    }
    for (uint32_t i = 0; i < c->count; i++) {
        if (i > 0 && c->member[i].worker <= c->member[i - 1].worker) {
            sim_wrong(s, "the members of a commit do not ascend");
        }
        if (!check_member(s, &c->member[i])) {
            return;
        }
        count_samples(s, &h->deal[c->member[i].worker]);
    }
    check_coefficients(s, c);
    check_identity(s);
    h->steady = h->steady && c->releases == c->count; /* who got no new step will be excused */
    h->identities += h->steady;
    apply(s, c);
    h->version = c->version;
    keep_crc(s);
}

/* ---- Evaluations and the end ---- */

void sim_shadow_pin(struct sim *s, uint64_t version)
{
    if (version != s->shadow.version) {
        sim_wrong(s, "version %llu is pinned, the newest is %llu", (unsigned long long)version,
                  (unsigned long long)s->shadow.version);
    }
    s->shadow.pinned_version = version;
    memcpy(s->shadow.pinned, s->shadow.params, s->floats * sizeof(float));
}

void sim_shadow_evaluated(struct sim *s, const struct kml_record *r)
{
    enum sim_split split = r->test ? SIM_TEST : SIM_VALIDATION;
    struct sim_score score = {.samples = 0};
    sim_problem_evaluate(s->config.problem, s->shadow.pinned, split, 0, s->config.problem->count[split],
                         &score);
    double n = (double)s->config.problem->count[split];
    if (r->version != s->shadow.pinned_version || r->loss != score.loss_sum / n ||
        r->accuracy != (double)score.correct / n) {
        sim_wrong(s, "version %llu was evaluated to loss %.17g, accuracy %.17g; they are %.17g and %.17g",
                  (unsigned long long)r->version, r->loss, r->accuracy, score.loss_sum / n,
                  (double)score.correct / n);
    }
    if (s->report.evaluations == s->evaluation_room) {
        s->evaluation_room = s->evaluation_room == 0 ? 16 : 2 * s->evaluation_room;
        s->evaluation = kml_realloc(s->evaluation, s->evaluation_room * sizeof *s->evaluation);
    }
    s->evaluation[s->report.evaluations++] =
        (struct sim_evaluation){r->version, r->epoch, r->loss, r->accuracy, r->test};
}

void sim_shadow_saved(struct sim *s, uint64_t version, const float *params)
{
    if (version > s->shadow.version || crc_of(s, params) != s->shadow.crc[version]) {
        sim_wrong(s, "what was saved are not the bytes of version %llu", (unsigned long long)version);
    }
}
