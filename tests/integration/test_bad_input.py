#!/usr/bin/python3
"""Bad input: one clear line that names what and where, a documented exit code, nobody left behind, nothing half-written."""
import gzip
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from concurrent import futures

import kunal_test as kt

TRAIN, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


class BadInput(kt.Case):
    def refused(self, document, code, words, *flags, **more):
        """The run fails with `code`, in one line that holds all of `words`. Returns the run."""
        run = self.run_job(document, *flags, **more)
        self.assertEqual(run.wait(), code, f"{run}\n{run.stdout}{run.stderr}")
        self.assertEqual(len(run.lines), 1, run.stdout)
        summary = run.summary()
        self.assertEqual(summary["result"], "failed", run.lines[0])
        self.assertRegex(summary["reason"], r"^[A-Z][A-Za-z]+$")
        for word in words:
            self.assertIn(word, summary["message"])
        self.nothing_left(run)
        self.assertFalse(os.path.exists(run.folder + "/model.safetensors"))
        return run


class Manifest(BadInput):
    def reject(self, words, **spec):
        run = self.refused(kt.job("/usr/share/datasets", **spec), 65, [])
        told = run.summary()["message"] + run.stderr
        for word in ["run.yaml", *words]:
            self.assertIn(word, told)
        self.assertFalse(os.path.exists(run.folder), "it was refused before anything was made")

    def test_an_unknown_field(self):
        self.reject(["spec.training.epoch", "did you mean", "epochs"], training={"epoch": 3})

    def test_a_wrong_type(self):
        self.reject(["spec.training.epochs", "many"], training={"epochs": "many"})

    def test_a_negative_size(self):
        self.reject(["spec.training.batchSize", "-5"], training={"batchSize": -5})

    def test_an_unknown_optimiser(self):
        self.reject(["spec.training.optimizer.kind", "Adamm", "Adam"], training={"optimizer": {"kind": "Adamm"}})

    def test_zero_workers(self):
        self.reject(["spec.replicaSpecs.Worker.replicas", "0"], replicaSpecs={"Worker": {"replicas": 0}})


