#!/usr/bin/env python3
"""safetensors by hand, with numpy alone: golden_safetensors.py read|write FOLDER.

read: FOLDER/ours.safetensors must hold what the C test says it holds. write: makes FOLDER/theirs.safetensors.
"""
import json
import pathlib
import struct
import sys

import numpy

WEIGHT = (numpy.arange(12, dtype="<f4") / 8 - 0.5).reshape(3, 4)
BIAS = numpy.array([1.5, -2.25, 1e-30], dtype="<f4")
METADATA = {"format": "pt", "na\"me": "a\\b\u00e9\n"}


def read(folder):
    raw = (folder / "ours.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    data = raw[8 + length :]
    assert (8 + length) % 64 == 0, length
    assert header.pop("__metadata__") == METADATA
    assert list(header) == ["layer.0.weight", "layer.0.bias"], header
    for name, wanted in (("layer.0.weight", WEIGHT), ("layer.0.bias", BIAS)):
        entry = header[name]
        begin, end = entry["data_offsets"]
        assert entry["dtype"] == "F32" and tuple(entry["shape"]) == wanted.shape, entry
        assert (numpy.frombuffer(data[begin:end], dtype="<f4").reshape(wanted.shape) == wanted).all()


def write(folder):
    # The order in the header is not the order of the data, blanks stand everywhere, and there is a scalar and an empty one.
    parts = [("layer.0.bias", BIAS), ("layer.0.weight", WEIGHT), ("step", numpy.array(7, dtype="<i8")),
             ("nothing", numpy.zeros((0, 5), dtype="<f4"))]
    names = {"f4": "F32", "i8": "I64"}
    entries, at = {}, 0
    for name, array in parts:
        size = array.nbytes
        entries[name] = {"shape": list(array.shape), "data_offsets": [at, at + size], "dtype": names[array.dtype.str[1:]]}
        at += size
    entries = dict(sorted(entries.items(), reverse=True))
    entries["__metadata__"] = METADATA
    text = json.dumps(entries, indent=1).encode() + b"   "
    data = b"".join(array.tobytes() for _, array in parts)
    (folder / "theirs.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    {"read": read, "write": write}[sys.argv[1]](pathlib.Path(sys.argv[2]))
