#ifndef KML_TESTS_SIM_HEAP_H
#define KML_TESTS_SIM_HEAP_H

#include <stdbool.h>
#include <stdint.h>

/*
 * What is going to happen: a heap by virtual time, and by order of posting for equal times, so that a run is
 * a function of its seed alone.
 */
struct sim_event {
    uint64_t at; /* ns */
    uint64_t number;
    void (*run)(void *self, void *arg); /* owns arg */
    void (*drop)(void *arg);            /* frees arg when the event never happens; NULL: nothing to free */
    void *self, *arg;
};

struct sim_heap {
    struct sim_event *event; /* [count] */
    uint32_t count, room;
    uint64_t posted;
};

void sim_heap_finish(struct sim_heap *h); /* drops what has not happened */
void sim_heap_post(struct sim_heap *h, uint64_t at, void (*run)(void *self, void *arg), void *self, void *arg,
                   void (*drop)(void *arg));
bool sim_heap_next(struct sim_heap *h, struct sim_event *out); /* false: nothing is left */

#endif
