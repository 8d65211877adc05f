#include "base/clock.h"

#include <stddef.h>
#include <stdio.h>
#include <time.h>

static uint64_t read_clock(clockid_t id)
{
    struct timespec t;
    (void)clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * KML_SECOND + (uint64_t)t.tv_nsec;
}

static uint64_t monotonic(void *self)
{
    (void)self;
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t kml_now(const struct kml_clock *clock)
{
    return clock->now_ns(clock->self);
}

struct kml_clock kml_clock_monotonic(void)
{
    return (struct kml_clock){monotonic, NULL};
}

uint64_t kml_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

uint64_t kml_thread_cpu_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t kml_process_cpu_ns(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void kml_format_time(uint64_t wall_ns, char out[32])
{
    time_t seconds = (time_t)(wall_ns / KML_SECOND);
    struct tm utc;
    (void)gmtime_r(&seconds, &utc);
    size_t n = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &utc);
    (void)snprintf(out + n, 32 - n, ".%03uZ", (unsigned)(wall_ns / KML_MILLISECOND % 1000));
}
