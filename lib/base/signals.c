#include "base/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/parse.h"
#include "base/thread.h"

static struct {
    pthread_t thread;
    int signals; /* signalfd */
    int parent;  /* -1: none */
    int quit;    /* eventfd: written when the program ends */
    void (*wake)(void *self);
    void *self;
} watch = {.signals = -1, .parent = -1, .quit = -1};

static atomic_int taken;

static void note(int what)
{
    int nothing = 0;
    (void)atomic_compare_exchange_strong(&taken, &nothing, what);
    watch.wake(watch.self);
}

static void *wait_for_them(void *self)
{
    (void)self;
    struct pollfd fds[3] = {{.fd = watch.quit, .events = POLLIN},
                            {.fd = watch.signals, .events = POLLIN},
                            {.fd = watch.parent, .events = POLLIN}};
    for (;;) {
        if (poll(fds, 3, -1) < 0) {
            if (errno == EINTR) {
                continue; /* revents say nothing now */
            }
            return NULL;
        }
        if (fds[0].revents != 0) {
            return NULL;
        }
        struct signalfd_siginfo info;
        if (fds[1].revents != 0 && read(watch.signals, &info, sizeof info) == (ssize_t)sizeof info) {
            note((int)info.ssi_signo);
        }
        if (fds[2].revents != 0) {
            fds[2].fd = -1;
            note(KML_SIGNALS_PARENT);
        }
    }
}

int kml_signals_start(int parent, void (*wake)(void *self), void *self, struct kml_err *err)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    watch.signals = signalfd(-1, &set, SFD_CLOEXEC);
    watch.quit = eventfd(0, EFD_CLOEXEC);
    if (watch.signals < 0 || watch.quit < 0) {
        return kml_fail_errno(err, errno, "cannot wait for signals");
    }
    watch.parent = parent;
    watch.wake = wake;
    watch.self = self;
    return kml_thread_start(&watch.thread, "signals", wait_for_them, NULL, err);
}

int kml_signals_taken(void)
{
    return atomic_load(&taken);
}

void kml_signals_stop(void)
{
    uint64_t one = 1;
    KML_BUG_ON(write(watch.quit, &one, sizeof one) != (ssize_t)sizeof one);
    (void)pthread_join(watch.thread, NULL);
    (void)close(watch.signals);
    (void)close(watch.quit);
}

int kml_signals_parent(void)
{
    const char *text = getenv("KUNAL_PARENT_FD");
    uint64_t fd;
    struct kml_err ignored;
    if (text == NULL || kml_parse_u64(text, &fd, &ignored) < 0 || fd > 1 << 20 ||
        fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0) {
        return -1;
    }
    return (int)fd;
}
