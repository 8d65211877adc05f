#ifndef KML_OBS_PROGRESS_H
#define KML_OBS_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The progress line of `kunal run`:
 *
 *   epoch 3/10 [#####-----] 52% loss 0.4121 acc 86.4% 152.3k samples/s left 1m04s | 0:40%/0 1:25%/2 2:35%/0
 *
 * Behind the bar "|" stands worker:share/staleness. Numbers that are not known (NaN) are left out.
 */
struct kml_progress_worker {
    uint32_t index;
    double share;       /* of the samples, 0..1 */
    uint64_t staleness; /* versions, of its last applied gradient */
};

struct kml_progress {
    uint32_t epoch; /* the one under way, 1.. */
    uint32_t epochs;
    double fraction; /* of the whole training, 0..1 */
    double loss;
    double accuracy; /* 0..1 */
    double samples_per_second;
    double seconds_left;
    const struct kml_progress_worker *worker; /* [workers], borrowed */
    uint32_t workers;
};

/* Pure: one line without newline into `out`, cut to `columns` (0: no limit) and to `room` - 1. Returns its
 * length. */
size_t kml_progress_render(const struct kml_progress *p, unsigned columns, char *out, size_t room);

/*
 * The writer. On a terminal each call rewrites the line in place, cut to the terminal's width; elsewhere a
 * call prints a plain line, but at most one every `every_ns`. Not thread-safe. Owns nothing but its state;
 * `fd` stays open.
 */
struct kml_progress_line {
    int fd;
    bool terminal;
    bool drawn;   /* a line stands unfinished on the terminal */
    bool printed; /* a plain line was printed at last_ns */
    uint64_t every_ns;
    uint64_t last_ns;
};

void kml_progress_line_init(struct kml_progress_line *l, int fd, uint64_t every_ns);
void kml_progress_line_show(struct kml_progress_line *l, const struct kml_progress *p, uint64_t now_ns);

/* Takes the line off the terminal, so that other text can be written; the next show draws it again. */
void kml_progress_line_clear(struct kml_progress_line *l);

/* Leaves the last line standing and goes to the next; call it once at the end. */
void kml_progress_line_end(struct kml_progress_line *l);

#endif
