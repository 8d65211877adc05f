#include "worker/pace.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"

#define LINE_MOST 256

/* "seconds speed" into a knot; false for a line with nothing on it. */
static int read_line(char *line, struct kml_pace_knot *out, bool *any, struct kml_err *err)
{
    line[strcspn(line, "#\r")] = '\0';
    char *rest = line;
    char *word[3] = {NULL, NULL, NULL};
    uint32_t words = 0;
    for (char *w = strsep(&rest, " \t"); w != NULL; w = strsep(&rest, " \t")) {
        if (*w != '\0' && words < 3) {
            word[words++] = w;
        }
    }
    *any = words > 0;
    if (words == 0) {
        return 0;
    }
    double seconds;
    if (words != 2 || kml_parse_real(word[0], &seconds, NULL) < 0 ||
        kml_parse_real(word[1], &out->speed, NULL) < 0 || seconds < 0 || out->speed < 0) {
        return kml_fail(err, KML_INVALID, "expected \"seconds speed\", two numbers that are not negative");
    }
    out->at_ns = seconds * (double)KML_SECOND;
    return 0;
}

static int add_line(struct kml_pace *p, struct kml_view text, struct kml_err *err)
{
    char line[LINE_MOST];
    struct kml_pace_knot knot;
    bool any;
    if (text.size >= sizeof(line)) {
        return kml_fail(err, KML_INVALID, "line longer than %d letters", LINE_MOST - 1);
    }
    memcpy(line, text.data, text.size);
    line[text.size] = '\0';
    if (read_line(line, &knot, &any, err) < 0) {
        return -1;
    }
    if (!any) {
        return 0;
    }
    if (p->count == KML_PACE_KNOTS) {
        return kml_fail(err, KML_INVALID, "more than %u changes of speed", KML_PACE_KNOTS);
    }
    if (p->count > 0 && knot.at_ns <= p->knot[p->count - 1].at_ns) {
        return kml_fail(err, KML_INVALID, "the seconds must rise from line to line");
    }
    p->knot = kml_realloc(p->knot, (p->count + 1) * sizeof(*p->knot));
    p->knot[p->count++] = knot;
    return 0;
}

static int read_profile(struct kml_pace *p, const char *name, struct kml_view text, struct kml_err *err)
{
    for (uint32_t number = 1; text.size > 0; number++) {
        const uint8_t *newline = memchr(text.data, '\n', text.size);
        size_t size = newline == NULL ? text.size : (size_t)(newline - text.data);
        if (add_line(p, kml_view_of(text.data, size), err) < 0) {
            return kml_wrap(err, "%s:%u", name, number);
        }
        size_t step = size + (newline == NULL ? 0 : 1);
        text = kml_view_of(text.data + step, text.size - step);
    }
    if (p->count > 0 && p->knot[p->count - 1].speed <= 0) {
        return kml_fail(err, KML_INVALID, "%s: the last speed must be above 0, or no step would ever end",
                        name);
    }
    return 0;
}

int kml_pace_init(struct kml_pace *p, double pace_ns, double speed, const char *name, struct kml_view profile,
                  struct kml_err *err)
{
    *p = (struct kml_pace){.pace_ns = pace_ns, .speed = speed};
    if (read_profile(p, name, profile, err) < 0) {
        kml_pace_finish(p);
        return -1;
    }
    return 0;
}

void kml_pace_finish(struct kml_pace *p)
{
    kml_free(p->knot);
    *p = (struct kml_pace){0};
}

bool kml_pace_on(const struct kml_pace *p)
{
    return p->pace_ns > 0;
}

uint64_t kml_pace_end(const struct kml_pace *p, uint64_t begin_ns, uint64_t samples)
{
    double work = p->pace_ns * (double)samples;
    double now = (double)begin_ns;
    double speed = p->speed;
    for (uint32_t k = 0; k < p->count; k++) {
        double until = p->knot[k].at_ns;
        if (until > now) {
            double possible = (until - now) * speed;
            if (possible >= work) {
                break;
            }
            work -= possible;
            now = until;
        }
        speed = p->knot[k].speed;
    }
    return work <= 0 ? begin_ns : (uint64_t)(now + work / speed + 0.5);
}
