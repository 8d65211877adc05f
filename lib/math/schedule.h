#ifndef KML_MATH_SCHEDULE_H
#define KML_MATH_SCHEDULE_H

/*
 * Learning-rate schedules: a pure factor of the base rate, by progress in epochs (with fraction). The caller
 * gives the progress that the step brings the training to, so that the first step of a warm-up is not a step
 * of length 0.
 *
 *   Constant  1
 *   Step      factor ^ floor(epoch / step_epochs)
 *   Cosine    (1 + cos(pi * (epoch - warmup) / (epochs - warmup))) / 2         (Loshchilov, Hutter 2017)
 *
 * In the first warmup_epochs each is multiplied by epoch / warmup_epochs (Goyal et al. 2017); Cosine stays at
 * 1 there.
 */
enum kml_schedule_kind { KML_SCHEDULE_CONSTANT, KML_SCHEDULE_STEP, KML_SCHEDULE_COSINE };

struct kml_schedule {
    enum kml_schedule_kind kind;
    double warmup_epochs; /* 0: none */
    double step_epochs;   /* Step: > 0 */
    double factor;        /* Step */
    double epochs;        /* Cosine: where it reaches 0 */
};

double kml_schedule_factor(const struct kml_schedule *s, double epoch);

#endif
