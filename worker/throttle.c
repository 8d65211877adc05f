#include "worker/throttle.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/parse.h"

#define TEXT_MOST 4096

/* The number behind `key` and a blank, at the start of a line. */
static bool number_of(const char *text, const char *key, uint64_t *out)
{
    size_t length = strlen(key);
    for (const char *line = text; *line != '\0';) {
        size_t size = strcspn(line, "\n");
        if (size > length && strncmp(line, key, length) == 0 && line[length] == ' ') {
            kml_auto_free char *number = kml_strndup(line + length + 1, size - length - 1);
            return kml_parse_u64(number, out, NULL) == 0;
        }
        line += size + (line[size] == '\n' ? 1 : 0);
    }
    return false;
}

bool kml_throttle_parse(const char *text, uint64_t *ns)
{
    uint64_t usec;
    if (number_of(text, "throttled_usec", &usec)) {
        *ns = usec * 1000;
        return true;
    }
    return number_of(text, "throttled_time", ns);
}

static bool read_total(int fd, uint64_t *ns)
{
    char text[TEXT_MOST];
    ssize_t size = pread(fd, text, sizeof(text) - 1, 0);
    if (size <= 0) {
        return false;
    }
    text[size] = '\0';
    return kml_throttle_parse(text, ns);
}

/* The cpu.stat of a group, when there is one and it tells the time. In a container the path may be the
 * host's; then the root of the mount has the file. */
static int open_stat(const char *mount, const char *group)
{
    const char *const groups[] = {strstr(group, "..") == NULL ? group : "", ""};
    for (size_t i = 0; i < KML_COUNT(groups); i++) {
        kml_auto_free char *path = kml_format("%s%s/cpu.stat", mount, groups[i]);
        uint64_t ns;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && read_total(fd, &ns)) {
            return fd;
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    return -1;
}

/* A line of /proc/self/cgroup: "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1). */
static int open_line(const char *root, char *line)
{
    char *controllers = strchr(line, ':');
    char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (path == NULL) {
        return -1;
    }
    *path++ = '\0';
    controllers++;
    if (controllers[0] != '\0' && strncmp(controllers, "cpu", 3) != 0) {
        return -1;
    }
    const char *const mounts[] = {controllers[0] == '\0' ? "" : controllers,
                                  controllers[0] == '\0' ? "unified" : "cpu"};
    int fd = -1;
    for (size_t i = 0; i < KML_COUNT(mounts) && fd < 0; i++) {
        kml_auto_free char *mount =
            kml_format("%s/sys/fs/cgroup%s%s", root, mounts[i][0] == '\0' ? "" : "/", mounts[i]);
        fd = open_stat(mount, path);
    }
    return fd;
}

void kml_throttle_init(struct kml_throttle *t, const char *root, uint64_t now_ns)
{
    *t = (struct kml_throttle){.fd = -1, .read_at = now_ns};
    root = strcmp(root, "/") == 0 ? "" : root;
    kml_auto_free char *path = kml_format("%s/proc/self/cgroup", root);
    struct kml_buf text;
    kml_buf_init(&text, (size_t)1 << 16);
    if (kml_file_read(path, &text, NULL) == 0 && text.size > 0) {
        char *rest = (char *)text.data;
        for (char *line = strsep(&rest, "\n"); line != NULL && t->fd < 0; line = strsep(&rest, "\n")) {
            t->fd = open_line(root, line);
        }
    }
    kml_buf_finish(&text);
    if (t->fd >= 0) {
        (void)read_total(t->fd, &t->total);
    }
}

void kml_throttle_finish(struct kml_throttle *t)
{
    if (t->fd >= 0) {
        (void)close(t->fd);
    }
    t->fd = -1;
}

bool kml_throttle_since(struct kml_throttle *t, uint64_t now_ns, uint64_t *ns)
{
    if (t->fd < 0) {
        return false;
    }
    if (now_ns - t->read_at < KML_THROTTLE_EVERY_NS) {
        return true;
    }
    uint64_t total;
    t->read_at = now_ns;
    if (!read_total(t->fd, &total)) {
        return false;
    }
    *ns += total > t->total ? total - t->total : 0;
    t->total = total;
    return true;
}
