#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"

static void a_time_stamp_is_utc_with_milliseconds(void **state)
{
    (void)state;
    static const struct {
        uint64_t ns;
        const char *text;
    } rows[] = {
        {0, "1970-01-01T00:00:00.000Z"},
        {UINT64_C(951782400) * KML_SECOND, "2000-02-29T00:00:00.000Z"},
        {UINT64_C(1769860800) * KML_SECOND + 123 * KML_MILLISECOND + 999999, "2026-01-31T12:00:00.123Z"},
        {UINT64_C(4102444799) * KML_SECOND + 999 * KML_MILLISECOND, "2099-12-31T23:59:59.999Z"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[32];
        kml_format_time(rows[i].ns, text);
        assert_string_equal(text, rows[i].text);
    }
}

static void the_monotonic_clock_never_goes_back(void **state)
{
    (void)state;
    struct kml_clock clock = kml_clock_monotonic();
    uint64_t last = kml_now(&clock);
    for (int i = 0; i < 10000; i++) {
        uint64_t now = kml_now(&clock);
        assert_true(now >= last);
        last = now;
    }
}

static uint64_t fixed(void *self)
{
    return *(uint64_t *)self;
}

static void a_test_can_be_the_clock(void **state)
{
    (void)state;
    uint64_t now = 5;
    struct kml_clock clock = {fixed, &now};
    assert_int_equal(kml_now(&clock), 5);
    now = 6;
    assert_int_equal(kml_now(&clock), 6);
}

static void cpu_time_grows_by_work(void **state)
{
    (void)state;
    uint64_t thread = kml_thread_cpu_ns();
    uint64_t process = kml_process_cpu_ns();
    volatile double x = 1;
    for (int i = 0; i < 2000000; i++) {
        x = x * 1.0000001;
    }
    assert_true(kml_thread_cpu_ns() > thread);
    assert_true(kml_process_cpu_ns() > process);
    assert_true(kml_wall_ns() > UINT64_C(1700000000) * KML_SECOND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_time_stamp_is_utc_with_milliseconds),
        cmocka_unit_test(the_monotonic_clock_never_goes_back),
        cmocka_unit_test(a_test_can_be_the_clock),
        cmocka_unit_test(cpu_time_grows_by_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
