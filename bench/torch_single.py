#!/usr/bin/python3
"""The peer of P4t and P6: torch in one process. Prints one line of JSON.

  to-target   training seconds until an epoch ends with the test accuracy --target (evaluation is not in them)
  step        median seconds of one step (forward, backward, SGD) of --model mlp or softmax at --batch
"""
import argparse
import json
import resource
import time

import torch

from torch_common import accuracy, load, mlp


def usage():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu_seconds": u.ru_utime + u.ru_stime, "rss_bytes": u.ru_maxrss * 1024}


def step(model, optimizer, loss_of, x, y):
    optimizer.zero_grad()
    loss_of(model(x), y).backward()
    optimizer.step()


def to_target(o):
    x, y = load("train")
    test = load("t10k")
    model = mlp(o.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=o.rate)
    loss_of = torch.nn.CrossEntropyLoss()
    seconds, epoch, reached = 0.0, 0, 0.0
    while reached < o.target and epoch < o.epochs:
        begin = time.perf_counter()
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(o.seed * 1000 + epoch))
        for at in range(0, len(y), o.batch):
            rows = order[at:at + o.batch]
            step(model, optimizer, loss_of, x[rows], y[rows])
        seconds += time.perf_counter() - begin
        epoch += 1
        reached = accuracy(model, *test)
    return {"seconds": seconds, "epochs": epoch, "accuracy": reached, "samples_per_second": epoch * len(y) / seconds}


def steps(o):
    torch.manual_seed(o.seed)
    model = mlp(o.seed) if o.model == "mlp" else torch.nn.Linear(784, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=o.rate)
    loss_of = torch.nn.CrossEntropyLoss()
    x, y = torch.rand(o.batch, 784), torch.randint(10, (o.batch,))
    times = []
    end = time.perf_counter() + o.for_seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        for _ in range(10):
            step(model, optimizer, loss_of, x, y)
        times.append((time.perf_counter() - begin) / 10)
    times.sort()
    return {"step_seconds": times[len(times) // 2], "steps": 10 * len(times)}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("what", choices=["to-target", "step"])
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--rate", type=float, default=0.1)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--epochs", type=int, default=60)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--target", type=float, default=0.88)
    p.add_argument("--model", choices=["mlp", "softmax"], default="mlp")
    p.add_argument("--for-seconds", type=float, default=0.5)
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    result = to_target(o) if o.what == "to-target" else steps(o)
    print(json.dumps({**result, **usage()}))


if __name__ == "__main__":
    main()
