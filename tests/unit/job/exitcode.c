#include "job/exitcode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"

/* operator.md 1.4, written down a second time and in another form: the retryable ones, everything else is
 * permanent. */
static const unsigned retryable_below_128[] = {69, 75};
static const unsigned permanent_from_128[] = {128, 132, 134, 136, 139};

static bool is_in(const unsigned *list, size_t count, unsigned code)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i] == code) {
            return true;
        }
    }
    return false;
}

static enum kml_exit_class expected(unsigned code)
{
    if (code == 0) {
        return KML_EXIT_GOOD;
    }
    bool again = code < 128 ? is_in(retryable_below_128, KML_COUNT(retryable_below_128), code)
                            : !is_in(permanent_from_128, KML_COUNT(permanent_from_128), code);
    return again ? KML_EXIT_RETRYABLE : KML_EXIT_PERMANENT;
}

static void every_code_from_0_to_255_has_its_class(void **state)
{
    (void)state;
    for (unsigned code = 0; code <= 255; code++) {
        assert_int_equal(kml_exit_classify(code), expected(code));
    }
}

static void every_code_has_a_meaning_in_words(void **state)
{
    (void)state;
    for (unsigned code = 0; code <= 255; code++) {
        assert_non_null(kml_exit_meaning(code));
        assert_true(kml_exit_meaning(code)[0] != '\0');
    }
    assert_string_equal(kml_exit_meaning(65), "bad data");
    assert_string_equal(kml_exit_meaning(137), "killed (signal 9)");
    assert_string_equal(kml_exit_meaning(100), "failed");
}

static void each_policy_restarts_what_it_says(void **state)
{
    (void)state;
    for (unsigned code = 0; code <= 255; code++) {
        assert_true(kml_exit_restarts(KML_JOB_RESTART_ALWAYS, code));
        assert_false(kml_exit_restarts(KML_JOB_RESTART_NEVER, code));
        assert_int_equal(kml_exit_restarts(KML_JOB_RESTART_ONFAILURE, code), code != 0);
        assert_int_equal(kml_exit_restarts(KML_JOB_RESTART_EXITCODE, code),
                         expected(code) == KML_EXIT_RETRYABLE);
    }
}

/* An error that a retry may help ends a program with a code that a driver retries, and no other error does.
 */
static void our_own_errors_exit_with_codes_of_the_same_class(void **state)
{
    (void)state;
    static const enum kml_code final[] = {KML_INVALID, KML_USAGE,    KML_NOT_FOUND, KML_DENIED,
                                          KML_IO,      KML_PROTOCOL, KML_INTERNAL,  KML_UNSUPPORTED};
    for (size_t i = 0; i < KML_COUNT(final); i++) {
        assert_int_equal(kml_exit_classify((unsigned)kml_code_exit(final[i])), KML_EXIT_PERMANENT);
    }
    for (int code = 1; code < KML_CODE_COUNT; code++) {
        if (kml_code_retryable((enum kml_code)code)) {
            assert_int_equal(kml_exit_classify((unsigned)kml_code_exit((enum kml_code)code)),
                             KML_EXIT_RETRYABLE);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_from_0_to_255_has_its_class),
        cmocka_unit_test(every_code_has_a_meaning_in_words),
        cmocka_unit_test(each_policy_restarts_what_it_says),
        cmocka_unit_test(our_own_errors_exit_with_codes_of_the_same_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
