#include "obs/metrics.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define NUMBER_ROOM 32

static uint32_t label_count(const struct kml_metric *metric)
{
    uint32_t n = 0;
    while (n < KML_METRIC_LABELS && metric->label[n] != NULL) {
        n++;
    }
    return n;
}

/* Cut to the room, but never inside a UTF-8 character: the format wants valid UTF-8. */
static void copy_label(char to[KML_LABEL_ROOM], const char *from)
{
    size_t length = strnlen(from, KML_LABEL_ROOM);
    if (length == KML_LABEL_ROOM) {
        length = KML_LABEL_ROOM - 1;
        while (length > 0 && ((unsigned char)from[length] & 0xc0) == 0x80) {
            length--;
        }
    }
    memcpy(to, from, length);
    memset(to + length, 0, KML_LABEL_ROOM - length);
}

static struct kml_series wanted_series(const struct kml_metric *metric, const char *const *label)
{
    struct kml_series wanted;
    memset(&wanted, 0, sizeof wanted);
    uint32_t n = label_count(metric);
    KML_BUG_ON((n > 0) != (label != NULL));
    for (uint32_t i = 0; i < n; i++) {
        copy_label(wanted.label[i], label[i]);
    }
    return wanted;
}

static uint32_t find(const struct kml_metric *metric, const struct kml_series *wanted)
{
    uint32_t i = 0;
    while (i < metric->count && memcmp(metric->series[i].label, wanted->label, sizeof wanted->label) != 0) {
        i++;
    }
    return i;
}

static uint64_t *buckets_of(const struct kml_metric *metric, uint32_t series)
{
    return metric->bucket + (size_t)series * metric->bounds;
}

static bool add_series(struct kml_metric *metric, const struct kml_series *wanted)
{
    if (metric->count == metric->room) {
        return false;
    }
    metric->series[metric->count] = *wanted;
    if (metric->kind == KML_HISTOGRAM) {
        memset(buckets_of(metric, metric->count), 0, metric->bounds * sizeof(uint64_t));
    }
    metric->count++;
    return true;
}

static struct kml_metric *metric_at(struct kml_metrics *m, uint32_t row)
{
    KML_BUG_ON(row >= m->count);
    return &m->metric[row];
}

/* The series with these labels, new if need be; NULL when there is no room. */
static struct kml_series *touch(struct kml_metrics *m, struct kml_metric *metric, const char *const *label)
{
    struct kml_series wanted = wanted_series(metric, label);
    uint32_t i = find(metric, &wanted);
    if (i == metric->count && !add_series(metric, &wanted)) {
        m->lost++;
        return NULL;
    }
    return &metric->series[i];
}

void kml_metrics_init(struct kml_metrics *m, struct kml_metric *table, uint32_t count)
{
    *m = (struct kml_metrics){.metric = table, .count = count};
    kml_lock_init(&m->lock);
    for (uint32_t row = 0; row < count; row++) {
        if (label_count(&table[row]) == 0) {
            (void)touch(m, &table[row], NULL);
        }
    }
}

void kml_metrics_finish(struct kml_metrics *m)
{
    kml_lock_finish(&m->lock);
}

void kml_metrics_add(struct kml_metrics *m, uint32_t row, const char *const *label, double by)
{
    struct kml_metric *metric = metric_at(m, row);
    KML_BUG_ON(metric->kind == KML_HISTOGRAM || (metric->kind == KML_COUNTER && by < 0));
    kml_lock_take(&m->lock);
    struct kml_series *series = touch(m, metric, label);
    if (series != NULL) {
        series->value += by;
    }
    kml_lock_give(&m->lock);
}

void kml_metrics_set(struct kml_metrics *m, uint32_t row, const char *const *label, double value)
{
    struct kml_metric *metric = metric_at(m, row);
    KML_BUG_ON(metric->kind == KML_HISTOGRAM);
    kml_lock_take(&m->lock);
    struct kml_series *series = touch(m, metric, label);
    if (series != NULL) {
        series->value = value;
    }
    kml_lock_give(&m->lock);
}

void kml_metrics_observe(struct kml_metrics *m, uint32_t row, const char *const *label, double value)
{
    struct kml_metric *metric = metric_at(m, row);
    KML_BUG_ON(metric->kind != KML_HISTOGRAM);
    if (isnan(value)) {
        return; /* it would spoil the sum for ever */
    }
    kml_lock_take(&m->lock);
    struct kml_series *series = touch(m, metric, label);
    if (series != NULL) {
        series->value += value;
        series->observations++;
        uint32_t b = 0;
        while (b < metric->bounds && value > metric->bound[b]) {
            b++;
        }
        if (b < metric->bounds) {
            buckets_of(metric, (uint32_t)(series - metric->series))[b]++;
        }
    }
    kml_lock_give(&m->lock);
}

