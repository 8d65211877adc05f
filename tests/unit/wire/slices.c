#include "wire/slices.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

static const char text[] = "abcdefghij";

/* "abc" "" "" "d" "efghij" "" */
static const struct kml_view parts[] = {
    {(const uint8_t *)text, 3},     {NULL, 0}, {NULL, 0}, {(const uint8_t *)text + 3, 1},
    {(const uint8_t *)text + 4, 6}, {NULL, 0}};
static const struct kml_slices message = {parts, 6, 10};

static void copies_cross_parts_and_empty_ones(void **state)
{
    (void)state;
    for (size_t first = 0; first <= 10; first++) {
        struct kml_cursor c = kml_cursor_of(&message);
        char out[11] = "";
        assert_true(kml_cursor_copy(&c, out, first));
        assert_int_equal(c.left, 10 - first);
        assert_true(kml_cursor_copy(&c, out + first, 10 - first));
        assert_string_equal(out, text);
        assert_int_equal(kml_cursor_run(&c, 1).size, 0);
    }
}

static void asking_for_more_than_there_is_moves_nothing(void **state)
{
    (void)state;
    struct kml_cursor c = kml_cursor_of(&message);
    char out[11] = "";
    assert_true(kml_cursor_skip(&c, 4));
    assert_false(kml_cursor_copy(&c, out, 7));
    assert_false(kml_cursor_skip(&c, 7));
    assert_int_equal(c.left, 6);
    assert_true(kml_cursor_copy(&c, out, 6));
    assert_string_equal(out, "efghij");
}

static void runs_are_contiguous_and_no_longer_than_asked(void **state)
{
    (void)state;
    static const size_t want[] = {2, 1, 1, 6};
    struct kml_cursor c = kml_cursor_of(&message);
    assert_int_equal(kml_cursor_run(&c, 2).size, want[0]);
    for (size_t i = 1; i < KML_COUNT(want); i++) {
        assert_int_equal(kml_cursor_run(&c, 100).size, want[i]);
    }
    struct kml_cursor again = kml_cursor_of(&message);
    struct kml_cursor copy = again;
    assert_true(kml_cursor_skip(&again, 10));
    assert_int_equal(copy.left, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_cross_parts_and_empty_ones),
        cmocka_unit_test(asking_for_more_than_there_is_moves_nothing),
        cmocka_unit_test(runs_are_contiguous_and_no_longer_than_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
