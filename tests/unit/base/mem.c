#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

static void small_blocks_are_zeroed(void **state)
{
    (void)state;
    kml_auto_free uint64_t *block = KML_NEW_ARRAY(100, uint64_t);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(block[i], 0);
    }
    kml_auto_free char *nothing = kml_alloc(0);
    assert_non_null(nothing);
}

static void large_blocks_are_aligned_to_a_cache_line(void **state)
{
    (void)state;
    for (size_t size = 0; size < 300; size += 7) {
        void *block = kml_try_alloc(size);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 64, 0);
        kml_free(block);
    }
    assert_null(kml_try_alloc(SIZE_MAX));
    assert_null(kml_try_alloc(SIZE_MAX - 32));
}

static void the_nth_allocation_fails_on_demand_and_only_that_one(void **state)
{
    (void)state;
    kml_test_fail_alloc(3);
    for (int i = 1; i <= 5; i++) {
        void *block = kml_try_alloc(10);
        assert_true((block == NULL) == (i == 3));
        kml_free(block);
    }
}

static void texts_are_copied(void **state)
{
    (void)state;
    assert_null(kml_strdup(NULL));
    kml_auto_free char *whole = kml_strdup("abc");
    kml_auto_free char *part = kml_strndup("abcdef", 2);
    kml_auto_free char *made = kml_format("%s-%d", "x", 5);
    assert_string_equal(whole, "abc");
    assert_string_equal(part, "ab");
    assert_string_equal(made, "x-5");
}

/* The signal that ends a child which runs `act`; 0 when it returns. */
static int signal_of(void (*act)(void))
{
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(SIGABRT, SIG_DFL);
        (void)close(STDERR_FILENO);
        act();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void bug(void)
{
    KML_BUG_ON(1 + 1 == 2);
}

static void no_bug(void)
{
    KML_BUG_ON(1 + 1 == 3);
}

static void a_bug_aborts_and_its_absence_does_not(void **state)
{
    (void)state;
    assert_int_equal(signal_of(bug), SIGABRT);
    assert_int_equal(signal_of(no_bug), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_blocks_are_zeroed),
        cmocka_unit_test(large_blocks_are_aligned_to_a_cache_line),
        cmocka_unit_test(the_nth_allocation_fails_on_demand_and_only_that_one),
        cmocka_unit_test(texts_are_copied),
        cmocka_unit_test(a_bug_aborts_and_its_absence_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
