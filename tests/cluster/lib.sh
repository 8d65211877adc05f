# shellcheck shell=bash disable=SC2034
# What every script of the test cluster shares: where things lie, which addresses are whose, and how it
# speaks.
#
# One cluster at a time on one machine. Its state lies in one folder, $run, and everything of it that is not a
# file (network namespaces, cgroups, the interface of the shell's own namespace) carries a name that begins
# with "kunal".

cache=${XDG_CACHE_HOME:-$HOME/.cache}/kunal/cluster # programs, built once, kept
run=${KUNAL_CLUSTER_DIR:-/var/tmp/kunal-cluster}    # the cluster that runs now; gone after `down`
pki=$run/pki
log=$run/log
bin=$run/bin
pids=$run/pids
audit_log=$log/audit.log
admin=$pki/admin.kubeconfig

# 198.18.0.0/15 is set aside for benchmarks (RFC 2544): nobody's private network has it. Every namespace of
# ours drops what it cannot deliver inside this range, and none has an uplink: nothing of the cluster leaves
# the machine.
cluster_range=198.18.0.0/15
shell_ip=198.18.0.1 # the namespace of whoever calls kubectl
control_ip=198.18.0.10
service_range=198.19.0.0/16
service_first_ip=198.19.0.1
dns_ip=198.19.0.10
pod_range=198.18.128.0/17
nodes_max=50

node_name() { echo "kunal-node-$1"; } # 1..
node_ip() { echo "198.18.0.$((100 + $1))"; }
node_pods() { echo "198.18.$((128 + $1)).0/24"; }

# Go's clients would ask a proxy for the cluster's addresses too. (The build, which needs the outside world,
# keeps it.)
export NO_PROXY="$cluster_range${NO_PROXY:+,$NO_PROXY}"

say() {
    echo "cluster: $*" >&2
}

die() {
    echo "cluster: $*" >&2
    exit 1
}

need_root() {
    [ "$(id -u)" -eq 0 ] || die "$1 needs root (network namespaces, cgroups, mounts): run it as root"
}

program_folder() { # PROJECT
    local version=${1^^}_VERSION
    version=${version//-/_}
    [ -n "${!version:-}" ] || return 1
    echo "$cache/$1-${!version}"
}

# ---- Processes: only those that were recorded are ever ended. A number alone may belong to a stranger by
# now, so the ---- time at which the process started is kept with it. Prints "state start-time", or fails when
# there is no such process.
process_stat() { # PID
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) && [ -n "$stat" ] || return 1
    awk '{ print $1, $20 }' <<<"${stat##*) }" # the name before the bracket may hold blanks
}

record() { # NAME PID
    local state start
    read -r state start < <(process_stat "$2") || true
    echo "$2 ${start:-gone}" >"$pids/$1"
}

# Prints the number of a recorded process that still runs.
recorded() { # NAME
    local pid start state now
    read -r pid start 2>/dev/null <"$pids/$1" || return 1
    read -r state now < <(process_stat "$pid") || return 1
    [ "$now" = "$start" ] && [ "$state" != Z ] || return 1
    echo "$pid"
}

# Ends recorded processes, all at once; by force those that have not stopped in good order by then.
stop() { # SECONDS NAME...
    local limit=$((SECONDS + $1)) name pid
    shift
    for name in "$@"; do
        pid=$(recorded "$name") && kill "$pid" 2>/dev/null
    done
    for name in "$@"; do
        while pid=$(recorded "$name"); do
            [ $SECONDS -lt $limit ] || kill -9 "$pid" 2>/dev/null
            sleep 0.1
        done
        rm -f "$pids/$name"
    done
}

in_control() { # COMMAND...: `ip netns exec` would mount /sys anew and hide the cgroups
    nsenter --net=/run/netns/kunal-control "$@"
}

# Starts a program in the control plane's namespace, as a session of its own that outlives this script.
start_in_control() { # NAME COMMAND...
    local name=$1
    shift
    nsenter --net=/run/netns/kunal-control setsid "$@" >"$log/$name.log" 2>&1 </dev/null 9>&- &
    record "$name" $!
    disown
}

kubectl() {
    "$bin/kubectl" --kubeconfig "$admin" "$@"
}

# Waits until a command succeeds. With the name of a process, gives up at once when that process is gone.
wait_for() { # SECONDS WHAT PROCESS|- COMMAND...
    local limit=$((SECONDS + $1)) what=$2 process=$3
    shift 3
    until "$@" >/dev/null 2>&1; do
        if [ "$process" != - ] && ! recorded "$process" >/dev/null; then
            die "$process ended while the cluster waited for $what; its last words: $(last_words "$process")"
        fi
        [ $SECONDS -lt $limit ] || die "$what did not come about in time; the logs are in $log"
        sleep 0.2
    done
}

last_words() { # PROCESS
    tail -n 1 "$log/$1.log" 2>/dev/null | cut -c 1-400
}

# ---- cgroups: version 1 has one tree per controller, version 2 a single one.
cgroup_trees() {
    if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
        echo /sys/fs/cgroup
    else
        local tree
        for tree in /sys/fs/cgroup/*/; do
            tree=${tree%/}
            [ -L "$tree" ] || [ "${tree##*/}" = unified ] || echo "$tree"
        done
    fi
}
