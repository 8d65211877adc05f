#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "base/file.h"
#include "base/mem.h"

#include "unit/temp.h"

static char folder[TEMP_ROOM];

static int set_up(void **state)
{
    (void)state;
    temp_make(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temp_remove(folder);
    return 0;
}

static size_t entries(const char *path)
{
    DIR *d = opendir(path);
    assert_non_null(d);
    size_t n = 0;
    while (readdir(d) != NULL) {
        n++;
    }
    (void)closedir(d);
    return n - 2; /* . and .. */
}

static void assert_content(const char *path, const char *text)
{
    struct kml_buf b;
    struct kml_err err;
    kml_buf_init(&b, 1000);
    assert_int_equal(kml_file_read(path, &b, &err), 0);
    assert_string_equal(kml_buf_text(&b), text);
    kml_buf_finish(&b);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct kml_err err;
    const char *path = temp_path(folder, "f");
    struct kml_view parts[] = {kml_view_str("one "), kml_view_str(""), kml_view_str("two")};
    assert_int_equal(kml_file_write(path, parts, 3, 0640, &err), 0);
    assert_content(path, "one two");
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0640);
    assert_int_equal(kml_file_write(path, NULL, 0, 0600, &err), 0);
    assert_content(path, "");
    assert_int_equal(entries(folder), 1);
}

static void a_file_one_byte_too_large_is_refused_and_one_that_fits_is_not(void **state)
{
    (void)state;
    struct kml_err err;
    temp_write(folder, "f", "12345");
    struct kml_buf b;
    kml_buf_init(&b, 5);
    assert_int_equal(kml_file_read(temp_path(folder, "f"), &b, &err), 0);
    kml_buf_finish(&b);
    kml_buf_init(&b, 4);
    assert_int_equal(kml_file_read(temp_path(folder, "f"), &b, &err), -1);
    assert_int_equal(err.code, KML_TOO_LARGE);
    assert_non_null(strstr(err.text, "/f: more than 4 bytes"));
    kml_buf_finish(&b);
}

static void a_file_without_a_size_is_read_to_its_end(void **state)
{
    (void)state;
    struct kml_buf b;
    struct kml_err err;
    kml_buf_init(&b, 1 << 16);
    assert_int_equal(kml_file_read("/proc/self/status", &b, &err), 0);
    assert_non_null(strstr(kml_buf_text(&b), "VmSize"));
    kml_buf_finish(&b);
}

static void a_large_file_keeps_every_byte(void **state)
{
    (void)state;
    struct kml_err err;
    const size_t size = 3 * 1000 * 1000 + 7;
    kml_auto_free uint8_t *data = kml_alloc(size);
    for (size_t i = 0; i < size; i++) {
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    }
    struct kml_view part = kml_view_of(data, size);
    const char *path = temp_path(folder, "large");
    assert_int_equal(kml_file_write(path, &part, 1, 0644, &err), 0);
    struct kml_buf b;
    kml_buf_init(&b, size);
    assert_int_equal(kml_file_read(path, &b, &err), 0);
    assert_int_equal(b.size, size);
    assert_int_equal(memcmp(b.data, data, size), 0);
    kml_buf_finish(&b);
}

static void a_missing_file_and_a_folder_are_told_apart(void **state)
{
    (void)state;
    struct kml_buf b;
    struct kml_err err;
    kml_buf_init(&b, 100);
    assert_int_equal(kml_file_read(temp_path(folder, "none"), &b, &err), -1);
    assert_int_equal(err.code, KML_NOT_FOUND);
    assert_non_null(strstr(err.text, "/none: No such file"));
    assert_int_equal(kml_file_read(folder, &b, &err), -1);
    assert_int_equal(err.code, KML_INVALID);
    assert_non_null(strstr(err.text, "is a folder"));
    kml_buf_finish(&b);
}

