#include "cli/driver.h"

#include "base/clock.h"
#include "base/mem.h"
#include "rpc/channel.h"
#include "rpc/creds.h"
#include "wire/message.h"

#define CALL_TIMEOUT (2 * KML_SECOND)
#define STOP_TIMEOUT (10 * KML_SECOND)

int kml_driver_open(struct kml_driver *d, struct kml_loop *loop, const char *address, const char *tls,
                    const char *uid, struct kml_err *err)
{
    *d = (struct kml_driver){.loop = loop};
    struct kml_creds *creds = NULL;
    if (tls == NULL) {
        creds = kml_creds_plaintext();
    } else if (kml_creds_mtls(tls, &creds, err) < 0) {
        return -1;
    }
    int result = kml_channel_create(loop, address, creds, &d->channel, err);
    kml_creds_destroy(creds);
    if (result == 0) {
        d->uid = kml_strdup(uid);
    }
    return result;
}

void kml_driver_close(struct kml_driver *d)
{
    while (d->calls > 0) {
        (void)kml_loop_run(d->loop, UINT64_MAX, true);
    }
    kml_channel_destroy(d->channel);
    kml_message_free(d->status == NULL ? NULL : &d->status->base);
    kml_free(d->uid);
    *d = (struct kml_driver){0};
}

static void call(struct kml_driver *d, const char *method, const ProtobufCMessage *request,
                 uint64_t timeout_ns, kml_reply_fn *done)
{
    struct kml_buf bytes;
    kml_buf_init(&bytes, KML_CONTROL_MAX);
    if (kml_message_pack(request, &bytes, &d->trouble) == 0 &&
        kml_call(d->channel, method, kml_buf_view(&bytes), timeout_ns, done, d, &d->trouble) == 0) {
        d->calls++;
    }
    kml_buf_finish(&bytes);
}

static void told(void *self, const struct kml_slices *reply, const struct kml_err *why)
{
    struct kml_driver *d = self;
    (void)reply;
    d->calls--;
    if (why->code != KML_OK) {
        d->trouble = *why;
    }
}

static void status_came(void *self, const struct kml_slices *reply, const struct kml_err *why)
{
    struct kml_driver *d = self;
    told(self, reply, why);
    d->asking = false;
    ProtobufCMessage *message;
    if (why->code != KML_OK ||
        kml_message_unpack(&kunal__v1__job_status__descriptor, reply, &message, &d->trouble) < 0) {
        return;
    }
    kml_message_free(d->status == NULL ? NULL : &d->status->base);
    d->status = (Kunal__V1__JobStatus *)message;
    d->answered_ns = d->asked_ns;
}

void kml_driver_ask(struct kml_driver *d, uint64_t now_ns)
{
    if (d->channel == NULL || d->asking) {
        return;
    }
    Kunal__V1__StatusRequest request = KUNAL__V1__STATUS_REQUEST__INIT;
    request.job_uid = d->uid;
    uint32_t before = d->calls;
    call(d, "/kunal.v1.Control/GetStatus", &request.base, CALL_TIMEOUT, status_came);
    d->asking = d->calls > before;
    d->asked_ns = now_ns;
}

void kml_driver_report(struct kml_driver *d, const Kunal__V1__NodeMetrics *metrics)
{
    call(d, "/kunal.v1.Control/ReportNodeMetrics", &metrics->base, CALL_TIMEOUT, told);
}

void kml_driver_stop(struct kml_driver *d, const char *reason)
{
    Kunal__V1__StopJobRequest request = KUNAL__V1__STOP_JOB_REQUEST__INIT;
    kml_auto_free char *text = kml_strdup(reason);
    request.job_uid = d->uid;
    request.reason = text;
    call(d, "/kunal.v1.Control/StopJob", &request.base, STOP_TIMEOUT, told);
}
