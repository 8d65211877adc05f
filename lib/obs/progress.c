#include "obs/progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR 10
#define LINE_ROOM 1024
#define ERASE "\r\x1b[K" /* to the start of the line, clear to its end (ECMA-48) */

struct text {
    char *out;
    size_t room; /* with the zero; >= 1 */
    size_t size;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(t->out + t->size, t->room - t->size, format, args);
    va_end(args);
    size_t free_room = t->room - t->size - 1;
    t->size += length < 0 ? 0 : (size_t)length > free_room ? free_room : (size_t)length;
}

static double clamp01(double x)
{
    return !(x > 0) ? 0 : x > 1 ? 1 : x; /* NaN counts as 0 */
}

static void add_bar(struct text *t, double fraction)
{
    char bar[BAR + 1];
    int full = (int)(clamp01(fraction) * BAR);
    for (int i = 0; i < BAR; i++) {
        bar[i] = i < full ? '#' : '-';
    }
    bar[BAR] = '\0';
    add(t, " [%s] %d%%", bar, (int)(clamp01(fraction) * 100));
}

static void add_rate(struct text *t, double rate)
{
    if (!isfinite(rate) || rate < 0) {
        return;
    }
    if (rate >= 999950) {
        add(t, " %.2fM samples/s", rate / 1e6);
    } else if (rate >= 1000) {
        add(t, " %.1fk samples/s", rate / 1e3);
    } else {
        add(t, " %.0f samples/s", rate);
    }
}

static void add_time(struct text *t, double seconds)
{
    if (!isfinite(seconds) || seconds < 0 || seconds > 1e9) {
        return;
    }
    unsigned long s = (unsigned long)ceil(seconds);
    if (s >= 3600) {
        add(t, " left %luh%02lum", s / 3600, s % 3600 / 60);
    } else if (s >= 60) {
        add(t, " left %lum%02lus", s / 60, s % 60);
    } else {
        add(t, " left %lus", s);
    }
}

size_t kml_progress_render(const struct kml_progress *p, unsigned columns, char *out, size_t room)
{
    if (room == 0) {
        return 0;
    }
    size_t most = columns > 0 && columns < room - 1 ? (size_t)columns + 1 : room;
    struct text t = {.out = out, .room = most};
    out[0] = '\0';
    add(&t, "epoch %u/%u", p->epoch, p->epochs);
    add_bar(&t, p->fraction);
    if (isfinite(p->loss)) {
        add(&t, " loss %.4f", p->loss);
    }
    if (isfinite(p->accuracy)) {
        add(&t, " acc %.1f%%", p->accuracy * 100);
    }
    add_rate(&t, p->samples_per_second);
    add_time(&t, p->seconds_left);
    for (uint32_t i = 0; i < p->workers; i++) {
        const struct kml_progress_worker *w = &p->worker[i];
        add(&t, "%s %u:%.0f%%/%llu", i == 0 ? " |" : "", w->index, clamp01(w->share) * 100,
            (unsigned long long)w->staleness);
    }
    return t.size;
}

static void write_all(int fd, const char *text, size_t size)
{
    while (size > 0) {
        ssize_t done = write(fd, text, size);
        if (done <= 0) {
            return; /* a progress line that cannot be shown is no reason to stop */
        }
        text += done;
        size -= (size_t)done;
    }
}

static unsigned width_of(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void kml_progress_line_init(struct kml_progress_line *l, int fd, uint64_t every_ns)
{
    *l = (struct kml_progress_line){.fd = fd, .terminal = isatty(fd) == 1, .every_ns = every_ns};
}

/* The last column stays free: many terminals wrap as soon as it is filled. */
static void show_on_terminal(struct kml_progress_line *l, const struct kml_progress *p)
{
    char line[LINE_ROOM] = ERASE;
    size_t head = strlen(ERASE);
    unsigned columns = width_of(l->fd);
    size_t size = kml_progress_render(p, columns > 1 ? columns - 1 : 1, line + head, sizeof line - head);
    write_all(l->fd, line, head + size);
    l->drawn = true;
}

void kml_progress_line_show(struct kml_progress_line *l, const struct kml_progress *p, uint64_t now_ns)
{
    if (l->terminal) {
        show_on_terminal(l, p);
        return;
    }
    if (l->printed && now_ns - l->last_ns < l->every_ns) {
        return;
    }
    char line[LINE_ROOM];
    size_t size = kml_progress_render(p, 0, line, sizeof line - 1);
    line[size] = '\n';
    write_all(l->fd, line, size + 1);
    l->printed = true;
    l->last_ns = now_ns;
}

void kml_progress_line_clear(struct kml_progress_line *l)
{
    if (l->drawn) {
        write_all(l->fd, ERASE, strlen(ERASE));
        l->drawn = false;
    }
}

void kml_progress_line_end(struct kml_progress_line *l)
{
    if (l->drawn) {
        write_all(l->fd, "\n", 1);
        l->drawn = false;
    }
}
