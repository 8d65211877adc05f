#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"
#include "cli/crew.h"
#include "cli/environment.h"

#define CALIBRATE_MS 120000
#define CALIBRATE_TEXT 65536

int kml_crew_calibration(const char *text, double *cost_ns, struct kml_err *err)
{
    static const char key[] = "seconds_per_sample=";
    const char *at = strstr(text, key);
    if (at == NULL) {
        return kml_fail(err, KML_INTERNAL, "kunal-worker --calibrate did not print %s…", key);
    }
    at += sizeof key - 1;
    kml_auto_free char *number = kml_strndup(at, strcspn(at, " \t\r\n"));
    double seconds;
    if (kml_parse_real(number, &seconds, err) < 0) {
        return kml_wrap(err, "kunal-worker --calibrate");
    }
    if (seconds <= 0) {
        return kml_fail(err, KML_INTERNAL, "kunal-worker --calibrate said %s seconds a sample", number);
    }
    *cost_ns = seconds * (double)KML_SECOND;
    return 0;
}

/* All signals are blocked: one that asks us to stop waits here, and stays for the caller to take. */
static bool stop_waits(void)
{
    sigset_t pending;
    return sigpending(&pending) == 0 &&
           (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1 ||
            sigismember(&pending, SIGHUP) == 1);
}

/* The end of the child is no news here, and must not keep the signalfd readable. */
static void drop_sigchld(void)
{
    const struct timespec at_once = {0};
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigtimedwait(&set, NULL, &at_once);
}

/* Until the end of its output. 0, or -1 with the reason why we did not wait for that. */
static int collect(int out, int signals, struct kml_buf *text, struct kml_err *err)
{
    const struct kml_clock clock = kml_clock_monotonic();
    uint64_t until = kml_now(&clock) + CALIBRATE_MS * KML_MILLISECOND;
    for (;;) {
        struct pollfd fds[] = {{.fd = out, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        uint64_t now = kml_now(&clock);
        if (now >= until) {
            return kml_fail(err, KML_TIMEOUT, "kunal-worker --calibrate took more than %d s",
                            CALIBRATE_MS / 1000);
        }
        (void)poll(fds, KML_COUNT(fds), (int)((until - now) / KML_MILLISECOND) + 1);
        drop_sigchld();
        if (stop_waits()) {
            return kml_fail(err, KML_CANCELLED, "interrupted while calibrating");
        }
        if (fds[0].revents == 0) {
            continue;
        }
        uint8_t *to = kml_buf_reserve(text, 512, err);
        if (to == NULL) {
            return -1;
        }
        ssize_t got = read(out, to, 512);
        if (got == 0) {
            return 0;
        }
        kml_buf_added(text, got > 0 ? (size_t)got : 0);
    }
}

static void wait_for_end(struct kml_child *child)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    while (!kml_child_reap(child, 0)) {
        (void)nanosleep(&pause, NULL);
    }
}

/* The kind of error that ends a program with this code. */
static enum kml_code error_of_exit(unsigned code)
{
    for (int c = KML_OK + 1; c < KML_CODE_COUNT; c++) {
        if ((unsigned)kml_code_exit((enum kml_code)c) == code) {
            return (enum kml_code)c;
        }
    }
    return KML_INTERNAL;
}

static int calibrate(struct kml_child *child, int signals, double *cost_ns, struct kml_err *err)
{
    struct kml_buf text;
    kml_buf_init(&text, CALIBRATE_TEXT);
    int result = collect(child->out, signals, &text, err);
    if (result < 0) {
        kml_child_signal(child, SIGKILL);
    }
    wait_for_end(child);
    if (result == 0 && child->code != 0) {
        char why[KML_ERR_TEXT];
        kml_child_epitaph(child, why, sizeof why);
        result = kml_fail(err, error_of_exit(child->code), "calibration: %s", why);
    } else if (result == 0) {
        result = kml_crew_calibration(kml_buf_text(&text), cost_ns, err);
    }
    kml_buf_finish(&text);
    return result;
}

int kml_crew_calibrate(struct kml_crew *c, int signals, double *cost_ns, struct kml_err *err)
{
    struct kml_child child;
    struct kml_environment e;
    char *argv[] = {(char[]){"kunal-worker"}, (char[]){"--calibrate"}, NULL};
    kml_auto_free char *job = kml_run_folder_file(c->folder, "job.json");
    kml_auto_free char *conductor = kml_run_folder_socket(c->folder, 0);
    kml_environment_init(&e, environ);
    kml_environment_set(&e, "KUNAL_ROLE", "Worker");
    kml_environment_set(&e, "KUNAL_INDEX", "0");
    kml_environment_set(&e, "KUNAL_JOB_UID", c->uid);
    kml_environment_set(&e, "KUNAL_JOB", job);
    kml_environment_set(&e, "KUNAL_CONDUCTOR",
                        conductor); /* part of the contract; nobody listens there yet */
    kml_environment_set(&e, "OPENBLAS_NUM_THREADS", "1");
    kml_child_init(&child, "kunal-calibrate", c->folder->path);
    const struct kml_child_command command = {argv[0], argv, e.text, true};
    int result = kml_child_start(&child, &command, err);
    if (result == 0) {
        result = calibrate(&child, signals, cost_ns, err);
    }
    kml_child_finish(&child);
    kml_environment_finish(&e);
    return result;
}
