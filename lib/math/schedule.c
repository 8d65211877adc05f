#include "math/schedule.h"

#include <math.h>

#define PI 3.14159265358979323846

static double cosine(const struct kml_schedule *s, double epoch)
{
    double span = s->epochs - s->warmup_epochs;
    if (epoch <= s->warmup_epochs || span <= 0) {
        return 1;
    }
    double done = (epoch - s->warmup_epochs) / span;
    return done >= 1 ? 0 : (1 + cos(PI * done)) / 2;
}

double kml_schedule_factor(const struct kml_schedule *s, double epoch)
{
    double factor = 1;
    if (s->kind == KML_SCHEDULE_STEP) {
        factor = pow(s->factor, floor(epoch / s->step_epochs));
    } else if (s->kind == KML_SCHEDULE_COSINE) {
        factor = cosine(s, epoch);
    }
    return epoch < s->warmup_epochs ? factor * epoch / s->warmup_epochs : factor;
}
