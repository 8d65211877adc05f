#include "cli/procstat.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"

bool kml_procstat_parse(const char *stat, const char *statm, struct kml_procstat *out)
{
    /* The name in parentheses may hold blanks and parentheses: the last one ends it. */
    const char *after = strrchr(stat, ')');
    unsigned long long user;
    unsigned long long kernel;
    unsigned long long resident;
    if (after == NULL ||
        sscanf(after + 1, " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu %llu", &user, &kernel) != 2 ||
        sscanf(statm, "%*s %llu", &resident) != 1) {
        return false;
    }
    out->cpu_ticks = user + kernel;
    out->resident = resident;
    return true;
}

static bool read_text(const char *path, struct kml_buf *out)
{
    return kml_file_read(path, out, NULL) == 0;
}

void kml_procstat_read(pid_t pid, uint64_t now_ns, struct kml_procstat *out)
{
    char path[64];
    struct kml_buf stat;
    struct kml_buf statm;
    kml_buf_init(&stat, 8192);
    kml_buf_init(&statm, 8192);
    *out = (struct kml_procstat){.at_ns = now_ns};
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    bool good = read_text(path, &stat);
    (void)snprintf(path, sizeof path, "/proc/%ld/statm", (long)pid);
    good = good && read_text(path, &statm);
    out->known = good && kml_procstat_parse(kml_buf_text(&stat), kml_buf_text(&statm), out);
    kml_buf_finish(&stat);
    kml_buf_finish(&statm);
}

bool kml_procstat_cores(const struct kml_procstat *before, const struct kml_procstat *now,
                        double ticks_a_second, double *cores)
{
    if (!before->known || !now->known || now->at_ns <= before->at_ns || now->cpu_ticks < before->cpu_ticks) {
        return false;
    }
    double seconds = (double)(now->at_ns - before->at_ns) / (double)KML_SECOND;
    *cores = (double)(now->cpu_ticks - before->cpu_ticks) / ticks_a_second / seconds;
    return true;
}
