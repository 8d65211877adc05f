"""What the rows of the benchmark share: the network they run in, running both sides, medians of pairs, the one line.

stdout gets exactly one line a row: id, ours, peer, ratio; above 1 is better for us. Everything else goes to stderr.

KML_BIN (or KUNAL_BIN): folder of the programs, build/release/bin by default; the benchmark's own stand beside it, in bench/.
BENCH_PAIRS: how many pairs, instead of the row's own number. BENCH_QUICK=1: two pairs of everything, to see that it runs.
"""
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
BIN = os.path.abspath(os.environ.get("KML_BIN") or os.environ.get("KUNAL_BIN") or os.path.join(ROOT, "build/release/bin"))
OWN = os.path.join(os.path.dirname(BIN), "bench")
PYTHON = os.environ.get("PYTHON") or "/usr/bin/python3"
CONTROL = "cubic"


def note(text):
    print(text, file=sys.stderr, flush=True)


# ---- The network: loopback of a namespace of its own, so that both sides have one and the same congestion control ----

def enter_network():
    """Starts this program anew in a network namespace with cubic; without root it stays where it is, and says so."""
    if os.environ.get("BENCH_NETWORK"):
        return
    os.environ["BENCH_NETWORK"] = "inside"
    routes = " && ".join(f"ip route change local {to} dev lo table local congctl {CONTROL}" for to in ("127.0.0.0/8", "127.0.0.1"))
    setup = f'ip link set lo up && {routes} && exec "$@"'
    probe = subprocess.run(["unshare", "-n", "sh", "-c", setup, "sh", "true"], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=False)
    if probe.returncode == 0:
        sys.stdout.flush()
        os.execvp("unshare", ["unshare", "-n", "sh", "-c", setup, "sh", sys.executable, *sys.argv])
    with open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="ascii") as file:
        note(f"no network namespace of our own (that takes root): both sides run on this machine's loopback with {file.read().strip()}")


# ---- Running ----

def call(arguments, env=None):
    """Runs a program to its end and returns its stdout; its failure is ours."""
    done = subprocess.run([str(a) for a in arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          env={**os.environ, **(env or {})}, cwd=ROOT)
    if done.returncode != 0:
        note(done.stdout + done.stderr)
        sys.exit(f"{' '.join(shlex.quote(str(a)) for a in arguments)} ended with {done.returncode}")
    return done.stdout


def call_json(arguments, env=None):
    return json.loads(call(arguments, env).splitlines()[-1])


def torch(script, *arguments, env=None):
    return call_json([PYTHON, os.path.join(HERE, script), *arguments], env)


def kunal(manifest, *flags):
    """`kunal run`: the summary line as numbers, and the lines of metrics.jsonl; with what the whole family used."""
    folder = tempfile.mkdtemp(prefix="kunal-bench-")
    before = os.times()
    try:
        line = call([os.path.join(BIN, "kunal"), "run", os.path.join(HERE, manifest), "-q", "--run-dir", folder + "/run", *flags])
        after = os.times()
        with open(folder + "/run/metrics.jsonl", encoding="utf-8") as file:
            metrics = [json.loads(text) for text in file]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    fields = {key: float(value) for key, value in re.findall(r"(\w+)=([0-9.eE+-]+)(?= |$)", line)}
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {**fields, "cpu_seconds": cpu, "metrics": metrics}


# ---- Pairs ----

def pairs(default):
    return int(os.environ.get("BENCH_PAIRS") or (2 if os.environ.get("BENCH_QUICK") else default))


def compare(row, count, ours, peer, lower_is_better, figure):
    """Runs ours and the peer in turns, prints the row: medians of both, and the median of the ratios of the pairs."""
    got = []
    for i in range(pairs(count)):
        first, second = (ours, peer) if i % 2 == 0 else (peer, ours)
        a, b = first(i), second(i)
        mine, other = (a, b) if i % 2 == 0 else (b, a)
        ratio = other[figure] / mine[figure] if lower_is_better else mine[figure] / other[figure]
        got.append((mine[figure], other[figure], ratio))
        note(f"{row} pair {i + 1}: ratio {ratio:.3f} | ours {told(mine)} | peer {told(other)}")
    medians = [statistics.median(column) for column in zip(*got)]
    print(f"{row} {medians[0]:.6g} {medians[1]:.6g} {medians[2]:.3f}", flush=True)


def told(result):
    return " ".join(f"{key}={value:.5g}" for key, value in result.items() if isinstance(value, (int, float)))
