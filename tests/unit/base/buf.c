#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "unit/seed.h"

static void an_empty_buffer_is_an_empty_text(void **state)
{
    (void)state;
    struct kml_buf b;
    kml_buf_init(&b, 10);
    assert_string_equal(kml_buf_text(&b), "");
    assert_int_equal(kml_buf_view(&b).size, 0);
    kml_buf_clear(&b);
    kml_buf_finish(&b);
}

static void appended_pieces_stand_in_order_with_a_zero_behind(void **state)
{
    (void)state;
    struct kml_buf b;
    struct kml_err err;
    kml_buf_init(&b, 100);
    assert_int_equal(kml_buf_append(&b, "ab", 2, &err), 0);
    assert_int_equal(kml_buf_puts(&b, "cd", &err), 0);
    assert_int_equal(kml_buf_printf(&b, &err, "-%d-%s", 42, "x"), 0);
    assert_int_equal(kml_buf_append(&b, NULL, 0, &err), 0);
    assert_string_equal(kml_buf_text(&b), "abcd-42-x");
    assert_int_equal(b.size, 9);
    kml_buf_finish(&b);
}

static void the_maximum_is_exact_and_a_refused_append_changes_nothing(void **state)
{
    (void)state;
    struct kml_buf b;
    struct kml_err err;
    kml_buf_init(&b, 5);
    assert_int_equal(kml_buf_puts(&b, "12345", &err), 0);
    assert_int_equal(kml_buf_puts(&b, "6", &err), -1);
    assert_int_equal(err.code, KML_TOO_LARGE);
    assert_int_equal(kml_buf_printf(&b, &err, "%d", 6), -1);
    assert_null(kml_buf_reserve(&b, SIZE_MAX, &err));
    assert_string_equal(kml_buf_text(&b), "12345");
    kml_buf_finish(&b);
}

static void a_buffer_without_a_limit_refuses_what_no_memory_can_hold(void **state)
{
    (void)state;
    struct kml_buf b;
    struct kml_err err;
    kml_buf_init(&b, SIZE_MAX);
    assert_int_equal(kml_buf_puts(&b, "12345", &err), 0);
    assert_null(kml_buf_reserve(&b, SIZE_MAX - 5, &err));
    assert_int_equal(err.code, KML_TOO_LARGE);
    assert_null(kml_buf_reserve(&b, SIZE_MAX - 6, &err));
    assert_int_equal(err.code, KML_NO_MEMORY);
    assert_string_equal(kml_buf_text(&b), "12345");
    kml_buf_finish(&b);
}

static void a_taken_buffer_is_the_callers_and_the_buffer_starts_anew(void **state)
{
    (void)state;
    struct kml_buf b;
    struct kml_err err;
    kml_buf_init(&b, 100);
    assert_int_equal(kml_buf_puts(&b, "mine", &err), 0);
    size_t size;
    kml_auto_free uint8_t *taken = kml_buf_take(&b, &size);
    assert_int_equal(size, 4);
    assert_string_equal((char *)taken, "mine");
    assert_int_equal(b.size, 0);
    assert_int_equal(kml_buf_puts(&b, "new", &err), 0);
    assert_string_equal(kml_buf_text(&b), "new");
    kml_buf_finish(&b);
}

static void a_failed_allocation_at_any_place_loses_nothing(void **state)
{
    (void)state;
    for (uint64_t nth = 1;; nth++) {
        struct kml_buf b;
        struct kml_err err = {.code = KML_OK};
        kml_buf_init(&b, 1 << 20);
        size_t done = 0;
        kml_test_fail_alloc(nth);
        while (done < 2000 && kml_buf_puts(&b, "0123456789", &err) == 0) {
            done++;
        }
        kml_test_fail_alloc(0);
        assert_int_equal(b.size, done * 10);
        for (size_t i = 0; i < b.size; i++) {
            assert_int_equal(b.data[i], '0' + i % 10);
        }
        kml_buf_finish(&b);
        if (done == 2000) {
            assert_true(nth > 5); /* it had to grow some times, and each of them was made to fail */
            return;
        }
        assert_int_equal(err.code, KML_NO_MEMORY);
    }
}

static void random_appends_equal_a_plain_array(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    uint8_t *model = kml_alloc(1 << 16);
    size_t size = 0;
    struct kml_buf b;
    kml_buf_init(&b, 1 << 16);
    for (int i = 0; i < 2000; i++) {
        uint8_t piece[97];
        size_t n = kml_rng_below(&rng, sizeof piece);
        for (size_t k = 0; k < n; k++) {
            piece[k] = (uint8_t)kml_rng_next(&rng);
        }
        int result = kml_buf_append(&b, piece, n, NULL);
        assert_int_equal(result, size + n <= 1 << 16 ? 0 : -1);
        if (result == 0) {
            memcpy(model + size, piece, n);
            size += n;
        }
        if (kml_rng_below(&rng, 500) == 0) {
            kml_buf_clear(&b);
            size = 0;
        }
        assert_int_equal(b.size, size);
        assert_int_equal(size == 0 ? 0 : memcmp(b.data, model, size), 0);
    }
    kml_buf_finish(&b);
    kml_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_buffer_is_an_empty_text),
        cmocka_unit_test(appended_pieces_stand_in_order_with_a_zero_behind),
        cmocka_unit_test(the_maximum_is_exact_and_a_refused_append_changes_nothing),
        cmocka_unit_test(a_buffer_without_a_limit_refuses_what_no_memory_can_hold),
        cmocka_unit_test(a_taken_buffer_is_the_callers_and_the_buffer_starts_anew),
        cmocka_unit_test(a_failed_allocation_at_any_place_loses_nothing),
        cmocka_unit_test(random_appends_equal_a_plain_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
