#ifndef KML_KUBE_KIND_H
#define KML_KUBE_KIND_H

#include <stdbool.h>

/* The kinds of objects we speak about, as the API server's paths and bodies name them. Constant data. */
struct kml_kube_kind {
    const char *group; /* "" for the core group */
    const char *version;
    const char *plural; /* "pods" */
    const char *kind;   /* "Pod" */
    bool namespaced;
};

extern const struct kml_kube_kind kml_kube_pods;
extern const struct kml_kube_kind kml_kube_services;
extern const struct kml_kube_kind kml_kube_secrets;
extern const struct kml_kube_kind kml_kube_configmaps;
extern const struct kml_kube_kind kml_kube_namespaces;
extern const struct kml_kube_kind kml_kube_nodes;
extern const struct kml_kube_kind kml_kube_events;      /* events.k8s.io/v1 */
extern const struct kml_kube_kind kml_kube_leases;      /* coordination.k8s.io/v1 */
extern const struct kml_kube_kind kml_kube_pod_metrics; /* metrics.k8s.io/v1beta1 */
extern const struct kml_kube_kind kml_kube_jobs;        /* kunal.ml/v1alpha1 kunaljobs */

/* "v1", "kunal.ml/v1alpha1" */
#define KML_KUBE_API_VERSION 128
void kml_kube_api_version(const struct kml_kube_kind *kind, char out[KML_KUBE_API_VERSION]);

#endif
