#ifndef KML_KUBE_ELECTOR_H
#define KML_KUBE_ELECTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/rng.h"
#include "doc/doc.h"

/*
 * Who leads, decided over a Lease of coordination.k8s.io, as client-go does it (its records are ours too).
 *
 *   - Clocks of machines are never compared: a lease is over when its record did not change for its own
 * duration on *our* clock, counted from when we saw it change.
 *   - Each write carries the resourceVersion that was read: of two that try at once, one gets a conflict.
 *   - A leader that could not renew for 10 s (counted from when its last good renewal was *sent*) has lost,
 * for good: the program must exit. That is 5 s before another one may take over.
 *   - A lease is no fence: writes still need uid and resourceVersion preconditions.
 *
 * Pure: time and randomness come in, wanted calls come out; the driver is kube/lease.h. Not thread-safe.
 */
#define KML_ELECTOR_NAME 256
#define KML_ELECTOR_VERSION 64

struct kml_elector_record {
    char holder[KML_ELECTOR_NAME]; /* "": released */
    uint32_t duration_seconds;
    uint64_t acquire_wall_ns; /* of the holder's clock; only copied */
    uint64_t renew_wall_ns;
    uint32_t transitions;
};

enum kml_elector_state { KML_ELECTOR_WAITING, KML_ELECTOR_LEADING, KML_ELECTOR_LOST, KML_ELECTOR_RELEASED };

struct kml_elector {
    char identity[KML_ELECTOR_NAME];
    uint64_t lease_ns; /* 15 s */
    uint64_t renew_ns; /* 10 s */
    uint64_t retry_ns; /* 2 s, times 1 to 2.2 at random while waiting */
    struct kml_rng rng;
    enum kml_elector_state state;
    bool asked;   /* a call is under way */
    bool know;    /* `seen` was read and not written over by somebody else since */
    bool exists;  /* there is a lease */
    bool release; /* give it up at the next occasion */
    struct kml_elector_record seen;
    char version[KML_ELECTOR_VERSION];
    uint64_t seen_ns;    /* when it changed, on our clock */
    uint64_t renewed_ns; /* when the last good write was sent */
    uint64_t sent_ns;    /* when the call under way was sent */
    uint64_t next_ns;    /* the next call, not earlier */
};

enum kml_elector_act { KML_ELECTOR_READ, KML_ELECTOR_CREATE, KML_ELECTOR_WRITE, KML_ELECTOR_WAIT };
struct kml_elector_want {
    enum kml_elector_act act;
    uint64_t until_ns;                /* of WAIT */
    struct kml_elector_record record; /* of CREATE and WRITE */
    const char *version;              /* of WRITE; borrowed */
};

void kml_elector_init(struct kml_elector *e, const char *identity, uint64_t seed);

/* What to do now; a call that is handed out is under way until one of the next four ends it. */
void kml_elector_next(struct kml_elector *e, uint64_t now_ns, uint64_t wall_ns,
                      struct kml_elector_want *want);
void kml_elector_read(struct kml_elector *e, const struct kml_elector_record *record, const char *version,
                      uint64_t now_ns);
void kml_elector_missing(struct kml_elector *e, uint64_t now_ns); /* READ: there is none */
/* CREATE or WRITE went well. `version`: of the object that came back. */
void kml_elector_wrote(struct kml_elector *e, const struct kml_elector_record *record, const char *version,
                       uint64_t now_ns);
void kml_elector_failed(struct kml_elector *e, uint64_t now_ns); /* anything else, a conflict included */

/* Asks to give the lease up; once state is RELEASED (at once when not leading) nothing is wanted any more. */
void kml_elector_release(struct kml_elector *e);

/* May we act as the leader now? False too when the time is over and nobody called kml_elector_next yet. */
bool kml_elector_leads(const struct kml_elector *e, uint64_t now_ns);

/* The Lease object's JSON and back. `version` NULL: none (creation). */
int kml_elector_write_json(const struct kml_elector_record *record, const char *ns, const char *name,
                           const char *version, struct kml_buf *out, struct kml_err *err) KML_MUST_CHECK;
int kml_elector_read_json(const struct kml_node *lease, struct kml_elector_record *record,
                          char version[KML_ELECTOR_VERSION], struct kml_err *err) KML_MUST_CHECK;

#endif
