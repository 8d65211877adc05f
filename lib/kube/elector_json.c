#include <stdio.h>
#include <string.h>

#include "doc/json.h"
#include "kube/elector.h"
#include "kube/text.h"

/* The Lease object of coordination.k8s.io/v1. */

int kml_elector_write_json(const struct kml_elector_record *record, const char *ns, const char *name,
                           const char *version, struct kml_buf *out, struct kml_err *err)
{
    char acquired[KML_KUBE_TIME];
    char renewed[KML_KUBE_TIME];
    kml_kube_time_micro(record->acquire_wall_ns, acquired);
    kml_kube_time_micro(record->renew_wall_ns, renewed);
    struct kml_json w;
    kml_json_begin(&w, out);
    kml_json_text(&w, "apiVersion", "coordination.k8s.io/v1");
    kml_json_text(&w, "kind", "Lease");
    kml_json_map(&w, "metadata");
    kml_json_text(&w, "name", name);
    kml_json_text(&w, "namespace", ns);
    if (version != NULL) {
        kml_json_text(&w, "resourceVersion", version);
    }
    kml_json_close(&w);
    kml_json_map(&w, "spec");
    kml_json_text(&w, "holderIdentity", record->holder);
    kml_json_uint(&w, "leaseDurationSeconds", record->duration_seconds);
    kml_json_text(&w, "acquireTime", acquired);
    kml_json_text(&w, "renewTime", renewed);
    kml_json_uint(&w, "leaseTransitions", record->transitions);
    return kml_json_end_bare(&w, err);
}

static const char *text_of(const struct kml_node *map, const char *key)
{
    const struct kml_node *node = kml_node_get(map, key);
    return node == NULL || node->kind != KML_NODE_TEXT ? "" : node->text;
}

static uint32_t count_of(const struct kml_node *map, const char *key)
{
    const struct kml_node *node = kml_node_get(map, key);
    bool good = node != NULL && node->kind == KML_NODE_INT && node->value.integer >= 0 &&
                node->value.integer <= INT32_MAX;
    return good ? (uint32_t)node->value.integer : 0;
}

/* Times of other machines are only compared for equality, so a strange one is as good as none. */
static uint64_t time_of(const struct kml_node *map, const char *key)
{
    uint64_t ns = 0;
    return kml_kube_time_read(text_of(map, key), &ns, NULL) == 0 ? ns : 0;
}

int kml_elector_read_json(const struct kml_node *lease, struct kml_elector_record *record,
                          char version[KML_ELECTOR_VERSION], struct kml_err *err)
{
    const struct kml_node *spec = kml_node_get(lease, "spec");
    const char *holder = text_of(spec, "holderIdentity");
    const char *newest = text_of(kml_node_get(lease, "metadata"), "resourceVersion");
    if (strlen(holder) >= sizeof record->holder || newest[0] == '\0' ||
        strlen(newest) >= KML_ELECTOR_VERSION) {
        return kml_fail(err, KML_PROTOCOL,
                        "a Lease without a resourceVersion, or with a holder longer than %d bytes",
                        KML_ELECTOR_NAME - 1);
    }
    *record = (struct kml_elector_record){
        .duration_seconds = count_of(spec, "leaseDurationSeconds"),
        .acquire_wall_ns = time_of(spec, "acquireTime"),
        .renew_wall_ns = time_of(spec, "renewTime"),
        .transitions = count_of(spec, "leaseTransitions"),
    };
    (void)snprintf(record->holder, sizeof record->holder, "%s", holder);
    (void)snprintf(version, KML_ELECTOR_VERSION, "%s", newest);
    return 0;
}
