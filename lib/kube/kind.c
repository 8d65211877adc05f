#include "kube/kind.h"

#include <stdio.h>

const struct kml_kube_kind kml_kube_pods = {"", "v1", "pods", "Pod", true};
const struct kml_kube_kind kml_kube_services = {"", "v1", "services", "Service", true};
const struct kml_kube_kind kml_kube_secrets = {"", "v1", "secrets", "Secret", true};
const struct kml_kube_kind kml_kube_configmaps = {"", "v1", "configmaps", "ConfigMap", true};
const struct kml_kube_kind kml_kube_namespaces = {"", "v1", "namespaces", "Namespace", false};
const struct kml_kube_kind kml_kube_nodes = {"", "v1", "nodes", "Node", false};
const struct kml_kube_kind kml_kube_events = {"events.k8s.io", "v1", "events", "Event", true};
const struct kml_kube_kind kml_kube_leases = {"coordination.k8s.io", "v1", "leases", "Lease", true};
const struct kml_kube_kind kml_kube_pod_metrics = {"metrics.k8s.io", "v1beta1", "pods", "PodMetrics", true};
const struct kml_kube_kind kml_kube_jobs = {"kunal.ml", "v1alpha1", "kunaljobs", "KunalJob", true};

void kml_kube_api_version(const struct kml_kube_kind *kind, char out[KML_KUBE_API_VERSION])
{
    const char *slash = kind->group[0] == '\0' ? "" : "/";
    (void)snprintf(out, KML_KUBE_API_VERSION, "%s%s%s", kind->group, slash, kind->version);
}
