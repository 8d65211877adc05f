#include "base/cpus.h"

#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/parse.h"

#define FILE_MOST ((size_t)1 << 16)

/* Grows the mask until the kernel accepts it: machines with more than 1024 CPUs exist. */
static double affinity(void)
{
    for (int cpus = CPU_SETSIZE; cpus <= 64 * CPU_SETSIZE; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        KML_BUG_ON(set == NULL);
        size_t size = CPU_ALLOC_SIZE((size_t)cpus);
        int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (count > 0) {
            return count;
        }
    }
    return 1;
}

/* Text of a small file without its last newline; NULL when there is none. The caller frees. */
static char *small_file(const char *path)
{
    struct kml_buf text;
    kml_buf_init(&text, FILE_MOST);
    char *result = NULL;
    if (kml_file_read(path, &text, NULL) == 0) {
        result = kml_strdup(kml_buf_text(&text));
        result[strcspn(result, "\n")] = '\0';
    }
    kml_buf_finish(&text);
    return result;
}

/* quota / period in cores; INFINITY for "max", "-1" and whatever is no number. */
static double ratio(const char *quota, const char *period)
{
    uint64_t q;
    uint64_t p;
    if (kml_parse_u64(quota, &q, NULL) != 0 || kml_parse_u64(period, &p, NULL) != 0 || q == 0 || p == 0) {
        return INFINITY;
    }
    return (double)q / (double)p;
}

static double limit_v2(const char *folder)
{
    kml_auto_free char *path = kml_format("%s/cpu.max", folder);
    kml_auto_free char *text = small_file(path);
    char *blank = text == NULL ? NULL : strchr(text, ' ');
    if (blank == NULL) {
        return INFINITY;
    }
    *blank = '\0';
    return ratio(text, blank + 1);
}

static double limit_v1(const char *folder)
{
    kml_auto_free char *quota_path = kml_format("%s/cpu.cfs_quota_us", folder);
    kml_auto_free char *period_path = kml_format("%s/cpu.cfs_period_us", folder);
    kml_auto_free char *quota = small_file(quota_path);
    kml_auto_free char *period = small_file(period_path);
    return quota == NULL || period == NULL ? INFINITY : ratio(quota, period);
}

/*
 * The smallest limit on the way from the process's group up to the root: every ancestor binds. In a container
 * the path may be the host's, which is not mounted; then only the root of the mount has the files, and that
 * is the right one.
 */
static double smallest_on_path(const char *mount, const char *group, double (*limit)(const char *folder))
{
    kml_auto_free char *folder = kml_format("%s%s", mount, strstr(group, "..") == NULL ? group : "");
    size_t least = strlen(mount);
    double smallest = INFINITY;
    for (;;) {
        smallest = fmin(smallest, limit(folder));
        char *slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < least) {
            return smallest;
        }
        *slash = '\0';
    }
}

static bool lists_cpu(const char *controllers)
{
    for (const char *c = controllers; *c != '\0';) {
        size_t length = strcspn(c, ",");
        if (length == 3 && strncmp(c, "cpu", 3) == 0) {
            return true;
        }
        c += length + (c[length] == ',' ? 1 : 0);
    }
    return false;
}

/* One line of /proc/self/cgroup: "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1). */
static double limit_of_line(const char *root, char *line)
{
    char *controllers = strchr(line, ':');
    char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (path == NULL) {
        return INFINITY;
    }
    *path++ = '\0';
    controllers++;
    if (controllers[0] == '\0') {
        kml_auto_free char *whole = kml_format("%s/sys/fs/cgroup", root);
        kml_auto_free char *hybrid = kml_format("%s/sys/fs/cgroup/unified", root);
        return fmin(smallest_on_path(whole, path, limit_v2), smallest_on_path(hybrid, path, limit_v2));
    }
    if (!lists_cpu(controllers)) {
        return INFINITY;
    }
    kml_auto_free char *joint = kml_format("%s/sys/fs/cgroup/%s", root, controllers);
    kml_auto_free char *single = kml_format("%s/sys/fs/cgroup/cpu", root);
    return fmin(smallest_on_path(joint, path, limit_v1), smallest_on_path(single, path, limit_v1));
}

static double cgroup_limit(const char *root)
{
    kml_auto_free char *path = kml_format("%s/proc/self/cgroup", root);
    struct kml_buf text;
    kml_buf_init(&text, FILE_MOST);
    double smallest = INFINITY;
    if (kml_file_read(path, &text, NULL) == 0 && text.size > 0) {
        char *rest = (char *)text.data;
        for (char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n")) {
            smallest = fmin(smallest, limit_of_line(root, line));
        }
    }
    kml_buf_finish(&text);
    return smallest;
}

double kml_cpu_limit(const char *root)
{
    return fmin(affinity(), cgroup_limit(strcmp(root, "/") == 0 ? "" : root));
}

unsigned kml_cpu_threads(const char *root)
{
    double whole = floor(kml_cpu_limit(root));
    return whole < 1 ? 1 : (unsigned)whole;
}
