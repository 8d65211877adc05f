/*
 * The first process of every pod's sandbox: it holds the pod's namespaces open, collects processes that lost
 * their parent, and leaves when it is told to. Static, so that its image holds one file.
 */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

int main(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL); /* the kernel ignores unblocked default signals of a first process */
    for (;;) {
        int sig = 0;
        sigwait(&set, &sig);
        if (sig != SIGCHLD) {
            return 0;
        }
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
    }
}
