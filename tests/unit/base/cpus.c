#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <sched.h>

#include "base/cpus.h"

#include "unit/temp.h"

static double mask(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : NAN;
}

/* Up to four files of a made-up machine, and the limit that must be found there. */
static const struct {
    const char *name;
    const char *file[4][2];
    double limit; /* INFINITY: only the mask */
} rows[] = {
    {"no cgroup at all", {{NULL, NULL}}, INFINITY},
    {"v2, half a core",
     {{"proc/self/cgroup", "0::/pod/worker\n"}, {"sys/fs/cgroup/pod/worker/cpu.max", "50000 100000\n"}},
     0.5},
    {"v2, no limit",
     {{"proc/self/cgroup", "0::/pod\n"}, {"sys/fs/cgroup/pod/cpu.max", "max 100000\n"}},
     INFINITY},
    {"v2, an ancestor binds",
     {{"proc/self/cgroup", "0::/a/b\n"},
      {"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"},
      {"sys/fs/cgroup/a/cpu.max", "25000 100000\n"}},
     0.25},
    {"v2 in a container, at the root of the mount",
     {{"proc/self/cgroup", "0::/kubepods/pod1/c1\n"}, {"sys/fs/cgroup/cpu.max", "75000 100000\n"}},
     0.75},
    {"v2, a path that leaves the mount",
     {{"proc/self/cgroup", "0::/../../x\n"}, {"sys/fs/cgroup/cpu.max", "10000 100000\n"}},
     0.1},
    {"v1, joint folder",
     {{"proc/self/cgroup", "5:memory:/d\n4:cpu,cpuacct:/d\n"},
      {"sys/fs/cgroup/cpu,cpuacct/d/cpu.cfs_quota_us", "30000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/d/cpu.cfs_period_us", "100000\n"}},
     0.3},
    {"v1, folder cpu",
     {{"proc/self/cgroup", "4:cpuacct,cpu:/d\n"},
      {"sys/fs/cgroup/cpu/d/cpu.cfs_quota_us", "20000\n"},
      {"sys/fs/cgroup/cpu/d/cpu.cfs_period_us", "50000\n"}},
     0.4},
    {"v1, no limit",
     {{"proc/self/cgroup", "4:cpu:/\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
     INFINITY},
    {"v1, cpuset is another controller",
     {{"proc/self/cgroup", "4:cpuset:/\n"},
      {"sys/fs/cgroup/cpuset/cpu.cfs_quota_us", "1000\n"},
      {"sys/fs/cgroup/cpuset/cpu.cfs_period_us", "100000\n"}},
     INFINITY},
    {"v1 and v2 side by side, the smaller binds",
     {{"proc/self/cgroup", "4:cpu:/\n0::/u\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "90000\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/unified/u/cpu.max", "60000 100000\n"}},
     0.6},
    {"rubbish", {{"proc/self/cgroup", "x\n::\n0:/\n0::\n"}, {"sys/fs/cgroup/cpu.max", "lots\n"}}, INFINITY},
    {"a period of zero", {{"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/cpu.max", "5 0\n"}}, INFINITY},
    {"more than the machine has",
     {{"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/cpu.max", "99900000000 1000\n"}},
     INFINITY},
};

static void the_limit_is_the_smallest_that_binds(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char root[TEMP_ROOM];
        temp_make(root);
        for (size_t f = 0; f < 4 && rows[i].file[f][0] != NULL; f++) {
            temp_write(root, rows[i].file[f][0], rows[i].file[f][1]);
        }
        double expected = fmin(rows[i].limit, mask());
        double found = kml_cpu_limit(root);
        unsigned threads = kml_cpu_threads(root);
        temp_remove(root);
        if (fabs(found - expected) > 1e-9) {
            fail_msg("%s: %g instead of %g", rows[i].name, found, expected);
        }
        assert_int_equal(threads, expected < 1 ? 1 : (int)expected);
    }
}

static void this_machine_has_a_limit_between_nothing_and_its_mask(void **state)
{
    (void)state;
    double limit = kml_cpu_limit("/");
    assert_true(limit > 0 && limit <= mask());
    assert_in_range(kml_cpu_threads("/"), 1, (int)mask());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_limit_is_the_smallest_that_binds),
        cmocka_unit_test(this_machine_has_a_limit_between_nothing_and_its_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
