#include "base/shared.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE ((size_t)3 * 4096)

static uint32_t self(void)
{
    return (uint32_t)getpid();
}

static unsigned open_files(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    (void)closedir(folder);
    return count;
}

static void what_one_writes_the_other_reads(void **state)
{
    (void)state;
    struct kml_shared mine;
    struct kml_shared theirs;
    struct kml_err err;
    unsigned before = open_files();
    assert_int_equal(kml_shared_make(&mine, SIZE, &err), 0);
    assert_int_equal(kml_shared_open(&theirs, self(), (uint32_t)mine.fd, SIZE, &err), 0);
    assert_int_equal(theirs.fd, -1);
    for (size_t i = 0; i < SIZE; i++) {
        assert_int_equal(theirs.at[i], 0);
        mine.at[i] = (uint8_t)(i * 31);
    }
    assert_memory_equal(mine.at, theirs.at, SIZE);
    theirs.at[SIZE - 1] = 9;
    assert_int_equal(mine.at[SIZE - 1], 9);
    kml_shared_finish(&mine);
    assert_int_equal(theirs.at[SIZE - 1], 9); /* whoever is left keeps it */
    kml_shared_finish(&theirs);
    kml_shared_finish(&theirs);
    assert_int_equal(open_files(), before);
}

static void its_size_is_sealed(void **state)
{
    (void)state;
    struct kml_shared mine;
    struct kml_err err;
    assert_int_equal(kml_shared_make(&mine, SIZE, &err), 0);
    assert_int_equal(ftruncate(mine.fd, 4096), -1);
    assert_int_equal(ftruncate(mine.fd, (off_t)(2 * SIZE)), -1);
    kml_shared_finish(&mine);
}

static void must_refuse(uint32_t pid, int fd, size_t size, enum kml_code code)
{
    struct kml_shared s;
    struct kml_err err;
    unsigned before = open_files();
    assert_int_equal(kml_shared_open(&s, pid, (uint32_t)fd, size, &err), -1);
    assert_int_equal(err.code, code);
    assert_null(s.at);
    kml_shared_finish(&s);
    assert_int_equal(open_files(), before);
}

static void memory_of_another_size_is_refused(void **state)
{
    (void)state;
    struct kml_shared mine;
    struct kml_err err;
    assert_int_equal(kml_shared_make(&mine, SIZE, &err), 0);
    must_refuse(self(), mine.fd, SIZE - 4096, KML_INVALID);
    must_refuse(self(), mine.fd, SIZE + 4096, KML_INVALID);
    kml_shared_finish(&mine);
}

/* Whoever keeps the right to shrink a file can make its readers fault. */
static void what_is_not_sealed_memory_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/kml-shared-XXXXXX";
    int file = mkstemp(path);
    int loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int ends[2];
    assert_true(file >= 0 && loose >= 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(ftruncate(file, (off_t)SIZE), 0);
    assert_int_equal(ftruncate(loose, (off_t)SIZE), 0);
    must_refuse(self(), file, SIZE, KML_DENIED);
    must_refuse(self(), loose, SIZE, KML_DENIED);
    assert_int_equal(fcntl(loose, F_ADD_SEALS, F_SEAL_GROW), 0);
    must_refuse(self(), loose, SIZE, KML_DENIED);
    must_refuse(self(), ends[0], SIZE, KML_DENIED);
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)close(loose);
    (void)close(file);
    (void)unlink(path);
}

static void a_process_or_descriptor_that_is_not_there_is_not_found(void **state)
{
    (void)state;
    pid_t gone = fork();
    if (gone == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    must_refuse((uint32_t)gone, 0, SIZE, KML_NOT_FOUND);
    must_refuse(self(), 900000, SIZE, KML_NOT_FOUND);
    must_refuse(UINT32_MAX, -1, SIZE, KML_NOT_FOUND);
}

static void a_maker_that_is_killed_leaves_the_memory_to_its_readers(void **state)
{
    (void)state;
    int ends[2];
    int fd;
    struct kml_shared theirs;
    struct kml_err err;
    assert_int_equal(pipe(ends), 0);
    pid_t maker = fork();
    if (maker == 0) {
        struct kml_shared mine;
        if (kml_shared_make(&mine, SIZE, NULL) == 0) {
            memset(mine.at, 7, SIZE);
            (void)!write(ends[1], &mine.fd, sizeof mine.fd);
        }
        for (;;) {
            (void)pause();
        }
    }
    assert_int_equal(read(ends[0], &fd, sizeof fd), sizeof fd);
    assert_int_equal(kml_shared_open(&theirs, (uint32_t)maker, (uint32_t)fd, SIZE, &err), 0);
    assert_int_equal(kill(maker, SIGKILL), 0);
    assert_int_equal(waitpid(maker, NULL, 0), maker);
    for (size_t i = 0; i < SIZE; i++) {
        assert_int_equal(theirs.at[i], 7);
    }
    kml_shared_finish(&theirs);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void a_size_that_no_machine_has_is_an_error(void **state)
{
    (void)state;
    struct kml_shared s;
    struct kml_err err;
    unsigned before = open_files();
    assert_int_equal(kml_shared_make(&s, (size_t)1 << 62, &err), -1);
    assert_int_equal(err.code, KML_NO_MEMORY);
    assert_int_equal(kml_shared_make(&s, 0, &err), -1);
    kml_shared_finish(&s);
    assert_int_equal(open_files(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_one_writes_the_other_reads),
        cmocka_unit_test(its_size_is_sealed),
        cmocka_unit_test(memory_of_another_size_is_refused),
        cmocka_unit_test(what_is_not_sealed_memory_is_refused),
        cmocka_unit_test(a_process_or_descriptor_that_is_not_there_is_not_found),
        cmocka_unit_test(a_maker_that_is_killed_leaves_the_memory_to_its_readers),
        cmocka_unit_test(a_size_that_no_machine_has_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
