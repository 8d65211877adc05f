"""P1 and P2: bench/push.c against a running kunal-ps over TCP, bench/rawtcp.c as the peer."""
import json
import shutil
import tempfile

import bench_common as bench


def manifest(command):
    return {"apiVersion": "kunal.ml/v1alpha1", "kind": "KunalJob", "metadata": {"name": "push"},
            "spec": {"model": {"kind": "Custom"},
                     "training": {"batchSize": 1, "optimizer": {"kind": "SGD", "learningRate": 0.1}},
                     "synchronization": {"mode": "ASP"},
                     "balancing": {"strategy": "Leased"},
                     "replicaSpecs": {"PS": {"replicas": 1}, "Worker": {"replicas": 1, "template": {"spec": {
                         "containers": [{"name": "worker", "command": [str(c) for c in command]}]}}}}}}


def ours(floats, rounds, warm):
    folder = tempfile.mkdtemp(prefix="kunal-bench-")
    try:
        result = folder + "/result.json"
        with open(folder + "/job.yaml", "w", encoding="utf-8") as file:
            json.dump(manifest([bench.OWN + "/push", floats, rounds, warm, result]), file)
        run = bench.kunal(folder + "/job.yaml", "--listen=127.0.0.1:0")
        with open(result, encoding="utf-8") as file:
            return {**json.load(file), "cpu_seconds": run["cpu_seconds"]}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def row(name, floats, rounds, warm):
    bench.enter_network()
    bench.compare(name, 7, lambda _: ours(floats, rounds, warm),
                  lambda _: bench.call_json([bench.OWN + "/rawtcp", floats, rounds, warm]), True, "median")
