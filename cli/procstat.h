#ifndef KML_CLI_PROCSTAT_H
#define KML_CLI_PROCSTAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What /proc says of a process: here it takes the place of the pod metrics of a cluster. */
struct kml_procstat {
    bool known;
    uint64_t cpu_ticks; /* user and system, of clock_ticks a second */
    uint64_t resident;  /* pages */
    uint64_t at_ns;     /* when it was read */
};

/* The texts of /proc/<pid>/stat and /proc/<pid>/statm. Pure. false: not as proc(5) has it. */
bool kml_procstat_parse(const char *stat, const char *statm, struct kml_procstat *out);

/* Reads them. A process that is gone gives `known` false. */
void kml_procstat_read(pid_t pid, uint64_t now_ns, struct kml_procstat *out);

/* Cores used between two readings of one process, and whether that can be said. Pure. */
bool kml_procstat_cores(const struct kml_procstat *before, const struct kml_procstat *now,
                        double ticks_a_second, double *cores);

#endif
