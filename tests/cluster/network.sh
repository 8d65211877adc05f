# shellcheck shell=bash disable=SC2154
# The network: a switch, the control plane and each node in a network namespace of its own, one more cable
# from the switch into the namespace of whoever runs this. A node is cut off by  ip -n kunal-switch link set
# <its name> down.

plug_in() { # NAMESPACE PORT ADDRESS
    ip netns add "$1"
    ip -n "$1" link set lo up
    ip link add "$2" netns kunal-switch type veth peer name eth0 netns "$1"
    ip -n kunal-switch link set "$2" master br0 up
    ip -n "$1" addr add "$3/24" dev eth0
    ip -n "$1" link set eth0 up
    nsenter --net="/run/netns/$1" sysctl -qw net.ipv4.ip_forward=1
    ip -n "$1" route add blackhole "$cluster_range"
    # It has to leave somewhere, or it never comes to where a service's address is translated.
    ip -n "$1" route add "$service_range" dev eth0
}

port_of_node() { echo "node-$1"; } # at most 15 characters

network_up() { # NODES
    local n m namespaces
    mkdir -p /run/netns
    ip netns add kunal-switch
    ip -n kunal-switch link set lo up
    ip -n kunal-switch link add br0 type bridge
    ip -n kunal-switch link set br0 up
    plug_in kunal-control control "$control_ip"
    namespaces=(kunal-control)
    for ((n = 1; n <= $1; n++)); do
        plug_in "$(node_name "$n")" "$(port_of_node "$n")" "$(node_ip "$n")"
        namespaces+=("$(node_name "$n")")
    done
    # What a cloud's route controller would do: each machine knows where every other node's pods are.
    for ((n = 1; n <= $1; n++)); do
        for m in "${namespaces[@]}"; do
            [ "$m" = "$(node_name "$n")" ] || ip -n "$m" route add "$(node_pods "$n")" via "$(node_ip "$n")"
        done
    done
    # This /24 and nothing else: plain kubectl reaches the API server, and no other route of the machine
    # changes.
    ip link add shell netns kunal-switch type veth peer name kunal0
    ip -n kunal-switch link set shell master br0 up
    ip addr add "$shell_ip/24" dev kunal0
    ip link set kunal0 up
}

network_down() {
    local namespace
    ip link del kunal0 2>/dev/null || true
    for namespace in $(ip netns list | awk '$1 ~ /^kunal-/ { print $1 }'); do
        ip netns del "$namespace" || true
    done
}
