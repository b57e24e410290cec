#!/usr/bin/env python3
"""Checks with Python that pairs of files contain the same values, bit for bit.

Usage: check_pt_file.py THEIRS OURS [THEIRS OURS]...

THEIRS is a file of torch.save, OURS the file that yoke wrote after reading it: .pt, which is loaded with weights_only=True,
mapped and not, and tested as a zip file; or .safetensors (of a flat dictionary).
"""

import sys
import zipfile

import torch


def same(theirs, ours, place):
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, torch.Tensor), place
        assert theirs.dtype == ours.dtype and theirs.shape == ours.shape, (place, ours.dtype, ours.shape)
        if not place.startswith("safetensors"):
            assert theirs.stride() == ours.stride() and theirs.storage_offset() == ours.storage_offset(), place
        a, b = (t.detach().resolve_conj().resolve_neg().contiguous().reshape(-1) for t in (theirs, ours))
        assert torch.equal(a.view(torch.uint8), b.view(torch.uint8)) if a.numel() else True, place
    elif isinstance(theirs, torch.Size):
        assert ours == tuple(theirs), place
    elif isinstance(theirs, (torch.device, torch.dtype)):
        assert ours == str(theirs), place
    elif isinstance(theirs, dict):
        assert isinstance(ours, dict), place
        if place.startswith("safetensors"):
            assert theirs.keys() == ours.keys()
            ours = {key: ours[key] for key in theirs}
        for (k, v), (our_k, our_v) in zip(theirs.items(), ours.items(), strict=True):
            assert k == our_k and type(k) is type(our_k), (place, k, our_k)
            same(v, our_v, f"{place}/{k}")
    elif isinstance(theirs, (list, tuple)):
        assert type(ours) is type(theirs), place
        for i, (a, b) in enumerate(zip(theirs, ours, strict=True)):
            same(a, b, f"{place}/{i}")
    else:
        assert type(theirs) is type(ours) and theirs == ours, (place, theirs, ours)


def storages(value):
    """How the tensors of a flat dictionary share storages."""
    pointers = [tensor.untyped_storage().data_ptr() for tensor in value.values() if tensor.numel()]
    return [pointers.index(pointer) for pointer in pointers]


def check(theirs_path, ours_path):
    theirs = torch.load(theirs_path, weights_only=True, map_location="cpu")
    if ours_path.endswith(".safetensors"):
        from safetensors.torch import load_file

        same(theirs, load_file(ours_path), "safetensors")
        return
    with zipfile.ZipFile(ours_path) as archive:
        assert archive.testzip() is None
    for mapped in (False, True):
        ours = torch.load(ours_path, weights_only=True, mmap=mapped)
        same(theirs, ours, "")
        if all(isinstance(value, torch.Tensor) for value in theirs.values()):
            assert storages(theirs) == storages(ours)


def main():
    for theirs_path, ours_path in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        check(theirs_path, ours_path)


if __name__ == "__main__":
    main()
