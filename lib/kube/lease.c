#include "kube/lease.h"

#include "base/mem.h"
#include "kube/request.h"

#define CALL_TIME                                                                                            \
    (5 * KML_SECOND) /* half of what a leader has to renew: one lost answer does not lose the lease */
#define MANAGER "kunal-operator"

struct kml_kube_lease {
    struct kml_kube_client *client;
    struct kml_kube_lease_options options;
    char *ns;
    char *name;
    struct kml_elector elector;
    enum kml_elector_state told;
    struct kml_elector_record sent; /* of the write under way */
    struct kml_kube_call *call;
    struct kml_kube_timer timer;
    bool stopped;
};

static void act(void *self);

static uint64_t now_of(const struct kml_kube_lease *l)
{
    return kml_kube_client_now(l->client);
}

static void report(struct kml_kube_lease *l, const struct kml_err *why)
{
    if (l->options.trouble != NULL) {
        struct kml_err err = *why;
        (void)kml_wrap(&err, "lease %s/%s", l->ns, l->name);
        l->options.trouble(l->options.self, &err);
    }
}

static void fail_call(struct kml_kube_lease *l, const struct kml_err *why)
{
    report(l, why);
    kml_elector_failed(&l->elector, now_of(l));
}

static int read_answer(struct kml_view body, struct kml_elector_record *record,
                       char version[KML_ELECTOR_VERSION], struct kml_err *err)
{
    struct kml_doc doc;
    kml_doc_init(&doc);
    int result = kml_doc_read(&doc, "Lease", body, err);
    if (result == 0) {
        result = kml_elector_read_json(doc.root, record, version, err);
    }
    kml_doc_finish(&doc);
    return result;
}

static void on_read(void *self, const struct kml_kube_answer *answer)
{
    struct kml_kube_lease *l = self;
    struct kml_elector_record record;
    char version[KML_ELECTOR_VERSION];
    struct kml_err why = {0};
    l->call = NULL;
    if (l->stopped) {
        return;
    }
    if (answer->err != NULL && answer->err->code == KML_NOT_FOUND) {
        kml_elector_missing(&l->elector, now_of(l));
    } else if (answer->err != NULL) {
        fail_call(l, answer->err);
    } else if (read_answer(answer->body, &record, version, &why) != 0) {
        fail_call(l, &why);
    } else {
        kml_elector_read(&l->elector, &record, version, now_of(l));
    }
    act(l);
}

static void on_written(void *self, const struct kml_kube_answer *answer)
{
    struct kml_kube_lease *l = self;
    struct kml_elector_record record;
    char version[KML_ELECTOR_VERSION];
    struct kml_err why = {0};
    l->call = NULL;
    if (l->stopped) {
        return;
    }
    if (answer->err != NULL) {
        fail_call(l, answer->err);
    } else if (read_answer(answer->body, &record, version, &why) != 0) {
        fail_call(l, &why);
    } else {
        kml_elector_wrote(&l->elector, &l->sent, version, now_of(l));
    }
    act(l);
}

static int make_request(struct kml_kube_lease *l, const struct kml_elector_want *want,
                        struct kml_kube_request *r, struct kml_err *err)
{
    const struct kml_kube_ref ref = {&kml_kube_leases, l->ns, l->name, NULL};
    if (want->act == KML_ELECTOR_READ) {
        return kml_kube_get(r, &ref, err);
    }
    struct kml_buf body;
    kml_buf_init(&body, 4096);
    const char *version = want->act == KML_ELECTOR_WRITE ? want->version : NULL;
    int result = kml_elector_write_json(&want->record, l->ns, l->name, version, &body, err);
    if (result == 0 && want->act == KML_ELECTOR_WRITE) {
        result = kml_kube_replace(r, &ref, kml_buf_view(&body), MANAGER, err);
    } else if (result == 0) {
        result = kml_kube_create(r, &ref, kml_buf_view(&body), MANAGER, err);
    }
    kml_buf_finish(&body);
    l->sent = want->record;
    return result;
}

static void call(struct kml_kube_lease *l, const struct kml_elector_want *want)
{
    struct kml_kube_request r;
    struct kml_err why = {0};
    const struct kml_kube_send how = {.deadline_ns = CALL_TIME, .no_retry = true};
    const struct kml_kube_sink sink = {NULL, want->act == KML_ELECTOR_READ ? on_read : on_written, l};
    if (make_request(l, want, &r, &why) != 0 ||
        kml_kube_client_send(l->client, &r, &how, &sink, &l->call, &why) != 0) {
        fail_call(l, &why);
    }
}

static void tell(struct kml_kube_lease *l)
{
    if (l->elector.state != l->told) {
        l->told = l->elector.state;
        l->options.changed(l->options.self, l->told);
    }
}

static void act(void *self)
{
    struct kml_kube_lease *l = self;
    struct kml_elector_want want;
    kml_elector_next(&l->elector, now_of(l), kml_wall_ns(), &want);
    if (want.act != KML_ELECTOR_WAIT) {
        call(l, &want);
        kml_elector_next(&l->elector, now_of(l), kml_wall_ns(), &want); /* until when that may take */
    }
    if (want.until_ns != UINT64_MAX) {
        kml_kube_timer_set(l->client, &l->timer, want.until_ns);
    }
    tell(l);
}

struct kml_kube_lease *kml_kube_lease_start(struct kml_kube_client *client,
                                            const struct kml_kube_lease_options *options)
{
    struct kml_kube_lease *l = KML_NEW(struct kml_kube_lease);
    l->client = client;
    l->options = *options;
    l->ns = kml_strdup(options->ns);
    l->name = kml_strdup(options->name);
    l->told = KML_ELECTOR_WAITING;
    l->timer = (struct kml_kube_timer){.fire = act, .self = l};
    kml_elector_init(&l->elector, options->identity, options->seed);
    kml_kube_timer_set(client, &l->timer, kml_kube_client_now(client));
    return l;
}

bool kml_kube_lease_leads(const struct kml_kube_lease *l)
{
    return kml_elector_leads(&l->elector, now_of(l));
}

void kml_kube_lease_release(struct kml_kube_lease *l)
{
    kml_elector_release(&l->elector);
    kml_kube_timer_set(l->client, &l->timer, now_of(l));
}

void kml_kube_lease_stop(struct kml_kube_lease *l)
{
    if (l == NULL) {
        return;
    }
    l->stopped = true;
    kml_kube_timer_stop(l->client, &l->timer);
    if (l->call != NULL) {
        kml_kube_client_cancel(l->client, l->call);
    }
    kml_free(l->ns);
    kml_free(l->name);
    kml_free(l);
}
