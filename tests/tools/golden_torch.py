#!/usr/bin/env python3
"""Golden numbers from PyTorch: golden_torch.py optimizer|model FOLDER.

FOLDER holds cases, one sub-folder each, written by a C test: case.json and raw little-endian arrays. The answers are
written beside them.
"""
import json
import pathlib
import sys

import numpy
import torch

torch.set_num_threads(1)


def read(path, dtype, *shape):
    return numpy.fromfile(path, dtype=dtype).reshape(shape)


def optimizer(case, spec):
    """params.f32 [n], grads.f32 [steps, n] -> expected.f32 [steps, n], in float32 as torch does it."""
    n, steps = spec["n"], spec["steps"]
    param = torch.nn.Parameter(torch.from_numpy(read(case / "params.f32", "<f4", n).copy()))
    grads = read(case / "grads.f32", "<f4", steps, n)
    decay, momentum = spec["weightDecay"], spec["momentum"]
    betas = (spec["beta1"], spec["beta2"])
    make = {
        "SGD": lambda: torch.optim.SGD([param], lr=1.0, weight_decay=decay),
        "Momentum": lambda: torch.optim.SGD([param], lr=1.0, momentum=momentum, weight_decay=decay),
        "Nesterov": lambda: torch.optim.SGD([param], lr=1.0, momentum=momentum, weight_decay=decay, nesterov=True),
        "Adagrad": lambda: torch.optim.Adagrad([param], lr=1.0, weight_decay=decay, eps=spec["epsilon"]),
        "Adam": lambda: torch.optim.Adam([param], lr=1.0, betas=betas, eps=spec["epsilon"], weight_decay=decay),
        "AdamW": lambda: torch.optim.AdamW([param], lr=1.0, betas=betas, eps=spec["epsilon"], weight_decay=decay),
    }[spec["kind"]]
    optim = make()
    out = numpy.empty((steps, n), dtype="<f4")
    for step in range(steps):
        for group in optim.param_groups:
            group["lr"] = spec["rates"][step]
        param.grad = torch.from_numpy(grads[step].copy())
        optim.step()
        out[step] = param.detach().numpy()
    out.tofile(case / "expected.f32")


ACTIVATIONS = {"ReLU": torch.nn.ReLU, "Tanh": torch.nn.Tanh, "Sigmoid": torch.nn.Sigmoid}


def model(case, spec):
    """params.f32, x.f32, label.u32 or target.f32 -> grad.f64 [size], score.f64 [loss sum, correct], in double."""
    torch.set_default_dtype(torch.float64)
    widths, n = spec["widths"], spec["n"]
    layers = []
    for at, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        layers.append(torch.nn.Linear(inputs, outputs))
        if at + 2 < len(widths):
            layers.append(ACTIVATIONS[spec["activation"]]())
    net = torch.nn.Sequential(*layers)
    flat = torch.from_numpy(read(case / "params.f32", "<f4", -1).astype("f8"))
    torch.nn.utils.vector_to_parameters(flat, net.parameters())
    x = torch.from_numpy(read(case / "x.f32", "<f4", n, widths[0]).astype("f8"))
    out = net(x)
    correct = 0
    if spec["kind"] == "Linear":
        target = torch.from_numpy(read(case / "target.f32", "<f4", n).astype("f8"))
        loss = torch.nn.functional.mse_loss(out[:, 0], target)
    else:
        label = torch.from_numpy(read(case / "label.u32", "<u4", n).astype("i8"))
        if spec["kind"] == "Logistic":
            loss = torch.nn.functional.binary_cross_entropy_with_logits(out[:, 0], label.double())
            correct = int(((out[:, 0] > 0).long() == label).sum())
        else:
            loss = torch.nn.functional.cross_entropy(out, label)
            correct = int((out.argmax(1) == label).sum())
    loss.backward()
    grad = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
    grad.numpy().astype("<f8").tofile(case / "grad.f64")
    numpy.array([loss.item() * n, correct], dtype="<f8").tofile(case / "score.f64")


def main():
    what, folder = {"optimizer": optimizer, "model": model}[sys.argv[1]], pathlib.Path(sys.argv[2])
    cases = sorted(path.parent for path in folder.glob("*/case.json"))
    if not cases:
        sys.exit(f"no cases in {folder}")
    for case in cases:
        what(case, json.loads((case / "case.json").read_text()))


if __name__ == "__main__":
    main()
