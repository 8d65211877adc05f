#ifndef KML_BASE_CLOCK_H
#define KML_BASE_CLOCK_H

#include <stdint.h>

/*
 * Time is a number: nanoseconds, passed in. Pure code takes `uint64_t now_ns`; only programs ask a clock, and
 * they ask the one they were given, so that a test or the simulator can be the clock.
 */
#define KML_SECOND UINT64_C(1000000000)
#define KML_MILLISECOND UINT64_C(1000000)

struct kml_clock {
    uint64_t (*now_ns)(void *self);
    void *self;
};

uint64_t kml_now(const struct kml_clock *clock);      /* ns of that clock */
struct kml_clock kml_clock_monotonic(void);           /* CLOCK_MONOTONIC */
uint64_t kml_wall_ns(void);                           /* since 1970, for time stamps that people read */
uint64_t kml_thread_cpu_ns(void);                     /* CPU time of the calling thread */
uint64_t kml_process_cpu_ns(void);                    /* CPU time of the process */
void kml_format_time(uint64_t wall_ns, char out[32]); /* 2026-01-31T12:00:00.123Z */

#endif
