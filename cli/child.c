#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "job/exitcode.h"

void kml_child_init(struct kml_child *c, const char *name, const char *folder)
{
    *c =
        (struct kml_child){.name = kml_strdup(name), .log = kml_format("%s/%s.log", folder, name), .out = -1};
}

void kml_child_finish(struct kml_child *c)
{
    KML_BUG_ON(c->pid != 0);
    if (c->out >= 0) {
        (void)close(c->out);
    }
    kml_free(c->name);
    kml_free(c->log);
    *c = (struct kml_child){.out = -1};
}

static bool runnable(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

static char *beside_us(const char *name)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) {
        return NULL;
    }
    self[length] = '\0';
    char *slash = strrchr(self, '/');
    return slash == NULL ? NULL : kml_format("%.*s/%s", (int)(slash - self), self, name);
}

static char *in_path(const char *name)
{
    const char *path = getenv("PATH");
    while (path != NULL && *path != '\0') {
        size_t length = strcspn(path, ":");
        char *at = kml_format("%.*s/%s", length == 0 ? 1 : (int)length, length == 0 ? "." : path, name);
        if (runnable(at)) {
            return at;
        }
        kml_free(at);
        path += length + (path[length] == ':' ? 1 : 0);
    }
    return NULL;
}

char *kml_child_find_program(const char *name, struct kml_err *err)
{
    if (strchr(name, '/') != NULL) {
        if (runnable(name)) {
            return kml_strdup(name);
        }
        (void)kml_fail(err, KML_NOT_FOUND, "%s is not a program that can be executed", name);
        return NULL;
    }
    char *found = beside_us(name);
    if (found != NULL && runnable(found)) {
        return found;
    }
    kml_free(found);
    found = in_path(name);
    if (found == NULL) {
        (void)kml_fail(err, KML_NOT_FOUND, "the program %s is neither beside kunal nor in PATH", name);
    }
    return found;
}

/* What the new process does before it is another program: only calls that are safe after a fork among
 * threads. */
struct birth {
    const char *path;
    const struct kml_child_command *command;
    int null, log, out, report;
    pid_t parent;
};

static void become(const struct birth *b) __attribute__((noreturn));
static void become(const struct birth *b)
{
    sigset_t none;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != b->parent) {
        _exit(75); /* the parent died before the kernel knew that we want to hear of it */
    }
    (void)setpgid(0, 0);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    if (dup2(b->null, 0) >= 0 && dup2(b->out >= 0 ? b->out : b->log, 1) >= 0 && dup2(b->log, 2) >= 0) {
        (void)execve(b->path, b->command->argv, b->command->envp);
    }
    int error = errno;
    ssize_t told = write(b->report, &error, sizeof error);
    _exit(told == (ssize_t)sizeof error ? 127 : 126);
}

/* The end of file on `report` says that the program runs; otherwise its errno comes. */
static int outcome_of_exec(int report, struct kml_err *err, const char *path)
{
    int error = 0;
    ssize_t got;
    do {
        got = read(report, &error, sizeof error);
    } while (got < 0 && errno == EINTR);
    return got == 0 ? 0 : kml_fail_errno(err, error, "cannot execute %s", path);
}

/*
 * _Fork and not posix_spawn: only code of our own in the new process can ask for PR_SET_PDEATHSIG. _Fork and
 * not fork: gRPC's fork handlers have nothing to do in a process that becomes another program at once.
 */
static int give_birth(struct kml_child *c, struct birth *b, struct kml_err *err)
{
    int report[2];
    if (pipe2(report, O_CLOEXEC) < 0) {
        return kml_fail_errno(err, errno, "cannot make a pipe for %s", c->name);
    }
    b->report = report[1];
    pid_t pid = _Fork();
    if (pid == 0) {
        become(b);
    }
    int error = errno;
    (void)close(report[1]);
    int result = pid < 0 ? kml_fail_errno(err, error, "cannot start %s", c->name)
                         : outcome_of_exec(report[0], err, b->path);
    (void)close(report[0]);
    if (result < 0 && pid > 0) {
        (void)waitpid(pid, NULL, 0);
    }
    c->pid = result == 0 ? pid : 0;
    return result;
}

static int open_files(struct kml_child *c, bool pipe, struct birth *b, struct kml_err *err)
{
    b->log = open(c->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (b->log < 0) {
        return kml_fail_errno(err, errno, "cannot write the log %s", c->log);
    }
    struct stat info;
    c->log_start = fstat(b->log, &info) == 0 ? (uint64_t)info.st_size : 0;
    b->null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int ends[2] = {-1, -1};
    if (b->null < 0 || (pipe && pipe2(ends, O_CLOEXEC) < 0)) {
        return kml_fail_errno(err, errno, "cannot start %s", c->name);
    }
    b->out = ends[1];
    if (pipe) {
        (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
        c->out = ends[0];
    }
    return 0;
}

static void close_if(int fd)
{
    if (fd >= 0) {
        (void)close(fd);
    }
}

int kml_child_start(struct kml_child *c, const struct kml_child_command *command, struct kml_err *err)
{
    KML_BUG_ON(c->pid != 0);
    kml_auto_free char *path = kml_child_find_program(command->program, err);
    if (path == NULL) {
        return -1;
    }
    close_if(c->out);
    c->out = -1;
    struct birth b = {.path = path, .command = command, .null = -1, .log = -1, .out = -1, .parent = getpid()};
    int result = open_files(c, command->pipe, &b, err);
    if (result == 0) {
        result = give_birth(c, &b, err);
    }
    close_if(b.log);
    close_if(b.null);
    close_if(b.out);
    return result;
}

bool kml_child_reap(struct kml_child *c, uint64_t now_ns)
{
    siginfo_t info = {0};
    int status;
    if (c->pid == 0 || waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
        info.si_pid != c->pid) {
        return false;
    }
    /* What it started itself, and left behind; while it is not reaped yet, its number cannot be somebody
     * else's. */
    (void)kill(-c->pid, SIGKILL);
    if (waitpid(c->pid, &status, 0) != c->pid) {
        return false;
    }
    c->pid = 0;
    c->killed = WIFSIGNALED(status);
    c->code = c->killed ? 128 + (unsigned)WTERMSIG(status) : (unsigned)WEXITSTATUS(status);
    c->ended_ns = now_ns;
    return true;
}

void kml_child_signal(const struct kml_child *c, int signal)
{
    /* The group is made by the child itself, perhaps not yet: then the process alone. */
    if (c->pid != 0 && kill(-c->pid, signal) < 0) {
        (void)kill(c->pid, signal);
    }
}

void kml_child_epitaph(const struct kml_child *c, char *out, size_t room)
{
    char words[KML_ERR_TEXT];
    kml_child_last_words(c->log, c->log_start, words, sizeof words);
    if (c->killed) {
        (void)snprintf(out, room, "%s died, %s%s%s", c->name, kml_exit_meaning(c->code),
                       words[0] == '\0' ? "" : ": ", words);
    } else {
        (void)snprintf(out, room, "%s ended with exit code %u (%s)%s%s", c->name, c->code,
                       kml_exit_meaning(c->code), words[0] == '\0' ? "" : ": ", words);
    }
}
