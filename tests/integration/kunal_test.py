"""What the integration tests share: manifests, small data sets, runs of the real programs, a reader of the model file.

A test file is a unittest module that ends with `kunal_test.main()`; the last line of its output is "N passed, N failed".
KML_BIN (or KUNAL_BIN) is the folder of the programs, build/release/bin by default.

Every process that a test starts carries a mark of its own in its environment, and so do all that it starts in turn. So
"nothing is left behind" is a question to /proc, and a test that breaks down takes its processes with it.
"""
import gzip
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.abspath(os.environ.get("KML_BIN") or os.environ.get("KUNAL_BIN") or os.path.join(ROOT, "build/release/bin"))
FASHION = "/usr/share/datasets/fashion-mnist"
PATIENCE_S = 120.0  # until a condition that must come is given up; nothing is asserted about how long it took
MARK = "KUNAL_TEST_MARK"


def program(name):
    return os.path.join(BIN, name)


# ---- Waiting ----

def until(condition, what, seconds=PATIENCE_S):
    """The first true value of condition(). Fails, saying `what`, when it does not come."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited {seconds:.0f} s in vain for: {what}")


# ---- Processes ----

def marked(mark):
    """{pid: name} of the living processes that carry the mark; zombies do not count."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"{MARK}={mark}".encode() not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{pid}/stat", "rb") as file:
                state = file.read().rsplit(b") ", 1)[1][:1]
        except OSError:
            continue
        if words[0] and state != b"Z":
            found[int(pid)] = " ".join(os.path.basename(w.decode(errors="replace")) for w in words if w)
    return found


class Process:
    """A program under test, with its output in files and a mark that its children inherit."""

    def __init__(self, arguments, env=None, cwd=None, user=None):
        self.mark = secrets.token_hex(8)
        self.arguments = [str(a) for a in arguments]
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        full = {k: v for k, v in os.environ.items() if not k.startswith("KUNAL_")}
        full.update({k: str(v) for k, v in (env or {}).items()})
        full[MARK] = self.mark
        self.process = subprocess.Popen(self.arguments, env=full, cwd=cwd, user=user, stdin=subprocess.DEVNULL,
                                        stdout=self._out, stderr=self._err, start_new_session=True)

    def _text(self, file):
        return os.pread(file.fileno(), 1 << 30, 0).decode(errors="replace")

    @property
    def stdout(self):
        return self._text(self._out)

    @property
    def stderr(self):
        return self._text(self._err)

    @property
    def pid(self):
        return self.process.pid

    @property
    def lines(self):
        return self.stdout.splitlines()

    def wait(self, seconds=PATIENCE_S):
        """The exit code; 128 + signal, as shells say it."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"{self} does not end; it said:\n{self.stdout}{self.stderr}") from None
        return 128 - code if code < 0 else code

    def signal(self, number):
        os.kill(self.pid, number)

    def family(self):
        """{pid: name} of this process and all that came of it."""
        return marked(self.mark)

    def child(self, name):
        """The pid of a living child by its name in the run folder, as "kunal-worker-2"."""
        role, index = name.rsplit("-", 1)
        for pid, words in self.family().items():
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    env = dict(v.split(b"=", 1) for v in file.read().split(b"\0") if b"=" in v)
            except OSError:
                continue
            wanted = b"PS" if role == "kunal-ps" else b"Worker"
            if words.startswith(role) and env.get(b"KUNAL_ROLE") == wanted and env.get(b"KUNAL_INDEX") == index.encode():
                return pid
        return None

    def end(self):
        """Whatever is left of it is killed."""
        for _ in range(50):
            left = marked(self.mark)
            if not left:
                break
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.01)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def __str__(self):
        return " ".join(shlex.quote(a) for a in self.arguments)


class Run(Process):
    """`kunal run` of a manifest in a run folder of its own."""

    def __init__(self, manifest, folder, *flags, env=None, cwd=None, user=None):
        self.folder = str(folder)
        super().__init__([program("kunal"), "run", manifest, "--run-dir", folder, *flags], env=env, cwd=cwd, user=user)

    def metrics(self, event=None):
        """The JSON lines that PS-0 wrote so far, whole ones only."""
        try:
            with open(os.path.join(self.folder, "metrics.jsonl"), encoding="utf-8") as file:
                text = file.read()
        except FileNotFoundError:
            return []
        lines = [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
        return [line for line in lines if event is None or line["event"] == event]

    def log(self, name):
        try:
            with open(os.path.join(self.folder, name + ".log"), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def samples(self):
        """Committed so far, as far as the metrics say."""
        seen = [line["samples"] for line in self.metrics() if "samples" in line]
        return seen[-1] if seen else 0

    def summary(self):
        """The last line as a dictionary; "result" is its first word."""
        return parse_summary(self.lines[-1])


def parse_summary(line):
    words = line.split(" ", 1)
    fields = {"result": words[0]}
    for key, quoted, plain in re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|)(\S*)', words[1] if len(words) > 1 else ""):
        fields[key] = json.loads(quoted) if quoted else plain
    return fields


# ---- Data ----

def read_idx(path):
    with (gzip.open(path) if path.endswith(".gz") else open(path, "rb")) as file:
        raw = file.read()
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(np.frombuffer(raw, ">u4", raw[3], 4))


def write_idx(path, array):
    with open(path, "wb") as file:
        file.write(struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape))
        file.write(np.ascontiguousarray(array, np.uint8).tobytes())


def fashion(split):
    """(images, labels) of "train" or "t10k", as bytes."""
    return (read_idx(f"{FASHION}/{split}-images-idx3-ubyte.gz"), read_idx(f"{FASHION}/{split}-labels-idx1-ubyte.gz"))


def small_fashion(folder, train=2000, test=500):
    """The first samples of Fashion-MNIST as an IDX data set in `folder`, which is made."""
    os.makedirs(folder, exist_ok=True)
    for split, count in (("train", train), ("t10k", test)):
        images, labels = fashion(split)
        write_idx(f"{folder}/{split}-images-idx3-ubyte", images[:count])
        write_idx(f"{folder}/{split}-labels-idx1-ubyte", labels[:count])
    return folder


# ---- Manifests ----

def merged(base, more):
    """`more` laid over `base`, maps deep; None takes a field away."""
    out = dict(base)
    for key, value in more.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merged(out[key], value)
        else:
            out[key] = value
    return out


def job(data, ps=1, workers=4, **spec):
    """A KunalJob over the data set in folder `data`; `spec` is laid over it, deep."""
    base = {"model": {"kind": "MLP", "hiddenLayers": [32]},
            "dataset": {"storageUri": f"file://{data}"},
            "training": {"epochs": 2, "batchSize": 32, "optimizer": {"kind": "SGD", "learningRate": 0.1}},
            "synchronization": {"mode": "BSP"},
            "replicaSpecs": {"PS": {"replicas": ps}, "Worker": {"replicas": workers}}}
    return {"apiVersion": "kunal.ml/v1alpha1", "kind": "KunalJob", "metadata": {"name": "test"}, "spec": merged(base, spec)}


# ---- The model file ----

def read_safetensors(path):
    """({name: array}, metadata), read by the format's own description."""
    with open(path, "rb") as file:
        raw = file.read()
    size, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    metadata = header.pop("__metadata__", {})
    tensors, body = {}, raw[8 + size:]
    for name, entry in header.items():
        if entry["dtype"] != "F32":
            raise AssertionError(f"{path}: tensor {name} is {entry['dtype']}")
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(body[begin:end], "<f4").reshape(entry["shape"])
    if sum(t.nbytes for t in tensors.values()) != len(body):
        raise AssertionError(f"{path}: the tensors do not fill the file")
    return tensors, metadata


