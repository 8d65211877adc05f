#ifndef KML_CLI_OUTCOME_H
#define KML_CLI_OUTCOME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* How a run ended, and the one line on stdout that says so. Plain data but for `model`. */
enum kml_outcome_kind { KML_OUTCOME_NONE, KML_OUTCOME_SUCCEEDED, KML_OUTCOME_FAILED, KML_OUTCOME_STOPPED };

#define KML_OUTCOME_REASON 64
#define KML_OUTCOME_MESSAGE 1024

struct kml_outcome {
    enum kml_outcome_kind kind;
    uint64_t epochs;
    uint64_t samples;
    double seconds; /* of training, without evaluation */
    double loss;    /* of the last evaluation, or of training when there was none; NaN: not known */
    double accuracy;
    bool has_accuracy;                 /* classifiers */
    char reason[KML_OUTCOME_REASON];   /* FAILED, STOPPED: CamelCase */
    char message[KML_OUTCOME_MESSAGE]; /* FAILED, STOPPED */
    char *model;                       /* absolute path or URI of what was saved; owned; NULL: nothing */
    int exit_code;
};

void kml_outcome_init(struct kml_outcome *o);
void kml_outcome_finish(struct kml_outcome *o);

/* Sets kind, reason, message and exit code; the numbers stay. Only the first verdict counts: later ones
 * change nothing. */
void kml_outcome_set(struct kml_outcome *o, enum kml_outcome_kind kind, int exit_code, const char *reason,
                     const char *format, ...) KML_PRINTF(5, 6);

/*
 * Appends the line, with newline:
 *   succeeded epochs=10 accuracy=0.8834 loss=0.3312 samples_per_second=151234.5 seconds=3.967 model=/abs/path
 *   failed reason=WorkerFailed message="…"
 *   stopped reason=Interrupted … model=/abs/path      or message="…" when nothing was saved
 */
int kml_outcome_line(const struct kml_outcome *o, struct kml_buf *out, struct kml_err *err) KML_MUST_CHECK;

/*
 * The exit code of `kunal` after a child that ended with `code`: its own below 126; what a signal ended is 75
 * when a new try may help and 70 when not, because a code above 128 would say that `kunal` itself was killed.
 */
int kml_outcome_exit_of_child(unsigned code);

#endif
