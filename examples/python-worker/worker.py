#!/usr/bin/python3
"""A worker of Kunal ML in Python: it knows proto/kunal/v1/*.proto and the environment of docs/PROTOCOL.md, no more.

KUNAL_PROTO says where the folder proto is; without it, two folders up. The model is in model.py.
"""
import json, os, queue, secrets, shutil, subprocess, sys, tempfile, threading, time
import grpc
import numpy as np
from model import Model, read_data

PROTO = os.environ.get("KUNAL_PROTO") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../proto")
STUBS = tempfile.mkdtemp(prefix="kunal-stubs-")
subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I", PROTO, "--python_out", STUBS, "--grpc_python_out", STUBS,
                "kunal/v1/data.proto", "kunal/v1/control.proto"], check=True)
sys.path.insert(0, STUBS)
from kunal.v1 import control_pb2 as control, control_pb2_grpc, data_pb2 as data, data_pb2_grpc
shutil.rmtree(STUBS)

INDEX, UID, CONDUCTOR = int(os.environ["KUNAL_INDEX"]), os.environ["KUNAL_JOB_UID"], os.environ["KUNAL_CONDUCTOR"]
PATIENCE_S = 60  # without a conductor


class Link:
    """A stream: what is put into `out` goes up, what comes down lands in `events` as (link, message or exception)."""

    def __init__(self, method, events):
        self.out = queue.Queue()
        threading.Thread(target=self.listen, args=(method(iter(self.out.get, None)), events), daemon=True).start()

    def listen(self, call, events):
        try:
            for message in call:
                events.put((self, message))
            events.put((self, ConnectionError("the stream ended")))
        except grpc.RpcError as error:
            events.put((self, error))


class Session:
    """From a Join to the end of the connection. A Session is left by an exception: SystemExit when the job is over."""

    def __init__(self, seed, splits, digest):
        self.seed, self.splits, self.model = seed, splits, Model(splits["train"][0].shape[1], int(splits["train"][1].max()) + 1)
        self.events, self.channels, self.shards, self.tasks, self.params = queue.Queue(), [], [], [], {}
        self.pushed = time.monotonic_ns()
        self.who = dict(protocol=1, job_uid=UID, role=data.WORKER, index=INDEX, incarnation=secrets.randbits(63) | 1)
        self.conductor = Link(control_pb2_grpc.ControlStub(self.connect(CONDUCTOR)).Session, self.events)
        layout = control.Layout(tensors=[control.Tensor(name=n, shape=s) for n, s in self.model.shapes.items()])
        self.say(join=control.Join(layout=layout, train_samples=len(splits["train"][1]), test_samples=len(splits["t10k"][1]),
                                   data_digest=digest, metadata={"activation": "x * sigmoid(x)", "standardize": "Scale255"}, **self.who))

    def connect(self, address):
        self.channels.append(grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]))
        return self.channels[-1]

    def say(self, **message):
        self.conductor.out.put(control.ToConductor(**message))

    def run(self):
        beat = time.monotonic()
        while True:
            try:
                link, message = self.events.get(timeout=1)
                if isinstance(message, Exception):
                    raise message
                self.keep(message) if link is not self.conductor else self.hear(message)
                while self.tasks and (flat := self.complete(self.tasks[0].version)) is not None:
                    self.work(self.tasks.pop(0), flat)
            except queue.Empty:
                pass
            if time.monotonic() - beat > 1:
                self.say(heartbeat=control.Heartbeat())
                beat = time.monotonic()

    def close(self):
        for link in [self.conductor, *self.shards]:
            link.out.put(None)
        for channel in self.channels:
            channel.close()

    def hear(self, message):
        kind = message.WhichOneof("message")
        if kind == "joined":
            self.open(message.joined)
        elif kind in ("assign", "evaluate"):
            self.tasks.append(getattr(message, kind))
        elif kind == "upload":
            self.push(self.model.initial(self.seed), data.PARAMETERS, 0)
        elif kind == "abandon":
            self.tasks = [t for t in self.tasks if not (isinstance(t, control.Assign) and t.step == message.abandon.step)]
        elif kind == "shards" and message.shards.shards != self.table:
            raise ConnectionError("the shards have moved")  # joining again brings the new table
        elif kind in ("finished", "stop"):
            sys.exit(message.stop.exit_code)  # of Finished: 0

    def open(self, reply):
        self.table, self.piece = reply.shards.shards, reply.shards.chunk_elements
        for entry in self.table:
            self.shards.append(Link(data_pb2_grpc.DataStub(self.connect(entry.address)).Exchange, self.events))
            self.shards[-1].out.put(data.Chunk(shard=entry.shard, open=data.Open(generation=reply.generation, **self.who)))

    def push(self, flat, payload, step):
        for entry, link in zip(self.table, self.shards):
            for at in range(entry.begin, entry.end, self.piece):
                part = flat[at:min(at + self.piece, entry.end)].tobytes()
                link.out.put(data.Chunk(step=step, shard=entry.shard, offset=at, payload=payload, data=part))

    def keep(self, chunk):  # pieces come in any order, perhaps twice
        flat, here = self.params.setdefault(chunk.version, (np.zeros(self.model.size, "<f4"), np.zeros(self.model.size, bool)))
        piece = slice(chunk.offset, chunk.offset + len(chunk.data) // 4)
        flat[piece], here[piece] = np.frombuffer(chunk.data, "<f4"), True

    def complete(self, version):
        flat, here = self.params.get(version, (None, np.zeros(1, bool)))
        return flat if here.all() else None

    def work(self, task, flat):
        self.params = {v: p for v, p in self.params.items() if v >= task.version}
        if isinstance(task, control.Evaluate):
            x, y = self.splits["t10k"]  # samples in file order
            _, loss, correct = self.model.step(flat, x[task.begin:task.end], y[task.begin:task.end])
            self.say(evaluated=control.EvaluationResult(lease=task.lease, samples=task.end - task.begin, loss_sum=loss,
                                                        correct=correct, has_accuracy=True))
            return
        begin, cpu, (x, y) = time.monotonic_ns(), time.process_time_ns(), self.splits["train"]
        order = np.random.default_rng([self.seed, task.epoch]).permutation(len(y))  # the same in every worker
        rows = np.concatenate([order[r.begin:r.end] for r in task.ranges])
        gradient, loss, correct = self.model.step(flat, x[rows], y[rows])
        self.push(gradient, data.GRADIENT, task.step)
        end = time.monotonic_ns()
        self.say(report=control.StepReport(step=task.step, samples=len(rows), loss_sum=loss, correct=correct, compute_ns=end - begin,
                                           wait_ns=begin - self.pushed, cpu_ns=time.process_time_ns() - cpu))
        self.pushed = end


def main():
    with open(os.environ["KUNAL_JOB"]) as file:
        spec = json.load(file)["spec"]
    splits, digest = read_data(spec["dataset"]["storageUri"])
    served = time.monotonic()
    while time.monotonic() - served < PATIENCE_S:
        session = Session(spec["model"].get("seed", 1), splits, digest)
        try:
            session.run()
        except (grpc.RpcError, ConnectionError) as error:
            code = error.code() if isinstance(error, grpc.RpcError) else None
            print(f"worker {INDEX}: no connection to {CONDUCTOR}: {error}", file=sys.stderr)
            if code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED):
                return 76
            served = time.monotonic() if session.shards else served
        finally:
            session.close()
        time.sleep(0.5)
    return 69


if __name__ == "__main__":
    sys.exit(main())
