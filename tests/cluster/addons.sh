# shellcheck shell=bash disable=SC2154
# Cluster DNS and metrics-server: processes beside the control plane, published by Services without selector.

publish() { # SERVICE CLUSTER-IP|"" NAME:PORT:TARGET:PROTOCOL...
    local service=$1 ip=$2 entry name port target protocol service_ports="" slice_ports=""
    shift 2
    for entry in "$@"; do
        IFS=: read -r name port target protocol <<<"$entry"
        service_ports+="{name: $name, port: $port, targetPort: $target, protocol: $protocol}, "
        slice_ports+="{name: $name, port: $target, protocol: $protocol}, "
    done
    cat <<END
---
apiVersion: v1
kind: Service
metadata: {name: $service, namespace: kube-system}
spec: {${ip:+clusterIP: $ip, }ports: [${service_ports%, }]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: $service-kunal, namespace: kube-system, labels: {kubernetes.io/service-name: $service}}
addressType: IPv4
endpoints: [{addresses: [$control_ip], conditions: {ready: true}}]
ports: [${slice_ports%, }]
END
}

start_coredns() {
    # A name from outside is not there, and the answer says so at once: nobody could be asked.
    cat >"$run/Corefile" <<END
.:53 {
  errors
  template ANY ANY . {
    rcode NXDOMAIN
  }
}
cluster.local:53 in-addr.arpa:53 {
  errors
  ready :8181
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $pki/addons.kubeconfig kunal
    pods verified
    ttl 5
  }
  cache 5
}
END
    start_in_control coredns "$bin/coredns" -conf "$run/Corefile"
}

start_metrics_server() {
    local config=$pki/addons.kubeconfig
    # The kubelet's answer has to come before the next round begins: the timeout is below the resolution.
    start_in_control metrics-server "$bin/metrics-server" --kubeconfig="$config" \
        --authentication-kubeconfig="$config" --authorization-kubeconfig="$config" --secure-port=4443 \
        --tls-cert-file="$pki/metrics-server.crt" \
        --tls-private-key-file="$pki/metrics-server.key" --kubelet-certificate-authority="$pki/ca.crt" \
        --kubelet-preferred-address-types=InternalIP --metric-resolution=10s --kubelet-request-timeout=5s
}

metrics_api() {
    cat <<END
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  caBundle: $(base64 -w 0 "$pki/ca.crt")
  service: {name: metrics-server, namespace: kube-system, port: 443}
END
}

addons_up() {
    start_coredns
    start_metrics_server
    {
        # TCP too: a long answer does not fit into one packet.
        publish kube-dns "$dns_ip" dns:53:53:UDP dns-tcp:53:53:TCP
        publish metrics-server "" https:443:4443:TCP
        metrics_api
    } | kubectl apply -f - >/dev/null
}

addons_ready() {
    wait_for 60 "cluster DNS" coredns dns_ready
    wait_for 60 "the metrics API" metrics-server \
        kubectl wait --for=condition=Available apiservice/v1beta1.metrics.k8s.io --timeout=5s
}

# CoreDNS says so on a port of its own; bash speaks enough HTTP to ask.
dns_ready() {
    # shellcheck disable=SC2016
    in_control bash -c 'exec 3<>/dev/tcp/127.0.0.1/8181 && printf "GET /ready HTTP/1.0\r\n\r\n" >&3 &&
        grep -q " 200 " <&3'
}