def mlp_accuracy(tensors, metadata, images, labels):
    """Forward in numpy, as the metadata and the tensors' names say."""
    if metadata["activation"] != "ReLU":
        raise AssertionError(f"not the model that was asked for: {metadata['activation']}")
    mean, scale = (np.array(metadata[key].split(), np.float32) for key in ("mean", "scale"))
    x = (images.reshape(len(images), -1).astype(np.float32) - mean) * scale
    layers = len(tensors) // 2
    for n in range(layers):
        x = x @ tensors[f"layer.{n}.weight"].T + tensors[f"layer.{n}.bias"]
        x = np.maximum(x, 0) if n + 1 < layers else x
    return float((x.argmax(axis=1) == labels).mean())


# ---- Test cases ----

class Case(unittest.TestCase):
    """Gives each test a folder, and takes away what it started."""

    maxDiff = None

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="kunal-test-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def manifest(self, document, name="job.yaml"):
        """A document (JSON is YAML), or text as it is, as a file."""
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(document if isinstance(document, str) else json.dumps(document, indent=1))
        return path

    def start(self, process):
        """Takes over a Process or a Run: whatever is left of it ends with the test."""
        self.addCleanup(process.end)
        return process

    def run_job(self, document, *flags, name="run", **more):
        """`kunal run` of a document in the folder `name` of the test."""
        manifest = self.manifest(document, name + ".yaml")
        return self.start(Run(manifest, self.path(name), *flags, **more))

    def succeed(self, document, *flags, name="run", **more):
        run = self.run_job(document, *flags, name=name, **more)
        code = run.wait()
        self.assertEqual(code, 0, f"{run}\n{run.stdout}{run.stderr}")
        self.assertEqual(len(run.lines), 1, "one line on stdout, the summary")
        self.assertEqual(run.summary()["result"], "succeeded")
        self.nothing_left(run)
        return run

    def nothing_left(self, process):
        until(lambda: not process.family(), f"the end of {process.family()}, left by {process}", 10)


def main():
    """Runs the tests of the calling module; names as arguments choose some of them."""
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    module = sys.modules["__main__"]
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{n}*" for n in names] or None
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, buffer=False).run(loader.loadTestsFromModule(module))
    failed = len({test.id() for test, _ in result.failures + result.errors} | {t.id() for t in result.unexpectedSuccesses})
    print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)
