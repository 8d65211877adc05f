#include "cli/tensorstats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

static void every_dtype_is_read_as_the_number_it_is(void **state)
{
    (void)state;
    static const struct {
        enum kml_dtype dtype;
        uint8_t bytes[8];
        double value;
    } cases[] = {
        {KML_BOOL, {1}, 1},
        {KML_U8, {200}, 200},
        {KML_I8, {0x80}, -128},
        {KML_I8, {0xff}, -1},
        {KML_I16, {0xfe, 0xff}, -2},
        {KML_U16, {0xfe, 0xff}, 65534},
        {KML_F16, {0x00, 0x3c}, 1},
        {KML_F16, {0xff, 0x7b}, 65504},                  /* the largest */
        {KML_F16, {0x01, 0x00}, 5.9604644775390625e-08}, /* the smallest subnormal, 2^-24 */
        {KML_F16, {0x00, 0xc1}, -2.5},
        {KML_BF16, {0x80, 0x3f}, 1},
        {KML_BF16, {0x20, 0xc1}, -10},
        {KML_I32, {0x00, 0x00, 0x00, 0x80}, -2147483648.0},
        {KML_U32, {0xff, 0xff, 0xff, 0xff}, 4294967295.0},
        {KML_F32, {0x00, 0x00, 0x20, 0x41}, 10},
        {KML_F64, {0, 0, 0, 0, 0, 0, 0xf0, 0xbf}, -1},
        {KML_I64, {0, 0, 0, 0, 0, 0, 0, 0x80}, -9223372036854775808.0},
        {KML_U64, {0, 0, 0, 0, 0, 0, 0, 0x80}, 9223372036854775808.0},
    };
    for (size_t i = 0; i < KML_COUNT(cases); i++) {
        assert_true(kml_tensor_number(cases[i].dtype, cases[i].bytes) == cases[i].value);
    }
    const uint8_t half_inf[] = {0x00, 0xfc};
    const uint8_t half_nan[] = {0x01, 0x7c};
    assert_true(isinf(kml_tensor_number(KML_F16, half_inf)));
    assert_true(isnan(kml_tensor_number(KML_F16, half_nan)));
}

static struct kml_tensor_stats stats_of(const float *x, size_t count)
{
    const struct kml_tensor t = {.name = "t", .dtype = KML_F32, .data = kml_view_of(x, count * sizeof *x)};
    struct kml_tensor_stats s;
    kml_tensor_stats_of(&t, &s);
    return s;
}

static void statistics_leave_nan_and_infinity_out_but_count_them(void **state)
{
    (void)state;
    const float x[] = {NAN, 1, 2, INFINITY, 3, 4, -INFINITY};
    struct kml_tensor_stats s = stats_of(x, KML_COUNT(x));
    assert_int_equal(s.elements, 7);
    assert_int_equal(s.non_finite, 3);
    assert_float_equal(s.mean, 2.5, 1e-12);
    assert_float_equal(s.deviation, sqrt(1.25), 1e-12);
    assert_float_equal(s.least, 1, 0);
    assert_float_equal(s.most, 4, 0);
}

static void a_large_mean_does_not_swallow_the_deviation(void **state)
{
    (void)state;
    const float x[] = {16000000, 16000001, 16000002};
    struct kml_tensor_stats s = stats_of(x, KML_COUNT(x));
    assert_float_equal(s.deviation, sqrt(2.0 / 3.0), 1e-9);
}

static void an_empty_and_a_wholly_broken_tensor_have_zeros(void **state)
{
    (void)state;
    const float x[] = {NAN, NAN};
    for (size_t count = 0; count <= 2; count += 2) {
        struct kml_tensor_stats s = stats_of(x, count);
        assert_int_equal(s.non_finite, count);
        assert_float_equal(s.mean, 0, 0);
        assert_float_equal(s.deviation, 0, 0);
        assert_float_equal(s.least, 0, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_is_read_as_the_number_it_is),
        cmocka_unit_test(statistics_leave_nan_and_infinity_out_but_count_them),
        cmocka_unit_test(a_large_mean_does_not_swallow_the_deviation),
        cmocka_unit_test(an_empty_and_a_wholly_broken_tensor_have_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
