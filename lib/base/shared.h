#ifndef KML_BASE_SHARED_H
#define KML_BASE_SHARED_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * Memory that two processes of one user on one machine both see: an anonymous file (memfd), sealed against
 * shrinking, so that neither can make the other fault. Its maker names it to the other by process id and
 * descriptor. Nothing is left behind when both are gone, however they end.
 */
struct kml_shared {
    uint8_t *at; /* page-aligned; NULL: none */
    size_t size;
    int fd; /* the maker's descriptor; -1 in the process that opened it */
};

/* Zeroed. KML_NO_MEMORY, KML_UNSUPPORTED where the kernel has none. */
int kml_shared_make(struct kml_shared *s, size_t size, struct kml_err *err) KML_MUST_CHECK;

/*
 * Maps what process `pid` made as descriptor `fd`. KML_DENIED: another user's, or not such memory;
 * KML_INVALID: its size is not `size`; KML_NOT_FOUND: no such process or descriptor.
 */
int kml_shared_open(struct kml_shared *s, uint32_t pid, uint32_t fd, size_t size,
                    struct kml_err *err) KML_MUST_CHECK;

void kml_shared_finish(struct kml_shared *s); /* {0} accepted */

#endif
