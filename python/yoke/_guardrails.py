"""Guardrails: a mode of torch's dispatcher that sees each operator of its scope, also in backward."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ._command import Error
from ._table import describe, size_text, table

_MASKED = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
# No tag says that these wait: one counts distinct indices, the other reads the status of a decomposition.
_ALSO_WAIT = ("aten::_coalesce", "aten::_linalg_check_errors")
# Their tags are about cases in which another operator waits, or about none on a device.
_NOT_BY_TAG = ("aten::linalg_lstsq", "aten::_ctc_loss")
_NEEDS_VALUES = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
_OWN_FOLDERS = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(__file__) + os.sep)


@dataclass(frozen=True)
class Place:
    """A place in the program that copied between devices ("copy") or waited for one ("sync")."""

    kind: str
    operation: str  #: "aten::_to_copy"
    source: str  #: "cuda:0"; for a sync, the device that is waited for
    target: str
    tensor: str  #: dtype and shape of the first call's tensor
    function: str  #: of the program; empty if none is on this thread's stack, as on those of autograd
    file: str
    line: int
    backward_of: str  #: the node of autograd, such as "MulBackward0"; empty outside of backward
    count: int = 0
    bytes: int = 0  #: copied by all calls

    def where(self) -> str:
        text = self.function or ("a thread of autograd" if self.backward_of else "a thread without a function of the program")
        text += f" ({self.file}:{self.line})" if self.file else ""
        return text + (f", in the backward of {self.backward_of}" if self.backward_of else "")


class Found(NamedTuple):
    kind: str
    source: torch.device
    target: torch.device
    tensor: torch.Tensor


class _Thread(threading.local):
    is_allowed = False


_thread = _Thread()


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Optional[Dict[str, Any]] = None) -> Any:
        kwargs = kwargs or {}
        if not _thread.is_allowed:
            self.look(func, args, kwargs)
        before, _thread.is_allowed = _thread.is_allowed, True  # for modes around this one
        try:
            return func(*args, **kwargs)
        finally:
            _thread.is_allowed = before

    def look(self, func: Any, args: Any, kwargs: Dict[str, Any]) -> None:
        pass


class Allow(_Mode):
    """Guardrails around it allow everything, also in a backward that starts within."""


class Guardrails(_Mode):
    """See yoke.guardrails()."""

    def __init__(self, count: bool, copies: bool, syncs: bool) -> None:
        super().__init__()
        self._counts, self._copies, self._syncs = count, copies, syncs
        self._lock, self._places = threading.Lock(), {}  # type: threading.Lock, Dict[Any, Place]

    @property
    def places(self) -> List[Place]:
        """Where it was copied or waited, the most frequent place first. With `count` only."""
        with self._lock:
            return sorted(self._places.values(), key=lambda place: -place.count)

    def __str__(self) -> str:
        if not self._places:
            return "guardrails found no copy between devices and no wait for a device."
        return table(["COUNT", "KIND", "OPERATION", "FROM", "TO", "COPIED", "FIRST TENSOR", "CALLED BY"],
                     [[p.count, p.kind, p.operation, p.source, p.target, size_text(p.bytes) if p.bytes else "-", p.tensor,
                       p.where()] for p in self.places], [0, 5])

    def look(self, func: Any, args: Any, kwargs: Dict[str, Any]) -> None:
        found = find(func, args, kwargs, self._copies, self._syncs)
        if found is None:
            return
        function, file, line = _user_call()
        place = Place(found.kind, func._schema.name, str(found.source), str(found.target), describe(found.tensor), function,
                      file, line, _backward_node())
        if not self._counts:
            raise Error(message(place), 69)
        size = found.tensor.numel() * found.tensor.element_size() if found.kind == "copy" else 0
        with self._lock:
            known = self._places.setdefault(replace(place, tensor=""), place)
            self._places[replace(place, tensor="")] = replace(known, count=known.count + 1, bytes=known.bytes + size)


def find(func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], copies: bool, syncs: bool) -> Optional[Found]:
    """What this call would copy silently or wait for."""
    name = func._schema.name
    for to, source, target, non_blocking in _copies_of(name, args, kwargs):
        kind = judge_copy(source, target, to, non_blocking, copies, syncs)
        if kind:
            return Found(kind, source.device, target, to)
    waits: List[Any] = []
    if name in _MASKED:
        waits = _masks(args, kwargs, is_write=name != "aten::index")
    elif name == "aten::repeat_interleave":
        waits = [args[0]] if func._overloadname == "Tensor" and kwargs.get("output_size") is None else []
    elif name in _ALSO_WAIT or (name not in _NOT_BY_TAG and any(tag in func.tags for tag in _NEEDS_VALUES)):
        waits = [*args, *kwargs.values()]
    for each in waits if syncs else ():
        if isinstance(each, torch.Tensor) and each.device.type not in ("cpu", "meta"):
            return Found("sync", each.device, torch.device("cpu"), each)
    return None


def _copies_of(name: str, args: Any, kwargs: Dict[str, Any]) -> Iterator[Tuple[Any, Any, torch.device, bool]]:
    """(a tensor of the copy's size, the source, the target's device, non_blocking) of each copy that the call makes."""
    if name == "aten::_to_copy":
        yield args[0], args[0], kwargs.get("device") or args[0].device, bool(kwargs.get("non_blocking"))
    elif name in ("aten::copy_", "aten::copy"):
        yield args[0], args[1], args[0].device, bool((*args, False)[2] or kwargs.get("non_blocking"))
    elif name == "aten::_foreach_copy_":
        for target, source in zip(args[0], args[1]):
            yield target, source, target.device, bool((*args, False)[2] or kwargs.get("non_blocking"))


def judge_copy(source: torch.Tensor, target: torch.device, to: torch.Tensor, non_blocking: bool, copies: bool,
               syncs: bool) -> Optional[str]:
    """"copy", "sync" if copies are left out and the host waits, or None if the copy is none, or is meant."""
    origin = source.device
    target_index = origin.index if target.index is None else target.index  # "cuda" means the one where it is
    touches_host = "cpu" in (origin.type, target.type)
    if (origin.type, origin.index) == (target.type, target_index) or "meta" in (origin.type, target.type) or not to.numel():
        return None
    if non_blocking:
        host = source if origin.type == "cpu" else to if to.device.type == "cpu" else None
        if not touches_host or (host is not None and host.is_pinned()):
            return None
    if not touches_host and _backward_node() in ("ToCopyBackward0", "CopyBackwards"):
        return None  # the copy forward was allowed, or caught
    return "copy" if copies else "sync" if syncs and touches_host else None


def _masks(args: Any, kwargs: Dict[str, Any], is_write: bool) -> List[torch.Tensor]:
    """The masks among indices: torch waits to count their true elements, unless it writes one number of the host by one."""
    indices = [each for each in args[1] if each is not None]
    masks = [each for each in indices if each.dtype in (torch.bool, torch.uint8)]
    if is_write and len(indices) == 1:
        values, accumulates = args[2], (*args, False)[3] or kwargs.get("accumulate")
        if not accumulates and values.numel() == 1 and values.device.type == "cpu":
            return []
    return masks


def message(place: Place) -> str:
    what = (f"{place.operation} copies {place.tensor} from {place.source} to {place.target}" if place.kind == "copy" else
            f"{place.operation} of {place.tensor} makes the host wait for "
            f"{place.target if place.source == 'cpu' else place.source}")
    advice = (f"keep the value on {place.source} and read it after the step" if place.target == "cpu" else
              f"make it on {place.target}, or copy it from pinned memory with non_blocking=True" if place.source == "cpu" else
              "keep both on one device, or copy with non_blocking=True if the copy is meant")
    return f"{what} within yoke.guardrails(), called by {place.where()}: {advice}, or allow it by `with yoke.allow():`"


def _user_call() -> Tuple[str, str, int]:
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_OWN_FOLDERS) and os.path.basename(file) != "contextlib.py" and not file.startswith("<frozen"):
            return frame.f_code.co_name, file, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return "", "", 0


def _backward_node() -> str:
    node = torch._C._current_autograd_node()
    return node.name() if node is not None else ""
