#ifndef KML_KUBE_RECORDER_H
#define KML_KUBE_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "kube/kind.h"
#include "kube/request.h"

/*
 * Events (events.k8s.io/v1) without flooding: what would be written, and when.
 *
 *   - The same (object, type, reason, note) again within 10 minutes raises the count of the event that is
 * there.
 *   - From the 11th different note on with the same (object, type, reason) within 10 minutes, one event with
 * the note
 *     "(combined from similar events) <that note>" counts them all (the API lets no note change later).
 *   - One event is written at most every 10 s; counts in between are not lost, they go with the next write.
 *   - Each object may cause 25 writes at once, then one every 5 minutes.
 *   - At most 1024 events are remembered; the one not seen longest is forgotten.
 *
 * Pure: time comes in, requests come out. Not thread-safe.
 */
#define KML_RECORDER_NOTE 1024 /* bytes with the zero; the API allows no more */
#define KML_RECORDER_ROOM 1024

struct kml_kube_subject {
    const struct kml_kube_kind *kind;
    const char *ns;
    const char *name;
    const char *uid;
};

struct kml_recorder;
/* `controller` "kunal.ml/kunal-operator", `instance` the pod's name; copied. */
struct kml_recorder *kml_recorder_create(const char *controller, const char *instance, uint64_t seed);
void kml_recorder_destroy(struct kml_recorder *r);

/* Something happened to an object. `warning`: type Warning instead of Normal. Texts are copied and cut. */
void kml_recorder_note(struct kml_recorder *r, const struct kml_kube_subject *about, bool warning,
                       const char *reason, const char *action, const char *note, uint64_t now_ns,
                       uint64_t wall_ns);

/*
 * The next request that may go out now: 1 and `out` (a create or a merge patch of the series), 0: none.
 * `flush` (at the end of the program) leaves the waiting times out, not the objects' allowance. `event` tells
 * which one it was.
 */
int kml_recorder_next(struct kml_recorder *r, uint64_t now_ns, bool flush, struct kml_kube_request *out,
                      uint64_t *event);
/* How it went: a patch that found nothing (KML_NOT_FOUND) is written anew; other failures lose that write
 * only. */
void kml_recorder_ended(struct kml_recorder *r, uint64_t event, enum kml_code code);

uint64_t kml_recorder_next_ns(const struct kml_recorder *r,
                              uint64_t now_ns); /* when to ask again; UINT64_MAX: never */

#endif
