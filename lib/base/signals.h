#ifndef KML_BASE_SIGNALS_H
#define KML_BASE_SIGNALS_H

#include "base/err.h"

/*
 * The outside world asking a program to stop: SIGTERM, SIGINT, or a parent that is gone. One thread waits for
 * them, notes the first and calls `wake`; the program looks at kml_signals_taken in its own loop. SIGPIPE is
 * ignored.
 */
#define KML_SIGNALS_PARENT 1000 /* taken: the parent's end of the descriptor is closed */

/*
 * Early in main, before any other thread is started, so that all inherit the blocked mask. `parent` is a
 * descriptor to watch for its end (KUNAL_PARENT_FD), -1 for none. `wake` runs on the waiting thread.
 */
int kml_signals_start(int parent, void (*wake)(void *self), void *self, struct kml_err *err) KML_MUST_CHECK;
int kml_signals_taken(void); /* 0: nothing; SIGTERM, SIGINT, KML_SIGNALS_PARENT: the first that came */
void kml_signals_stop(void); /* ends the thread; before `self` is destroyed */

/* The descriptor in KUNAL_PARENT_FD, made close-on-exec; -1 when unset or not open. */
int kml_signals_parent(void);

#endif
