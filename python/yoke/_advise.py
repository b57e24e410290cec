"""Advice on tensor cores: observes the products of a model, and measures each with its own and with padded sizes."""

from __future__ import annotations

import contextlib
import statistics
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ._command import Error
from ._table import table

Sizes = Tuple[int, ...]


@dataclass
class LayerAdvice:
    """A layer, or a product without a parameter ("bmm 1"). Calls with equal shapes are one. Times are of one call."""

    layer: str
    operation: str
    input: Sizes
    weight: Sizes  #: of a matrix product [inner, columns]; of a convolution [out, in / groups, ...]
    dtype: torch.dtype
    arguments: Tuple[Any, ...] = field(repr=False, default=())  #: stride ... groups of a convolution
    input_needs_grad: bool = False
    weight_needs_grad: bool = False
    uses_parameter: bool = False
    calls: int = 1
    fits: bool = False
    reason: str = ""  #: why it does not fit
    padded_input: Sizes = ()
    padded_weight: Sizes = ()
    milliseconds: float = 0
    padded_milliseconds: float = 0
    share: float = 0  #: of the step's time, by all calls: an estimate


@dataclass
class Advice:
    """str() is a table with the most expensive layer first."""

    device: torch.device
    dtype: torch.dtype
    hardware: str
    has_backward: bool
    step_milliseconds: float
    layers: List[LayerAdvice]

    def __str__(self) -> str:
        def shapes(a: Sizes, b: Sizes) -> str:
            return f"{list(a)} x {list(b)}" if a else ""

        rows = [[one.layer, one.operation, shapes(one.input, one.weight), one.calls, f"{one.milliseconds:.3f}",
                 f"{one.share * 100:.0f}%", "yes" if one.fits else one.reason, shapes(one.padded_input, one.padded_weight),
                 f"{one.padded_milliseconds:.3f}" if one.padded_input else ""]
                for one in sorted(self.layers, key=lambda one: -one.share)]
        what = "forward and backward" if self.has_backward else "forward"
        return (f"{self.device}, {str(self.dtype)[6:]}: {self.hardware}\n{what} takes {self.step_milliseconds:.3f} ms\n\n" +
                table(["layer", "operation", "shapes", "calls", "ms", "share", "fits", "padded", "then ms"], rows, [3, 4, 5, 8]))


