#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "kube/internal.h"

/* One call on its way through curl, from its request to its answer. */

#define BODY_MAX ((size_t)8 << 20)
#define STREAM_MAX ((size_t)64 << 20)  /* of what came at one go and was not handed out yet */
#define REFUSAL_MAX ((size_t)64 << 10) /* of a body that says why not; the rest is not looked at */
#define FLYING_MAX                                                                                           \
    64 /* calls, streams aside: a server allows 100 or more on one connection, and one is all we want */

static bool good(long http)
{
    return http >= 200 && http < 300;
}

static long http_of(const struct kml_kube_call *call)
{
    long http = 0;
    (void)curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &http);
    return http;
}

/* Nothing is handed out from inside curl: callers may send and cancel then, which curl does not allow. */
static size_t on_bytes(char *data, size_t one, size_t count, void *self)
{
    struct kml_kube_call *call = self;
    size_t size = one * count;
    call->client->heard = true;
    if (!good(http_of(call))) {
        size_t room = call->body.size < REFUSAL_MAX ? REFUSAL_MAX - call->body.size : 0;
        (void)!kml_buf_append(&call->body, data, size < room ? size : room, NULL);
        return size;
    }
    return kml_buf_append(&call->body, data, size, &call->broken) == 0 ? size : 0;
}

static size_t on_header(char *data, size_t one, size_t count, void *self)
{
    static const char name[] = "retry-after:";
    struct kml_kube_call *call = self;
    size_t size = one * count;
    call->client->heard = true;
    if (size > 5 && strncasecmp(data, "HTTP/", 5) == 0) {
        call->retry_after = 0; /* the answer after a 1xx, or a proxy's */
    }
    if (size < sizeof name || size > 64 || strncasecmp(data, name, sizeof name - 1) != 0) {
        return size;
    }
    kml_auto_free char *value = kml_strndup(data + sizeof name - 1, size - sizeof name + 1);
    const char *first = value + strspn(value, " \t");
    value[strcspn(value, "\r\n")] = '\0';
    call->retry_after = kml_kube_retry_after(first);
    return size;
}

void kml_kube_call_let_go(struct kml_kube_call *call)
{
    if (call->easy != NULL) {
        (void)curl_multi_remove_handle(call->client->multi, call->easy);
        curl_easy_cleanup(call->easy);
    }
    for (struct curl_slist *h = call->headers; h != NULL; h = h->next) {
        explicit_bzero(h->data, strlen(h->data)); /* one of them is the token */
    }
    curl_slist_free_all(call->headers);
    curl_slist_free_all(call->connect_to);
    call->easy = NULL;
    call->headers = NULL;
    call->connect_to = NULL;
}

static void add_header(struct kml_kube_call *call, const char *name, const char *value)
{
    kml_auto_free char *line = kml_format("%s: %s", name, value);
    call->headers = curl_slist_append(call->headers, line);
}

static void set_method(struct kml_kube_call *call)
{
    const struct kml_kube_request *r = &call->request;
    if (r->content_type != NULL) {
        (void)curl_easy_setopt(call->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body.size);
        (void)curl_easy_setopt(call->easy, CURLOPT_POSTFIELDS, kml_buf_text(&r->body));
        add_header(call, "Content-Type", r->content_type);
        add_header(call, "Expect", ""); /* no question before a large body */
    }
    (void)curl_easy_setopt(call->easy, CURLOPT_CUSTOMREQUEST, r->method);
    if (!call->how.stream) {
        (void)curl_easy_setopt(call->easy, CURLOPT_ACCEPT_ENCODING, "gzip");
    }
}

static int prepare(struct kml_kube_call *call, struct kml_err *err)
{
    struct kml_kube_client *c = call->client;
    call->easy = curl_easy_init();
    KML_BUG_ON(call->easy == NULL); /* a small allocation */
    call->detail[0] = '\0';
    call->retry_after = 0;
    kml_buf_clear(&call->body);
    kml_kube_transport_apply(c->config, call->request.path, call->easy, &call->connect_to);
    add_header(call, "Accept", "application/json, */*");
    set_method(call);
    (void)curl_easy_setopt(call->easy, CURLOPT_USERAGENT, c->agent);
    (void)curl_easy_setopt(call->easy, CURLOPT_WRITEFUNCTION, on_bytes);
    (void)curl_easy_setopt(call->easy, CURLOPT_WRITEDATA, call);
    (void)curl_easy_setopt(call->easy, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(call->easy, CURLOPT_HEADERDATA, call);
    (void)curl_easy_setopt(call->easy, CURLOPT_ERRORBUFFER, call->detail);
    (void)curl_easy_setopt(call->easy, CURLOPT_SOCKOPTDATA, &c->counts.connections);
    (void)curl_easy_setopt(call->easy, CURLOPT_PRIVATE, call);
    if (kml_kube_creds_apply(&c->creds, call->easy, &call->headers, err) != 0) {
        kml_kube_call_let_go(call);
        return -1;
    }
    (void)curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers);
    return 0;
}

static uint32_t flying(const struct kml_kube_client *c)
{
    uint32_t count = 0;
    for (const struct kml_kube_call *call = c->call; call != NULL; call = call->next) {
        count += call->easy != NULL && !call->how.stream ? 1 : 0;
    }
    return count;
}

int kml_kube_call_launch(struct kml_kube_call *call, uint64_t now_ns, struct kml_err *err)
{
    struct kml_kube_client *c = call->client;
    if (prepare(call, err) != 0) {
        return -1;
    }
    call->finished = false;
    call->sent_ns = now_ns;
    call->tries++;
    c->counts.requests++;
    c->counts.retries += call->tries > 1 ? 1 : 0;
    KML_BUG_ON(curl_multi_add_handle(c->multi, call->easy) != CURLM_OK);
    return 0;
}

