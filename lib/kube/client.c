#include "kube/client.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "kube/internal.h"

/* The client's loop: who is through, what time it is, whether anybody is there. */

#define SILENCE (30 * KML_SECOND)
#define PROBE (10 * KML_SECOND)
#define WAIT_MAX (60 * KML_SECOND)

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
        kml_kube_call_free(call);
    }
}

void kml_kube_client_cancel(struct kml_kube_client *c, struct kml_kube_call *call)
{
    if (call->ended) {
        return;
    }
    struct kml_err why = {0};
    (void)kml_fail(&why, KML_CANCELLED, "the call was cancelled");
    kml_kube_call_break(call, &why);
    if (!c->stepping) {
        sweep(c);
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
            kml_kube_call_finish(call);
        } else {
            (void)kml_kube_call_hand_out(call);
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
    kml_kube_call_break(call, &why);
}

static void start_again(struct kml_kube_call *call, uint64_t now_ns)
{
    struct kml_err why = {0};
    if (kml_kube_creds_refresh(&call->client->creds, false, now_ns, &why) != 0 ||
        kml_kube_call_launch(call, now_ns, &why) != 0) {
        kml_kube_call_break(call, &why);
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
        } else if (call->easy == NULL && now_ns >= call->start_ns && kml_kube_call_may_launch(call)) {
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

/* When a silent stream makes us ask; KML_KUBE_NEVER without a stream. */
static uint64_t probe_ns(const struct kml_kube_client *c)
{
    uint64_t oldest = KML_KUBE_NEVER;
    for (const struct kml_kube_call *call = c->call; call != NULL; call = call->next) {
        bool waits = call->how.stream && call->easy != NULL && !call->ended;
        if (waits && call->sent_ns < oldest) {
            oldest = call->sent_ns;
        }
    }
    if (oldest == KML_KUBE_NEVER || c->probing) {
        return KML_KUBE_NEVER;
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
    for (struct kml_kube_call *call = c->call; call != NULL; call = call->next) {
        call->lost = call->easy != NULL && !call->ended;
        kml_kube_call_let_go(call); /* while their multi handle is there: callbacks below may send already */
    }
    (void)curl_multi_cleanup(old);
    open_multi(c);
    for (struct kml_kube_call *call = c->call; call != NULL; call = call->next) {
        if (call->lost && !call->ended) {
            kml_kube_call_break(call, &why);
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
        next = call->easy == NULL && kml_kube_call_may_launch(call) ? sooner(next, call->start_ns) : next;
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
            kml_kube_call_break(call, &why);
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
