"""A model that no built-in kind has: one hidden layer with x * sigmoid(x), a softmax over the classes, in numpy.

A model of your own needs what this one has: `shapes` (names and shapes of the tensors, in the order of the flat vector),
`initial(seed)` and `step(flat, x, y)`.
"""
import gzip
import hashlib
import os

import numpy as np


class Model:
    def __init__(self, features, classes, hidden=64):
        self.shapes = {"hidden.weight": (hidden, features), "hidden.bias": (hidden,),
                       "out.weight": (classes, hidden), "out.bias": (classes,)}
        self.ends = np.cumsum([np.prod(shape) for shape in self.shapes.values()])
        self.size = int(self.ends[-1])

    def views(self, flat):
        return [part.reshape(shape) for part, shape in zip(np.split(flat, self.ends[:-1]), self.shapes.values())]

    def initial(self, seed):
        flat = np.zeros(self.size, "<f4")
        for part in self.views(flat)[::2]:  # the weights; biases start at zero
            part[:] = np.random.default_rng(seed).standard_normal(part.shape) / np.sqrt(part.shape[1])
        return flat

    def step(self, flat, x, y):
        """The mean gradient over the samples, the sum of their losses, how many are right."""
        w1, b1, w2, b2 = self.views(flat)
        z = x @ w1.T + b1
        gate = 1 / (1 + np.exp(-z))
        hidden = z * gate
        logits = hidden @ w2.T + b2
        logits -= logits.max(axis=1, keepdims=True)
        logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        rows = np.arange(len(y))
        delta = np.exp(logs)
        delta[rows, y] -= 1
        delta /= len(y)
        back = (delta @ w2) * (gate + hidden * (1 - gate))
        parts = [back.T @ x, back.sum(axis=0), delta.T @ hidden, delta.sum(axis=0)]
        gradient = np.concatenate([part.ravel() for part in parts]).astype("<f4")
        return gradient, -float(logs[rows, y].sum()), int((logs.argmax(axis=1) == y).sum())


def read_data(uri):
    """({"train": (x, y), "t10k": (x, y)}, digest) of a folder with the MNIST names. Equal data has an equal digest."""
    folder, digest, splits = uri[len("file://"):], hashlib.sha256(), {}
    for split in ("train", "t10k"):
        arrays = []
        for name in (f"{folder}/{split}-images-idx3-ubyte", f"{folder}/{split}-labels-idx1-ubyte"):
            with open(name, "rb") if os.path.exists(name) else gzip.open(name + ".gz") as file:
                raw = file.read()
            digest.update(raw)
            arrays.append(np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(np.frombuffer(raw, ">u4", raw[3], 4)))
        splits[split] = (arrays[0].reshape(len(arrays[0]), -1).astype(np.float32) / 255, arrays[1].astype(np.int64))
    return splits, digest.digest()
