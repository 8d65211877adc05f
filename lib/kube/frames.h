#ifndef KML_KUBE_FRAMES_H
#define KML_KUBE_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * Cuts what the API server streams into whole JSON texts, however the bytes were split on their way. Pure.
 *
 * A watch is one object after another, with a line break behind each; of a list every element of "items" is
 * handed out as soon as it is there, so that a page of 500 objects never stands in memory as a whole, and
 * what is around the items (kind, metadata) is kept as a small text of its own. No single text grows past its
 * maximum (KML_TOO_LARGE).
 */
#define KML_KUBE_FRAME_MAX                                                                                   \
    ((size_t)4 << 20) /* an object has 1.5 MiB at most, JSON escapes included some more */

/* One whole text, until the call returns. An error ends the cutting and is returned by kml_kube_..._feed. */
struct kml_kube_frame_sink {
    int (*frame)(void *self, struct kml_view json, struct kml_err *err);
    void *self;
};

struct kml_kube_frames {
    struct kml_buf partial; /* of the frame that is not whole yet; no byte of it is looked at twice */
};
void kml_kube_frames_init(struct kml_kube_frames *f, size_t max);
void kml_kube_frames_finish(struct kml_kube_frames *f);
void kml_kube_frames_clear(struct kml_kube_frames *f);
int kml_kube_frames_feed(struct kml_kube_frames *f, struct kml_view bytes,
                         const struct kml_kube_frame_sink *sink, struct kml_err *err) KML_MUST_CHECK;
bool kml_kube_frames_whole(
    const struct kml_kube_frames *f); /* nothing is left: the stream ended between two frames */

struct kml_kube_items {
    struct kml_buf item;     /* the element that is not whole yet */
    struct kml_buf envelope; /* the list without its items: {"kind":…,"metadata":{…},"items":[]} */
    uint32_t depth;
    uint8_t state;
    bool in_string;
    bool escaped;
    bool in_items;
    char key[8]; /* the last string at depth 1: is it "items"? */
    uint8_t key_size;
};
void kml_kube_items_init(struct kml_kube_items *s, size_t max);
void kml_kube_items_finish(struct kml_kube_items *s);
void kml_kube_items_clear(struct kml_kube_items *s);
int kml_kube_items_feed(struct kml_kube_items *s, struct kml_view bytes,
                        const struct kml_kube_frame_sink *sink, struct kml_err *err) KML_MUST_CHECK;
bool kml_kube_items_whole(const struct kml_kube_items *s); /* the list's closing bracket was seen */

#endif
