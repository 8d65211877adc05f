#include "kube/client.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "kube/internal.h"

#define SILENCE (30 * KML_SECOND)
#define PROBE (10 * KML_SECOND)
#define BODY_MAX ((size_t)8 << 20)
#define STREAM_MAX ((size_t)64 << 20)  /* of what came at one go and was not handed out yet */
#define REFUSAL_MAX ((size_t)64 << 10) /* of a body that says why not; the rest is not looked at */
#define NEVER UINT64_MAX
#define WAIT_MAX (60 * KML_SECOND)

struct kml_kube_call {
    struct kml_kube_client *client;
    struct kml_kube_call *next;
    struct kml_kube_request request;
    struct kml_kube_send how;
    struct kml_kube_sink sink;
    CURL *easy; /* NULL: not under way */
    struct curl_slist *headers;
    struct curl_slist *connect_to;
    char detail[CURL_ERROR_SIZE];
    struct kml_buf body;  /* collected, or not handed out yet */
    uint64_t deadline_ns; /* NEVER: none */
    uint64_t start_ns;    /* of the next try, when not under way */
    uint64_t sent_ns;     /* of the last try */
    uint32_t tries;
    uint32_t retry_after;  /* of the answer's header */
    bool reread;           /* credentials were read again for it */
    bool ended;            /* done was called; freed after the step */
    bool finished;         /* curl is through with it */
    CURLcode code;         /* when finished */
    struct kml_err broken; /* why we ended it ourselves */
};

struct kml_kube_client {
    const struct kml_kube_config *config;
    struct kml_clock clock;
    char *agent;
    uint64_t silence_ns;
    uint64_t probe_ns;
    CURLM *multi;
    int wake;
    struct kml_kube_creds creds;
    struct kml_kube_call *call; /* newest first */
    struct kml_kube_timer *timer;
    uint64_t heard_ns; /* when the server last said anything */
    bool heard;        /* in this step */
    bool stepping;
    bool probing;
    bool dead; /* the connections are to be given up */
    struct kml_kube_client_counts counts;
};

uint64_t kml_kube_client_now(const struct kml_kube_client *c)
{
    return kml_now(&c->clock);
}

void kml_kube_client_counts(const struct kml_kube_client *c, struct kml_kube_client_counts *out)
{
    *out = c->counts;
    out->token_reads = c->creds.token_reads;
}

static void open_multi(struct kml_kube_client *c)
{
    c->multi = curl_multi_init();
    KML_BUG_ON(c->multi == NULL); /* a small allocation */
    (void)curl_multi_setopt(c->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_MULTIPLEX);
}

int kml_kube_client_create(struct kml_kube_client **out, const struct kml_kube_config *config,
                           const struct kml_kube_client_options *options, struct kml_err *err)
{
    struct kml_kube_client_options none = {0};
    const struct kml_kube_client_options *o = options == NULL ? &none : options;
    int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake < 0) {
        return kml_fail_errno(err, errno, "a wake-up for the client of the API server");
    }
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        close(wake);
        return kml_fail(err, KML_INTERNAL, "libcurl does not start");
    }
    struct kml_kube_client *c = KML_NEW(struct kml_kube_client);
    c->config = config;
    c->wake = wake;
    c->clock = o->clock.now_ns == NULL ? kml_clock_monotonic() : o->clock;
    c->agent = kml_strdup(o->user_agent == NULL ? "kunal-ml/" KML_VERSION : o->user_agent);
    c->silence_ns = o->silence_ns == 0 ? SILENCE : o->silence_ns;
    c->probe_ns = o->probe_ns == 0 ? PROBE : o->probe_ns;
    kml_kube_creds_init(&c->creds, config);
    open_multi(c);
    *out = c;
    return 0;
}

/* ---- One call's way through curl ---- */

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

static void let_go(struct kml_kube_call *call)
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
    (void)curl_easy_setopt(call->easy, CURLOPT_PRIVATE, call);
    if (kml_kube_creds_apply(&c->creds, call->easy, &call->headers, err) != 0) {
        let_go(call);
        return -1;
    }
    (void)curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers);
    return 0;
}

