# shellcheck shell=bash disable=SC2154
# etcd, the API server, the controller manager and the scheduler: plain processes in the control plane's
# namespace.

# Every call but those of the API server to itself, at level Metadata: the tests judge the operator by it.
audit_policy() {
    cat <<'END'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: ["system:apiserver"]}
- {level: Metadata}
END
}

start_etcd() {
    mkdir -m 700 "$run/etcd"
    start_in_control etcd "$bin/etcd" --name kunal --data-dir "$run/etcd" \
        --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
        --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
        --initial-cluster kunal=http://127.0.0.1:2380 --quota-backend-bytes 8589934592
}

start_apiserver() {
    audit_policy >"$run/audit-policy.yaml"
    # --enable-aggregator-routing: no kube-proxy runs beside the API server, so it finds metrics-server by its
    # endpoints.
    start_in_control apiserver "$bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 \
        --bind-address=0.0.0.0 --secure-port=6443 --advertise-address="$control_ip" \
        --service-cluster-ip-range="$service_range" \
        --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
        --client-ca-file="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP \
        --kubelet-client-certificate="$pki/apiserver-to-kubelet.crt" \
        --kubelet-client-key="$pki/apiserver-to-kubelet.key" --kubelet-certificate-authority="$pki/ca.crt" \
        --service-account-key-file="$pki/service-account.pub" \
        --service-account-signing-key-file="$pki/service-account.key" \
        --service-account-issuer=https://kubernetes.default.svc.cluster.local \
        --requestheader-client-ca-file="$pki/front-proxy-ca.crt" \
        --requestheader-allowed-names=front-proxy-client \
        --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
        --requestheader-extra-headers-prefix=X-Remote-Extra- --enable-aggregator-routing=true \
        --proxy-client-cert-file="$pki/front-proxy.crt" --proxy-client-key-file="$pki/front-proxy.key" \
        --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true \
        --audit-policy-file="$run/audit-policy.yaml" --audit-log-path="$audit_log" --audit-log-maxsize=0
}

start_controller_manager() {
    local config=$pki/controller-manager.kubeconfig
    start_in_control controller-manager "$bin/kube-controller-manager" --kubeconfig="$config" \
        --authentication-kubeconfig="$config" --authorization-kubeconfig="$config" \
        --use-service-account-credentials \
        --root-ca-file="$pki/ca.crt" --client-ca-file="$pki/ca.crt" \
        --requestheader-client-ca-file="$pki/front-proxy-ca.crt" \
        --service-account-private-key-file="$pki/service-account.key" \
        --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
        --allocate-node-cidrs=false --cluster-cidr="$pod_range" --service-cluster-ip-range="$service_range" \
        --leader-elect=false --node-monitor-grace-period=20s --kube-api-qps=200 --kube-api-burst=400
}

start_scheduler() {
    local config=$pki/scheduler.kubeconfig
    start_in_control scheduler "$bin/kube-scheduler" --kubeconfig="$config" \
        --authentication-kubeconfig="$config" --authorization-kubeconfig="$config" --leader-elect=false \
        --kube-api-qps=500 --kube-api-burst=1000
}

control_plane_up() {
    start_etcd
    start_apiserver
    wait_for 120 "a ready API server" apiserver kubectl get --raw /readyz
    start_controller_manager
    start_scheduler
    # Pods cannot be created before this exists; who runs `up` goes on with exactly that.
    wait_for 60 "the default service account" controller-manager kubectl get serviceaccount default
}

# Whatever else was started beside the control plane, by us or by a test, goes first; then the API server, before
# etcd, which it needs for stopping in good order.
control_plane_down() {
    local others
    mapfile -t others < <(find "$pids" -type f -printf '%f\n' 2>/dev/null | grep -vxE 'etcd|apiserver')
    stop 10 "${others[@]}"
    stop 15 apiserver
    stop 10 etcd
}
