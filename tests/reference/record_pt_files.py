#!/usr/bin/env python3
"""Records what torch.save writes into tests/reference/pt/: small .pt files (and a .safetensors), and values.json with what
is in them.

Usage: record_pt_files.py [FOLDER]

values.json holds for each tensor of each file its dtype, size, and bytes in hexadecimal; yoke must find the same.
"""

import argparse
import collections
import json
import pathlib
import sys
import zipfile

import safetensors.torch
import torch

DTYPES = """float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 complex32 complex64
complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu""".split()


def dtypes():
    torch.manual_seed(0)
    values = {}
    for name in DTYPES:
        dtype = getattr(torch, name)
        values[name] = torch.randint(256, (3, 2 * dtype.itemsize), dtype=torch.uint8).view(dtype)  # arbitrary bits
    values["bool"] = torch.tensor([True, False, True])
    return values


def shapes():
    base = torch.arange(24.0)
    return {
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 4),
        "none": torch.zeros(0),
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "expanded": torch.tensor([7]).expand(5),
        "base": base,
        "view": base[4:16].reshape(3, 4)[:, ::2],
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "conjugated": torch.tensor([1 + 2j, 3 - 4j]).conj(),
        "negated": torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
    }


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        collections.OrderedDict(conv=torch.nn.Conv2d(1, 2, 3), norm=torch.nn.BatchNorm2d(2), head=torch.nn.Linear(4, 3))
    )


def state_dict():
    return model().state_dict()


def trainer():
    """The content that a training script typically saves."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    net.head(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    return {
        "epoch": 3,
        "state_dict": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "best": 0.5,
        "args": {"name": "caf\u00e9", "sizes": [1, (2, -3)], "big": 1 << 40, "least": -(1 << 63), "flag": True, "no": None},
        "size": torch.Size([2, 3]),
        "device": torch.device("cuda:1"),
        "dtype": torch.bfloat16,
        "parameter": torch.nn.Parameter(torch.ones(2)),
        7: "seven",
        (1, "a"): [],
    }


def attributes():
    """Tensors with attributes of their own, which torch.save stores in another way than plain ones."""
    tensor, parameter = torch.arange(3.0), torch.nn.Parameter(torch.ones(2))
    tensor.note = parameter.note = "an attribute"
    return {"tensor": tensor, "parameter": parameter, "buffer": torch.nn.Buffer(torch.zeros(2))}


def plain(value, tensors, place):
    """Returns a value as JSON, with each tensor replaced by its position."""
    if isinstance(value, torch.Tensor):
        dense = value.detach().contiguous().resolve_conj().resolve_neg()
        bits = dense.reshape(-1).view(torch.uint8) if dense.numel() else torch.zeros(0, dtype=torch.uint8)
        tensors[place] = {
            "dtype": str(value.dtype).removeprefix("torch."),
            "size": list(value.shape),
            "stride": list(value.stride()),
            "hex": bytes(bits.tolist()).hex(),
        }
        return "tensor " + place
    if isinstance(value, torch.Size):
        return {"tuple": list(value)}
    if isinstance(value, (torch.device, torch.dtype)):
        return str(value)
    if isinstance(value, dict):
        return {
            "dict": [[plain(k, tensors, place), plain(v, tensors, f"{place}/{k}")] for k, v in value.items()]
        }
    if isinstance(value, (list, tuple)):
        items = [plain(item, tensors, f"{place}/{i}") for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    return value


def beside():
    """Weights, together with objects that are neither tensors nor plain data."""
    return {
        "model": {"weight": torch.arange(6.0).view(2, 3)},
        "seen": {1, 2, 3},
        "frozen": frozenset("ab"),
        "raw": b"bytes",
        "more": bytearray(b"bytes"),
        "counts": collections.Counter("aab"),
        "groups": collections.defaultdict(list, {"a": [1]}),
        "long": 2**80,
        "arguments": argparse.Namespace(lr=0.1, betas=(0.9, 0.95)),
        "path": pathlib.PurePosixPath("/tmp"),
        "sparse": torch.eye(2).to_sparse(),
        "quantized": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    }


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "pt")
    folder.mkdir(exist_ok=True)
    record = {"torch": torch.__version__.split("+")[0], "files": {}}
    for make in (dtypes, shapes, state_dict, trainer, attributes):
        value, tensors = make(), {}
        torch.save(value, folder / f"{make.__name__}.pt")
        record["files"][make.__name__] = {"value": plain(value, tensors, ""), "tensors": tensors}
    without = {"complex32", "complex128"}  # safetensors does not have these dtypes
    tensors = {name: value for name, value in dtypes().items() if name not in without}
    safetensors.torch.save_file(tensors, folder / "dtypes.safetensors", {"format": "pt"})
    torch.save(state_dict(), folder / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(trainer(), folder / "legacy4.pt", pickle_protocol=4, _use_new_zipfile_serialization=False)
    with zipfile.ZipFile(folder / "shapes.pt") as stored, zipfile.ZipFile(
        folder / "deflated.pt", "w", zipfile.ZIP_DEFLATED
    ) as deflated:
        for name in stored.namelist():
            deflated.writestr(zipfile.ZipInfo(name), stored.read(name), zipfile.ZIP_DEFLATED)
    torch.save(dtypes(), folder / "protocol5.pt", pickle_protocol=5)
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), folder / "script.pt")
    torch.save({"sparse": torch.eye(2).to_sparse()}, folder / "sparse.pt")
    torch.save(beside(), folder / "beside.pt")
    (folder / "values.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
