#!/usr/bin/python3
"""The peer of P4 and of launch: torch DistributedDataParallel with gloo, one process a rank, one thread each.

Prints one line of JSON: samples_per_second and seconds of training (evaluation is not in them), first_step_seconds from
the start of this program to the end of the first step, cpu_seconds and rss_bytes of all processes, accuracy.
--target: stop at the first epoch whose test accuracy is that good.
"""
import argparse
import json
import os
import resource
import sys
import tempfile
import time

STARTED = float(os.environ.get("BENCH_STARTED") or time.time())


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0, help="stop after so many steps; 0: whole epochs")
    parser.add_argument("--target", type=float, default=0)
    return parser.parse_args()


def train_epoch(o, rank, epoch, model, optimizer, loss_of, x, y, times):
    import torch
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(o.seed * 1000 + epoch))[rank::o.ranks]
    samples = 0
    for at in range(0, len(order) // o.batch * o.batch, o.batch):
        rows = order[at:at + o.batch]
        optimizer.zero_grad()
        loss_of(model(x[rows]), y[rows]).backward()
        optimizer.step()
        samples += len(rows)
        times.setdefault("first", time.time() - STARTED)
        if samples == o.steps * o.batch:
            break
    return samples * o.ranks


def run(rank, o, store, results):
    import torch
    import torch.distributed as dist
    from torch_common import accuracy, load, mlp
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=o.ranks)
    x, y = load("train")
    test = load("t10k") if rank == 0 and o.steps == 0 else None
    model = torch.nn.parallel.DistributedDataParallel(mlp(o.seed))
    optimizer = torch.optim.SGD(model.parameters(), lr=o.rate)
    loss_of = torch.nn.CrossEntropyLoss()
    seconds, samples, reached, times = 0.0, 0, 0.0, {}
    for epoch in range(o.epochs):
        dist.barrier()
        begin = time.perf_counter()
        samples += train_epoch(o, rank, epoch, model, optimizer, loss_of, x, y, times)
        dist.barrier()
        seconds += time.perf_counter() - begin
        score = torch.tensor([accuracy(model.module, *test) if test else 0.0])
        dist.broadcast(score, 0)
        reached = float(score)
        if o.target and reached >= o.target:
            break
    usage = resource.getrusage(resource.RUSAGE_SELF)
    results.put({"seconds": seconds, "samples": samples, "accuracy": reached, "first": times["first"], "epochs": epoch + 1,
                 "cpu": usage.ru_utime + usage.ru_stime, "rss": usage.ru_maxrss * 1024})


def main():
    import torch.multiprocessing as mp
    o = options()
    results = mp.get_context("spawn").Queue()
    with tempfile.TemporaryDirectory() as folder:
        crew = mp.spawn(run, (o, os.path.join(folder, "store"), results), nprocs=o.ranks, join=False)
        all_ranks = []
        while len(all_ranks) < o.ranks:
            try:
                all_ranks.append(results.get(timeout=1))
            except Exception:  # nothing yet; a rank that failed is raised by join
                if crew.join(timeout=0):
                    break
        while not crew.join():
            pass
    if len(all_ranks) < o.ranks:
        sys.exit("a rank ended without a result")
    worst = max(all_ranks, key=lambda r: r["seconds"])
    print(json.dumps({"samples_per_second": worst["samples"] / worst["seconds"], "seconds": worst["seconds"],
                      "epochs": worst["epochs"], "accuracy": worst["accuracy"],
                      "first_step_seconds": max(r["first"] for r in all_ranks),
                      "cpu_seconds": sum(r["cpu"] for r in all_ranks), "rss_bytes": sum(r["rss"] for r in all_ranks)}))


if __name__ == "__main__":
    main()
