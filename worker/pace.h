#ifndef KML_WORKER_PACE_H
#define KML_WORKER_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * How a worker plays a machine of another speed: KUNAL_PACE_NS, KUNAL_SPEED, KUNAL_PROFILE of the start
 * contract.
 *
 * Training one sample is pace_ns nanoseconds of work; work gets done at speed(t) per nanosecond, a step
 * function of the time since training began. A step over n samples that starts at a ends at the b with
 *     integral of speed(t) dt from a to b  ==  n * pace_ns.
 * Pure: asks no clock, waits for nothing.
 */
#define KML_PACE_KNOTS 4096u

struct kml_pace_knot {
    double at_ns;
    double speed; /* from then on */
};

struct kml_pace {
    double pace_ns; /* 0: not paced */
    double speed;   /* before the first knot */
    struct kml_pace_knot *knot;
    uint32_t count;
};

/*
 * `profile`: lines "seconds speed", ascending seconds >= 0, speeds >= 0 and the last one above 0; empty lines
 * and # comments are skipped. `name` stands before the line's number in errors. KML_INVALID. Empty text:
 * `speed` for ever.
 */
int kml_pace_init(struct kml_pace *p, double pace_ns, double speed, const char *name, struct kml_view profile,
                  struct kml_err *err) KML_MUST_CHECK;
void kml_pace_finish(struct kml_pace *p);

bool kml_pace_on(const struct kml_pace *p);

/* When a step over `samples` that starts at begin_ns is over; both since training began. begin_ns when not
 * paced. */
uint64_t kml_pace_end(const struct kml_pace *p, uint64_t begin_ns, uint64_t samples);

#endif
