#ifndef KML_BASE_CPUS_H
#define KML_BASE_CPUS_H

#include "base/err.h"

/*
 * How much CPU this process may use: the smaller of the affinity mask and the cgroup's quota (v2 cpu.max, v1
 * cpu.cfs_quota_us / cpu.cfs_period_us), as a fraction of cores. No limit found: the affinity mask alone.
 * `root` is "/" in programs; tests point it at a made-up tree with proc/self/cgroup and sys/fs/cgroup.
 */
double kml_cpu_limit(const char *root);

/* Threads for the kernels: the limit rounded down, at least 1. */
unsigned kml_cpu_threads(const char *root);

#endif