static int launch(struct kml_kube_call *call, uint64_t now_ns, struct kml_err *err)
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
    call->deadline_ns = time == 0 ? NEVER : now + time;
    size_t room = call->how.body_max == 0 ? BODY_MAX : call->how.body_max;
    kml_buf_init(&call->body, sink->bytes != NULL ? STREAM_MAX : room);
    if (launch(call, now, err) != 0) {
        kml_kube_request_finish(&call->request);
        kml_free(call);
        return -1;
    }
    call->next = c->call;
    c->call = call;
    if (out != NULL) {
        *out = call;
    }
    return 0;
}

static void free_call(struct kml_kube_call *call)
{
    let_go(call);
    kml_kube_request_finish(&call->request);
    kml_buf_finish(&call->body);
    kml_free(call);
}

/* Ended calls stay in the list while a step walks over it. */
static void sweep(struct kml_kube_client *c)
{
    for (struct kml_kube_call **at = &c->call; *at != NULL;) {
        struct kml_kube_call *call = *at;
        if (!call->ended) {
            at = &call->next;
            continue;
        }
        *at = call->next;
        free_call(call);
    }
}

static void end_call(struct kml_kube_call *call, const struct kml_kube_answer *answer)
{
    struct kml_kube_client *c = call->client;
    let_go(call);
    call->ended = true;
    c->counts.failures += answer->err != NULL && answer->err->code != KML_CANCELLED ? 1 : 0;
    call->sink.done(call->sink.self, answer);
}

/* Without an answer of the server. */
static void end_broken(struct kml_kube_call *call, const struct kml_err *why)
{
    end_call(call, &(struct kml_kube_answer){.err = why});
}

void kml_kube_client_cancel(struct kml_kube_client *c, struct kml_kube_call *call)
{
    if (call->ended) {
        return;
    }
    struct kml_err why = {0};
    (void)kml_fail(&why, KML_CANCELLED, "the call was cancelled");
    end_broken(call, &why);
    if (!c->stepping) {
        sweep(c);
    }
}

/* ---- What came ---- */

/* The bytes of a 2xx that were not handed out yet. False: the call ended over it. */
static bool hand_out(struct kml_kube_call *call)
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
        end_broken(call, &why);
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
    let_go(call);
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

static void count_connections(struct kml_kube_call *call)
{
    long opened = 0;
    (void)curl_easy_getinfo(call->easy, CURLINFO_NUM_CONNECTS, &opened);
    call->client->counts.connections += (uint64_t)opened;
}

/* curl is through with the call. */
static void finish(struct kml_kube_call *call)
{
    struct kml_err why = {0};
    long http = http_of(call);
    count_connections(call);
    if (!hand_out(call)) {
        return;
    }
    if (call->code != CURLE_OK) {
        if (call->broken.code == KML_OK) {
            (void)kml_kube_transport_fail(call->code, call->detail, call->client->config->server, &why);
        }
        end_broken(call, call->broken.code == KML_OK ? &why : &call->broken);
    } else if (good(http)) {
        struct kml_kube_answer answer = {.status.http = (int)http, .body = kml_buf_view(&call->body)};
        end_call(call, &answer);
    } else {
        end_refused(call, http);
    }
}

/* First who is through is noted, then all are told: telling one may change what curl holds of another. */
static void collect(struct kml_kube_client *c)
{
    int left = 0;
    for (CURLMsg *m = curl_multi_info_read(c->multi, &left); m != NULL;
         m = curl_multi_info_read(c->multi, &left)) {
        struct kml_kube_call *call = NULL;
        (void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &call);
        call->finished = true;
        call->code = m->data.result;
    }
    for (struct kml_kube_call *call = c->call; call != NULL; call = call->next) {
        if (call->ended || call->easy == NULL) {
            continue;
        }
        if (call->finished) {
            finish(call);
        } else {
            (void)hand_out(call);
        }
    }
}

/* ---- Time ---- */

void kml_kube_timer_stop(struct kml_kube_client *c, struct kml_kube_timer *timer)
{
    for (struct kml_kube_timer **at = &c->timer; *at != NULL && timer->set; at = &(*at)->next) {
        if (*at == timer) {
            *at = timer->next;
            timer->set = false;
            return;
        }
    }
}

void kml_kube_timer_set(struct kml_kube_client *c, struct kml_kube_timer *timer, uint64_t at_ns)
{
    kml_kube_timer_stop(c, timer);
    struct kml_kube_timer **at = &c->timer; /* the earliest first */
    while (*at != NULL && (*at)->at_ns <= at_ns) {
        at = &(*at)->next;
    }
    timer->at_ns = at_ns;
    timer->set = true;
    timer->next = *at;
    *at = timer;
}

