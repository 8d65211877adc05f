#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "unit/temp.h"
#include "worker/throttle.h"

static void both_kinds_of_cpu_stat_are_read(void **state)
{
    (void)state;
    uint64_t ns = 0;
    assert_true(kml_throttle_parse("usage_usec 5\nnr_throttled 2\nthrottled_usec 1500\n", &ns));
    assert_int_equal(ns, 1500000);
    assert_true(kml_throttle_parse("nr_periods 1\nnr_throttled 2\nthrottled_time 77\n", &ns));
    assert_int_equal(ns, 77);
    assert_false(kml_throttle_parse("usage_usec 5\nuser_usec 4\n", &ns));
    assert_false(kml_throttle_parse("", &ns));
    assert_false(kml_throttle_parse("throttled_usec x\n", &ns));
}

static void check_growth(const char *root, const char *file, const char *first, const char *second,
                         uint64_t expected)
{
    struct kml_throttle t;
    uint64_t ns = 0;
    temp_write(root, file, first);
    kml_throttle_init(&t, root, 1000);
    assert_true(kml_throttle_since(&t, 1001, &ns)); /* too soon to read again */
    assert_int_equal(ns, 0);
    /* cgroupfs changes a file in place */
    kml_auto_free char *full = kml_format("%s/%s", root, file);
    FILE *f = fopen(full, "r+");
    assert_non_null(f);
    assert_true(fputs(second, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_true(kml_throttle_since(&t, 1000 + KML_THROTTLE_EVERY_NS, &ns));
    assert_int_equal(ns, expected);
    assert_true(
        kml_throttle_since(&t, 1000 + 2 * KML_THROTTLE_EVERY_NS, &ns)); /* nothing new: nothing added */
    assert_int_equal(ns, expected);
    kml_throttle_finish(&t);
}

static void the_group_of_the_process_is_found_in_v2_and_v1(void **state)
{
    (void)state;
    char v2[TEMP_ROOM];
    char v1[TEMP_ROOM];
    temp_make(v2);
    temp_make(v1);
    temp_write(v2, "proc/self/cgroup", "0::/kubepods/pod1\n");
    check_growth(v2, "sys/fs/cgroup/kubepods/pod1/cpu.stat", "throttled_usec 1000\n", "throttled_usec 3000\n",
                 2000000);
    temp_write(v1, "proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/abc\n");
    check_growth(v1, "sys/fs/cgroup/cpu,cpuacct/cpu.stat", "throttled_time 5\n", "throttled_time 9\n", 4);
    temp_remove(v2);
    temp_remove(v1);
}

static void without_a_cgroup_the_time_is_unknown(void **state)
{
    (void)state;
    struct kml_throttle t;
    uint64_t ns = 0;
    kml_throttle_init(&t, "/nowhere", 0);
    assert_false(kml_throttle_since(&t, 10 * KML_THROTTLE_EVERY_NS, &ns));
    assert_int_equal(ns, 0);
    kml_throttle_finish(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_kinds_of_cpu_stat_are_read),
        cmocka_unit_test(the_group_of_the_process_is_found_in_v2_and_v1),
        cmocka_unit_test(without_a_cgroup_the_time_is_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
