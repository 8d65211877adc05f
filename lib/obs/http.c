#include "obs/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/parse.h"

#define BODY_MOST ((size_t)4 << 20)
#define CONNECTIONS_MOST 32
#define SILENCE_SECONDS 10

struct kml_http {
    struct MHD_Daemon *daemon;
    struct kml_http_hooks hooks;
    uint16_t port;
};

/* ---- What is answered: pure ---- */

/* A body that does not fit is replaced by nothing: the status says enough. */
static unsigned answer_line(unsigned status, const char *text, struct kml_buf *out)
{
    kml_buf_clear(out);
    return kml_buf_printf(out, NULL, "%s\n", text) == 0 ? status : 500;
}

static unsigned answer_state(int (*state)(void *self, struct kml_err *err), void *self, struct kml_buf *out)
{
    struct kml_err err = {.text = ""};
    if (state != NULL && state(self, &err) != 0) {
        return answer_line(503, err.text, out);
    }
    return answer_line(200, "ok", out);
}

static unsigned answer_metrics(const struct kml_http_hooks *hooks, struct kml_buf *out)
{
    struct kml_err err = {.text = ""};
    if (hooks->metrics == NULL) {
        return answer_line(404, "no metrics here", out);
    }
    return hooks->metrics(hooks->self, out, &err) == 0 ? 200 : answer_line(500, err.text, out);
}

unsigned kml_http_answer(const struct kml_http_hooks *hooks, const char *method, const char *path,
                         struct kml_buf *out)
{
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        return answer_line(405, "only GET and HEAD", out);
    }
    if (strcmp(path, "/metrics") == 0) {
        return answer_metrics(hooks, out);
    }
    if (strcmp(path, "/healthz") == 0) {
        return answer_state(hooks->healthy, hooks->self, out);
    }
    if (strcmp(path, "/readyz") == 0) {
        return answer_state(hooks->ready, hooks->self, out);
    }
    return answer_line(404, "not found, try /metrics, /healthz or /readyz", out);
}

/* ---- The server around it ---- */

/* Frees the body that became `data` of a response. */
static void free_body(void *data)
{
    kml_free(data);
}

static enum MHD_Result send_body(struct MHD_Connection *connection, unsigned status, struct kml_buf *body)
{
    size_t size;
    uint8_t *data = kml_buf_take(body, &size);
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback(size, data, free_body);
    if (response == NULL) {
        kml_free(data);
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                  "text/plain; version=0.0.4; charset=utf-8");
    if (status == 405) {
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

/* Called first when the headers are there, then for pieces of a body, then at the end of the request. */
static enum MHD_Result on_request(void *self, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *piece,
                                  size_t *piece_size, void **request)
{
    (void)version;
    (void)piece;
    static char seen;
    const struct kml_http *h = self;
    if (*request == NULL) {
        *request = &seen;
        return MHD_YES;
    }
    if (*piece_size > 0) {
        *piece_size = 0; /* a body is read and thrown away */
        return MHD_YES;
    }
    struct kml_buf body;
    kml_buf_init(&body, BODY_MOST);
    enum MHD_Result result = send_body(connection, kml_http_answer(&h->hooks, method, path, &body), &body);
    kml_buf_finish(&body);
    return result;
}

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* The host part without brackets, at most INET6_ADDRSTRLEN - 1 letters; false when it is longer. */
static bool host_part(const char *address, const char *colon, char host[INET6_ADDRSTRLEN])
{
    size_t length = (size_t)(colon - address);
    if (length >= 2 && address[0] == '[' && colon[-1] == ']') {
        address++;
        length -= 2;
    }
    if (length >= INET6_ADDRSTRLEN) {
        return false;
    }
    memcpy(host, address, length);
    host[length] = '\0';
    return true;
}

static int read_address(const char *text, union address *out, struct kml_err *err)
{
    static const char what[] = "\"%s\" is not an address such as 127.0.0.1:9090, [::1]:9090 or :9090";
    const char *colon = strrchr(text, ':');
    char host[INET6_ADDRSTRLEN];
    uint64_t port;
    memset(out, 0, sizeof *out);
    if (colon == NULL || !host_part(text, colon, host) || kml_parse_u64(colon + 1, &port, NULL) != 0 ||
        port > UINT16_MAX) {
        return kml_fail(err, KML_INVALID, what, text);
    }
    if (inet_pton(AF_INET, colon == text ? "0.0.0.0" : host, &out->v4.sin_addr) == 1) {
        out->v4.sin_family = AF_INET;
        out->v4.sin_port = htons((uint16_t)port);
        return 0;
    }
    memset(out, 0, sizeof *out);
    if (text[0] == '[' && inet_pton(AF_INET6, host, &out->v6.sin6_addr) == 1) {
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons((uint16_t)port);
        return 0;
    }
    return kml_fail(err, KML_INVALID, what, text);
}

/* The socket is opened here, not by the library, whose failure would not say why. */
static int open_socket(const char *text, const union address *address, uint16_t *port, struct kml_err *err)
{
    bool v6 = address->any.sa_family == AF_INET6;
    int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return kml_fail_errno(err, errno, "cannot open a socket for %s", text);
    }
    int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    union address bound;
    socklen_t size = v6 ? sizeof bound.v6 : sizeof bound.v4;
    if (bind(fd, &address->any, size) != 0 || listen(fd, CONNECTIONS_MOST) != 0 ||
        getsockname(fd, &bound.any, &size) != 0) {
        (void)kml_fail_errno(err, errno, "cannot listen on %s", text);
        (void)close(fd);
        return -1;
    }
    *port = ntohs(v6 ? bound.v6.sin6_port : bound.v4.sin_port);
    return fd;
}

int kml_http_start(struct kml_http **out, const char *address, const struct kml_http_hooks *hooks,
                   struct kml_err *err)
{
    union address where;
    uint16_t port = 0;
    if (read_address(address, &where, err) != 0) {
        return -1;
    }
    int fd = open_socket(address, &where, &port, err);
    if (fd < 0) {
        return -1;
    }
    struct kml_http *h = KML_NEW(struct kml_http);
    h->hooks = *hooks;
    h->port = port;
    h->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC, 0, NULL, NULL,
                                 on_request, h, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                                 (unsigned)CONNECTIONS_MOST, MHD_OPTION_CONNECTION_TIMEOUT,
                                 (unsigned)SILENCE_SECONDS, MHD_OPTION_END);
    if (h->daemon == NULL) {
        (void)close(fd);
        kml_free(h);
        return kml_fail(err, KML_INTERNAL, "cannot start the HTTP server on %s", address);
    }
    *out = h;
    return 0;
}

uint16_t kml_http_port(const struct kml_http *h)
{
    return h->port;
}

void kml_http_stop(struct kml_http *h)
{
    if (h == NULL) {
        return;
    }
    MHD_stop_daemon(h->daemon); /* joins its thread, closes the listening socket */
    kml_free(h);
}
