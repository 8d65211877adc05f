#include "base/thread.h"

#include <signal.h>
#include <stdio.h>

#include "base/mem.h"

int kml_thread_start(pthread_t *thread, const char *name, void *(*run)(void *self), void *self,
                     struct kml_err *err)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread inherits the mask */
    int error = pthread_create(thread, NULL, run, self);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return kml_fail_errno(err, error, "cannot start thread %s", name);
    }
    char shown[16];
    (void)snprintf(shown, sizeof shown, "%s", name);
    (void)pthread_setname_np(*thread, shown);
    return 0;
}

void kml_lock_init(struct kml_lock *l)
{
    KML_BUG_ON(pthread_mutex_init(&l->mutex, NULL) != 0);
}

void kml_lock_finish(struct kml_lock *l)
{
    (void)pthread_mutex_destroy(&l->mutex);
}

void kml_lock_take(struct kml_lock *l)
{
    KML_BUG_ON(pthread_mutex_lock(&l->mutex) != 0);
}

void kml_lock_give(struct kml_lock *l)
{
    KML_BUG_ON(pthread_mutex_unlock(&l->mutex) != 0);
}

void kml_queue_init(struct kml_queue *q, size_t room)
{
    KML_BUG_ON(room == 0);
    *q = (struct kml_queue){.room = room, .item = KML_NEW_ARRAY(room, void *)};
    kml_lock_init(&q->lock);
    KML_BUG_ON(pthread_cond_init(&q->filled, NULL) != 0);
    KML_BUG_ON(pthread_cond_init(&q->drained, NULL) != 0);
}

void kml_queue_finish(struct kml_queue *q)
{
    (void)pthread_cond_destroy(&q->drained);
    (void)pthread_cond_destroy(&q->filled);
    kml_lock_finish(&q->lock);
    kml_free(q->item);
    q->item = NULL;
}

static bool put_locked(struct kml_queue *q, void *item)
{
    if (q->closed || q->count == q->room) {
        return false;
    }
    q->item[(q->head + q->count) % q->room] = item;
    q->count++;
    (void)pthread_cond_signal(&q->filled);
    return true;
}

static bool get_locked(struct kml_queue *q, void **item)
{
    if (q->count == 0) {
        return false;
    }
    *item = q->item[q->head];
    q->head = (q->head + 1) % q->room;
    q->count--;
    (void)pthread_cond_signal(&q->drained);
    return true;
}

bool kml_queue_put(struct kml_queue *q, void *item)
{
    kml_lock_take(&q->lock);
    while (!q->closed && q->count == q->room) {
        (void)pthread_cond_wait(&q->drained, &q->lock.mutex);
    }
    bool done = put_locked(q, item);
    kml_lock_give(&q->lock);
    return done;
}

bool kml_queue_try_put(struct kml_queue *q, void *item)
{
    kml_lock_take(&q->lock);
    bool done = put_locked(q, item);
    kml_lock_give(&q->lock);
    return done;
}

bool kml_queue_get(struct kml_queue *q, void **item)
{
    kml_lock_take(&q->lock);
    while (!q->closed && q->count == 0) {
        (void)pthread_cond_wait(&q->filled, &q->lock.mutex);
    }
    bool done = get_locked(q, item);
    kml_lock_give(&q->lock);
    return done;
}

bool kml_queue_try_get(struct kml_queue *q, void **item)
{
    kml_lock_take(&q->lock);
    bool done = get_locked(q, item);
    kml_lock_give(&q->lock);
    return done;
}

void kml_queue_close(struct kml_queue *q)
{
    kml_lock_take(&q->lock);
    q->closed = true;
    (void)pthread_cond_broadcast(&q->filled);
    (void)pthread_cond_broadcast(&q->drained);
    kml_lock_give(&q->lock);
}