class Data(BadInput):
    def setUp(self):
        super().setUp()
        self.data = kt.small_fashion(self.path("data"), 200, 50)

    def file(self, name):
        return os.path.join(self.data, name)

    def reject(self, code, words, **spec):
        return self.refused(kt.job(self.data, workers=2, **spec), code, words)

    def change(self, name, change):
        with open(self.file(name), "rb") as file:
            raw = bytearray(file.read())
        with open(self.file(name), "wb") as file:
            file.write(change(raw))

    def test_a_folder_that_is_not_there(self):
        self.refused(kt.job(self.path("nowhere")), 66, [self.path("nowhere")])

    def test_labels_that_are_not_there(self):
        os.unlink(self.file(LABELS))
        self.reject(66, [LABELS])

    def test_a_truncated_file(self):
        self.change(TRAIN, lambda raw: raw[:-100])
        self.reject(65, [TRAIN])

    def test_a_truncated_gzip_file(self):
        with open(self.file(TRAIN), "rb") as file:
            packed = gzip.compress(file.read(), 1)
        os.unlink(self.file(TRAIN))
        with open(self.file(TRAIN + ".gz"), "wb") as file:
            file.write(packed[:len(packed) // 2])
        self.reject(65, [TRAIN + ".gz"])

    def test_a_wrong_magic_number(self):
        self.change(TRAIN, lambda raw: b"\x50\x4b\x03\x04" + raw[4:])
        self.reject(65, [TRAIN, "IDX"])

    def test_an_empty_file(self):
        self.change(TRAIN, lambda raw: b"")
        self.reject(65, [TRAIN])

    def test_fewer_labels_than_images(self):
        kt.write_idx(self.file(LABELS), kt.fashion("train")[1][:150])
        self.reject(65, ["150", "200"])

    def csv(self, text, **spec):
        folder = self.path("csv")
        os.makedirs(folder, exist_ok=True)
        with open(folder + "/train.csv", "w", encoding="utf-8") as file:
            file.write(text)
        train = {"file": "train.csv", "labelColumn": "y"}
        more = {"model": {"kind": "Softmax", "hiddenLayers": None}, "dataset": {"format": "CSV", "train": train}, **spec}
        return kt.job(folder, workers=2, **more)

    GOOD = "a,b,y\n" + "".join(f"{i},{i * i},{i % 3}\n" for i in range(40))

    def test_a_feature_count_that_changes(self):
        self.refused(self.csv(self.GOOD + "1,2,3,4\n"), 65, ["train.csv", "42"])

    def test_a_non_numeric_field(self):
        self.refused(self.csv(self.GOOD.replace("\n7,", "\nseven,")), 65, ["train.csv", "9", "seven"])

    def test_a_missing_label_column(self):
        self.refused(self.csv(self.GOOD.replace("a,b,y", "a,b,z")), 65, ["train.csv", "y"])

    def test_a_label_out_of_range(self):
        """A test label that training has never seen."""
        labels = kt.fashion("t10k")[1][:50].copy()
        labels[17] = 77
        kt.write_idx(self.file("t10k-labels-idx1-ubyte"), labels)
        self.reject(65, ["t10k", "sample 17", "77"])

    def as_nobody(self):
        """Whether the programs can run as another user, who may read them and nothing of the test's folder."""
        if os.geteuid() != 0:
            self.skipTest("runs as another user, which takes root")
        return pwd.getpwnam("nobody").pw_uid

    def test_a_folder_that_may_not_be_read(self):
        user = self.as_nobody()
        copies = self.path("bin")
        shutil.copytree(kt.BIN, copies)  # wherever they are built, others may not go there
        os.chmod(self.folder, 0o755)
        os.mkdir(self.path("runs"))
        os.chown(self.path("runs"), user, -1)
        os.chmod(self.data, 0o700)
        manifest = self.manifest(kt.job(self.data, workers=2))
        run = self.start(kt.Process([copies + "/kunal", "run", manifest, "--run-dir", self.path("runs/one")], user=user))
        self.assertEqual(run.wait(), 77, run.stdout + run.stderr)
        self.assertEqual(len(run.lines), 1)
        told = kt.parse_summary(run.lines[0])["message"]
        self.assertIn(self.data, told)
        self.assertIn("Permission denied", told)
        self.nothing_left(run)


class Network(BadInput):
    def setUp(self):
        super().setUp()
        self.data = kt.small_fashion(self.path("data"), 200, 50)

    def test_a_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            self.refused(kt.job(self.data, workers=2), 73, [address], f"--listen={address}")

    def worker(self, conductor, **env):
        """kunal-worker alone; it reads the job of a run that is over."""
        run = self.succeed(kt.job(self.data, workers=1, training={"epochs": 1}), name="before")
        who = {"KUNAL_ROLE": "Worker", "KUNAL_INDEX": 0, "KUNAL_JOB_UID": "job-1", "KUNAL_CONDUCTOR": conductor,
               "KUNAL_JOB": run.folder + "/job.json", "KUNAL_LOG": "json", **env}
        return self.start(kt.Process([kt.program("kunal-worker")], env=who))

    def errors(self, process):
        return [kt.json.loads(line) for line in process.stderr.splitlines() if '"level":"error"' in line]

    def test_a_conductor_that_cannot_be_reached_is_tried_for_a_minute_and_then_named(self):
        with socket.socket() as dead:
            dead.bind(("127.0.0.1", 0))  # bound, but nobody listens
            address = "127.0.0.1:%d" % dead.getsockname()[1]
            worker = self.worker(address)
            self.assertEqual(worker.wait(), 69, worker.stderr)
        error, = self.errors(worker)
        self.assertIn(address, str(error))
        self.assertIn("unreachable", str(error))

    # ---- Protocol: the other side is written here, from the .proto alone ----

    def stubs(self):
        folder = tempfile.mkdtemp(dir=self.folder)
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I", kt.ROOT + "/proto", "--python_out", folder,
                        "--grpc_python_out", folder, "kunal/v1/data.proto", "kunal/v1/control.proto"], check=True)
        sys.path.insert(0, folder)
        from kunal.v1 import control_pb2, control_pb2_grpc, data_pb2
        return control_pb2, control_pb2_grpc, data_pb2

    def test_a_conductor_that_speaks_another_protocol_ends_the_worker(self):
        import grpc
        _, services, _ = self.stubs()

        class Conductor(services.ControlServicer):
            def Session(self, requests, context):
                next(requests)
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "this conductor speaks protocol 99")

        server = grpc.server(futures.ThreadPoolExecutor(2))
        services.add_ControlServicer_to_server(Conductor(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(None).wait())
        worker = self.worker(f"127.0.0.1:{port}")
        self.assertEqual(worker.wait(), 76, worker.stderr)
        error, = self.errors(worker)
        self.assertIn("this conductor speaks protocol 99", str(error))

    def refused_join(self, change, first=None):
        """What a conductor answers to a Join; `first` joins before, and stays."""
        import grpc
        control, services, data = self.stubs()
        run = self.run_job(kt.job(self.data, workers=2, model={"kind": "Custom", "hiddenLayers": None}, replicaSpecs={
            "Worker": {"template": {"spec": {"containers": [{"name": "worker", "command": ["/bin/sleep", "1000"]}]}}}}),
            "--listen=127.0.0.1:0", name="conductor")
        address = kt.until(lambda: [m["address"] for m in run.metrics("listening")], f"PS-0 of {run}: {run.stderr}")[0]
        with open(f"/proc/{run.child('kunal-ps-0')}/environ", "rb") as file:
            uid = [v[14:].decode() for v in file.read().split(b"\0") if v.startswith(b"KUNAL_JOB_UID=")][0]

        def join(index, change):
            layout = control.Layout(tensors=[control.Tensor(name="w", shape=[3, 2])])
            fields = dict(protocol=1, job_uid=uid, role=data.WORKER, index=index, incarnation=7 + index, layout=layout,
                          train_samples=10, data_digest=b"one")
            message = control.ToConductor(join=control.Join(**{**fields, **change}))
            hold = threading.Event()

            def upward():
                yield message
                hold.wait()
            call = services.ControlStub(channel).Session(upward())
            return call, hold

        holds = []
        with grpc.insecure_channel(address) as channel:
            if first is not None:
                call, hold = join(0, first)
                holds.append(hold)
                self.assertEqual(next(call).WhichOneof("message"), "joined")
            call, hold = join(1, change(control))
            holds.append(hold)
            with self.assertRaises(grpc.RpcError) as refusal:
                while True:
                    next(call)
            for hold in holds:
                hold.set()
        run.signal(kt.signal.SIGTERM)
        self.assertEqual(run.wait(), 143, run.stdout + run.stderr)
        self.nothing_left(run)
        return refusal.exception

    def test_a_worker_that_speaks_another_protocol_is_refused_by_its_number(self):
        import grpc
        error = self.refused_join(lambda control: {"protocol": 99})
        self.assertEqual(error.code(), grpc.StatusCode.FAILED_PRECONDITION)
        self.assertIn("99", error.details())
        self.assertIn("protocol", error.details())

    def test_another_layout_is_refused_by_the_name_of_the_tensor(self):
        import grpc
        error = self.refused_join(
            lambda control: {"layout": control.Layout(tensors=[control.Tensor(name="w", shape=[3, 5])])}, first={})
        self.assertEqual(error.code(), grpc.StatusCode.FAILED_PRECONDITION)
        self.assertIn("w", error.details())
        self.assertIn("5", error.details())

    def test_other_data_is_refused(self):
        error = self.refused_join(lambda control: {"data_digest": b"two"}, first={})
        self.assertRegex(error.details(), "data")

    def test_another_job_is_refused(self):
        import grpc
        error = self.refused_join(lambda control: {"job_uid": "somebody-else"})
        self.assertEqual(error.code(), grpc.StatusCode.PERMISSION_DENIED)
        self.assertIn("somebody-else", error.details())


if __name__ == "__main__":
    kt.main()
