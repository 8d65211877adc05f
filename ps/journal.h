#ifndef KML_PS_JOURNAL_H
#define KML_PS_JOURNAL_H

#include <stdint.h>

#include "base/buf.h"
#include "ps/conductor.h"

/*
 * The job's metrics as JSON lines on stdout, one event a line: listening, phase, worker_joined, worker_left,
 * epoch, evaluation, warning, decision, progress (at most one a second), finished. docs/OPERATIONS.md lists
 * the fields.
 */
#define KML_PROGRESS_NS KML_SECOND

struct kml_journal {
    struct kml_buf line;
    uint64_t next_ns;    /* of the next progress line */
    double last_seconds; /* training seconds and samples at the last one */
    uint64_t last_samples;
    double rate; /* samples/s over the last interval */
};

void kml_journal_init(struct kml_journal *m);
void kml_journal_finish(struct kml_journal *m);
void kml_journal_listening(struct kml_journal *m, const char *address);
void kml_journal_record(struct kml_journal *m, const struct kml_conductor *c, const struct kml_record *r);
void kml_journal_progress(struct kml_journal *m, const struct kml_conductor *c,
                          uint64_t now); /* when it is time */
void kml_journal_over(struct kml_journal *m, const struct kml_conductor *c, const char *model,
                      uint64_t bytes);

/* Samples per second of training: over the whole job once it is over, over the last interval before. */
double kml_journal_rate(const struct kml_journal *m, const struct kml_conductor *c);
double kml_journal_remaining(const struct kml_conductor *c); /* seconds; 0: unknown */

#endif
