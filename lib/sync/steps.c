#include "sync/steps.h"

#include <math.h>

#include "base/mem.h"

void kml_steps_init(struct kml_steps *s, uint32_t workers, uint64_t batch, double clip, bool fail_non_finite)
{
    KML_BUG_ON(workers == 0 || batch == 0 || !(clip >= 0.0));
    *s = (struct kml_steps){
        .reference = (double)workers * (double)batch, .clip = clip, .fail_non_finite = fail_non_finite};
}

/* min(1, clip / norm), rounded down to 16 significant bits. */
static double clip_factor(double clip, double square_sum)
{
    double norm = sqrt(square_sum);
    if (clip == 0.0 || norm <= clip) {
        return 1.0;
    }
    int exponent = 0;
    double mantissa = frexp(clip / norm, &exponent);
    return ldexp(floor(ldexp(mantissa, 16)), exponent - 16);
}

/* The policy for NaN and Inf. The count runs over gradients in the order in which they are planned. */
static int judge(struct kml_steps *s, struct kml_member *m, struct kml_err *err)
{
    m->refused = m->non_finite || !isfinite(m->square_sum);
    m->coefficient = 0.0;
    if (!m->refused) {
        s->refused_in_a_row = 0;
        return 0;
    }
    s->refused++;
    s->refused_in_a_row++;
    if (s->fail_non_finite) {
        return kml_fail(err, KML_INVALID,
                        "worker %u, step %llu: the gradient holds NaN or Inf; lower the learning rate, or "
                        "set nonFiniteGradient: Refuse",
                        m->worker, (unsigned long long)m->step);
    }
    if (s->refused_in_a_row >= KML_REFUSED_IN_A_ROW) {
        return kml_fail(
            err, KML_INVALID,
            "worker %u, step %llu: the gradient holds NaN or Inf, %d in a row; lower the learning "
            "rate or set gradientClipNorm",
            m->worker, (unsigned long long)m->step, KML_REFUSED_IN_A_ROW);
    }
    return 0;
}

int kml_steps_plan(struct kml_steps *s, struct kml_member *member, uint32_t count, double damping,
                   struct kml_step_plan *out, struct kml_err *err)
{
    *out = (struct kml_step_plan){.scale = 0.0};
    for (uint32_t i = 0; i < count; i++) {
        KML_BUG_ON(member[i].samples == 0);
        if (judge(s, &member[i], err) != 0) {
            return -1;
        }
        if (member[i].refused) {
            out->refused++;
        } else {
            out->members++;
            out->samples += member[i].samples;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (member[i].refused) {
            continue;
        }
        double clip = clip_factor(s->clip, member[i].square_sum);
        s->clipped += clip < 1.0;
        member[i].coefficient = (double)member[i].samples / (double)out->samples * clip;
    }
    out->scale = (double)out->samples / s->reference * damping;
    return 0;
}