/* As many as were set at first: one that sets itself again for now has its turn in the next step. */
static void fire_timers(struct kml_kube_client *c, uint64_t now_ns)
{
    uint32_t count = 0;
    for (struct kml_kube_timer *t = c->timer; t != NULL && t->at_ns <= now_ns; t = t->next) {
        count++;
    }
    for (; count > 0 && c->timer != NULL && c->timer->at_ns <= now_ns; count--) {
        struct kml_kube_timer *timer = c->timer;
        c->timer = timer->next;
        timer->set = false;
        timer->fire(timer->self);
    }
}

static void time_out(struct kml_kube_call *call, uint64_t now_ns)
{
    struct kml_kube_client *c = call->client;
    bool silent = call->easy != NULL && c->heard_ns < call->sent_ns && now_ns - call->sent_ns >= c->probe_ns;
    c->dead = c->dead || silent;
    struct kml_err why = {0};
    (void)kml_fail(&why, KML_TIMEOUT, "the API server %.120s gave no whole answer to %s %.200s in time",
                   c->config->server, call->request.method, call->request.path);
    end_broken(call, &why);
}

static void start_again(struct kml_kube_call *call, uint64_t now_ns)
{
    struct kml_err why = {0};
    if (kml_kube_creds_refresh(&call->client->creds, false, now_ns, &why) != 0 ||
        launch(call, now_ns, &why) != 0) {
        end_broken(call, &why);
    }
}

static void check_times(struct kml_kube_client *c, uint64_t now_ns)
{
    for (struct kml_kube_call *call = c->call; call != NULL; call = call->next) {
        if (call->ended) {
            continue;
        }
        if (now_ns >= call->deadline_ns) {
            time_out(call, now_ns);
        } else if (call->easy == NULL && now_ns >= call->start_ns) {
            start_again(call, now_ns);
        }
    }
}

/* ---- Is anybody there? ---- */

static void on_probe(void *self, const struct kml_kube_answer *answer)
{
    struct kml_kube_client *c = self;
    c->probing = false;
    bool cancelled = answer->err != NULL && answer->err->code == KML_CANCELLED;
    c->dead = c->dead || (answer->status.http == 0 && !cancelled);
}

static void probe(struct kml_kube_client *c)
{
    struct kml_kube_request r = {.method = "GET", .path = kml_strdup("/version"), .reads = true};
    kml_buf_init(&r.body, 0);
    const struct kml_kube_send how = {.deadline_ns = c->probe_ns, .no_retry = true};
    const struct kml_kube_sink sink = {.done = on_probe, .self = c};
    c->probing = kml_kube_client_send(c, &r, &how, &sink, NULL, NULL) == 0;
}

/* When a silent stream makes us ask; NEVER without a stream. */
static uint64_t probe_ns(const struct kml_kube_client *c)
{
    uint64_t oldest = NEVER;
    for (const struct kml_kube_call *call = c->call; call != NULL; call = call->next) {
        bool waits = call->how.stream && call->easy != NULL && !call->ended;
        if (waits && call->sent_ns < oldest) {
            oldest = call->sent_ns;
        }
    }
    if (oldest == NEVER || c->probing) {
        return NEVER;
    }
    return (oldest > c->heard_ns ? oldest : c->heard_ns) + c->silence_ns;
}

/* Only a new multi handle is sure to forget a connection that still looks alive. */
static void give_up_connections(struct kml_kube_client *c)
{
    struct kml_err why = {0};
    (void)kml_fail(&why, KML_UNAVAILABLE, "the API server %.120s is silent; its connections were given up",
                   c->config->server);
    CURLM *old = c->multi;
    c->counts.resets++;
    struct kml_kube_call *newest = c->call;
    for (struct kml_kube_call *call = newest; call != NULL; call = call->next) {
        let_go(call); /* while their multi handle is there: callbacks below may send already */
    }
    (void)curl_multi_cleanup(old);
    open_multi(c);
    for (struct kml_kube_call *call = newest; call != NULL; call = call->next) {
        bool waits_to_start = call->start_ns > call->sent_ns;
        if (!call->ended && !waits_to_start) {
            end_broken(call, &why);
        }
    }
    c->dead = false;
}