void kml_metrics_remove(struct kml_metrics *m, uint32_t row, const char *const *label)
{
    struct kml_metric *metric = metric_at(m, row);
    kml_lock_take(&m->lock);
    struct kml_series wanted = wanted_series(metric, label);
    uint32_t i = find(metric, &wanted);
    if (i < metric->count) {
        uint32_t last = --metric->count; /* the last one moves into the gap */
        metric->series[i] = metric->series[last];
        if (metric->kind == KML_HISTOGRAM) {
            memmove(buckets_of(metric, i), buckets_of(metric, last), metric->bounds * sizeof(uint64_t));
        }
    }
    kml_lock_give(&m->lock);
}

/* The shortest of the usual forms that reads back as the same number. */
static const char *number(double value, char out[NUMBER_ROOM])
{
    if (isnan(value)) {
        return "NaN";
    }
    if (isinf(value)) {
        return value > 0 ? "+Inf" : "-Inf";
    }
    (void)snprintf(out, NUMBER_ROOM, "%.15g", value);
    if (strtod(out, NULL) != value) {
        (void)snprintf(out, NUMBER_ROOM, "%.17g", value);
    }
    return out;
}

static int print_escaped(struct kml_buf *out, const char *text, bool quotes, struct kml_err *err)
{
    for (const char *c = text; *c != '\0'; c++) {
        bool escape = *c == '\\' || *c == '\n' || (quotes && *c == '"');
        char pair[2] = {'\\', *c == '\n' ? 'n' : *c};
        if (kml_buf_append(out, escape ? pair : c, escape ? 2 : 1, err) != 0) {
            return -1;
        }
    }
    return 0;
}

/* name{a="x",le="0.5"} value. `le` is NULL but for buckets. */
static int print_sample(struct kml_buf *out, const struct kml_metric *metric, const struct kml_series *series,
                        const char *suffix, const char *le, double value, struct kml_err *err)
{
    char text[NUMBER_ROOM];
    if (kml_buf_printf(out, err, "%s%s", metric->name, suffix) != 0) {
        return -1;
    }
    const char *before = "{";
    for (uint32_t i = 0; i < label_count(metric); i++, before = ",") {
        if (kml_buf_printf(out, err, "%s%s=\"", before, metric->label[i]) != 0 ||
            print_escaped(out, series->label[i], true, err) != 0 || kml_buf_puts(out, "\"", err) != 0) {
            return -1;
        }
    }
    if (le != NULL) {
        if (kml_buf_printf(out, err, "%sle=\"%s\"", before, le) != 0) {
            return -1;
        }
        before = ",";
    }
    return kml_buf_printf(out, err, "%s %s\n", before[0] == ',' ? "}" : "", number(value, text));
}

static int print_histogram(struct kml_buf *out, const struct kml_metric *metric, uint32_t index,
                           struct kml_err *err)
{
    const struct kml_series *series = &metric->series[index];
    uint64_t below = 0;
    char le[NUMBER_ROOM];
    for (uint32_t b = 0; b < metric->bounds; b++) {
        below += buckets_of(metric, index)[b];
        if (print_sample(out, metric, series, "_bucket", number(metric->bound[b], le), (double)below, err) !=
            0) {
            return -1;
        }
    }
    double all = (double)series->observations;
    if (print_sample(out, metric, series, "_bucket", "+Inf", all, err) != 0 ||
        print_sample(out, metric, series, "_sum", NULL, series->value, err) != 0) {
        return -1;
    }
    return print_sample(out, metric, series, "_count", NULL, all, err);
}

static int print_metric(struct kml_buf *out, const struct kml_metric *metric, struct kml_err *err)
{
    static const char *const kind[] = {"counter", "gauge", "histogram"};
    if (kml_buf_printf(out, err, "# HELP %s ", metric->name) != 0 ||
        print_escaped(out, metric->help, false, err) != 0 ||
        kml_buf_printf(out, err, "\n# TYPE %s %s\n", metric->name, kind[metric->kind]) != 0) {
        return -1;
    }
    for (uint32_t i = 0; i < metric->count; i++) {
        int result = metric->kind == KML_HISTOGRAM ? print_histogram(out, metric, i, err)
                                                   : print_sample(out, metric, &metric->series[i], "", NULL,
                                                                  metric->series[i].value, err);
        if (result != 0) {
            return -1;
        }
    }
    return 0;
}

static int print_lost(struct kml_buf *out, uint64_t lost, struct kml_err *err)
{
    return kml_buf_printf(
        out, err,
        "# HELP kunal_metrics_lost_total Updates lost because a metric had no room for a series.\n"
        "# TYPE kunal_metrics_lost_total counter\nkunal_metrics_lost_total %llu\n",
        (unsigned long long)lost);
}

int kml_metrics_print(struct kml_metrics *m, struct kml_buf *out, struct kml_err *err)
{
    kml_lock_take(&m->lock);
    int result = 0;
    for (uint32_t row = 0; row < m->count && result == 0; row++) {
        result = print_metric(out, &m->metric[row], err);
    }
    result = result == 0 ? print_lost(out, m->lost, err) : result;
    kml_lock_give(&m->lock);
    return result;
}
