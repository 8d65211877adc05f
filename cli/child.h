#ifndef KML_CLI_CHILD_H
#define KML_CLI_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * One process that `kunal run` started: a direct child in a process group of its own, so that Ctrl-C in a
 * terminal reaches `kunal` alone, which then ends the others in order. When `kunal` dies, by whatever, the
 * kernel kills the child (PR_SET_PDEATHSIG): nothing is left behind even by kill -9.
 *
 * The thread that starts children must live as long as they do. Owned by that thread.
 */
struct kml_child {
    char *name;         /* "kunal-worker-3"; owned */
    char *log;          /* path of its log; owned */
    pid_t pid;          /* 0: does not run */
    int out;            /* reading end of its stdout; -1: stdout goes to the log */
    uint64_t log_start; /* bytes of the log before this start */
    unsigned code;      /* how it ended: exit code, or 128 + signal */
    bool killed;        /* by a signal */
    uint64_t ended_ns;
};

struct kml_child_command {
    const char *program; /* "/path" as it is; a bare name is looked for beside `kunal`, then in PATH */
    char *const *argv;   /* ended by NULL */
    char *const *envp;   /* ended by NULL */
    bool pipe;           /* stdout comes to us */
};

void kml_child_init(struct kml_child *c, const char *name, const char *folder); /* its log: folder/name.log */
void kml_child_finish(struct kml_child *c);                                     /* it must not run */

/* KML_NOT_FOUND: no such program. KML_IO: its log cannot be written, it cannot be executed. */
int kml_child_start(struct kml_child *c, const struct kml_child_command *command,
                    struct kml_err *err) KML_MUST_CHECK;

/* Asks the kernel; true when the child has ended now: code, killed and ended_ns are set, pid is 0. Never
 * waits. */
bool kml_child_reap(struct kml_child *c, uint64_t now_ns);
void kml_child_signal(const struct kml_child *c,
                      int signal); /* to its whole group; nothing when it does not run */

/* "kunal-worker-3 ended with exit code 65 (bad data): <last thing it said>", "… died, killed (signal 9)" */
void kml_child_epitaph(const struct kml_child *c, char *out, size_t room);

/*
 * The last thing that a log says, cut to `room`: of its JSON lines the last of level error, else the last
 * line. Looks at the log from byte `start` on. Empty when there is nothing.
 */
void kml_child_last_words(const char *log, uint64_t start, char *out, size_t room);

/* Where a program is: absolute, owned by the caller; NULL with KML_NOT_FOUND. */
char *kml_child_find_program(const char *name, struct kml_err *err);

#endif