/* Whether there is room for one more; what has to wait is started by check_times, the oldest first. */
bool kml_kube_call_may_launch(const struct kml_kube_call *call)
{
    return call->how.stream || flying(call->client) < FLYING_MAX;
}

int kml_kube_client_send(struct kml_kube_client *c, struct kml_kube_request *request,
                         const struct kml_kube_send *how, const struct kml_kube_sink *sink,
                         struct kml_kube_call **out, struct kml_err *err)
{
    uint64_t now = kml_now(&c->clock);
    if (kml_kube_creds_refresh(&c->creds, false, now, err) != 0) {
        kml_kube_request_finish(request);
        return -1;
    }
    struct kml_kube_call *call = KML_NEW(struct kml_kube_call);
    call->client = c;
    call->request = *request;
    *request = (struct kml_kube_request){0};
    call->how = how == NULL ? (struct kml_kube_send){0} : *how;
    call->sink = *sink;
    uint64_t time = call->how.deadline_ns;
    if (!call->how.stream && (time == 0 || time > KML_KUBE_DEADLINE)) {
        time = KML_KUBE_DEADLINE;
    }
    call->deadline_ns = time == 0 ? KML_KUBE_NEVER : now + time;
    size_t room = call->how.body_max == 0 ? BODY_MAX : call->how.body_max;
    kml_buf_init(&call->body, sink->bytes != NULL ? STREAM_MAX : room);
    call->start_ns = now;
    if (kml_kube_call_may_launch(call) && kml_kube_call_launch(call, now, err) != 0) {
        kml_kube_request_finish(&call->request);
        kml_free(call);
        return -1;
    }
    struct kml_kube_call **end = &c->call;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = call;
    if (out != NULL) {
        *out = call;
    }
    return 0;
}

void kml_kube_call_free(struct kml_kube_call *call)
{
    kml_kube_call_let_go(call);
    kml_kube_request_finish(&call->request);
    kml_buf_finish(&call->body);
    kml_free(call);
}

static void end_call(struct kml_kube_call *call, const struct kml_kube_answer *answer)
{
    struct kml_kube_client *c = call->client;
    kml_kube_call_let_go(call);
    call->ended = true;
    c->counts.answers += answer->status.http != 0 ? 1 : 0;
    c->counts.failures += answer->err != NULL && answer->err->code != KML_CANCELLED ? 1 : 0;
    call->sink.done(call->sink.self, answer);
}

/* Without an answer of the server. */
void kml_kube_call_break(struct kml_kube_call *call, const struct kml_err *why)
{
    end_call(call, &(struct kml_kube_answer){.err = why});
}

/* ---- What came ---- */

/* The bytes of a 2xx that were not handed out yet. False: the call ended over it. */
bool kml_kube_call_hand_out(struct kml_kube_call *call)
{
    if (call->sink.bytes == NULL || call->body.size == 0 || call->easy == NULL || !good(http_of(call))) {
        return !call->ended;
    }
    struct kml_buf bytes = call->body; /* the callback may cancel the call */
    kml_buf_init(&call->body, bytes.max);
    struct kml_err why = {0};
    int result = call->sink.bytes(call->sink.self, kml_buf_view(&bytes), &why);
    if (call->ended) {
        kml_buf_finish(&bytes);
        return false;
    }
    kml_buf_clear(&bytes);
    kml_buf_finish(&call->body);
    call->body = bytes;
    if (result != 0) {
        kml_kube_call_break(call, &why);
        return false;
    }
    return true;
}

/* The same call once more. False: it cannot be, and the answer stands. */
static bool again(struct kml_kube_call *call, uint64_t at_ns, bool reread)
{
    struct kml_kube_client *c = call->client;
    uint64_t now = kml_now(&c->clock);
    if (at_ns >= call->deadline_ns || (reread && kml_kube_creds_refresh(&c->creds, true, now, NULL) != 0)) {
        return false;
    }
    kml_kube_call_let_go(call);
    kml_buf_clear(&call->body);
    call->start_ns = at_ns;
    return true;
}

static bool try_again(struct kml_kube_call *call, const struct kml_kube_status *status)
{
    uint64_t now = kml_now(&call->client->clock);
    uint64_t wait = 0;
    if (status->http == 401 && !call->reread && kml_kube_creds_can_change(&call->client->creds)) {
        call->reread = true;
        return again(call, now, true);
    }
    bool may = !call->how.no_retry && !call->how.stream && kml_kube_status_retry(status, call->tries, &wait);
    return may && again(call, now + wait, false);
}

static void end_refused(struct kml_kube_call *call, long http)
{
    struct kml_kube_status status;
    kml_kube_status_read(&status, (int)http, call->retry_after, kml_buf_view(&call->body));
    if (try_again(call, &status)) {
        return;
    }
    struct kml_err why = {0};
    (void)kml_kube_status_fail(&status, &why);
    end_call(call, &(struct kml_kube_answer){.err = &why, .status = status});
}

/* curl is through with the call. */
void kml_kube_call_finish(struct kml_kube_call *call)
{
    struct kml_err why = {0};
    long http = http_of(call);
    if (!kml_kube_call_hand_out(call)) {
        return;
    }
    if (call->code != CURLE_OK) {
        if (call->broken.code == KML_OK) {
            (void)kml_kube_transport_fail(call->code, call->detail, call->client->config->server, &why);
        }
        kml_kube_call_break(call, call->broken.code == KML_OK ? &why : &call->broken);
    } else if (good(http)) {
        struct kml_kube_answer answer = {.status.http = (int)http, .body = kml_buf_view(&call->body)};
        end_call(call, &answer);
    } else {
        end_refused(call, http);
    }
}
