/*
 * The peer of P1 and P2: two processes and one TCP connection, blocking sockets, no protocol. The client
 * sends `floats` gradient floats; the server applies w += -rate * g as the bytes come and sends w back.
 *
 *     rawtcp FLOATS ROUNDS WARM        one line of JSON: median and mean seconds of a round
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PIECE (64u << 10) /* floats that are received before they are applied: 256 KiB stay in the cache */

static void must(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static double now(void)
{
    struct timespec t;
    must(clock_gettime(CLOCK_MONOTONIC, &t) == 0, "clock_gettime");
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void send_all(int fd, const float *from, size_t floats)
{
    const char *at = (const char *)from;
    for (size_t left = floats * sizeof(float); left > 0;) {
        ssize_t n = send(fd, at, left, 0);
        must(n > 0, "send");
        at += n;
        left -= (size_t)n;
    }
}

static void receive_all(int fd, float *to, size_t floats)
{
    ssize_t n = recv(fd, to, floats * sizeof(float), MSG_WAITALL);
    must(n == (ssize_t)(floats * sizeof(float)), "recv");
}

static void axpy(float *restrict w, const float *restrict g, float a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        w[i] += a * g[i];
    }
}

static void serve(int fd, size_t floats, size_t rounds)
{
    float *w = calloc(floats, sizeof(float));
    float *g = calloc(PIECE, sizeof(float));
    must(w != NULL && g != NULL, "memory");
    for (size_t r = 0; r < rounds; r++) {
        for (size_t at = 0; at < floats;) {
            size_t n = floats - at < PIECE ? floats - at : PIECE;
            receive_all(fd, g, n);
            axpy(w + at, g, -0.1f, n);
            at += n;
        }
        send_all(fd, w, floats);
    }
    free(w);
    free(g);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void ask(int fd, size_t floats, size_t rounds, size_t warm)
{
    float *g = calloc(floats, sizeof(float));
    float *w = calloc(floats, sizeof(float));
    double *took = calloc(rounds, sizeof(double));
    must(g != NULL && w != NULL && took != NULL, "memory");
    for (size_t i = 0; i < floats; i++) {
        g[i] = (float)(i % 7) * 0.001f;
    }
    double sum = 0;
    for (size_t r = 0; r < warm + rounds; r++) {
        double begin = now();
        send_all(fd, g, floats);
        receive_all(fd, w, floats);
        if (r >= warm) {
            took[r - warm] = now() - begin;
            sum += took[r - warm];
        }
    }
    qsort(took, rounds, sizeof *took, by_value);
    printf("{\"median\": %.9g, \"p99\": %.9g, \"mean\": %.9g", took[rounds / 2], took[rounds * 99 / 100],
           sum / (double)rounds);
    free(g);
    free(w);
    free(took);
}

static int connect_pair(int *server)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int one = 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    must(listener >= 0 && client >= 0, "socket");
    must(bind(listener, (struct sockaddr *)&at, size) == 0 && listen(listener, 1) == 0, "listen");
    must(getsockname(listener, (struct sockaddr *)&at, &size) == 0, "getsockname");
    must(connect(client, (struct sockaddr *)&at, size) == 0, "connect");
    *server = accept(listener, NULL, NULL);
    must(*server >= 0, "accept");
    must(setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0 &&
             setsockopt(*server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0,
         "TCP_NODELAY");
    close(listener);
    return client;
}

static double cpu_of(int who)
{
    struct rusage u;
    must(getrusage(who, &u) == 0, "getrusage");
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv)
{
    size_t floats = argc == 4 ? strtoul(argv[1], NULL, 10) : 0;
    size_t rounds = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
    size_t warm = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
    int server;
    if (floats == 0 || rounds == 0) {
        fprintf(stderr, "usage: rawtcp FLOATS ROUNDS WARM\n");
        return 64;
    }
    int client = connect_pair(&server);
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        close(client);
        serve(server, floats, warm + rounds);
        _exit(0);
    }
    close(server);
    ask(client, floats, rounds, warm);
    close(client);
    must(waitpid(child, NULL, 0) == child, "waitpid");
    printf(", \"cpu_seconds\": %.6g}\n", cpu_of(RUSAGE_SELF) + cpu_of(RUSAGE_CHILDREN));
    return 0;
}
