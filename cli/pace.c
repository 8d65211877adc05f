#include "cli/pace.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/parse.h"

#define LINE_MAX_LETTERS 255

void kml_pace_init(struct kml_pace *p, uint32_t workers)
{
    *p = (struct kml_pace){.workers = workers, .speed = KML_NEW_ARRAY(workers, double)};
    for (uint32_t w = 0; w < workers; w++) {
        p->speed[w] = 1;
    }
}

void kml_pace_finish(struct kml_pace *p)
{
    kml_free(p->speed);
    kml_free(p->event);
    *p = (struct kml_pace){0};
}

static int speed_of(const char *text, double *out, struct kml_err *err)
{
    if (kml_parse_real(text, out, err) < 0) {
        return -1;
    }
    return *out > 0 ? 0 : kml_fail(err, KML_INVALID, "a speed of %s; it must be above 0", text);
}

int kml_pace_speeds(struct kml_pace *p, const char *text, struct kml_err *err)
{
    uint32_t count = 0;
    for (const char *at = text; at != NULL; count++) {
        size_t length = strcspn(at, ",");
        kml_auto_free char *one = kml_strndup(at, length);
        double speed;
        if (speed_of(one, &speed, err) < 0) {
            err->code = KML_USAGE;
            return kml_wrap(err, "--speeds");
        }
        if (count < p->workers) {
            p->speed[count] = speed;
        }
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    if (count != p->workers) {
        return kml_fail(err, KML_USAGE,
                        "--speeds has %u numbers, but the job has %u workers; give one for each",
                        (unsigned)count, (unsigned)p->workers);
    }
    return 0;
}

/* Cuts the next word off `line`; NULL at the end. */
static char *word(char **line)
{
    char *start = *line + strspn(*line, " \t\r");
    if (*start == '\0') {
        return NULL;
    }
    size_t length = strcspn(start, " \t\r");
    *line = start + length + (start[length] == '\0' ? 0 : 1);
    start[length] = '\0';
    return start;
}

static void add_event(struct kml_pace *p, struct kml_pace_event event)
{
    if ((p->events & (p->events - 1)) == 0) { /* room doubles at 0, 1, 2, 4, ... */
        p->event = kml_realloc(p->event, (p->events == 0 ? 1 : 2 * (size_t)p->events) * sizeof *p->event);
    }
    p->event[p->events++] = event;
}

static int read_event(struct kml_pace *p, char *line, struct kml_err *err)
{
    char *seconds = word(&line);
    if (seconds == NULL) {
        return 0;
    }
    char *worker = word(&line);
    char *speed = worker == NULL ? NULL : word(&line);
    if (speed == NULL || word(&line) != NULL) {
        return kml_fail(err, KML_INVALID, "a line needs three numbers: seconds worker speed");
    }
    struct kml_pace_event event;
    uint64_t index;
    if (kml_parse_real(seconds, &event.seconds, err) < 0 || kml_parse_u64(worker, &index, err) < 0 ||
        speed_of(speed, &event.speed, err) < 0) {
        return -1;
    }
    if (event.seconds < 0 || (p->events > 0 && event.seconds < p->event[p->events - 1].seconds)) {
        return kml_fail(err, KML_INVALID, "%s seconds: times must not be negative nor go back", seconds);
    }
    if (index >= p->workers) {
        return kml_fail(err, KML_INVALID, "there is no worker %s; the job has 0 to %u", worker,
                        (unsigned)(p->workers - 1));
    }
    if (p->events == KML_PACE_EVENTS_MAX) {
        return kml_fail(err, KML_TOO_LARGE, "more than %d changes of speed", KML_PACE_EVENTS_MAX);
    }
    event.worker = (uint32_t)index;
    add_event(p, event);
    return 0;
}

int kml_pace_profile(struct kml_pace *p, const char *name, struct kml_view text, struct kml_err *err)
{
    const char *at = (const char *)text.data;
    const char *end = at + text.size;
    for (unsigned line_number = 1; at < end; line_number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((stop == NULL ? end : stop) - at);
        char line[LINE_MAX_LETTERS + 1];
        if (length > LINE_MAX_LETTERS) {
            return kml_fail(err, KML_INVALID, "%s:%u: the line is too long; write: seconds worker speed",
                            name, line_number);
        }
        memcpy(line, at, length);
        line[length] = '\0';
        line[strcspn(line, "#")] = '\0';
        if (read_event(p, line, err) < 0) {
            return kml_wrap(err, "%s:%u", name, line_number);
        }
        at += length + 1;
    }
    return 0;
}

int kml_pace_split(const struct kml_pace *p, uint32_t worker, struct kml_buf *out, struct kml_err *err)
{
    for (uint32_t i = 0; i < p->events; i++) {
        const struct kml_pace_event *e = &p->event[i];
        if (e->worker == worker && kml_buf_printf(out, err, "%.17g %.17g\n", e->seconds, e->speed) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Walks through the course of training; changes at the same second happen together. */
static void peaks(const struct kml_pace *p, double *most, double *largest_sum)
{
    kml_auto_free double *now = KML_NEW_ARRAY(p->workers, double);
    *most = 0;
    *largest_sum = 0;
    memcpy(now, p->speed, p->workers * sizeof *now);
    for (uint32_t next = 0;;) {
        double sum = 0;
        for (uint32_t w = 0; w < p->workers; w++) {
            sum += now[w];
            *most = now[w] > *most ? now[w] : *most;
        }
        *largest_sum = sum > *largest_sum ? sum : *largest_sum;
        if (next == p->events) {
            return;
        }
        double moment = p->event[next].seconds;
        while (next < p->events && p->event[next].seconds <= moment) {
            now[p->event[next].worker] = p->event[next].speed;
            next++;
        }
    }
}

double kml_pace_peak_sum(const struct kml_pace *p)
{
    double most;
    double sum;
    peaks(p, &most, &sum);
    return sum;
}

double kml_pace_peak(const struct kml_pace *p)
{
    double most;
    double sum;
    peaks(p, &most, &sum);
    return most;
}

double kml_pace_smallest(const struct kml_pace *p, double cost_ns, double cores)
{
    double most;
    double sum;
    peaks(p, &most, &sum);
    double by_sum = cost_ns * sum / (cores / 2);
    double by_one = cost_ns * most;
    return by_sum > by_one ? by_sum : by_one;
}

int kml_pace_choose(const struct kml_pace *p, double cost_ns, double cores, double wanted_ns,
                    double *nominal_ns, struct kml_err *err)
{
    double smallest = kml_pace_smallest(p, cost_ns, cores);
    if (wanted_ns == 0) {
        *nominal_ns = smallest * 1.1;
        return 0;
    }
    if (wanted_ns < smallest) {
        return kml_fail(err, KML_USAGE,
                        "--nominal %.0fns is not feasible: a sample costs %.0f ns of a core here, the speeds "
                        "sum up to %g at "
                        "most, and the workers may use %g of %g cores; the smallest is --nominal %.0fns",
                        wanted_ns, cost_ns, kml_pace_peak_sum(p), cores / 2, cores, smallest + 1);
    }
    *nominal_ns = wanted_ns;
    return 0;
}
