# shellcheck shell=bash disable=SC2154
# The nodes. Each is a network, mount and host name namespace in which containerd, kube-proxy and a kubelet
# run, with folders of its own behind the usual paths, and a cgroup of its own under which all its pods live.

# Paths that the programs of a node take for granted; each node sees its own folder there.
node_paths=(/var/lib/kubelet /var/lib/containerd /run/containerd /run/netns /var/log/pods /var/log/containers
    /var/lib/cni /etc/cni/net.d)

# A bind needs something to bind over. What was not there before is noted, and taken away again by `down`.
make_node_paths() {
    local path missing
    for path in "${node_paths[@]}"; do
        missing=$path
        while [ ! -d "$missing" ]; do
            echo "$missing"
            missing=${missing%/*}
        done
        mkdir -p "$path"
    done | sort -u >"$run/made-folders"
}

# The kubelet sets these for the whole machine.
host_sysctls=(vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys
    kernel.keys.root_maxbytes)

save_sysctls() {
    local name
    for name in "${host_sysctls[@]}"; do
        echo "$name=$(sysctl -n "$name")"
    done >"$run/sysctls"
}

restore_sysctls() {
    local line
    while read -r line; do
        sysctl -qw "$line"
    done <"$run/sysctls"
}

containerd_config() {
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE the score cannot be lowered, and no pod would start.
    cat <<'END'
version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/kunal-pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
END
}

# One cable per pod and routes, no bridge: a bridge would carry a service's answer between two pods of one
# node past the address translation, unless the kernel has br_netfilter.
cni_config() { # N
    cat <<END
{"cniVersion": "0.4.0", "name": "kunal", "plugins": [
 {"type": "ptp", "ipMasq": false,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "$(node_pods "$1")"}]],
           "routes": [{"dst": "$cluster_range"}]}},
 {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
}

kubelet_config() { # N
    local name
    name=$(node_name "$1")
    cat <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $(node_ip "$1")
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $pki/$name-serving.crt
tlsPrivateKeyFile: $pki/$name-serving.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /kunal/$name
clusterDomain: cluster.local
clusterDNS: [$dns_ip]
resolvConf: $run/$name/resolv.conf
failSwapOn: false
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
imageGCHighThresholdPercent: 100
systemReserved: {cpu: 100m, memory: 1Gi}
enforceNodeAllocatable: [pods]
serializeImagePulls: false
nodeStatusUpdateFrequency: 4s
END
}

# conntrack: its limits can only be written in the machine's first network namespace.
proxy_config() { # N
    cat <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $pki/proxy.kubeconfig}
hostnameOverride: $(node_name "$1")
mode: iptables
clusterCIDR: $pod_range
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
END
}

# Version 1: a fresh cpuset is empty and takes no process before it is filled. Version 2: controllers are
# handed down.
make_cgroup() { # PATH BELOW THE ROOT, e.g. kunal/kunal-node-1
    local tree file
    for tree in $(cgroup_trees); do
        mkdir -p "$tree/$1"
        if [ "${tree##*/}" = cpuset ]; then
            for file in cpuset.cpus cpuset.mems; do
                cat "$tree/$file" >"$tree/$1/$file"
            done
        elif [ -f "$tree/cgroup.subtree_control" ]; then
            sed 's/[^ ]*/+&/g' "$tree/$1/cgroup.controllers" >"$tree/$1/cgroup.subtree_control"
        fi
    done
}

start_node() { # N
    local name
    name=$(node_name "$1")
    mkdir -p "$run/$name"
    make_cgroup kunal
    make_cgroup "kunal/$name"
    containerd_config >"$run/$name/containerd.toml"
    cni_config "$1" >"$run/$name/cni.conflist"
    kubelet_config "$1" >"$run/$name/kubelet.yaml"
    proxy_config "$1" >"$run/$name/proxy.yaml"
    echo "options ndots:5" >"$run/$name/resolv.conf"
    setsid unshare -m -u -- nsenter --net="/run/netns/$name" bash "$here/node_init" "$1" \
        >"$log/$name-init.log" 2>&1 </dev/null 9>&- &
    record "$name-init" $!
    disown
}

node_ready() { # N
    local name
    name=$(node_name "$1")
    wait_for 60 "$name" "$name-init" kubectl wait --for=condition=Ready "node/$name" --timeout=5s
}

# Every process that sees a node's own mounts: the shims, which containerd leaves running on purpose.
processes_of_node() { # NAME
    local mounts link pid
    mounts=$(cat "$run/$1/mount-namespace" 2>/dev/null) || return 0
    mounts=${mounts//[![:digit:]]/}
    find /proc/[0-9]*/ns/mnt -maxdepth 0 -lname "mnt:\\[$mounts\\]" 2>/dev/null | while read -r link; do
        pid=$(cut -d/ -f3 <<<"$link")
        # A number of a namespace that is gone may be given again: so the node's folder has to be mounted too.
        ! grep -q "/$1/run/containerd " "/proc/$pid/mountinfo" 2>/dev/null || echo "$pid"
    done
}

cgroup_processes() {
    local tree
    for tree in $(cgroup_trees); do
        find "$tree/kunal" -name cgroup.procs -exec cat {} + 2>/dev/null
    done | sort -nu
}

# Ends what a function lists, again and again until it lists nothing.
kill_all() { # FUNCTION [ARGUMENT]
    local round pids_left
    for ((round = 0; round < 100; round++)); do
        pids_left=$("$@")
        [ -n "$pids_left" ] || return 0
        # shellcheck disable=SC2086
        kill -9 $pids_left 2>/dev/null || true
        sleep 0.1
    done
    say "these processes cannot be ended: $(tr '\n' ' ' <<<"$pids_left")"
}

remove_cgroups() {
    local tree
    for tree in $(cgroup_trees); do
        [ ! -d "$tree/kunal" ] || find "$tree/kunal" -depth -type d -exec rmdir {} \;
    done
}

# The order matters: who starts containers goes first, then the containers, then containerd, then the shims.
nodes_down() {
    local file name names=() first=() last=()
    for file in "$run"/kunal-node-*/; do
        [ -d "$file" ] || continue
        name=$(basename "$file")
        names+=("$name")
        first+=("$name-kubelet" "$name-proxy")
        last+=("$name-containerd")
    done
    stop 10 "${first[@]}"
    kill_all cgroup_processes
    stop 5 "${last[@]}"
    for name in "${names[@]}"; do
        stop 0 "$name-init"
        kill_all processes_of_node "$name"
    done
    remove_cgroups
    [ ! -f "$run/sysctls" ] || restore_sysctls
    [ ! -f "$run/made-folders" ] || sort -r "$run/made-folders" | xargs -r rmdir
}
