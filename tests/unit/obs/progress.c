#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "obs/progress.h"

#define UNKNOWN ((double)NAN)

static const struct kml_progress_worker workers[] = {{0, 0.25, 0}, {1, 0.5, 2}, {2, 0.25, 13}};

static const struct kml_progress full = {
    .epoch = 3,
    .epochs = 10,
    .fraction = 0.527,
    .loss = 0.41214,
    .accuracy = 0.8641,
    .samples_per_second = 152340,
    .seconds_left = 63.2,
    .worker = workers,
    .workers = KML_COUNT(workers),
};

static const char full_text[] =
    "epoch 3/10 [#####-----] 52% loss 0.4121 acc 86.4% 152.3k samples/s left 1m04s | 0:25%/0 "
    "1:50%/2 2:25%/13";

static void the_line_shows_every_number(void **state)
{
    (void)state;
    char out[256];
    assert_int_equal(kml_progress_render(&full, 0, out, sizeof out), strlen(full_text));
    assert_string_equal(out, full_text);
}

static void what_is_not_known_is_left_out(void **state)
{
    (void)state;
    struct kml_progress p = {.epoch = 1,
                             .epochs = 2,
                             .fraction = UNKNOWN,
                             .loss = UNKNOWN,
                             .accuracy = UNKNOWN,
                             .samples_per_second = UNKNOWN,
                             .seconds_left = (double)INFINITY};
    char out[256];
    (void)kml_progress_render(&p, 0, out, sizeof out);
    assert_string_equal(out, "epoch 1/2 [----------] 0%");
}

static void the_bar_stays_inside_its_frame(void **state)
{
    (void)state;
    static const struct {
        double fraction;
        const char *bar;
    } rows[] = {{-1, "[----------] 0%"},   {0, "[----------] 0%"},      {0.099, "[----------] 9%"},
                {0.1, "[#---------] 10%"}, {0.999, "[#########-] 99%"}, {1, "[##########] 100%"},
                {1.7, "[##########] 100%"}};
    for (size_t i = 0; i < KML_COUNT(rows); i++) {
        struct kml_progress p = {.fraction = rows[i].fraction, .loss = UNKNOWN, .accuracy = UNKNOWN};
        char out[256];
        (void)kml_progress_render(&p, 0, out, sizeof out);
        assert_non_null(strstr(out, rows[i].bar));
    }
}

static void rates_and_times_have_fitting_units(void **state)
{
    (void)state;
    static const struct {
        double rate;
        double left;
        const char *text;
    } rows[] = {
        {0, 0, "0 samples/s left 0s"},
        {999, 59.1, "999 samples/s left 1m00s"},
        {1000, 59, "1.0k samples/s left 59s"},
        {2345678, 3600, "2.35M samples/s left 1h00m"},
        {999960, 7384, "1.00M samples/s left 2h03m"},
    };
    for (size_t i = 0; i < KML_COUNT(rows); i++) {
        struct kml_progress p = {.samples_per_second = rows[i].rate, .seconds_left = rows[i].left};
        char out[256];
        (void)kml_progress_render(&p, 0, out, sizeof out);
        assert_string_equal(strstr(out, rows[i].text), rows[i].text);
    }
}

static void a_line_is_cut_to_columns_and_room(void **state)
{
    (void)state;
    for (unsigned n = 1; n < 2 * sizeof full_text; n++) {
        char out[2 * sizeof full_text];
        memset(out, '!', sizeof out);
        size_t expected = n < sizeof full_text - 1 ? n : sizeof full_text - 1;
        assert_int_equal(kml_progress_render(&full, n, out, sizeof out), expected);
        assert_memory_equal(out, full_text, expected);
        assert_int_equal(out[expected], '\0');
        memset(out, '!', sizeof out);
        size_t room = n < sizeof out ? n : sizeof out;
        size_t size = kml_progress_render(&full, 0, out, room);
        assert_true(size < room);
        assert_int_equal(out[size], '\0');
        assert_int_equal(room == sizeof out || out[room] == '!', 1);
    }
    assert_int_equal(kml_progress_render(&full, 0, NULL, 0), 0);
}