static void a_failed_allocation_is_an_error_and_leaves_no_file_open(void **state)
{
    (void)state;
    struct kml_view part = kml_view_str("some text");
    const char *path = temp_path(folder, "f");
    assert_int_equal(kml_file_write(path, &part, 1, 0644, NULL), 0);
    size_t open_before = entries("/proc/self/fd");
    int failures = 0;
    int result = -1;
    for (uint64_t nth = 1; result != 0; nth++) {
        struct kml_buf b;
        struct kml_err err;
        kml_buf_init(&b, 1 << 20);
        kml_test_fail_alloc(nth);
        result = kml_file_read(path, &b, &err);
        kml_test_fail_alloc(0);
        if (result != 0) {
            failures++;
            assert_int_equal(err.code, KML_NO_MEMORY);
            assert_non_null(strstr(err.text, path));
        }
        kml_buf_finish(&b);
        assert_int_equal(entries("/proc/self/fd"), open_before);
    }
    assert_true(failures > 0);
}

/* Writing fails in the middle: the old file must be whole and no temporary file left. */
static void assert_write_fails_cleanly(const char *where, enum kml_code code, size_t size)
{
    const char *path = temp_path(where, "model");
    struct kml_view old = kml_view_str("the old model");
    struct kml_err err;
    assert_int_equal(kml_file_write(path, &old, 1, 0644, &err), 0);
    kml_auto_free uint8_t *data = kml_alloc(size);
    struct kml_view part = kml_view_of(data, size);
    const struct rlimit before = {RLIM_INFINITY, RLIM_INFINITY};
    const struct rlimit small = {4096, RLIM_INFINITY};
    if (code == KML_TOO_LARGE) {
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    }
    int result = kml_file_write(path, &part, 1, 0644, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(result, -1);
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.text, path));
    assert_content(path, "the old model");
    assert_int_equal(entries(where), 1);
}

static void a_write_past_the_size_limit_leaves_the_old_file(void **state)
{
    (void)state;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_write_fails_cleanly(folder, KML_TOO_LARGE, 100000);
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    const char *disk = temp_path(folder, "disk");
    assert_int_equal(mkdir(disk, 0755), 0);
    if (mount("tmpfs", disk, "tmpfs", 0, "size=64k") != 0) {
        print_message("no right to mount here (%s): the size limit's test stands for this one\n",
                      strerror(errno));
        return;
    }
    assert_write_fails_cleanly(disk, KML_IO, 1 << 20);
    assert_int_equal(umount(disk), 0);
}

static void a_folder_that_may_not_be_entered_is_denied(void **state)
{
    (void)state;
    struct kml_buf b;
    struct kml_err err;
    struct kml_view part = kml_view_str("x");
    temp_write(folder, "locked/f", "secret");
    assert_int_equal(chmod(temp_path(folder, "locked"), 0), 0);
    uid_t me = geteuid();
    if (me == 0) {
        assert_int_equal(chmod(folder, 0755), 0);
        assert_int_equal(seteuid(65534), 0); /* root may enter everywhere */
    }
    kml_buf_init(&b, 100);
    int read_result = kml_file_read(temp_path(folder, "locked/f"), &b, &err);
    enum kml_code read_code = err.code;
    int write_result = kml_file_write(temp_path(folder, "locked/g"), &part, 1, 0644, &err);
    enum kml_code write_code = err.code;
    int make_result = kml_folder_make(temp_path(folder, "locked/h"), 0755, &err);
    enum kml_code make_code = err.code;
    assert_int_equal(seteuid(me), 0);
    assert_int_equal(chmod(temp_path(folder, "locked"), 0700), 0);
    kml_buf_finish(&b);
    assert_true(read_result == -1 && read_code == KML_DENIED);
    assert_true(write_result == -1 && write_code == KML_DENIED);
    assert_true(make_result == -1 && make_code == KML_DENIED);
    assert_int_equal(entries(temp_path(folder, "locked")), 1);
}

static void a_write_into_no_folder_says_so(void **state)
{
    (void)state;
    struct kml_err err;
    struct kml_view part = kml_view_str("x");
    assert_int_equal(kml_file_write(temp_path(folder, "none/f"), &part, 1, 0644, &err), -1);
    assert_int_equal(err.code, KML_NOT_FOUND);
    assert_int_equal(mkdir(temp_path(folder, "d"), 0755), 0);
    assert_int_equal(kml_file_write(temp_path(folder, "d"), &part, 1, 0644, &err), -1);
    assert_non_null(strstr(err.text, "cannot rename"));
    assert_int_equal(entries(folder), 1);
}

