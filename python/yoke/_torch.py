"""For users of torch: devices, seeds, guardrails and advice. torch is imported when a function is called."""

from __future__ import annotations

import operator
import os
import random
import sys
from typing import TYPE_CHECKING, Any, List

from ._command import Error

if TYPE_CHECKING:
    import torch

    from ._advise import Advice
    from ._guardrails import Allow, Guardrails
    from ._memory import MemorySummary


def import_torch(function: str) -> Any:
    """torch, or an Error (69) that says who needs it."""
    try:
        import torch
    except ImportError as failure:
        raise Error(f"yoke.{function}() needs torch, which this Python has not ({failure}); `yoke env create NAME --with torch` "
                    "installs the build that fits the driver", 69) from failure
    return torch


def num_gpus() -> int:
    """How many GPUs torch may use here. CUDA_VISIBLE_DEVICES counts, and YOKE_DEVICE=cpu hides all. In C++: train::num_gpus()."""
    torch = import_torch("num_gpus")
    if os.environ.get("YOKE_DEVICE") == "cpu" or not torch.cuda.is_available():
        return 0
    return int(torch.cuda.device_count())


def try_gpu(i: int = 0) -> "torch.device":
    """GPU `i`, or the CPU if there are not that many. In C++: train::try_gpu(). Raises Error (64) for a negative `i`."""
    torch = import_torch("try_gpu")
    if i < 0:
        raise Error(f"try_gpu: GPU {i}; they are counted from 0", 64)
    return torch.device("cuda", i) if i < num_gpus() else torch.device("cpu")


def try_all_gpus() -> "List[torch.device]":
    """All GPUs in their order; if there are none, only the CPU. In C++: train::try_all_gpus()."""
    return [try_gpu(i) for i in range(num_gpus())] or [try_gpu()]


def seed(seed: int, *, rank: int = 0, deterministic: bool = False) -> None:
    """Seeds `random`, NumPy if it is imported, and torch's generators of the CPU and all GPUs, as train::seed() does in C++.

    rank: chooses a stream of its own for each rank. Rank 0 draws what torch draws after manual_seed(seed), and the other
        ranks draw what C++ draws for the same seed and rank.
    deterministic: kernels that always give the same bits, no benchmarking of cuDNN, and CUBLAS_WORKSPACE_CONFIG unless it is
        set. An operation without such a kernel raises. Call it before the first use of a GPU.
    Raises Error (64) for a negative seed or rank, or a seed over 64 bits.
    """
    torch = import_torch("seed")
    seed, rank = operator.index(seed), operator.index(rank)
    if rank < 0 or not 0 <= seed < 1 << 64:
        raise Error(f"seed: seed {seed}, rank {rank}; give a seed of 0 to 2^64 - 1 and a rank from 0", 64)
    stream = seed
    if rank > 0:  # output number `rank` of SplitMix64
        wide = (1 << 64) - 1
        stream = (seed + rank * 0x9E3779B97F4A7C15) & wide
        stream = (stream ^ stream >> 30) * 0xBF58476D1CE4E5B9 & wide
        stream = (stream ^ stream >> 27) * 0x94D049BB133111EB & wide
        stream ^= stream >> 31
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    random.seed(stream)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(stream & 0xFFFFFFFF)  # it takes 32 bits
    torch.manual_seed(stream)


def memory_summary(model: "torch.nn.Module | None" = None, **tensors: Any) -> "MemorySummary":
    """Where the memory of this process is: on the host, on devices, and in tensors. print() shows tables.

        print(yoke.memory_summary(model, optimizer=optimizer))

    model: its parameters, gradients and buffers are listed.
    tensors: more by their kind: an optimizer, a dictionary of tensors (nested ones, too), or a tensor.
    In C++: train::memory_summary().
    """
    import_torch("memory_summary")
    from . import _memory

    return _memory.summary(model, tensors)


def guardrails(*, count: bool = False, copies: bool = True, syncs: bool = True) -> "Guardrails":
    """Finds silent copies between devices, and calls that wait for a device, within its `with`. In C++: DeviceGuardrails.

        with yoke.guardrails():                  # raises Error (69) at the call, and names your line
            loss = step(batch)

        guard = yoke.guardrails(count=True)      # lets it happen, and counts it by line
        for batch in loader:
            with guard:
                step(batch)
        print(guard)

    copies, syncs: False leaves a kind out. docs/guardrails.md has what counts.
    Scopes nest, and the innermost counts. It sees operators of torch, and not torch.cuda.synchronize().
    """
    import_torch("guardrails")
    from ._guardrails import Guardrails

    return Guardrails(count, copies, syncs)


def allow() -> "Allow":
    """Within its `with`, guardrails() around it allow everything: with yoke.allow(): print(loss.item())."""
    import_torch("allow")
    from ._guardrails import Allow

    return Allow()


def advise(model: "torch.nn.Module", *inputs: Any, dtype: "str | torch.dtype" = "bfloat16", repetitions: int = 10) -> "Advice":
    """Which layers use tensor cores, which do not because of their sizes, and what padded sizes would take. print() shows it.

        print(yoke.advise(model, x))             # x: a batch as in training, on the model's device

    Runs model(*inputs) several times, and each product alone (times in milliseconds, medians of `repetitions`). Parameters,
    gradients, buffers and generators stay as they are.
    dtype: that of autocast, "bfloat16" or "float16", or those of torch; "float32" measures without autocast.
    In C++: train::precision::advise(). Raises Error (64) for another dtype, or fewer than one repetition.
    """
    import_torch("advise")
    from ._advise import advise as work

    return work(model, inputs, str(dtype), repetitions)