static size_t read_some(int fd, char *out, size_t room)
{
    ssize_t size = read(fd, out, room - 1);
    out[size > 0 ? size : 0] = '\0';
    return size > 0 ? (size_t)size : 0;
}

static void in_a_pipe_plain_lines_come_at_most_every_n_seconds(void **state)
{
    (void)state;
    int fd[2];
    char out[4096];
    struct kml_progress_line l;
    assert_int_equal(pipe2(fd, O_NONBLOCK), 0);
    kml_progress_line_init(&l, fd[1], 5 * KML_SECOND);
    assert_false(l.terminal);
    static const struct {
        uint64_t at;
        int lines;
    } rows[] = {{0, 1}, {1, 0}, {4999, 0}, {5000, 1}, {9999, 0}, {10000, 1}, {60000, 1}};
    for (size_t i = 0; i < KML_COUNT(rows); i++) {
        kml_progress_line_show(&l, &full, rows[i].at * KML_MILLISECOND);
        size_t size = read_some(fd[0], out, sizeof out);
        assert_int_equal(size, rows[i].lines == 0 ? 0 : strlen(full_text) + 1);
        assert_true(size == 0 || out[size - 1] == '\n');
    }
    kml_progress_line_clear(&l);
    kml_progress_line_end(&l);
    assert_int_equal(read_some(fd[0], out, sizeof out), 0);
    (void)close(fd[0]);
    (void)close(fd[1]);
}

/* A pseudo terminal of 40 columns whose output can be read from *master. */
static int open_terminal(int *master)
{
    *master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    assert_true(*master >= 0);
    assert_int_equal(grantpt(*master), 0);
    assert_int_equal(unlockpt(*master), 0);
    int slave = open(ptsname(*master), O_RDWR | O_NOCTTY);
    assert_true(slave >= 0);
    struct termios mode;
    assert_int_equal(tcgetattr(slave, &mode), 0);
    mode.c_oflag &= ~(tcflag_t)OPOST;
    assert_int_equal(tcsetattr(slave, TCSANOW, &mode), 0);
    const struct winsize size = {.ws_row = 10, .ws_col = 40};
    assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
    return slave;
}

static void on_a_terminal_the_line_is_redrawn_in_its_width(void **state)
{
    (void)state;
    int master;
    int slave = open_terminal(&master);
    char out[4096];
    char expected[256];
    struct kml_progress_line l;
    kml_progress_line_init(&l, slave, 5 * KML_SECOND);
    assert_true(l.terminal);
    (void)snprintf(expected, sizeof expected, "\r\x1b[K%.39s", full_text);
    for (int i = 0; i < 3; i++) {
        kml_progress_line_show(&l, &full, 0);
        (void)read_some(master, out, sizeof out);
        assert_string_equal(out, expected);
    }
    kml_progress_line_clear(&l);
    (void)read_some(master, out, sizeof out);
    assert_string_equal(out, "\r\x1b[K");
    kml_progress_line_end(&l); /* nothing stands there */
    assert_int_equal(read_some(master, out, sizeof out), 0);
    kml_progress_line_show(&l, &full, 0);
    kml_progress_line_end(&l);
    (void)read_some(master, out, sizeof out);
    assert_int_equal(out[strlen(out) - 1], '\n');
    (void)close(slave);
    (void)close(master);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_shows_every_number),
        cmocka_unit_test(what_is_not_known_is_left_out),
        cmocka_unit_test(the_bar_stays_inside_its_frame),
        cmocka_unit_test(rates_and_times_have_fitting_units),
        cmocka_unit_test(a_line_is_cut_to_columns_and_room),
        cmocka_unit_test(in_a_pipe_plain_lines_come_at_most_every_n_seconds),
        cmocka_unit_test(on_a_terminal_the_line_is_redrawn_in_its_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
