#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "math/gemm.h"

#define SECOND "KML_TEST_SECOND_START"

static char **arguments;

/* The number behind a line "Name:" of /proc/self/status. */
static unsigned long status_number(const char *name)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long value = 0;
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            value = strtoul(line + strlen(name), NULL, 10);
        }
    }
    assert_int_equal(fclose(file), 0);
    return value;
}

static void one_thread_means_that_the_library_starts_none(void **state)
{
    (void)state;
    float a[4] = {1, 2, 3, 4};
    float c[4];
    assert_non_null(getenv(SECOND));
    assert_string_equal(getenv("OPENBLAS_NUM_THREADS"), "1");
    kml_gemm_nn(2, 2, 2, 1.0f, a, a, c);
    assert_true(c[0] == 7 && c[3] == 22);
    assert_int_equal(status_number("Threads:"), 1);
}

static void the_second_start_keeps_name_and_arguments(void **state)
{
    (void)state;
    char name[64] = "";
    FILE *file = fopen("/proc/self/comm", "r");
    assert_non_null(file);
    assert_non_null(fgets(name, sizeof(name), file));
    assert_int_equal(fclose(file), 0);
    assert_string_equal(name, "threads\n");
    assert_non_null(strstr(arguments[0], "threads"));
}

static void asking_again_for_the_same_changes_nothing(void **state)
{
    (void)state;
    kml_math_threads(1, arguments);
    kml_math_threads(0, arguments); /* 0 means 1 */
    assert_int_equal(status_number("Threads:"), 1);
}

int main(int argc, char **argv)
{
    (void)argc;
    arguments = argv;
    if (getenv(SECOND) == NULL && (unsetenv("OPENBLAS_NUM_THREADS") != 0 || setenv(SECOND, "1", 1) != 0)) {
        return 1;
    }
    kml_math_threads(1, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_means_that_the_library_starts_none),
        cmocka_unit_test(the_second_start_keeps_name_and_arguments),
        cmocka_unit_test(asking_again_for_the_same_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