/* ---- The loop ---- */

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t next_time(const struct kml_kube_client *c)
{
    uint64_t next = probe_ns(c);
    next = c->timer == NULL ? next : sooner(next, c->timer->at_ns);
    for (const struct kml_kube_call *call = c->call; call != NULL; call = call->next) {
        next = sooner(next, call->deadline_ns);
        next = call->easy == NULL ? sooner(next, call->start_ns) : next;
    }
    return next;
}

static void wait(struct kml_kube_client *c, uint64_t wait_ns)
{
    uint64_t now = kml_now(&c->clock);
    uint64_t next = next_time(c);
    uint64_t most = sooner(sooner(wait_ns, WAIT_MAX), next <= now ? 0 : next - now);
    struct curl_waitfd wake = {.fd = c->wake, .events = CURL_WAIT_POLLIN};
    int ms = (int)((most + KML_MILLISECOND - 1) / KML_MILLISECOND);
    (void)curl_multi_poll(c->multi, &wake, 1, ms, NULL);
    uint64_t count = 0;
    (void)!read(c->wake, &count, sizeof count); /* empties it; there may be nothing */
}

void kml_kube_client_step(struct kml_kube_client *c, uint64_t wait_ns)
{
    KML_BUG_ON(c->stepping);
    c->stepping = true;
    int running = 0;
    wait(c, wait_ns);
    c->heard = false;
    (void)curl_multi_perform(c->multi, &running);
    uint64_t now = kml_now(&c->clock);
    c->heard_ns = c->heard ? now : c->heard_ns;
    collect(c);
    check_times(c, now);
    fire_timers(c, now);
    if (now >= probe_ns(c)) {
        probe(c);
    }
    if (c->dead) {
        give_up_connections(c);
    }
    c->stepping = false;
    sweep(c);
}

void kml_kube_client_run(struct kml_kube_client *c, uint64_t until_ns, const bool *stop)
{
    for (uint64_t now = kml_now(&c->clock); now < until_ns && !(stop != NULL && *stop);
         now = kml_now(&c->clock)) {
        kml_kube_client_step(c, until_ns - now);
    }
}

void kml_kube_client_wake(struct kml_kube_client *c)
{
    uint64_t one = 1;
    (void)!write(c->wake, &one, sizeof one); /* when it is full, it is awake */
}

void kml_kube_client_destroy(struct kml_kube_client *c)
{
    if (c == NULL) {
        return;
    }
    KML_BUG_ON(c->stepping);
    c->stepping = true;
    struct kml_err why = {0};
    (void)kml_fail(&why, KML_CANCELLED, "the client is closed");
    for (struct kml_kube_call *call = c->call; call != NULL; call = call->next) {
        if (!call->ended) {
            end_broken(call, &why);
        }
    }
    sweep(c);
    (void)curl_multi_cleanup(c->multi);
    kml_kube_creds_finish(&c->creds);
    close(c->wake);
    kml_free(c->agent);
    kml_free(c);
    curl_global_cleanup();
}

/* ---- One call, waited for ---- */

struct waited {
    bool done;
    int result;
    struct kml_doc *doc;
    struct kml_kube_status *status;
    struct kml_err *err;
};

static void on_waited(void *self, const struct kml_kube_answer *answer)
{
    struct waited *w = self;
    w->done = true;
    if (w->status != NULL) {
        *w->status = answer->status;
    }
    if (answer->err != NULL) {
        w->result = kml_fail(w->err, answer->err->code, "%s", answer->err->text);
    } else if (w->doc != NULL) {
        w->result = kml_doc_read(w->doc, "the API server's answer", answer->body, w->err);
    }
}

int kml_kube_call(struct kml_kube_client *c, struct kml_kube_request *request, struct kml_doc *doc,
                  struct kml_kube_status *status, struct kml_err *err)
{
    struct waited w = {.doc = doc, .status = status, .err = err};
    const struct kml_kube_sink sink = {.done = on_waited, .self = &w};
    if (status != NULL) {
        *status = (struct kml_kube_status){0};
    }
    if (kml_kube_client_send(c, request, NULL, &sink, NULL, err) != 0) {
        return -1;
    }
    while (!w.done) {
        kml_kube_client_step(c, KML_SECOND);
    }
    return w.result;
}