static void a_link_in_place_of_the_temporary_file_is_not_followed(void **state)
{
    (void)state;
    struct kml_err err;
    struct kml_view part = kml_view_str("x");
    temp_write(folder, "precious", "keep");
    char link_path[TEMP_ROOM * 2];
    (void)snprintf(link_path, sizeof link_path, "%s/f.tmp-%ld", folder, (long)getpid());
    assert_int_equal(symlink(temp_path(folder, "precious"), link_path), 0);
    assert_int_equal(kml_file_write(temp_path(folder, "f"), &part, 1, 0644, &err), -1);
    assert_content(temp_path(folder, "precious"), "keep");
}

static void folders_are_made_with_all_on_their_way(void **state)
{
    (void)state;
    struct kml_err err;
    assert_int_equal(kml_folder_make(temp_path(folder, "a/b//c/"), 0755, &err), 0);
    assert_int_equal(kml_folder_make(temp_path(folder, "a/b/c"), 0755, &err), 0);
    struct stat info;
    assert_int_equal(stat(temp_path(folder, "a/b/c"), &info), 0);
    assert_true(S_ISDIR(info.st_mode));
    temp_write(folder, "file", "x");
    assert_int_equal(kml_folder_make(temp_path(folder, "file"), 0755, &err), -1);
    assert_int_equal(err.code, KML_EXISTS);
    assert_int_equal(kml_folder_make(temp_path(folder, "file/x"), 0755, &err), -1);
    assert_int_equal(kml_folder_make("", 0755, &err), -1);
    assert_int_equal(err.code, KML_INVALID);
    assert_int_equal(kml_folder_make("/", 0755, &err), 0);
}

static void a_uri_gives_its_local_path(void **state)
{
    (void)state;
    static const struct {
        const char *uri;
        const char *path;
        enum kml_code code;
    } rows[] = {
        {"file:///a/b c", "/a/b c", KML_OK},
        {"file:///", "/", KML_OK},
        {"file://a/b", NULL, KML_INVALID},
        {"file://", NULL, KML_INVALID},
        {"/a/b", NULL, KML_INVALID},
        {"file:/a", NULL, KML_INVALID},
        {"s3://bucket/k", NULL, KML_UNSUPPORTED},
        {"pvc://c/f", NULL, KML_UNSUPPORTED},
        {"", NULL, KML_INVALID},
    };
    for (size_t i = 0; i < KML_COUNT(rows); i++) {
        const char *path = NULL;
        struct kml_err err = {.code = KML_OK};
        int result = kml_file_uri_path(rows[i].uri, &path, &err);
        assert_int_equal(result, rows[i].path == NULL ? -1 : 0);
        assert_int_equal(err.code, rows[i].code);
        if (rows[i].path != NULL) {
            assert_string_equal(path, rows[i].path);
        }
    }
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(what_is_written_is_read),
        IN_FOLDER(a_file_one_byte_too_large_is_refused_and_one_that_fits_is_not),
        IN_FOLDER(a_file_without_a_size_is_read_to_its_end),
        IN_FOLDER(a_large_file_keeps_every_byte),
        IN_FOLDER(a_missing_file_and_a_folder_are_told_apart),
        IN_FOLDER(a_failed_allocation_is_an_error_and_leaves_no_file_open),
        IN_FOLDER(a_write_past_the_size_limit_leaves_the_old_file),
        IN_FOLDER(a_full_disk_leaves_the_old_file),
        IN_FOLDER(a_folder_that_may_not_be_entered_is_denied),
        IN_FOLDER(a_write_into_no_folder_says_so),
        IN_FOLDER(a_link_in_place_of_the_temporary_file_is_not_followed),
        IN_FOLDER(folders_are_made_with_all_on_their_way),
        IN_FOLDER(a_uri_gives_its_local_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
