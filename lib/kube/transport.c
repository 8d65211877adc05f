#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "kube/internal.h"

/* How we speak to the server, below the calls. */

#define CONNECT_MS 10000L
#define UNACKNOWLEDGED_MS 30000U

/* Counts the connections. Bytes that nobody acknowledges for 30 s end the connection; without it that takes a
 * quarter of an hour. */
static int on_socket(void *self, curl_socket_t socket, curlsocktype purpose)
{
    (void)purpose;
    uint64_t *opened = self;
    (*opened)++;
    unsigned limit = UNACKNOWLEDGED_MS;
    (void)setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit,
                     sizeof limit); /* not every socket is TCP */
    return CURL_SOCKOPT_OK;
}

/* "https://" or "http://", the host with its port, and what is behind it. */
struct url {
    const char *host; /* in config->server */
    size_t host_size; /* with the port */
    const char *rest; /* "" or "/prefix" */
};

static struct url split(const char *server)
{
    const char *host = strstr(server, "://") + 3; /* kml_kube_config_load has seen to it */
    size_t size = strcspn(host, "/");
    return (struct url){host, size, host + size};
}

/* The port with its colon, "" without one; the colons of an IPv6 address stand in brackets. */
static const char *port_of(const struct url *u, size_t *size)
{
    const char *at = u->host + u->host_size;
    while (at > u->host && *at != ':' && *at != ']') {
        at--;
    }
    bool there = *at == ':';
    *size = there ? (size_t)(u->host + u->host_size - at) : 0;
    return at;
}

/* curl looks for the URL's host in the certificate, so another name goes into the URL and the address beside
 * it. */
static void set_other_name(const struct kml_kube_config *config, const char *path, CURL *easy,
                           struct curl_slist **connect_to)
{
    struct url u = split(config->server);
    size_t port_size = 0;
    const char *port = port_of(&u, &port_size);
    const char *shown = port_size == 0 ? ":443" : port;
    size_t shown_size = port_size == 0 ? 4 : port_size;
    kml_auto_free char *url =
        kml_format("https://%s%.*s%s%s", config->tls_server_name, (int)shown_size, shown, u.rest, path);
    kml_auto_free char *to = kml_format("%s%.*s:%.*s%s", config->tls_server_name, (int)shown_size, shown,
                                        (int)u.host_size, u.host, port_size == 0 ? ":443" : "");
    *connect_to = curl_slist_append(NULL, to);
    (void)curl_easy_setopt(easy, CURLOPT_URL, url);
    (void)curl_easy_setopt(easy, CURLOPT_CONNECT_TO, *connect_to);
}

static void set_url(const struct kml_kube_config *config, const char *path, CURL *easy,
                    struct curl_slist **connect_to)
{
    if (config->tls_server_name != NULL && strncmp(config->server, "https://", 8) == 0) {
        set_other_name(config, path, easy, connect_to);
        return;
    }
    kml_auto_free char *url = kml_format("%s%s", config->server, path);
    (void)curl_easy_setopt(easy, CURLOPT_URL, url);
}

static void set_tls(const struct kml_kube_config *config, CURL *easy)
{
    (void)curl_easy_setopt(easy, CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2);
    if (config->insecure) {
        (void)curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
        (void)curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (config->proxy != NULL) {
        (void)curl_easy_setopt(easy, CURLOPT_PROXY, config->proxy);
    }
}

void kml_kube_transport_apply(const struct kml_kube_config *config, const char *path, CURL *easy,
                              struct curl_slist **connect_to)
{
    set_url(config, path, easy, connect_to);
    set_tls(config, easy);
    (void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "https,http");
    (void)curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    (void)curl_easy_setopt(easy, CURLOPT_PIPEWAIT, 1L); /* measured: without it 43 connections for 43 calls */
    (void)curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    (void)curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 15L);
    (void)curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 5L);
    (void)curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_socket);
    (void)curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 131072L);
}

static enum kml_code code_of(CURLcode code)
{
    switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_ISSUER_ERROR:
        return KML_UNAUTHENTICATED;
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_URL_MALFORMAT:
        return KML_INVALID;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
        return KML_PROTOCOL;
    case CURLE_OUT_OF_MEMORY:
        return KML_NO_MEMORY;
    default:
        return KML_UNAVAILABLE;
    }
}

int kml_kube_transport_fail(CURLcode code, const char *detail, const char *server, struct kml_err *err)
{
    const char *what = detail[0] != '\0' ? detail : curl_easy_strerror(code);
    return kml_fail(err, code_of(code), "the API server %.120s: %s", server, what);
}
