"""Where the memory of this process is."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import torch

from ._table import describe, size_text, table

_PROCESS = (("resident_bytes", "resident"), ("anonymous_bytes", "  anonymous (heap, tensors)"), ("file_bytes", "  mapped files"),
            ("shared_bytes", "  shared memory"), ("peak_resident_bytes", "peak resident"), ("swapped_bytes", "swapped out"),
            ("limit_bytes", "limit of the control group"), ("limit_used_bytes", "  used by all its processes"),
            ("machine_bytes", "memory of the machine"), ("machine_available_bytes", "  available"))
_DEVICE = (("allocated_bytes", "allocated"), ("requested_bytes", "requested by the program"),
           ("active_bytes", "active (also on other streams)"), ("reserved_bytes", "reserved from the driver"),
           ("inactive_split_bytes", "not releasable (parts of blocks)"), ("allocation", "allocations"),
           ("segment", "segments of the driver"))


@dataclass(frozen=True)
class TensorMemory:
    """A tensor that was named. bytes: of its whole storage; 0 if an earlier one (`shares`) has the same."""

    kind: str
    name: str
    device: str
    tensor: str
    bytes: int
    shares: str


@dataclass(frozen=True)
class MemorySummary:
    """process: bytes of this process by name, None if Linux does not tell. devices: for each that torch has allocated on,
    figures of torch's allocator. tensors: the largest first. unknown: what could not be found out, as sentences."""

    process: Dict[str, Optional[int]]
    devices: Dict[str, Dict[str, Any]]
    tensors: List[TensorMemory]
    unknown: List[str] = field(default_factory=list)

    def to_text(self, max_tensors: int = 10) -> str:
        """Tables, with the `max_tensors` largest tensors."""
        text = table(["THIS PROCESS", "BYTES"], [[title, size_text(self.process[key])] for key, title in _PROCESS
                                                 if not key.startswith("limit_") or self.process["limit_bytes"]], [1])
        for device, values in self.devices.items():
            rows = [[title, *(size_text(n) if key.endswith("bytes") else n for n in values[key])] for key, title in _DEVICE]
            text += "\n" + table([device, "NOW", "PEAK", "ADDED", "REMOVED"], rows, range(1, 5))
            text += (f"out of memory: {values['num_ooms']}; the cache was flushed for an allocation: "
                     f"{values['num_alloc_retries']}; free on the device: {size_text(values['free_bytes'])} of "
                     f"{size_text(values['total_bytes'])}\n")
        kinds: Dict[Tuple[str, str], List[int]] = {}
        for one in self.tensors:
            kinds.setdefault((one.kind, one.device), []).append(one.bytes)
        if kinds:
            text += "\n" + table(["TENSORS", "DEVICE", "COUNT", "BYTES"],
                                 [[*kind, len(sizes), size_text(sum(sizes))] for kind, sizes in kinds.items()], [2, 3])
            text += "\n" + table(["LARGEST", "NAME", "DEVICE", "TENSOR", "BYTES"],
                                 [[one.kind, one.name, one.device, one.tensor, size_text(one.bytes)]
                                  for one in self.tensors[:max_tensors] if one.bytes], [4])
        return text + "\nNot known:\n" + "".join(f"- {sentence}\n" for sentence in self.unknown)

    __str__ = to_text

    def to_json(self) -> Dict[str, Any]:
        """All of it as an object for json.dumps(), in bytes."""
        return dataclasses.asdict(self)


