"""Checkpoints of yoke (docs/checkpoint.md has the format). NumPy or torch are needed for tensors only."""

from __future__ import annotations

import json
import math
import operator
import os
import re
import struct
import zlib
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

from ._command import Error
from ._safetensors import FORGED, DTYPES, Raw, crc_of, damaged, made, mapped, raw_of, read_header, replace_file

_VERSION = "1"
_HEADER_CRC = b'"yoke.crc32.header":"'


class _Slot(NamedTuple):
    dtype: str
    shape: Tuple[int, ...]
    first: int  # the position of its first element in the whole tensor
    data: memoryview
    crc: Optional[str]  # of a slice; checked when it is read


class Checkpoint:
    """A checkpoint on disk: a file, or the folder of a divided state.

    Its tensors are views of the mapped files. Two reads of one tensor share its memory, so clone() one before you change it
    if another reader needs the value of the file. Changing it never changes the file.

    step: the training step. metadata: the numbers and texts that were saved, as texts. parts: the names of the state's
    parts, such as "model" and "optimizer". num_shards: how many ranks wrote a folder; 0 for a file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.num_shards = path, 0
        self._slots: Dict[str, List[_Slot]] = {}
        self._shapes: Dict[str, Tuple[int, ...]] = {}
        try:
            metadata = self._open_folder() if path.is_dir() else self._open_file()
            self.metadata: Dict[str, str] = {k: v for k, v in metadata.items() if not k.startswith("yoke.")}
            if not all(isinstance(text, str) for text in self.metadata.values()):
                raise ValueError("a value of its metadata is no text")
            tops = {name.partition("/")[0]: None for name in self._slots}
            # The format lists numbers and texts there, too.
            listed = json.loads(metadata.get("yoke.parts", "null")) or list(tops)
            self.parts: List[str] = [part for part in listed if part in tops or part not in self.metadata]
            if not all(isinstance(part, str) for part in self.parts):
                raise ValueError("a name of a part is no text")
        except FORGED as failure:
            raise damaged(path, f"its header is damaged ({failure})") from failure

    def names(self) -> List[str]:
        """The names of all tensors, as "model/0.weight"."""
        return sorted(self._slots)

    def shape(self, name: str) -> Tuple[int, ...]:
        self._find(name)
        return self._shapes[name]

    def dtype(self, name: str) -> str:
        """As the format names it: "F32", "BF16"."""
        return self._find(name)[0].dtype

    def tensor(self, name: str, to: str = "torch") -> Any:
        """One tensor for `to`: "torch" (on the CPU), "numpy", or "raw", which needs neither. Changing it never changes the file.

        Raises Error: 66 there is no such tensor, 65 its values are damaged, 69 `to` lacks the dtype or is not installed.
        """
        slots, shape = self._find(name), self._shapes[name]
        for slot in slots:
            if slot.crc is not None and f"{zlib.crc32(slot.data):08x}" != slot.crc:
                raise Error(f"{self.path}: the values of '{name}' do not match their checksum; use another checkpoint", 65)
        size = DTYPES[slots[0].dtype][0]
        num_bytes = math.prod(shape) * size
        data = slots[0].data
        if len(data) != num_bytes:
            data, filled = memoryview(bytearray(num_bytes)), 0
            for slot in slots:
                data[slot.first * size:slot.first * size + len(slot.data)] = slot.data
                filled += len(slot.data)
            if filled != len(data):
                raise Error(f"{self.path}: {len(data) - filled} bytes of '{name}' are missing; use another checkpoint", 65)
        return made(Raw(slots[0].dtype, shape, data), name, to)

    def part(self, name: str, to: str = "torch") -> Any:
        """The tensors of a part without its prefix: model.load_state_dict(checkpoint.part("model")). Of a part that is one
        tensor, that tensor.

        Raises Error (66) if the checkpoint has no such part, and what tensor() raises.
        """
        if name in self._slots:
            return self.tensor(name, to)
        if name not in self.parts and not any(each.startswith(name + "/") for each in self._slots):
            also = f"; metadata['{name}'] has that value" if name in self.metadata else ""
            raise Error(f"{self.path} has no part '{name}'; it has {', '.join(self.parts) or 'none'}{also}", 66)
        return {each[len(name) + 1:]: self.tensor(each, to) for each in self._slots if each.startswith(name + "/")}

    def __repr__(self) -> str:
        return f"<yoke.Checkpoint {str(self.path)!r}, step {self.step}: {', '.join(self.parts)}>"

    def _find(self, name: str) -> List[_Slot]:
        if name not in self._slots:
            raise Error(f"{self.path} has no tensor '{name}'; names() lists the {len(self._slots)} that it has", 66)
        return self._slots[name]

    def _open_file(self) -> Dict[str, str]:
        metadata, slots, file, length = read_header(self.path)
        if metadata.get("yoke.format") != "yoke-checkpoint":
            raise damaged(self.path, "a safetensors file, but not a checkpoint of yoke; safetensors.torch.load_file reads it")
        header = bytes(file[:length])
        at = header.find(_HEADER_CRC) + len(_HEADER_CRC)
        if crc_of(header[:at] + b"0" * 8 + header[at + 8:]) != header[at:at + 8]:
            raise damaged(self.path, "the header does not match its checksum")
        if metadata.get("yoke.version") != _VERSION:
            raise Error(f"{self.path}: format version {metadata.get('yoke.version')}; this yoke reads {_VERSION}: use a newer "
                        "yoke", 69)
        if crc_of(file[length:]).decode() != metadata.get("yoke.crc32.data"):
            raise damaged(self.path, "the data does not match its checksum")
        self.step = int(metadata["yoke.step"])
        self._slots = {name: [_Slot(slot.dtype, slot.shape, 0, slot.data, None)] for name, slot in slots.items()}
        self._shapes = {name: slot.shape for name, slot in slots.items()}
        return metadata

    def _open_folder(self) -> Dict[str, str]:
        path = self.path / "index.json"
        if not path.exists():
            newest = newest_checkpoint(self.path)
            raise Error(f"{self.path}: no save was completed here (no index.json)" +
                        (f"; the newest checkpoint in it is {newest}" if newest else ""), 66)
        try:
            index = json.loads(bytes(mapped(path)))
            crc = index.pop("crc32")
            text = json.dumps(index, separators=(",", ":"), ensure_ascii=False)
            files, metadata, save = index["files"], index["metadata"], index["save"]
        except FORGED as failure:
            raise damaged(path, f"it is torn or changed ({failure})") from failure
        if index.get("format") != "yoke-sharded-checkpoint" or crc_of(text.encode()).decode() != crc:
            raise damaged(path, "it is no index of yoke, or its checksum differs")
        if str(index["version"]) != _VERSION:
            raise Error(f"{path}: format {index['version']} is newer than this yoke reads ({_VERSION}); update yoke", 69)
        self.step, self.num_shards = int(index["step"]), len(files)
        for name in files:
            if not re.fullmatch(r"shard-[^/]*\.safetensors", name):
                raise damaged(path, f"it names '{name}'")
            self._add_shard(self.path / name, save)
        return dict(metadata)

    def _add_shard(self, path: Path, save: str) -> None:
        marks, slots, _, _ = read_header(path)
        table = marks.get("yoke.slices", "")
        if marks.get("yoke.save") != save or crc_of(table.encode()).decode() != marks.get("yoke.crc32"):
            raise damaged(path, "it belongs to another save, or its table of slices is damaged")
        slices = json.loads(table)
        if slices.keys() != slots.keys():
            raise damaged(path, "its table of slices has other names than its tensors")
        for name, slice_ in slices.items():
            slot, shape, first = slots[name], tuple(slice_["shape"]), slice_["first"]
            end = first + len(slot.data) // DTYPES[slot.dtype][0]
            same = self._slots.setdefault(name, [])
            if self._shapes.setdefault(name, shape) != shape or not 0 <= first <= end <= math.prod(shape) or any(
                    other.dtype != slot.dtype for other in same):
                raise damaged(path, f"its slice of '{name}' does not fit the others")
            same.append(_Slot(slot.dtype, shape, first, slot.data, slice_["crc32"]))


def read_checkpoint(path: Union[str, "os.PathLike[str]", None]) -> Checkpoint:
    """Opens a checkpoint of a Run and checks every byte of a file, or index and headers of a folder.

        best = yoke.read_checkpoint(yoke.newest_checkpoint("out"))
        model.load_state_dict(best.part("model"))

    In C++: yoke::train::read_checkpoint(). Raises Error: 66 there is none, also for None of newest_checkpoint(), 65 it is damaged or not of yoke, 69 its format is
    newer.
    """
    if path is None:
        raise Error("there is no checkpoint to read: newest_checkpoint() has found none", 66)
    return Checkpoint(Path(path))


def newest_checkpoint(folder: Union[str, "os.PathLike[str]"]) -> Optional[Path]:
    """The path of the checkpoint with the highest step in a Run's folder; None if it has none, or does not exist.

    Does not read it. Raises Error (77) if the folder cannot be read.
    """
    try:
        found = {int(match[1]): each for each in Path(folder).iterdir()
                 if (match := re.fullmatch(r"checkpoint-(\d{12,})(\.safetensors)?", each.name))}
    except FileNotFoundError:
        return None
    except OSError as failure:
        raise Error(f"{folder}: {failure.strerror}", 77) from failure
    return found[max(found)] if found else None


def write_checkpoint(folder: Union[str, "os.PathLike[str]"], step: int, parts: Mapping[str, Any],
                     metadata: Optional[Mapping[str, Union[str, int, float, bool]]] = None) -> Path:
    """Writes a checkpoint in the form of CheckpointFolder in C++, and returns its path.

        yoke.write_checkpoint("out", step, {"model": model.state_dict()}, {"epoch": 5})

    step: 0 to 2^63 - 1.
    parts: by name a dictionary of tensors, or one tensor; tensors of torch, arrays of NumPy, or Raw. An optimizer's
        state_dict() is nested and has numbers, so it is no part: docs/python.md says how to save one.
    metadata: numbers, flags and texts, which a TrainState of C++ reads as such.
    When it returns, the file is on disk; whatever happens before, an earlier file of that name is intact.
    Raises Error: 64 a value cannot be stored, 75 the disk is full, 77 not allowed.
    """
    step = _step_of(step)
    tensors: Dict[str, Raw] = {}
    for part, value in parts.items():
        several = isinstance(value, Mapping)
        for name, each in value.items() if several else [("", value)]:
            full = f"{_name(part)}/{_name(name)}" if several else _name(part)
            if full in tensors or full == "__metadata__":
                raise Error(f"two tensors would have the name '{full}'; rename one" if full in tensors else
                            f"'{full}' is the format's; rename the part", 64)
            tensors[full] = raw_of(each, full)
    values = {_name(key): _text_of(key, value) for key, value in (metadata or {}).items()}
    for key in (*values, *map(_name, parts)):
        if key.startswith("yoke.") or (key in values and key in parts):
            raise Error(f"'{key}': " + ("names that begin with 'yoke.' are the format's" if key.startswith("yoke.") else
                                        "a part and a value of the metadata have that name; rename one"), 64)
    order = sorted(tensors, key=lambda name: (-DTYPES[tensors[name].dtype][0], name))
    crc, offset = 0, 0
    # The first key of the header, so that no text of a caller comes before the checksum.
    header: Dict[str, Any] = {"__metadata__": {
        "yoke.crc32.header": "0" * 8, "yoke.crc32.data": "", "yoke.format": "yoke-checkpoint", "yoke.version": _VERSION,
        "yoke.step": str(step), "yoke.parts": json.dumps([*parts, *values]), **values}}
    for name in order:
        crc, begin = zlib.crc32(tensors[name].data, crc), offset
        offset += len(tensors[name].data)
        header[name] = {"dtype": tensors[name].dtype, "shape": list(tensors[name].shape), "data_offsets": [begin, offset]}
    header["__metadata__"]["yoke.crc32.data"] = f"{crc:08x}"
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    whole = struct.pack("<Q", len(text)) + text
    at = whole.find(_HEADER_CRC) + len(_HEADER_CRC)
    whole = whole[:at] + crc_of(whole) + whole[at + 8:]
    path = Path(folder) / f"checkpoint-{step:012}.safetensors"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, [whole, *(tensors[name].data for name in order)])
    except OSError as failure:
        raise Error(f"{path}: {failure.strerror}", 77 if isinstance(failure, PermissionError) else 75) from failure
    return path


def _step_of(step: Any) -> int:
    try:
        number = -1 if isinstance(step, bool) else operator.index(step)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 63:
        raise Error(f"step {step!r}: give a whole number of 0 to 2^63 - 1", 64)
    return number


def _name(key: Any) -> str:
    try:
        if isinstance(key, str) and key.encode():
            return key
    except UnicodeEncodeError:
        pass
    raise Error(f"the name {key!r}: give a text that UTF-8 can have, and that is not empty", 64)


def _text_of(key: str, value: Any) -> str:
    """As C++ reads it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Integral):  # also NumPy's
        return str(int(value))
    if isinstance(value, Real):
        return repr(float(value))
    if isinstance(value, str) and (not value or _name(value)):
        return value
    raise Error(f"metadata '{key}' is a {type(value).__name__}; give a number, a flag or a text (a tensor is a part, and its "
                "item() is a number)", 64)
