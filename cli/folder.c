#include "cli/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/parse.h"
#include "pki/pki.h"

#define SAME_SECOND_MOST 1000
#define DAY_SECONDS UINT64_C(86400)

/* A folder that was not there before: two runs that start in the same second get two folders. */
static char *make_default(const char *name, uint64_t wall_ns, struct kml_err *err)
{
    char stamp[32];
    struct tm local;
    time_t seconds = (time_t)(wall_ns / KML_SECOND);
    if (localtime_r(&seconds, &local) == NULL ||
        strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local) == 0) {
        (void)kml_fail(err, KML_INTERNAL, "the time of day is out of range");
        return NULL;
    }
    if (kml_folder_make("runs", 0755, err) < 0) {
        return NULL;
    }
    for (int n = 1; n <= SAME_SECOND_MOST; n++) {
        char *path =
            n == 1 ? kml_format("runs/%s-%s", name, stamp) : kml_format("runs/%s-%s-%d", name, stamp, n);
        if (mkdir(path, 0755) == 0) {
            return path;
        }
        int error = errno;
        kml_free(path);
        if (error != EEXIST) {
            (void)kml_fail_errno(err, error, "cannot make a run folder in runs");
            return NULL;
        }
    }
    (void)kml_fail(err, KML_EXISTS, "runs/%s-%s and %d more are there already", name, stamp,
                   SAME_SECOND_MOST);
    return NULL;
}

/* The path goes through JSON, protocol buffers and the one line of the end. */
static int check_path(const char *path, struct kml_err *err)
{
    for (const char *c = path; *c != '\0';) {
        size_t length = (unsigned char)*c < 0x20 ? 0 : kml_utf8_length(c);
        if (length == 0) {
            return kml_fail(err, KML_USAGE, "run folder %s: a path is UTF-8 without control characters",
                            path);
        }
        c += length;
    }
    return 0;
}

