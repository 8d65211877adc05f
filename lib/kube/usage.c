#include "kube/usage.h"

#include "base/clock.h"
#include "base/parse.h"
#include "kube/text.h"

static const char *text_of(const struct kml_node *map, const char *key)
{
    const struct kml_node *node = kml_node_get(map, key);
    return node == NULL || node->kind != KML_NODE_TEXT ? "" : node->text;
}

static int add_container(const struct kml_node *container, struct kml_kube_usage *out, struct kml_err *err)
{
    const struct kml_node *usage = kml_node_get(container, "usage");
    double cpu = 0;
    double memory = 0;
    if (kml_parse_quantity(text_of(usage, "cpu"), &cpu, err) != 0 ||
        kml_parse_quantity(text_of(usage, "memory"), &memory, err) != 0) {
        return kml_wrap(err, "container %.63s", text_of(container, "name"));
    }
    out->cpu_cores += cpu;
    out->memory_bytes += memory;
    return 0;
}

int kml_kube_usage_read(const struct kml_node *pod_metrics, struct kml_kube_usage *out, struct kml_err *err)
{
    const struct kml_node *meta = kml_node_get(pod_metrics, "metadata");
    const struct kml_node *containers = kml_node_get(pod_metrics, "containers");
    struct kml_kube_usage u = {.ns = text_of(meta, "namespace"), .pod = text_of(meta, "name")};
    uint64_t window_ns = 0;
    if (u.pod[0] == '\0' || containers == NULL || containers->kind != KML_NODE_LIST) {
        return kml_fail(err, KML_INVALID, "pod metrics without a name or containers");
    }
    if (kml_kube_time_read(text_of(pod_metrics, "timestamp"), &u.at_wall_ns, err) != 0 ||
        kml_parse_duration(text_of(pod_metrics, "window"), &window_ns, err) != 0) {
        return kml_wrap(err, "metrics of pod %.253s", u.pod);
    }
    u.window_seconds = (double)window_ns / (double)KML_SECOND;
    for (uint32_t i = 0; i < containers->count; i++) {
        if (add_container(containers->child[i], &u, err) != 0) {
            return kml_wrap(err, "metrics of pod %.253s", u.pod);
        }
    }
    *out = u;
    return 0;
}
