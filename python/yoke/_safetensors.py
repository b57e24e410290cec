"""Files of safetensors (docs/checkpoint.md has the format), and tensors of torch and NumPy from and to their bytes."""

from __future__ import annotations

import ctypes
import json
import math
import mmap
import os
import stat
import struct
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

from ._command import Error

_MOST_HEADER_BYTES = 100_000_000
#: name in the file: bytes of an element, name in torch, name in NumPy
DTYPES: Dict[str, Tuple[int, str, Optional[str]]] = {
    "F64": (8, "float64", "float64"), "F32": (4, "float32", "float32"), "F16": (2, "float16", "float16"),
    "BF16": (2, "bfloat16", None), "F8_E4M3": (1, "float8_e4m3fn", None), "F8_E4M3FNUZ": (1, "float8_e4m3fnuz", None),
    "F8_E5M2": (1, "float8_e5m2", None), "F8_E5M2FNUZ": (1, "float8_e5m2fnuz", None), "F8_E8M0": (1, "float8_e8m0fnu", None),
    "C64": (8, "complex64", "complex64"), "I64": (8, "int64", "int64"), "I32": (4, "int32", "int32"),
    "I16": (2, "int16", "int16"), "I8": (1, "int8", "int8"), "U8": (1, "uint8", "uint8"), "U16": (2, "uint16", "uint16"),
    "U32": (4, "uint32", "uint32"), "U64": (8, "uint64", "uint64"), "BOOL": (1, "bool", "bool")}


class Raw(NamedTuple):
    """A tensor without NumPy and torch: the dtype as the file names it ("F32"), the shape, and the little-endian bytes."""

    dtype: str
    shape: Tuple[int, ...]
    data: Any  #: bytes or a memoryview


def damaged(path: Path, reason: str) -> Error:
    return Error(f"{path}: {reason}; use another checkpoint", 65)


def crc_of(data: Any) -> bytes:
    return b"%08x" % zlib.crc32(data)


#: What code raises that reads JSON of another shape than it expects.
FORGED = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError, RecursionError)


def mapped(path: Path) -> memoryview:
    """The bytes of a file. Changing them never changes the file."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:  # a FIFO would block
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise damaged(path, "it is no regular file")
            return memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY) if status.st_size else b"")
    except OSError as failure:
        raise Error(f"{path}: {failure.strerror}", 66 if isinstance(failure, FileNotFoundError) else 77) from failure


def read_header(path: Path) -> Tuple[Dict[str, str], Dict[str, Raw], memoryview, int]:
    """The metadata, the tensors, the mapped file and the length of its header. Checks all lengths before they are used."""
    file = mapped(path)
    size = len(file)
    length = 8 + struct.unpack("<Q", file[:8])[0] if size >= 8 else 0
    if not 8 < length <= min(size, 8 + _MOST_HEADER_BYTES):
        raise damaged(path, f"truncated, or not a safetensors file: {size} bytes")
    try:
        header = json.loads(bytes(file[8:length]))
        metadata = header.pop("__metadata__", None) or {}
        if not all(isinstance(text, str) for text in metadata.values()):
            raise ValueError("a value of its metadata is no text")
        slots = {}
        for name, slot in header.items():
            begin, end = slot["data_offsets"]
            shape, dtype = tuple(slot["shape"]), slot["dtype"]
            if not all(type(size) is int for size in (begin, end, *shape)) or dtype not in DTYPES or not 0 <= begin <= end <= size - length or (
                    math.prod(shape) * DTYPES[dtype][0] != end - begin) or min(shape, default=0) < 0:
                raise ValueError(f"tensor '{name}' of dtype {dtype} does not fit its place")
            slots[name] = Raw(dtype, shape, file[length + begin:length + end])
    except FORGED as failure:
        raise damaged(path, f"its header is damaged ({failure})") from failure
    return metadata, slots, file, length


def made(raw: Raw, name: str, to: str) -> Any:
    _, torch_name, numpy_name = DTYPES[raw.dtype]
    if to == "raw":
        return raw
    if to not in ("torch", "numpy"):
        raise Error(f"to={to!r}: give 'torch', 'numpy' or 'raw'", 64)
    try:
        library = __import__(to)
    except ImportError as failure:
        raise Error(f"'{name}' for {to}: {to} is not installed; install it, or read with to='raw'", 69) from failure
    if to == "numpy":
        if numpy_name is None:
            raise Error(f"'{name}' is {raw.dtype}, which NumPy lacks; read it with to='torch'", 69)
        return library.frombuffer(raw.data, numpy_name).reshape(raw.shape)
    dtype = getattr(library, torch_name)
    if not raw.data:
        return library.empty(raw.shape, dtype=dtype)
    return library.frombuffer(raw.data, dtype=dtype).reshape(raw.shape)


def replace_file(path: Path, pieces: List[Any]) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            umask = os.umask(0)
            os.umask(umask)
            os.fchmod(handle, 0o666 & ~umask)
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(handle)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)  # the name, too
    os.close(folder)


def raw_of(value: Any, name: str) -> Raw:
    torch = sys.modules.get("torch")
    if isinstance(value, Raw):
        if value.dtype not in DTYPES or len(value.data) != math.prod(value.shape) * DTYPES[value.dtype][0]:
            raise Error(f"'{name}': {len(value.data)} bytes are no {value.dtype} of shape {list(value.shape)}", 64)
        return value
    if torch is not None and isinstance(value, torch.Tensor):
        dtype = _dtype_named(str(value.dtype).rpartition(".")[2], 1, name)
        if value.is_meta or value.layout != torch.strided:
            raise Error(f"'{name}' has no dense values: it is on meta, or {value.layout}", 64)
        dense = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
        memory = (ctypes.c_ubyte * (dense.numel() * dense.element_size())).from_address(dense.data_ptr() or 1)
        memory.tensor = dense  # keeps it alive
        return Raw(dtype, tuple(dense.shape), memoryview(memory).cast("B"))
    if hasattr(value, "__array_interface__"):
        array = value if value.flags.c_contiguous else value.copy()
        dtype = _dtype_named(array.dtype.name, 2, name)
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        return Raw(dtype, tuple(array.shape), little.tobytes())
    raise Error(f"'{name}' is a {type(value).__name__}; give a tensor of torch, an array of NumPy or yoke.Raw, and numbers and "
                "texts as metadata", 64)


def _dtype_named(library_name: str, column: int, name: str) -> str:
    for dtype, names in DTYPES.items():
        if names[column] == library_name:
            return dtype
    raise Error(f"'{name}' is {library_name}, which the format lacks", 64)
