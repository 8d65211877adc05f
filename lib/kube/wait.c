#include "kube/client.h"

/* One call, waited for. */

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
