#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"

#include <errno.h>
#include <string.h>

static void a_failure_carries_code_and_text(void **state)
{
    (void)state;
    struct kml_err err;
    assert_int_equal(kml_fail(&err, KML_INVALID, "line %d is wrong", 7), -1);
    assert_int_equal(err.code, KML_INVALID);
    assert_string_equal(err.text, "line 7 is wrong");
}

static void nobody_needs_to_care(void **state)
{
    (void)state;
    assert_int_equal(kml_fail(NULL, KML_IO, "x"), -1);
    assert_int_equal(kml_fail_errno(NULL, EIO, "x"), -1);
    assert_int_equal(kml_wrap(NULL, "x"), -1);
}

static void a_text_is_one_line_whatever_is_in_it(void **state)
{
    (void)state;
    struct kml_err err;
    (void)kml_fail(&err, KML_INVALID, "file %s", "a\nb\tc\x1b[31m\x7f");
    assert_string_equal(err.text, "file a?b?c?[31m?");
}

static void a_long_text_ends_in_dots(void **state)
{
    (void)state;
    char text[2 * KML_ERR_TEXT];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    struct kml_err err;
    (void)kml_fail(&err, KML_INVALID, "%s", text);
    assert_int_equal(strlen(err.text), KML_ERR_TEXT - 1);
    assert_string_equal(err.text + KML_ERR_TEXT - 4, "...");
    (void)kml_fail(&err, KML_INVALID, "%.*s", KML_ERR_TEXT - 1, text); /* just fits */
    assert_string_equal(err.text + KML_ERR_TEXT - 4, "aaa");
}

static void a_wrap_adds_context_and_keeps_the_code(void **state)
{
    (void)state;
    struct kml_err err;
    (void)kml_fail(&err, KML_NOT_FOUND, "no file");
    assert_int_equal(kml_wrap(&err, "job %s", "j"), -1);
    assert_int_equal(err.code, KML_NOT_FOUND);
    assert_string_equal(err.text, "job j: no file");
}

static void errno_gives_the_code_and_the_systems_words(void **state)
{
    (void)state;
    static const struct {
        int error;
        enum kml_code code;
    } rows[] = {
        {ENOENT, KML_NOT_FOUND},  {EEXIST, KML_EXISTS},
        {EACCES, KML_DENIED},     {EROFS, KML_DENIED},
        {ENOMEM, KML_NO_MEMORY},  {EFBIG, KML_TOO_LARGE},
        {ENOSPC, KML_IO},         {ECONNREFUSED, KML_UNAVAILABLE},
        {ETIMEDOUT, KML_TIMEOUT}, {EADDRINUSE, KML_EXISTS},
        {EINVAL, KML_INVALID},    {EINTR, KML_AGAIN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct kml_err err;
        assert_int_equal(kml_fail_errno(&err, rows[i].error, "open %s", "f"), -1);
        assert_int_equal(err.code, rows[i].code);
        assert_int_equal(strncmp(err.text, "open f: ", 8), 0);
        assert_string_equal(err.text + 8, strerror(rows[i].error));
    }
}

static void every_code_has_a_row(void **state)
{
    (void)state;
    for (int code = 0; code < KML_CODE_COUNT; code++) {
        assert_true(strlen(kml_code_name((enum kml_code)code)) > 1);
        assert_in_range(kml_code_grpc((enum kml_code)code), 0, 16);
        assert_in_range(kml_code_http((enum kml_code)code), 200, 599);
        assert_true((code == KML_OK) == (kml_code_exit((enum kml_code)code) == 0));
    }
    assert_string_equal(kml_code_name(KML_FENCED), "FENCED");
    assert_string_equal(kml_code_name(KML_CODE_COUNT), "UNKNOWN");
}

static void a_retry_helps_only_where_time_can_heal(void **state)
{
    (void)state;
    assert_true(kml_code_retryable(KML_UNAVAILABLE));
    assert_true(kml_code_retryable(KML_TIMEOUT));
    assert_false(kml_code_retryable(KML_INVALID));
    assert_false(kml_code_retryable(KML_FENCED));
}

static void a_grpc_status_comes_back_as_a_code_with_that_status(void **state)
{
    (void)state;
    for (int code = 0; code < KML_CODE_COUNT; code++) {
        int status = kml_code_grpc((enum kml_code)code);
        assert_int_equal(kml_code_grpc(kml_code_of_grpc(status)), status);
    }
    assert_int_equal(kml_code_of_grpc(14), KML_UNAVAILABLE);
    assert_int_equal(kml_code_of_grpc(2), KML_INTERNAL);
    assert_int_equal(kml_code_of_grpc(-5), KML_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_carries_code_and_text),
        cmocka_unit_test(nobody_needs_to_care),
        cmocka_unit_test(a_text_is_one_line_whatever_is_in_it),
        cmocka_unit_test(a_long_text_ends_in_dots),
        cmocka_unit_test(a_wrap_adds_context_and_keeps_the_code),
        cmocka_unit_test(errno_gives_the_code_and_the_systems_words),
        cmocka_unit_test(every_code_has_a_row),
        cmocka_unit_test(a_retry_helps_only_where_time_can_heal),
        cmocka_unit_test(a_grpc_status_comes_back_as_a_code_with_that_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
