#include "rpc/loop.h"

#include <grpc/grpc.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "rpc/core.h"

#define MOST_EVENTS 256u /* of one kml_loop_run that was asked for one: the caller's turn must come */

/*
 * Each received byte lands in freshly allocated slices. With the defaults of glibc the heap's top goes back
 * to the kernel after each message and is faulted in again for the next: 4 to 16 times slower. All three are
 * set, as setting one freezes the others.
 */
static void tune_heap(void)
{
#ifndef KML_SANITIZED
    static const struct {
        const char *name;
        int option;
        int value;
    } setting[] = {
        {"MALLOC_MMAP_THRESHOLD_", M_MMAP_THRESHOLD, 32 << 20}, /* the largest that glibc takes */
        {"MALLOC_TRIM_THRESHOLD_", M_TRIM_THRESHOLD, 512 << 20},
        {"MALLOC_TOP_PAD_", M_TOP_PAD, 64 << 20},
    };
    for (size_t i = 0; i < KML_COUNT(setting); i++) {
        if (getenv(setting[i].name) == NULL && mallopt(setting[i].option, setting[i].value) == 0) {
            kml_warn("heap setting refused, large messages will be slow", kv_s("setting", setting[i].name));
        }
    }
#endif
}

void kml_rpc_init(void)
{
    tune_heap();
    kml_rpc_route_log();
    grpc_init();
}

void kml_rpc_shutdown(void)
{
    grpc_shutdown_blocking();
}

static void on_wake(void *self, bool ok)
{
    (void)ok;
    struct kml_loop *loop = self;
    atomic_store(&loop->woken, false);
}

struct kml_loop *kml_loop_create(void)
{
    struct kml_loop *loop = KML_NEW(struct kml_loop);
    loop->cq = grpc_completion_queue_create_for_next(NULL);
    loop->wake_tag = (struct kml_tag){on_wake, loop};
    loop->wake_channel = grpc_lame_client_channel_create("wake", GRPC_STATUS_UNAVAILABLE, "never used");
    loop->wake_call = grpc_channel_create_call(loop->wake_channel, NULL, 0, loop->cq,
                                               grpc_slice_from_static_string("/wake"), NULL,
                                               gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    return loop;
}

static void handle(const grpc_event *event)
{
    const struct kml_tag *tag = event->tag;
    tag->fn(tag->self, event->success != 0);
}

void kml_loop_destroy(struct kml_loop *loop)
{
    if (loop == NULL) {
        return;
    }
    KML_BUG_ON(loop->live > 0);
    grpc_call_unref(loop->wake_call);
    grpc_channel_destroy(loop->wake_channel);
    grpc_completion_queue_shutdown(loop->cq);
    for (;;) {
        grpc_event event = grpc_completion_queue_next(loop->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN) {
            break;
        }
        handle(&event);
    }
    grpc_completion_queue_destroy(loop->cq);
    kml_free(loop->views);
    kml_free(loop);
}

static gpr_timespec time_of(uint64_t ns)
{
    if (ns == 0) {
        return gpr_inf_past(GPR_CLOCK_MONOTONIC);
    }
    if (ns / KML_SECOND > INT32_MAX) {
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    }
    return (gpr_timespec){(int64_t)(ns / KML_SECOND), (int32_t)(ns % KML_SECOND), GPR_CLOCK_MONOTONIC};
}

static bool is_past(uint64_t deadline_ns)
{
    if (deadline_ns == UINT64_MAX) {
        return false;
    }
    struct kml_clock clock = kml_clock_monotonic();
    return deadline_ns == 0 || kml_now(&clock) >= deadline_ns;
}

unsigned kml_loop_run(struct kml_loop *loop, uint64_t deadline_ns, bool once)
{
    unsigned handled = 0;
    gpr_timespec until = time_of(deadline_ns);
    for (;;) {
        grpc_event event = grpc_completion_queue_next(loop->cq, until, NULL);
        KML_BUG_ON(event.type == GRPC_QUEUE_SHUTDOWN);
        if (event.type == GRPC_QUEUE_TIMEOUT) {
            return handled;
        }
        handle(&event);
        handled++;
        if (once || is_past(deadline_ns)) {
            until = time_of(0); /* what is ready too, and no more */
            if (handled >= MOST_EVENTS) {
                return handled;
            }
        }
    }
}

void kml_loop_wake(struct kml_loop *loop)
{
    if (!atomic_exchange(&loop->woken, true)) {
        kml_rpc_start(loop->wake_call, NULL, 0, &loop->wake_tag);
    }
}

struct kml_view *kml_loop_lend_views(struct kml_loop *loop)
{
    struct kml_view *views = loop->views;
    loop->views = NULL;
    return views != NULL ? views : KML_NEW_ARRAY(KML_LOOP_VIEWS, struct kml_view);
}

void kml_loop_return_views(struct kml_loop *loop, struct kml_view *views)
{
    if (loop->views == NULL) {
        loop->views = views;
    } else {
        kml_free(views);
    }
}

void kml_rpc_start(grpc_call *call, const grpc_op *ops, size_t count, struct kml_tag *tag)
{
    grpc_call_error refused = grpc_call_start_batch(call, ops, count, tag, NULL);
    KML_BUG_ON(refused != GRPC_CALL_OK);
}
