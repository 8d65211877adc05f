#!/usr/bin/python3
"""examples/python-worker: a model of one's own, through the .proto alone."""
import os
import unittest

import kunal_test as kt

EXAMPLE = os.path.join(kt.ROOT, "examples/python-worker")


class PythonWorker(kt.Case):
    def train(self, shards, workers, **sets):
        """The example's own manifest, on a small data set."""
        data = kt.small_fashion(self.path("data"))
        fields = {"dataset.storageUri": f"file://{data}", "training.epochs": 3, "replicaSpecs.PS.replicas": shards,
                  "replicaSpecs.Worker.replicas": workers, **sets}
        flags = [f"--set=spec.{name}={value}" for name, value in fields.items()]
        run = self.start(kt.Run(os.path.join(EXAMPLE, "job.yaml"), self.path("run"), *flags, cwd=kt.ROOT))
        self.assertEqual(run.wait(), 0, run.stdout + run.stderr + run.log("kunal-worker-0") + run.log("kunal-worker-1"))
        self.nothing_left(run)
        return run

    def check_model(self, run, shapes):
        """The file holds the worker's own tensors, and they do what the summary line says."""
        summary = run.summary()
        tensors, metadata = kt.read_safetensors(summary["model"])
        self.assertEqual({name: t.shape for name, t in tensors.items()}, shapes)
        self.assertEqual(metadata["activation"], "x * sigmoid(x)")
        images, labels = (array[:500] for array in kt.fashion("t10k"))
        z = images.reshape(500, -1).astype("f4") / 255 @ tensors["hidden.weight"].T + tensors["hidden.bias"]
        logits = z / (1 + kt.np.exp(-z)) @ tensors["out.weight"].T + tensors["out.bias"]
        accuracy = float((logits.argmax(axis=1) == labels).mean())
        self.assertAlmostEqual(accuracy, float(summary["accuracy"]), delta=0.00251)  # one image on the edge
        self.assertGreater(accuracy, 0.6)
        last = run.metrics("finished")[-1]
        self.assertEqual((last["samples"], summary["epochs"]), (3 * 2000, "3"))

    SHAPES = {"hidden.weight": (64, 784), "hidden.bias": (64,), "out.weight": (10, 64), "out.bias": (10,)}

    def test_it_trains_its_own_model_on_one_parameter_server(self):
        self.check_model(self.train(1, 2), self.SHAPES)

    def test_it_trains_its_own_model_on_two_parameter_servers_in_lockstep(self):
        self.check_model(self.train(2, 2, **{"synchronization.mode": "BSP", "synchronization.limit": "auto"}), self.SHAPES)

    def test_a_killed_one_comes_back_and_each_sample_counts_once(self):
        data = kt.small_fashion(self.path("data"))
        flags = [f"--set=spec.dataset.storageUri=file://{data}", "--set=spec.training.epochs=20",
                 "--set=spec.replicaSpecs.Worker.replicas=2"]
        run = self.start(kt.Run(os.path.join(EXAMPLE, "job.yaml"), self.path("run"), *flags, cwd=kt.ROOT))
        kt.until(lambda: len(run.metrics("epoch")) >= 2, f"two epochs of {run}: {run.stderr}")
        victim = next(pid for pid, words in run.family().items() if "worker.py" in words)
        os.kill(victim, kt.signal.SIGKILL)
        self.assertEqual(run.wait(), 0, run.stdout + run.stderr)
        self.assertEqual(run.metrics("finished")[-1]["samples"], 20 * 2000)
        self.assertEqual(len(run.metrics("worker_joined")), 3)
        self.nothing_left(run)


if __name__ == "__main__":
    kt.main()
