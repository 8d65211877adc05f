#ifndef KML_BASE_THREAD_H
#define KML_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Threads, the one lock and the one queue by which they talk. All locking of the project is in here, where
 * TSan sees it. */

/* Starts a named thread (15 letters are shown by ps) with all signals blocked. */
int kml_thread_start(pthread_t *thread, const char *name, void *(*run)(void *self), void *self,
                     struct kml_err *err) KML_MUST_CHECK;

/* A lock for state that several threads share; held for a few instructions, never over a call that waits. */
struct kml_lock {
    pthread_mutex_t mutex;
};

void kml_lock_init(struct kml_lock *l);
void kml_lock_finish(struct kml_lock *l); /* nobody holds it */
void kml_lock_take(struct kml_lock *l);
void kml_lock_give(struct kml_lock *l);

/*
 * A bounded queue of pointers, many senders, many receivers.
 * After kml_queue_close senders are refused, receivers get what is left and then `false`.
 */
struct kml_queue {
    struct kml_lock lock;
    pthread_cond_t filled;
    pthread_cond_t drained;
    void **item; /* [room] */
    size_t room;
    size_t head;
    size_t count;
    bool closed;
};

void kml_queue_init(struct kml_queue *q, size_t room);
void kml_queue_finish(struct kml_queue *q); /* nobody may be inside; items left are the caller's affair */
bool kml_queue_put(struct kml_queue *q, void *item);      /* waits for room; false when closed */
bool kml_queue_try_put(struct kml_queue *q, void *item);  /* false when full or closed */
bool kml_queue_get(struct kml_queue *q, void **item);     /* waits; false when closed and empty */
bool kml_queue_try_get(struct kml_queue *q, void **item); /* false when empty */
void kml_queue_close(struct kml_queue *q);

#endif
