#!/usr/bin/python3
"""What must hold to the bit, with the real processes: shards, repetitions and modes that are one and the same sum."""
import json
import os
import subprocess
import sys

import kunal_test as kt

LOCKSTEP = {"balancing": {"strategy": "Static"}}


def tensor_bytes(run):
    tensors, _ = kt.read_safetensors(run.summary()["model"])
    return {name: (t.shape, t.tobytes()) for name, t in tensors.items()}


class Bits(kt.Case):
    def setUp(self):
        super().setUp()
        self.data = kt.small_fashion(self.path("data"))

    def tensors(self, name, ps=1, workers=3, **spec):
        run = self.succeed(kt.job(self.data, ps=ps, workers=workers, **kt.merged(LOCKSTEP, spec)), "--quiet", name=name)
        self.assertEqual(run.metrics("finished")[-1]["samples"], 2 * 2000)
        return tensor_bytes(run)

    def check_same(self, first, second, what):
        self.assertEqual(first.keys(), second.keys())
        for name, one in first.items():
            self.assertEqual(one[0], second[name][0])
            self.assertTrue(one[1] == second[name][1], f"{what}: {name} differs")

    def test_one_two_and_three_shards_give_the_same_bytes(self):
        one = self.tensors("one", ps=1)
        self.check_same(one, self.tensors("two", ps=2), "2 shards")
        self.check_same(one, self.tensors("three", ps=3), "3 shards")

    def test_momentum_and_clipping_do_not_depend_on_the_shards(self):
        spec = {"training": {"optimizer": {"kind": "Momentum", "learningRate": 0.05}, "gradientClipNorm": 1.0}}
        self.check_same(self.tensors("one", ps=1, **spec), self.tensors("three", ps=3, **spec), "3 shards, clipped")

    def test_two_runs_give_the_same_bytes_and_another_seed_does_not(self):
        first = self.tensors("first")
        self.check_same(first, self.tensors("second"), "again")
        other = self.tensors("other", model={"kind": "MLP", "hiddenLayers": [32], "seed": 2})
        self.assertNotEqual(first["layer.0.weight"], other["layer.0.weight"])

    def test_lsp_with_the_limit_of_all_workers_is_bsp(self):
        lsp = self.tensors("lsp", synchronization={"mode": "LSP", "limit": 3})
        self.check_same(self.tensors("bsp"), lsp, "LSP l = m")

    def test_ssp_without_staleness_is_bsp(self):
        ssp = self.tensors("ssp", synchronization={"mode": "SSP", "staleness": 0})
        self.check_same(self.tensors("bsp"), ssp, "SSP s = 0")

    def test_encryption_changes_no_bit(self):
        plain = self.tensors("plain", ps=2)
        run = self.succeed(kt.job(self.data, ps=2, workers=3, **LOCKSTEP), "--quiet", "--tls", name="tls")
        self.check_same(plain, tensor_bytes(run), "TLS")


class Example(kt.Case):
    KEYS = ["result", "epochs", "accuracy", "loss", "samples_per_second", "seconds", "model"]

    def read_with_torch(self, path):
        """Sums and shapes as torch sees them, in a process of its own."""
        text = ("import json, struct, sys, torch\n"
                "raw = open(sys.argv[1], 'rb').read()\n"
                "size, = struct.unpack('<Q', raw[:8])\n"
                "out = {}\n"
                "for name, entry in json.loads(raw[8:8 + size]).items():\n"
                "    if name != '__metadata__':\n"
                "        begin, end = entry['data_offsets']\n"
                "        t = torch.frombuffer(bytearray(raw[8 + size + begin:8 + size + end]), dtype=torch.float32)\n"
                "        t = t.reshape(entry['shape'])\n"
                "        out[name] = [list(t.shape), float(t.double().sum())]\n"
                "print(json.dumps(out))\n")
        done = subprocess.run([sys.executable, "-c", text, path], stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    def test_the_example_of_the_readme_reaches_88_percent_and_says_so_in_one_line(self):
        run = self.start(kt.Run(os.path.join(kt.ROOT, "examples/fashion-mnist.yaml"), self.path("run"), cwd=kt.ROOT))
        self.assertEqual(run.wait(600), 0, run.stdout + run.stderr)
        self.assertEqual(len(run.lines), 1, run.stdout)
        summary = run.summary()
        self.assertEqual(list(summary), self.KEYS)
        self.assertEqual(summary["result"], "succeeded")
        self.assertGreaterEqual(float(summary["accuracy"]), 0.88)
        self.assertTrue(os.path.isabs(summary["model"]))
        self.assertGreater(float(summary["samples_per_second"]), 0)
        last = run.metrics("finished")[-1]
        self.assertEqual(last["samples"], 60000 * int(summary["epochs"]), "each sample once in each epoch")

        tensors, metadata = kt.read_safetensors(summary["model"])
        self.assertEqual({name: t.shape for name, t in tensors.items()},
                         {"layer.0.weight": (128, 784), "layer.0.bias": (128,),
                          "layer.1.weight": (10, 128), "layer.1.bias": (10,)})
        accuracy = kt.mlp_accuracy(tensors, metadata, *kt.fashion("t10k"))
        self.assertLessEqual(abs(accuracy - float(summary["accuracy"])), 0.00021, "at most two images on the edge")
        seen = self.read_with_torch(summary["model"])
        for name, tensor in tensors.items():
            self.assertEqual(tuple(seen[name][0]), tensor.shape)
            self.assertAlmostEqual(seen[name][1], float(tensor.astype("f8").sum()), places=6)
        self.nothing_left(run)


if __name__ == "__main__":
    kt.main()
