#ifndef KML_WORKER_THROTTLE_H
#define KML_WORKER_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * How long this process's cgroup was kept from running by its CPU quota: cpu.stat, v2 (throttled_usec) or v1
 * (throttled_time, ns). Read at most every half second, from a file that stays open.
 */
#define KML_THROTTLE_EVERY_NS UINT64_C(500000000)

struct kml_throttle {
    int fd;           /* -1: there is no such file, or it does not say */
    uint64_t read_at; /* ns of the caller's clock */
    uint64_t total;   /* ns, as read last */
};

/* `root` as in base/cpus.h: "/" in programs. */
void kml_throttle_init(struct kml_throttle *t, const char *root, uint64_t now_ns);
void kml_throttle_finish(struct kml_throttle *t);

/* Adds what came since the last call to *ns (0 between two readings). False, nothing added: unknown. */
bool kml_throttle_since(struct kml_throttle *t, uint64_t now_ns, uint64_t *ns);

/* The time in the text of a cpu.stat. False when there is none. Pure. */
bool kml_throttle_parse(const char *text, uint64_t *ns);

#endif