static char *make_wanted(const char *path, struct kml_err *err)
{
    if (check_path(path, err) < 0) {
        return NULL;
    }
    if (kml_folder_make(path, 0755, err) < 0) {
        return NULL;
    }
    kml_auto_free char *job = kml_format("%s/job.json", path);
    /* Made here and filled later: of two runs that start at once only one can make it. */
    int claim = open(job, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (claim < 0 && errno != EEXIST) {
        (void)kml_fail_errno(err, errno, "cannot write %s", job);
        return NULL;
    }
    if (claim < 0) {
        (void)kml_fail(err, KML_EXISTS, "%s holds an earlier run; give --run-dir a new folder", path);
        return NULL;
    }
    (void)close(claim);
    return kml_strdup(path);
}

/* Unix sockets have short names only: 107 letters on Linux. */
static int place_sockets(struct kml_run_folder *f, struct kml_err *err)
{
    f->sockets = kml_strdup(f->path);
    kml_auto_free char *longest = kml_run_folder_socket(f, f->shards == 0 ? 0 : f->shards - 1);
    if (strlen(longest) - strlen("unix:") < sizeof((struct sockaddr_un *)NULL)->sun_path) {
        return 0;
    }
    const char *temporary = getenv("TMPDIR");
    bool short_enough = temporary != NULL && temporary[0] == '/' && strlen(temporary) < 60;
    kml_free(f->sockets);
    f->sockets = kml_format("%s/kunal-XXXXXX", short_enough ? temporary : "/tmp");
    if (mkdtemp(f->sockets) == NULL) {
        return kml_fail_errno(err, errno, "cannot make a folder for sockets, %s", f->sockets);
    }
    f->private_sockets = true;
    return 0;
}

int kml_run_folder_make(struct kml_run_folder *f, const char *wanted, const char *name, uint32_t shards,
                        uint64_t wall_ns, struct kml_err *err)
{
    *f = (struct kml_run_folder){.shards = shards};
    kml_auto_free char *made = wanted == NULL ? make_default(name, wall_ns, err) : make_wanted(wanted, err);
    if (made == NULL) {
        return -1;
    }
    char *absolute = realpath(made, NULL);
    if (absolute == NULL) {
        return kml_fail_errno(err, errno, "cannot find %s", made);
    }
    f->path = kml_strdup(absolute);
    free(absolute);
    if (place_sockets(f, err) < 0) {
        kml_run_folder_finish(f);
        return -1;
    }
    return 0;
}

void kml_run_folder_finish(struct kml_run_folder *f)
{
    for (uint32_t k = 0; f->sockets != NULL && k < f->shards; k++) {
        kml_auto_free char *socket = kml_run_folder_socket(f, k);
        (void)unlink(socket + strlen("unix:"));
    }
    if (f->private_sockets) {
        (void)rmdir(f->sockets);
    }
    kml_free(f->path);
    kml_free(f->sockets);
    *f = (struct kml_run_folder){0};
}

char *kml_run_folder_file(const struct kml_run_folder *f, const char *name)
{
    return kml_format("%s/%s", f->path, name);
}

char *kml_run_folder_socket(const struct kml_run_folder *f, uint32_t shard)
{
    return kml_format("unix:%s/ps-%u.sock", f->sockets, (unsigned)shard);
}

int kml_run_folder_write(const struct kml_run_folder *f, const char *name, struct kml_view text,
                         unsigned mode, struct kml_err *err)
{
    kml_auto_free char *path = kml_run_folder_file(f, name);
    return kml_file_write(path, &text, 1, mode, err);
}

int kml_run_folder_job(const struct kml_run_folder *f, const struct kml_job *job, struct kml_err *err)
{
    struct kml_buf json;
    kml_buf_init(&json, 2 * KML_DOC_MAX_BYTES);
    int result = kml_job_to_json(job, &json, err);
    if (result == 0) {
        result = kml_run_folder_write(f, "job.json", kml_buf_view(&json), 0600, err);
    }
    kml_buf_finish(&json);
    return result;
}

char *kml_run_folder_tls_of(const struct kml_run_folder *f, const char *role, uint32_t index)
{
    return kml_format("%s/tls/%s-%u", f->path, role, (unsigned)index);
}

struct issuer {
    const struct kml_run_folder *folder;
    const struct kml_pki_pair *ca;
    const char *uid;
    uint64_t from, to;
};

static int issue(const struct issuer *i, const char *role, uint32_t index, struct kml_err *err)
{
    static const char *const dns[] = {"localhost"}; /* also the authority of a unix: address */
    static const char *const addresses[] = {"127.0.0.1", "::1"};
    kml_auto_free char *name = kml_format("%s-%u", role, (unsigned)index);
    kml_auto_free char *uri = kml_format("kunal://%s/%s/%u", i->uid, role, (unsigned)index);
    kml_auto_free char *path = kml_run_folder_tls_of(i->folder, role, index);
    const struct kml_pki_request request = {
        .common_name = name,
        .uri = uri,
        .dns = dns,
        .dns_count = KML_COUNT(dns),
        .addresses = addresses,
        .address_count = KML_COUNT(addresses),
        .not_before = i->from,
        .not_after = i->to,
    };
    struct kml_pki_pair pair;
    if (kml_folder_make(path, 0700, err) < 0 || kml_pki_issue(i->ca, &request, &pair, err) < 0) {
        return -1;
    }
    int result = kml_pki_write_folder(path, i->ca, &pair, err);
    kml_pki_pair_finish(&pair);
    return result;
}

static int issue_all(const struct issuer *i, uint32_t shards, uint32_t workers, struct kml_err *err)
{
    for (uint32_t k = 0; k < shards; k++) {
        if (issue(i, "ps", k, err) < 0) {
            return -1;
        }
    }
    for (uint32_t w = 0; w < workers; w++) {
        if (issue(i, "worker", w, err) < 0) {
            return -1;
        }
    }
    return issue(i, "driver", 0, err);
}

int kml_run_folder_tls(const struct kml_run_folder *f, const char *uid, uint32_t shards, uint32_t workers,
                       uint64_t wall_ns, struct kml_err *err)
{
    uint64_t now = wall_ns / KML_SECOND;
    struct kml_pki_pair ca;
    kml_auto_free char *folder = kml_run_folder_file(f, "tls");
    if (kml_folder_make(folder, 0700, err) < 0 ||
        kml_pki_make_ca("kunal run", now - DAY_SECONDS, now + 3650 * DAY_SECONDS, &ca, err) < 0) {
        return -1;
    }
    const struct issuer i = {f, &ca, uid, now - DAY_SECONDS, now + 90 * DAY_SECONDS};
    int result = issue_all(&i, shards, workers, err);
    kml_pki_pair_finish(&ca);
    return result;
}
