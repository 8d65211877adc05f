#include "base/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int map(struct kml_shared *s, int fd, size_t size, struct kml_err *err)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        return kml_fail_errno(err, errno, "cannot map %zu bytes of shared memory", size);
    }
    s->at = at;
    s->size = size;
    return 0;
}

int kml_shared_make(struct kml_shared *s, size_t size, struct kml_err *err)
{
    *s = (struct kml_shared){.fd = memfd_create("kunal", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    if (s->fd < 0) {
        return kml_fail(err, KML_UNSUPPORTED, "the kernel gives no shared memory");
    }
    if (ftruncate(s->fd, (off_t)size) < 0 || fcntl(s->fd, F_ADD_SEALS, SEALS) < 0 ||
        map(s, s->fd, size, err) < 0) {
        (void)kml_fail(err, KML_NO_MEMORY, "no shared memory of %zu bytes", size);
        (void)close(s->fd);
        *s = (struct kml_shared){0};
        return -1;
    }
    return 0;
}

static int check(int fd, size_t size, struct kml_err *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid()) {
        return kml_fail(err, KML_DENIED, "the peer named a file that is not shared memory of this user");
    }
    if (st.st_size != (off_t)size) {
        return kml_fail(err, KML_INVALID, "the peer's shared memory has %lld bytes, not %zu",
                        (long long)st.st_size, size);
    }
    return 0;
}

int kml_shared_open(struct kml_shared *s, uint32_t pid, uint32_t fd, size_t size, struct kml_err *err)
{
    char path[64];
    *s = (struct kml_shared){.fd = -1};
    (void)snprintf(path, sizeof path, "/proc/%u/fd/%u", pid, fd);
    int opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (opened < 0) {
        return kml_fail_errno(err, errno, "cannot open the peer's shared memory");
    }
    int result = check(opened, size, err) < 0 ? -1 : map(s, opened, size, err);
    (void)close(opened); /* the mapping holds the memory */
    return result;
}

void kml_shared_finish(struct kml_shared *s)
{
    if (s->at != NULL) {
        (void)munmap(s->at, s->size);
        if (s->fd >= 0) {
            (void)close(s->fd);
        }
    }
    *s = (struct kml_shared){0};
}
