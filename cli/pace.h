#ifndef KML_CLI_PACE_H
#define KML_CLI_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * Paced workers: a machine of equal cores plays a cluster of unequal ones, without root.
 *
 * A worker of speed v takes P / v nanoseconds a sample, where P, the nominal time, is the same for all and
 * fixed at the start. It can only keep that pace if its own work fits in: a sample costs c nanoseconds of one
 * core, so c <= P / v                      for every worker, and sum over workers of c * v / P  <= cores / 2
 * at every moment, so that nobody waits for a core. Speeds may change in the course of training; the largest
 * v and the largest sum over that course count.
 *
 * Pure: texts in, numbers and texts out.
 */
#define KML_PACE_EVENTS_MAX 100000

struct kml_pace_event {
    double seconds; /* of training */
    uint32_t worker;
    double speed;
};

struct kml_pace {
    uint32_t workers;
    double *speed;                /* [workers], at the start; owned */
    struct kml_pace_event *event; /* [events], by rising seconds; owned */
    uint32_t events;
};

void kml_pace_init(struct kml_pace *p, uint32_t workers); /* all speeds 1 */
void kml_pace_finish(struct kml_pace *p);

/* "1,0.8,0.5": one for each worker, all above 0. KML_USAGE. */
int kml_pace_speeds(struct kml_pace *p, const char *text, struct kml_err *err) KML_MUST_CHECK;

/*
 * Lines "seconds worker speed"; blank lines and what follows # are skipped; seconds rise (equal ones are
 * fine). `name` stands in errors: "name:3: what". KML_INVALID.
 */
int kml_pace_profile(struct kml_pace *p, const char *name, struct kml_view text,
                     struct kml_err *err) KML_MUST_CHECK;

/* The lines "seconds speed" of one worker, as KUNAL_PROFILE wants them. Empty: it has none. */
int kml_pace_split(const struct kml_pace *p, uint32_t worker, struct kml_buf *out,
                   struct kml_err *err) KML_MUST_CHECK;

double kml_pace_peak_sum(const struct kml_pace *p); /* the largest sum of speeds at any moment */
double kml_pace_peak(const struct kml_pace *p);     /* the largest speed of any worker at any moment */

/* The smallest feasible nominal time, ns. cost_ns: CPU time of one sample; cores: what this machine has for
 * us. */
double kml_pace_smallest(const struct kml_pace *p, double cost_ns, double cores);

/*
 * The nominal time to use: `wanted_ns` when that is not 0 and feasible, else the smallest one and a tenth
 * more. KML_USAGE, with the numbers and the smallest feasible value, when what is wanted cannot be.
 */
int kml_pace_choose(const struct kml_pace *p, double cost_ns, double cores, double wanted_ns,
                    double *nominal_ns, struct kml_err *err) KML_MUST_CHECK;

#endif
