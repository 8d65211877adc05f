#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/thread.h"
#include "obs/http.h"

/* The small HTTP server over real loopback sockets. */
static atomic_uint calls;

static int metrics(void *self, struct kml_buf *out, struct kml_err *err)
{
    (void)self;
    return kml_buf_printf(out, err, "calls %u\n", ++calls);
}

static const struct kml_http_hooks hooks = {metrics, NULL, NULL, NULL};

static int connect_to(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof to) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* Sends a request and reads to the end of the connection. */
static void talk(uint16_t port, const char *request, char *out, size_t room)
{
    int fd = connect_to(port);
    assert_true(fd >= 0);
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    size_t size = 0;
    ssize_t got;
    while (size < room - 1 && (got = recv(fd, out + size, room - 1 - size, 0)) > 0) {
        size += (size_t)got;
    }
    out[size] = '\0';
    (void)close(fd);
}

static void a_request_is_answered_over_the_socket(void **state)
{
    (void)state;
    struct kml_http *h;
    struct kml_err err;
    char out[2048];
    assert_int_equal(kml_http_start(&h, "127.0.0.1:0", &hooks, &err), 0);
    uint16_t port = kml_http_port(h);
    assert_true(port > 0);
    talk(port, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", out, sizeof out);
    assert_int_equal(strncmp(out, "HTTP/1.1 200 OK\r\n", 17), 0);
    assert_non_null(strstr(out, "Content-Type: text/plain; version=0.0.4"));
    assert_non_null(strstr(out, "\r\n\r\ncalls 1\n"));
    talk(port, "HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", out, sizeof out);
    assert_non_null(strstr(out, "Content-Length: 8\r\n"));
    assert_null(strstr(out, "calls"));
    talk(port, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc", out,
         sizeof out);
    assert_int_equal(strncmp(out, "HTTP/1.1 405 ", 13), 0);
    assert_non_null(strstr(out, "Allow: GET, HEAD\r\n"));
    talk(port, "nonsense\r\n\r\n", out, sizeof out);
    assert_null(strstr(out, "200 OK"));
    kml_http_stop(h);
    assert_int_equal(connect_to(port), -1);
}

static void a_taken_port_is_one_clear_line(void **state)
{
    (void)state;
    struct kml_http *first;
    struct kml_http *second = NULL;
    struct kml_err err;
    char address[32];
    assert_int_equal(kml_http_start(&first, "127.0.0.1:0", &hooks, &err), 0);
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", kml_http_port(first));
    assert_int_equal(kml_http_start(&second, address, &hooks, &err), -1);
    assert_int_equal(err.code, KML_EXISTS);
    assert_non_null(strstr(err.text, address));
    assert_null(second);
    kml_http_stop(first);
    assert_int_equal(kml_http_start(&second, address, &hooks, &err), 0); /* free again at once */
    kml_http_stop(second);
}

static void a_silent_connection_does_not_hold_up_the_stop(void **state)
{
    (void)state;
    struct kml_http *h;
    struct kml_err err;
    char byte;
    assert_int_equal(kml_http_start(&h, "127.0.0.1:0", &hooks, &err), 0);
    int fd = connect_to(kml_http_port(h));
    assert_true(fd >= 0);
    assert_int_equal(send(fd, "GET /met", 8, MSG_NOSIGNAL), 8);
    kml_http_stop(h);
    assert_true(recv(fd, &byte, 1, 0) <= 0);
    (void)close(fd);
}

static void *ask_often(void *self)
{
    uint16_t port = *(uint16_t *)self;
    char out[2048];
    for (int i = 0; i < 20; i++) {
        talk(port, "GET /metrics HTTP/1.0\r\n\r\n", out, sizeof out);
        if (strstr(out, "200 OK") == NULL) {
            return self;
        }
    }
    return NULL;
}

static void many_ask_at_once_and_none_is_forgotten(void **state)
{
    (void)state;
    struct kml_http *h;
    struct kml_err err;
    pthread_t thread[4];
    unsigned before = calls;
    assert_int_equal(kml_http_start(&h, "127.0.0.1:0", &hooks, &err), 0);
    uint16_t port = kml_http_port(h);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(kml_thread_start(&thread[i], "ask", ask_often, &port, &err), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(thread[i], &result), 0);
        assert_null(result);
    }
    kml_http_stop(h);
    assert_int_equal(calls, before + 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_answered_over_the_socket),
        cmocka_unit_test(a_taken_port_is_one_clear_line),
        cmocka_unit_test(a_silent_connection_does_not_hold_up_the_stop),
        cmocka_unit_test(many_ask_at_once_and_none_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
