#ifndef KML_OBS_METRICS_H
#define KML_OBS_METRICS_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/thread.h"

/*
 * Metrics in the Prometheus text format (version 0.0.4).
 *
 * A program writes its metrics as one table and names the rows by an enum; nothing is registered at run time.
 * The table and all its arrays are the caller's, so the memory is bounded by what the caller gave. Between
 * any two calls:
 *   - count <= room for every metric, and no two series of a metric have the same labels;
 *   - a series that found no room is lost and counted in `lost`, which the text shows as
 *     kunal_metrics_lost_total.
 *
 * Thread-safe: every call takes the lock of the registry for a few instructions. For rates of thousands a
 * second, not of millions.
 */
enum kml_metric_kind { KML_COUNTER, KML_GAUGE, KML_HISTOGRAM };

#define KML_METRIC_LABELS 3 /* labels of one metric at most */
#define KML_LABEL_ROOM 64   /* bytes of a label's value with its zero; longer values are cut */

struct kml_series {
    char label[KML_METRIC_LABELS][KML_LABEL_ROOM]; /* values, in the order of the metric's label names */
    double value;                                  /* counter, gauge; sum of a histogram */
    uint64_t observations;                         /* histogram */
};

struct kml_metric {
    const char *name; /* [a-zA-Z_:][a-zA-Z0-9_:]*, with the unit; a counter ends in _total */
    const char *help;
    enum kml_metric_kind kind;
    const char *label[KML_METRIC_LABELS]; /* names; the first NULL ends them */
    struct kml_series *series;            /* [room], the caller's */
    uint32_t room;                        /* 1.. */
    uint32_t count;                       /* 0 at first */
    const double *bound;                  /* [bounds] histogram: upper bounds, ascending, without +Inf */
    uint32_t bounds;
    uint64_t *bucket; /* [room][bounds] histogram: the caller's, zeroed; not cumulative */
};

struct kml_metrics {
    struct kml_lock lock;
    struct kml_metric *metric; /* [count], the caller's; must outlive this */
    uint32_t count;
    uint64_t lost;
};

/* A metric without labels has its series (value 0) from the start, so that a counter is seen before its first
 * event. */
void kml_metrics_init(struct kml_metrics *m, struct kml_metric *table, uint32_t count);
void kml_metrics_finish(struct kml_metrics *m);

/* `row` is the index in the table. `label` are the values in order, NULL for a metric without labels. */
void kml_metrics_add(struct kml_metrics *m, uint32_t row, const char *const *label,
                     double by); /* counter (by >= 0), gauge */
void kml_metrics_set(struct kml_metrics *m, uint32_t row, const char *const *label,
                     double value); /* counter, gauge */
void kml_metrics_observe(struct kml_metrics *m, uint32_t row, const char *const *label,
                         double value); /* histogram */

/* Takes a series out, as when a worker is gone for good. Nothing happens when there is none. */
void kml_metrics_remove(struct kml_metrics *m, uint32_t row, const char *const *label);

/* Appends the whole text. KML_TOO_LARGE when the buffer's maximum is reached; the buffer then holds a part.
 */
int kml_metrics_print(struct kml_metrics *m, struct kml_buf *out, struct kml_err *err) KML_MUST_CHECK;

#endif
