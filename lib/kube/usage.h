#ifndef KML_KUBE_USAGE_H
#define KML_KUBE_USAGE_H

#include <stdint.h>

#include "base/err.h"
#include "doc/doc.h"

/* What metrics.k8s.io says about a pod: the sum over its containers. Pure; the list is a kml_kube_list of
 * pod_metrics. */
struct kml_kube_usage {
    const char *ns; /* borrowed from the node */
    const char *pod;
    double cpu_cores;
    double memory_bytes;
    uint64_t at_wall_ns; /* end of the window */
    double window_seconds;
};

int kml_kube_usage_read(const struct kml_node *pod_metrics, struct kml_kube_usage *out,
                        struct kml_err *err) KML_MUST_CHECK;

#endif
