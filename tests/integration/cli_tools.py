"""What the tests of the command-line tool share: where programs are, made-up data, running `kunal`, fake programs.

The fake programs stand in for kunal-ps and kunal-worker beside a link to the real `kunal`: so a test can have a server
that never starts, a worker that dies as often as it should, a conductor that does not answer.
"""
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("KUNAL_BIN") or os.environ.get("KML_BIN") or os.path.join(ROOT, "build", "release", "bin")
KUNAL = os.path.join(os.path.abspath(BIN), "kunal")
PATIENCE = 120  # seconds until a test gives up waiting; nothing is asserted about time


def until(condition, what):
    """Waits until condition() is true."""
    end = time.monotonic() + PATIENCE
    pause = threading.Event()
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("waited in vain for: " + what)
        pause.wait(0.02)


def alive(pid):
    """A process that runs; one that is only waiting to be reaped does not."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def children_of(pid):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name) as f:
                    fields = f.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] not in "ZX":
                found.append(int(name))
    return found


def name_of(pid):
    try:
        with open("/proc/%d/comm" % pid) as f:
            return f.read().strip()
    except OSError:
        return ""


def manifest(workers=2, shards=1, **spec):
    tree = {
        "apiVersion": "kunal.ml/v1alpha1",
        "kind": "KunalJob",
        "metadata": {"name": "made-up"},
        "spec": {
            "model": {"kind": "Softmax"},
            "dataset": {"storageUri": "file:///nowhere"},
            "replicaSpecs": {"PS": {"replicas": shards}, "Worker": {"replicas": workers}},
        },
    }
    tree["spec"].update(spec)
    return tree


class Run:
    """One `kunal run` that may still be going on."""

    def __init__(self, program, arguments, env=None, cwd=None):
        self.process = subprocess.Popen([program] + arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                                        cwd=cwd, start_new_session=True)
        self.out = b""
        self.err = b""
        self.readers = [threading.Thread(target=self.read, args=(stream, name), daemon=True)
                        for stream, name in ((self.process.stdout, "out"), (self.process.stderr, "err"))]
        for reader in self.readers:
            reader.start()

    def read(self, stream, name):
        while True:
            some = stream.read1(65536)
            if not some:
                return
            setattr(self, name, getattr(self, name) + some)

    def wait(self):
        try:
            self.process.wait(PATIENCE)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            for reader in self.readers:
                reader.join(PATIENCE)
            self.process.stdout.close()
            self.process.stderr.close()
        self.code = self.process.returncode
        return self

    @property
    def lines(self):
        return self.out.decode().splitlines()

    @property
    def last(self):
        return self.lines[-1] if self.lines else ""

    @property
    def said(self):
        return self.err.decode()

    def field(self, name):
        for part in self.last.split():
            if part.startswith(name + "="):
                return part[len(name) + 1:]
        return None


class CliTest(unittest.TestCase):
    """A private folder for each test; `kunal` runs in it."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="kunal-cli-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.kunal = KUNAL
        self.runs = []
        self.addCleanup(self.end_all)

    def end_all(self):
        for run in self.runs:
            if run.process.poll() is None:
                run.process.kill()
                run.process.wait()

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text)
        return self.path(name)

    def write_manifest(self, tree, name="job.yaml"):
        return self.write(name, json.dumps(tree))

    def call(self, *arguments):
        return subprocess.run([self.kunal] + list(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              cwd=self.folder, text=True, timeout=PATIENCE)

    def start(self, *arguments, **env):
        full = dict(os.environ)
        full.update(env)
        run = Run(self.kunal, ["run"] + list(arguments), env=full, cwd=self.folder)
        self.runs.append(run)
        return run

    def run_dir(self):
        return self.path("run")

    def log(self, name):
        with open(os.path.join(self.run_dir(), name)) as f:
            return f.read()

    def assert_one_line(self, run, begins):
        self.assertEqual(len(run.lines), 1, run.out.decode() + run.said)
        self.assertTrue(run.last.startswith(begins), run.last + "\n" + run.said)

    def assert_no_sockets(self):
        found = [os.path.join(at, name) for at, _, names in os.walk(self.folder) for name in names if name.endswith(".sock")]
        self.assertEqual(found, [])


def write_csv(folder, rows=400, features=4, classes=3, name="train.csv", spoil=None):
    """Classes that a linear model can tell apart; the same bytes each time. spoil(row, fields) may damage a line."""
    os.makedirs(folder, exist_ok=True)
    state = 12345
    with open(os.path.join(folder, name), "w") as f:
        f.write(",".join(["x%d" % i for i in range(features)] + ["label"]) + "\n")
        for row in range(rows):
            label = row % classes
            fields = []
            for i in range(features):
                state = (state * 1103515245 + 12345) % 2**31
                fields.append("%.4f" % ((3.0 if i == label else 0.0) + state / 2**31))
            fields.append(str(label))
            if spoil is not None:
                fields = spoil(row, fields)
            f.write(",".join(fields) + "\n")


def csv_manifest(folder, epochs=5, workers=2, shards=1, **spec):
    spec.setdefault("training", {"epochs": epochs, "batchSize": 10, "optimizer": {"kind": "SGD", "learningRate": 0.1}})
    return manifest(workers, shards, dataset={
        "storageUri": "file://" + folder, "format": "CSV", "train": {"file": "train.csv", "labelColumn": "label"},
        "validation": 0.2, "standardize": "MeanStd"}, **spec)


FAKE_PS = r'''#!/usr/bin/python3
"""Plays kunal-ps after FAKE_PS. Notes its pid, its environment and every call it gets."""
import json, os, signal, struct, sys, threading, time
role = "ps-" + os.environ["KUNAL_INDEX"]
folder = os.environ["FAKE_FOLDER"]
def note(name, text):
    with open(os.path.join(folder, name), "a") as f:
        f.write(text + "\n")
note("pids", str(os.getpid()))
note("env-" + role, json.dumps(dict(os.environ)))
mode = os.environ.get("FAKE_PS", "succeed")
def say(tree):
    sys.stdout.write((tree if isinstance(tree, str) else json.dumps(tree)) + "\n")
    sys.stdout.flush()
def die(code, message):
    sys.stderr.write(json.dumps({"level": "error", "message": message, "error": "IO: it is so"}) + "\n")
    sys.exit(code)
if mode == "die":
    die(73, "cannot listen")
if mode == "rubbish":
    say("{rubbish"); say("\x00\xff more"); say({"event": 1}); die(70, "never again")
if mode == "silent" or role != "ps-0":
    if role == os.environ.get("FAKE_LOST"):
        while not os.path.exists(os.path.join(folder, "training")):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()
sys.path.insert(0, os.environ["FAKE_PYTHON"])
import grpc
from concurrent import futures
from kunal.v1 import control_pb2 as pb
status = pb.JobStatus(phase=pb.STARTING, epochs=10, shards=1, shards_present=1)
asked = 0
stopped = threading.Event()
output = os.environ.get("KUNAL_OUTPUT", folder)
def save():
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    header += b" " * (-len(header) % 8)
    with open(os.path.join(output, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1, 2))
    status.model_location = os.path.join(output, "model.safetensors")
def get_status(request, context):
    global asked
    assert request.job_uid == os.environ["KUNAL_JOB_UID"]
    asked += 1
    if mode == "starting":
        return status
    if status.phase == pb.STARTING:
        status.phase = pb.TRAINING
    status.epoch, status.epoch_fraction, status.train_loss, status.samples = 4, 0.5, 0.5, 1000
    status.training_seconds, status.remaining_seconds = 2, 3
    del status.workers[:]
    status.workers.add(index=0, present=True, share=0.5)
    if os.path.exists(os.path.join(folder, "go-on")):
        pass
    elif mode == "fail":
        status.phase, status.reason, status.message, status.exit_code = pb.FAILED, "InvalidData", 'row 3 says "no"', 65
    elif mode == "succeed" and asked > 3:
        status.phase, status.epoch, status.epoch_fraction = pb.SUCCEEDED, 10, 0
        status.has_accuracy, status.accuracy, status.has_evaluation, status.loss = True, 0.875, True, 0.25
        save()
    elif mode == "crash" and asked > 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    if stopped.is_set() and mode != "deaf":
        status.phase = pb.STOPPED
        save()
    note("training", "")
    if status.phase >= pb.SUCCEEDED:
        note("over", "")
        threading.Timer(0.05, lambda: os._exit(0 if status.phase != pb.FAILED else 65)).start()
    return status
def stop(request, context):
    note("stops", request.reason)
    stopped.set()
    return pb.StopJobReply()
def metrics(request, context):
    note("metrics", json.dumps({"source": request.source, "nodes": [
        [n.role, n.index, n.cpu_known, n.memory_known, n.memory_bytes] for n in request.nodes]}))
    return pb.NodeMetricsReply()
def unary(function, request):
    return grpc.unary_unary_rpc_method_handler(function, request.FromString, lambda m: m.SerializeToString())
server = grpc.server(futures.ThreadPoolExecutor(2))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("kunal.v1.Control", {
    "GetStatus": unary(get_status, pb.StatusRequest), "StopJob": unary(stop, pb.StopJobRequest),
    "ReportNodeMetrics": unary(metrics, pb.NodeMetrics)})])
listen = os.environ["KUNAL_LISTEN"]
port = server.add_insecure_port(listen)
server.start()
say("not JSON at all")
say({"event": "listening", "address": listen if listen.startswith("unix:") else "127.0.0.1:%d" % port})
if mode == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    signal.pause()
'''

FAKE_WORKER = r'''#!/bin/sh
# Plays kunal-worker: notes its pid and environment, then does what FAKE_WORKER says; counts its starts.
if [ "$1" = --calibrate ]; then
    if [ -n "$FAKE_CALIBRATE_HANGS" ]; then
        echo $$ >>"$FAKE_FOLDER/pids"
        echo >"$FAKE_FOLDER/calibrating"
        while :; do sleep 0.1; done
    fi
    [ -z "$FAKE_CALIBRATE_FAILS" ] || { echo '{"level":"error","message":"no data","error":"NOT_FOUND: x"}' >&2; exit 66; }
    echo "seconds_per_sample=${FAKE_COST:-0.000001}"
    exit 0
fi
echo $$ >>"$FAKE_FOLDER/pids"
env >"$FAKE_FOLDER/env-worker-$KUNAL_INDEX"
echo start >>"$FAKE_FOLDER/starts-$KUNAL_INDEX"
starts=$(wc -l <"$FAKE_FOLDER/starts-$KUNAL_INDEX")
until [ -e "$FAKE_FOLDER/training" ]; do sleep 0.02; done
if [ "$KUNAL_INDEX" = "${FAKE_WHO:-$KUNAL_INDEX}" ] && [ "$starts" -le "${FAKE_TIMES:-1000000}" ]; then
    case "$FAKE_WORKER" in
    exit-*)
        echo '{"level":"error","message":"cannot train","error":"INVALID: line 3 is odd"}' >&2
        exit "${FAKE_WORKER#exit-}" ;;
    kill-*) kill "-${FAKE_WORKER#kill-}" $$ ;;
    child) sleep 1000 & echo $! >>"$FAKE_FOLDER/pids" ;;
    stubborn) trap '' TERM ;;
    esac
fi
until [ -e "$FAKE_FOLDER/over" ]; do sleep 0.05; done
'''


class FakeTest(CliTest):
    """`kunal` beside programs that are made up."""

    @classmethod
    def setUpClass(cls):
        cls.python = tempfile.mkdtemp(prefix="kunal-pb-")
        cls.addClassCleanup(shutil.rmtree, cls.python, ignore_errors=True)
        subprocess.run(["protoc", "--proto_path=" + os.path.join(ROOT, "proto"), "--python_out=" + cls.python,
                        "kunal/v1/control.proto", "kunal/v1/data.proto"], check=True)

    def setUp(self):
        super().setUp()
        os.mkdir(self.path("bin"))
        self.fake_program("kunal-ps", FAKE_PS)
        self.fake_program("kunal-worker", FAKE_WORKER)
        self.kunal = self.path("bin", "kunal")
        shutil.copy(KUNAL, self.kunal)
        os.mkdir(self.path("notes"))

    def fake_program(self, name, text):
        with open(self.path("bin", name), "w") as f:
            f.write(text)
        os.chmod(self.path("bin", name), 0o755)

    def fake(self, tree, *arguments, **env):
        env.update(FAKE_FOLDER=self.path("notes"), FAKE_PYTHON=self.python)
        return self.start(self.write_manifest(tree), "--run-dir", self.run_dir(), *arguments, **env)

    def note(self, name):
        try:
            with open(self.path("notes", name)) as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def go_on(self):
        """The job does not end by itself any more."""
        open(self.path("notes", "go-on"), "w").close()

    def until_training(self, run):
        until(lambda: self.note("training") != "" or run.process.poll() is not None, "the training")
        self.assertIsNone(run.process.poll(), run.out.decode() + run.said)

    def pids(self):
        return [int(pid) for pid in self.note("pids").split()]

    def assert_nothing_left(self):
        until(lambda: not any(alive(pid) for pid in self.pids()), "the end of every child")
        self.assertNotEqual(self.pids(), [])


def main():
    """Runs the tests of the file that calls; the last line is "N passed, N failed"."""
    result = unittest.main(module="__main__", exit=False, verbosity=1).result
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    print("%d passed, %d failed" % (result.testsRun - failed - len(result.skipped), failed))
    sys.exit(1 if failed else 0)