def summary(model: Optional[torch.nn.Module], others: Mapping[str, Any]) -> MemorySummary:
    named: List[Tuple[str, str, torch.Tensor]] = []
    if model is not None:
        parameters = list(model.named_parameters(remove_duplicate=False))
        named += [("parameters", name, each) for name, each in parameters]
        named += [("gradients", name, each.grad) for name, each in parameters if each.grad is not None]
        named += [("buffers", name, each) for name, each in model.named_buffers(remove_duplicate=False)]
    for kind, value in others.items():
        state = value.state_dict() if hasattr(value, "state_dict") else value
        named += [(kind, name, each) for name, each in _tensors_in(state, "")]
    owners: Dict[int, str] = {}
    tensors, num_without = [], 0
    for kind, name, tensor in named:
        size, shares = 0, ""
        if tensor.layout != torch.strided:
            num_without += 1
        elif not tensor.is_meta:
            storage = tensor.untyped_storage()
            shares = owners.setdefault(storage._cdata, f"{kind} {name}")
            if shares == f"{kind} {name}":
                size, shares = storage.nbytes(), ""
        tensors.append(TensorMemory(kind, name, str(tensor.device), describe(tensor), size, shares))
    tensors.sort(key=lambda one: -one.bytes)
    devices = _devices()
    unknown = []
    if devices:
        unknown.append("Memory of a device that torch's allocator did not allocate, such as the driver's context and NCCL's "
                       "buffers, is only in the free and total memory of the whole device.")
    if num_without:
        unknown.append(f"{num_without} of the named tensors have no storage of their own (sparse ones), and count as 0 bytes.")
    unknown.append("Only named tensors are listed. Activations that autograd saved, and temporary tensors, are not among them."
                   if named else "No tensors were named, so none are listed; give the model, and others by their kind.")
    unknown.append("The host's allocator keeps no figures: freed memory that it has not returned to the system is in the "
                   "resident size.")
    return MemorySummary(process_memory(), devices, tensors, unknown)


def _tensors_in(value: Any, name: str) -> Iterator[Tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name or "tensor", value
        return
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, each in items:
        yield from _tensors_in(each, f"{name}.{key}" if name else str(key))


def _devices() -> Dict[str, Dict[str, Any]]:
    """Asks only devices on which torch has allocated: another would get a context of the driver by the question."""
    devices: Dict[str, Dict[str, Any]] = {}
    for i in range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0):
        stats = torch.cuda.memory_stats(i)
        if stats.get("reserved_bytes.all.peak", 0) == 0:
            continue
        values: Dict[str, Any] = {key: [stats.get(f"{key}.all.{what}", 0) for what in ("current", "peak", "allocated", "freed")]
                                  for key, _ in _DEVICE}
        values.update({key: stats.get(key, 0) for key in ("num_ooms", "num_alloc_retries")})
        values["free_bytes"], values["total_bytes"] = torch.cuda.mem_get_info(i)
        devices[f"cuda:{i}"] = values
    return devices


def process_memory(root: Path = Path("/")) -> Dict[str, Optional[int]]:
    """What Linux tells of this process, its control groups and the machine."""
    status, machine = _properties(root / "proc/self/status"), _properties(root / "proc/meminfo")
    names = {"resident_bytes": "VmRSS", "anonymous_bytes": "RssAnon", "file_bytes": "RssFile", "shared_bytes": "RssShmem",
             "peak_resident_bytes": "VmHWM", "swapped_bytes": "VmSwap"}
    memory = {key: status[name] * 1024 if name in status else None for key, name in names.items()}
    limit, used = _least_limit(root)
    return {**memory, "limit_bytes": limit, "limit_used_bytes": used,
            "machine_bytes": machine.get("MemTotal", 0) * 1024 or None,
            "machine_available_bytes": machine["MemAvailable"] * 1024 if "MemAvailable" in machine else None}


def _least_limit(root: Path) -> Tuple[Optional[int], Optional[int]]:
    """The lowest limit of the control groups (versions 1 and 2), and what that group uses without files it can drop."""
    best: Tuple[Optional[int], Optional[int]] = (None, None)
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        top = root / "sys/fs/cgroup" / controllers
        files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file") if controllers else (
            "memory.max", "memory.current", "inactive_file")
        folder = top / group.lstrip("/")
        for each in (folder, *folder.parents):
            limit = _text(each / files[0]).strip()
            if limit.isdigit() and int(limit) < 1 << 60 and (best[0] is None or int(limit) < best[0]):
                used = _text(each / files[1]).strip()
                droppable = _properties(each / "memory.stat").get(files[2], 0)
                best = int(limit), max(0, int(used) - droppable) if used.isdigit() else None
            if each == top:
                break
    return best


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _properties(path: Path) -> Dict[str, int]:
    """Lines "VmRSS:   1234 kB" and "inactive_file 1234"."""
    words = (line.replace(":", " ").split() for line in _text(path).splitlines())
    return {each[0]: int(each[1]) for each in words if len(each) > 1 and each[1].isdigit()}
