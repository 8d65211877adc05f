#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#define CHUNK ((size_t)1 << 18)

static ssize_t read_some(int fd, void *to, size_t size)
{
    ssize_t got;
    do {
        got = read(fd, to, size);
    } while (got < 0 && errno == EINTR);
    return got;
}

/* The buffer is full to its maximum: fine if the file ends just here. */
static int expect_end(int fd, const char *path, const struct kml_buf *out, struct kml_err *err)
{
    char more;
    ssize_t got = read_some(fd, &more, 1);
    if (got < 0) {
        return kml_fail_errno(err, errno, "cannot read %s", path);
    }
    return got == 0 ? 0 : kml_fail(err, KML_TOO_LARGE, "%s: more than %zu bytes", path, out->max);
}

static int read_all(int fd, const char *path, size_t expected, struct kml_buf *out, struct kml_err *err)
{
    for (;;) {
        size_t left = out->max - out->size;
        size_t want = expected > CHUNK ? expected : CHUNK;
        want = want > left ? left : want;
        if (want == 0) {
            return expect_end(fd, path, out, err);
        }
        uint8_t *to = kml_buf_reserve(out, want, err);
        if (to == NULL) {
            return kml_wrap(err, "%s", path);
        }
        ssize_t got = read_some(fd, to, want);
        if (got < 0) {
            return kml_fail_errno(err, errno, "cannot read %s", path);
        }
        if (got == 0) {
            return 0;
        }
        kml_buf_added(out, (size_t)got);
        expected -= expected > (size_t)got ? (size_t)got : expected;
    }
}

int kml_file_read(const char *path, struct kml_buf *out, struct kml_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return kml_fail_errno(err, errno, "cannot open %s", path);
    }
    struct stat info;
    int result;
    if (fstat(fd, &info) != 0) {
        result = kml_fail_errno(err, errno, "cannot read %s", path);
    } else if (S_ISDIR(info.st_mode)) {
        result = kml_fail(err, KML_INVALID, "%s is a folder, a file is needed", path);
    } else {
        result = read_all(fd, path, info.st_size > 0 ? (size_t)info.st_size : 0, out, err);
    }
    (void)close(fd);
    return result;
}

static int write_view(int fd, struct kml_view part)
{
    while (part.size > 0) {
        ssize_t done = write(fd, part.data, part.size);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            return -1;
        }
        part.data += done;
        part.size -= (size_t)done;
    }
    return 0;
}

static bool fill(int fd, const struct kml_view *parts, size_t count, unsigned mode)
{
    for (size_t i = 0; i < count; i++) {
        if (write_view(fd, parts[i]) != 0) {
            return false;
        }
    }
    return fchmod(fd, (mode_t)mode) == 0 && fsync(fd) == 0; /* fchmod: the umask does not decide */
}

/* The whole new content, durable, under the temporary name; gone again when that fails. */
static int write_temporary(const char *temporary, const struct kml_view *parts, size_t count, unsigned mode,
                           struct kml_err *err)
{
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, (mode_t)mode & 0600);
    if (fd < 0) {
        return kml_fail_errno(err, errno, "cannot create %s", temporary);
    }
    bool good = fill(fd, parts, count, mode);
    int error = good ? 0 : errno;
    if (close(fd) != 0 && good) {
        error = errno;
    }
    if (error != 0) {
        (void)unlink(temporary);
        return kml_fail_errno(err, error, "cannot write %s", temporary);
    }
    return 0;
}

/* A rename is durable only when its folder is. Some file systems cannot sync a folder and say EINVAL. */
static int sync_folder_of(const char *path, struct kml_err *err)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    kml_auto_free char *folder = length == 0 ? kml_strdup(".") : kml_strndup(path, length);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return kml_fail_errno(err, errno, "cannot sync folder %s", folder);
    }
    int error = fsync(fd) != 0 && errno != EINVAL ? errno : 0;
    (void)close(fd);
    return error == 0 ? 0 : kml_fail_errno(err, error, "cannot sync folder %s", folder);
}

int kml_file_write(const char *path, const struct kml_view *parts, size_t count, unsigned mode,
                   struct kml_err *err)
{
    kml_auto_free char *temporary = kml_format("%s.tmp-%ld", path, (long)getpid());
    if (write_temporary(temporary, parts, count, mode, err) != 0) {
        return -1;
    }
    if (rename(temporary, path) != 0) {
        int error = errno;
        (void)unlink(temporary);
        return kml_fail_errno(err, error, "cannot rename to %s", path);
    }
    return sync_folder_of(path, err);
}

static int make_one(const char *path, unsigned mode, struct kml_err *err)
{
    if (mkdir(path, (mode_t)mode) == 0) {
        return 0;
    }
    int error = errno;
    struct stat info;
    if (stat(path, &info) != 0) {
        return kml_fail_errno(err, error, "cannot make folder %s", path);
    }
    return S_ISDIR(info.st_mode) ? 0
                                 : kml_fail(err, KML_EXISTS, "%s is there already and is not a folder", path);
}

int kml_folder_make(const char *path, unsigned mode, struct kml_err *err)
{
    if (path[0] == '\0') {
        return kml_fail(err, KML_INVALID, "the name of a folder is empty");
    }
    kml_auto_free char *part = kml_strdup(path);
    for (char *c = part + 1; *c != '\0'; c++) {
        if (*c == '/' && c[-1] != '/') {
            *c = '\0';
            if (make_one(part, mode, err) != 0) {
                return -1;
            }
            *c = '/';
        }
    }
    return make_one(part, mode, err);
}

int kml_file_uri_path(const char *uri, const char **path, struct kml_err *err)
{
    static const char scheme[] = "file://";
    if (strncmp(uri, scheme, sizeof scheme - 1) == 0) {
        const char *rest = uri + sizeof scheme - 1;
        if (rest[0] != '/') {
            return kml_fail(err, KML_INVALID, "\"%s\" needs an absolute path: file:///folder/file", uri);
        }
        *path = rest;
        return 0;
    }
    if (strstr(uri, "://") != NULL) {
        return kml_fail(err, KML_UNSUPPORTED, "\"%s\": only file:// is possible here", uri);
    }
    return kml_fail(err, KML_INVALID, "\"%s\" is not a URI, write file:///folder/file", uri);
}