class _Observer(TorchDispatchMode):
    """Layers are recognised by the memory of their parameters, also after autocast has copied it."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.names = {_memory_of(each): name[:-7] if name.endswith(".weight") else name
                      for name, each in model.named_parameters() if each.dim() > 1}
        self.found: Dict[Any, LayerAdvice] = {}
        self._copies: List[torch.Tensor] = []  # kept, so that no other tensor gets their memory
        self._num_nameless: Dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Optional[Dict[str, Any]] = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        if name == "_to_copy" and _memory_of(args[0]) in self.names:
            self.names[_memory_of(result)] = self.names[_memory_of(args[0])]
            self._copies.append(result)
        elif name in ("mm", "bmm"):
            self._add(name, args[0], args[1])
        elif name in ("addmm", "baddbmm"):
            self._add(name, args[1], args[2])
        elif name == "linear":  # in inference mode
            self._add(name, args[0], args[1], transposes=True)
        elif name == "convolution":
            self._add(name, args[0], args[1], tuple(args[3:9]))
        elif name.startswith("_scaled_dot_product"):
            self._add("attention", args[0], args[1])
        return result

    def _add(self, operation: str, x: torch.Tensor, w: torch.Tensor, arguments: Tuple[Any, ...] = (),
             transposes: bool = False) -> None:
        layer = self.names.get(_memory_of(w)) or self.names.get(_memory_of(x)) or ""
        weight = tuple(w.shape)[::-1] if transposes else tuple(w.shape)
        arguments = tuple(tuple(each) if isinstance(each, list) else each for each in arguments)
        key = (layer, operation, tuple(x.shape), weight, x.dtype, arguments)
        if key in self.found:
            self.found[key].calls += 1
            return
        if not layer:
            self._num_nameless[operation] = self._num_nameless.get(operation, 0) + 1
        self.found[key] = LayerAdvice(layer or f"{operation} {self._num_nameless[operation]}", operation, tuple(x.shape), weight,
                                      x.dtype, arguments, uses_parameter=bool(layer),
                                      input_needs_grad=torch.is_grad_enabled() and x.requires_grad,
                                      weight_needs_grad=torch.is_grad_enabled() and w.requires_grad)


def _memory_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else 0


def judge(one: LayerAdvice, multiple: int) -> None:
    """Sets `fits`, `reason` and the padded shapes. multiple: what should divide the sizes; 0 without tensor cores for it."""
    if multiple == 0:
        one.reason = f"computed in {str(one.dtype)[6:]}" + (
            ": outside autocast, and TF32 is not allowed" if one.dtype == torch.float32 else "")
        return
    # Each size: its name, its value, where it is in both shapes, and how many groups share that place.
    x, w = list(one.input), list(one.weight)
    if one.operation == "convolution":
        groups, transposed = one.arguments[5], one.arguments[3]
        if 1 < groups == x[1]:
            one.reason = "depthwise: one channel in a group, and padding adds only zeros to multiply"
            return
        inside = [("input channels", x[1] // groups, [(x, 1, groups), (w, 0, groups) if transposed else (w, 1, 1)])]
        inside += [("output channels", w[1], [(w, 1, 1)]) if transposed else
                   ("output channels", w[0] // groups, [(w, 0, groups)])]
    elif one.operation == "attention":
        inside = [("features of a head", x[-1], [(x, -1, 1), (w, -1, 1)])]
    else:
        is_layer = one.uses_parameter
        inside = [("input features" if is_layer else "inner size", x[-1], [(x, -1, 1), (w, -2, 1)]),
                  ("output features" if is_layer else "columns", w[-1], [(w, -1, 1)])]
        if one.weight_needs_grad:  # backward sums over the rows
            inside.append(("rows (the batch)" if is_layer else "rows", x[-2], [(x, -2, 1)]))
    misses = []
    for name, value, places in inside:
        if value % multiple:
            misses.append(f"{value} {name}")
            for shape, place, times in places:
                shape[place] = -(-value // multiple) * multiple * times
    one.fits = not misses
    if misses:
        one.reason = f"{', '.join(misses)}: not {'multiples' if len(misses) > 1 else 'a multiple'} of {multiple}"
        one.padded_input, one.padded_weight = tuple(x), tuple(w)


def _multiple_of(one: LayerAdvice, device: torch.device) -> int:
    backends = torch.backends
    if one.dtype == torch.bfloat16 and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return 0
    tf32 = backends.cudnn.allow_tf32 if one.operation == "convolution" else backends.cuda.matmul.allow_tf32
    return {torch.float16: 8, torch.bfloat16: 8, torch.int8: 16, torch.float32: 4 if tf32 else 0}.get(one.dtype, 0)


def _alone(one: LayerAdvice, x_sizes: Sizes, w_sizes: Sizes, device: torch.device) -> Callable[[], None]:
    def random(sizes: Sequence[int], needs_grad: bool) -> torch.Tensor:
        return torch.randn(tuple(sizes), device=device).to(one.dtype).requires_grad_(needs_grad)

    x = random(x_sizes, one.input_needs_grad)
    is_linear = one.uses_parameter and len(w_sizes) == 2
    w = random(w_sizes[::-1] if is_linear else w_sizes, one.weight_needs_grad)  # a linear layer's is [columns, inner]

    def forward() -> torch.Tensor:
        if one.operation == "convolution":
            return torch.convolution(x, w, None, *one.arguments)
        if one.operation == "attention":
            return torch.nn.functional.scaled_dot_product_attention(x, w, w, enable_gqa=x.shape[1] != w.shape[1])
        return torch.matmul(x, w.t() if is_linear else w)

    if not (one.input_needs_grad or one.weight_needs_grad):
        return lambda: None if forward() is None else None
    gradient = torch.ones_like(forward().detach())
    return lambda: forward().backward(gradient)


def _measure(works: List[Callable[[], Any]], device: torch.device, repetitions: int) -> List[float]:
    """Medians in milliseconds, in turns, so that other load on the machine affects all of them."""
    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    taken: List[List[float]] = [[] for _ in works]
    for i in range(-2, repetitions):  # two rounds of warm-up
        for work, times in zip(works, taken):
            wait()
            start = time.perf_counter()
            work()
            wait()
            if i >= 0:
                times.append((time.perf_counter() - start) * 1000)
    return [statistics.median(times) for times in taken]


@contextlib.contextmanager
def _kept(model: torch.nn.Module, device: torch.device) -> Any:
    """Restores gradients, buffers and generators."""
    gradients = [(each, each.grad) for each in model.parameters()]
    values = [(each, each.detach().clone()) for each in model.buffers()]
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            for parameter, _ in gradients:
                parameter.grad = None
            yield
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            with torch.no_grad():
                for buffer, value in values:
                    buffer.copy_(value)


def _first_tensor(value: Any) -> torch.Tensor:
    while not isinstance(value, torch.Tensor):
        value = next(iter(value.values() if hasattr(value, "values") else value))
    return value


def advise(model: torch.nn.Module, inputs: Sequence[Any], dtype_name: str, repetitions: int) -> Advice:
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}.get(dtype_name.rpartition(".")[2])
    if dtype is None or repetitions < 1:
        raise Error(f"advise: dtype {dtype_name!r}, {repetitions} repetitions; give 'bfloat16', 'float16' or 'float32', and one "
                    "repetition or more", 64)
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    hardware = "no tensor cores on this device; the same sizes are measured" if device.type != "cuda" else "tensor cores"
    advice = Advice(device, dtype, hardware, False, 0, [])

    def forward() -> torch.Tensor:
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            return _first_tensor(model(*inputs))

    def step() -> None:
        output = forward()
        advice.has_backward = output.requires_grad
        if output.requires_grad:
            output.backward(torch.ones_like(output))
        for parameter in model.parameters():
            parameter.grad = None

    with _kept(model, device):
        with _Observer(model) as observer:
            forward()
        advice.step_milliseconds = _measure([step], device, repetitions)[0]
        for one in observer.found.values():
            judge(one, _multiple_of(one, device))
            works = [_alone(one, one.input, one.weight, device)]
            if one.padded_input:
                works.append(_alone(one, one.padded_input, one.padded_weight, device))
            one.milliseconds, *padded = _measure(works, device, repetitions)
            one.padded_milliseconds = padded[0] if padded else 0
            one.share = one.milliseconds * one.calls / advice.step_milliseconds
            advice.layers.append(one)
    return advice
