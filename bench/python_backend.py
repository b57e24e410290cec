"""How much faster is torch.distributed in Python over the backend "yoke" than over "gloo"?

    yoke run --no-prefix -n 2 -- python bench/python_backend.py [--only PART] [--quick]

In one process, over both backends in turn: all-reduces of float32 and of 1 MiB of other dtypes, other collectives, and
training steps of DistributedDataParallel with fused AdamW. Rank 0 prints one JSON object: medians in microseconds of each
backend, and the median of the rounds' ratios. It needs the package yoke-torch, or PYTHONPATH=BUILD/python.
"""

import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
import yoke_torch  # noqa: F401: its entry point is not there in a build
from torch.nn.parallel import DistributedDataParallel

DTYPES = [torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float64]
SIZES = {"16 B": 4, "4 KiB": 1 << 10, "64 KiB": 1 << 14, "1 MiB": 1 << 18, "16 MiB": 1 << 22, "64 MiB": 1 << 24}


def seconds_of(call, count):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def compare(calls, rounds, target_seconds):
    """`calls` of gloo and yoke, with as many repetitions as take about `target_seconds` over Gloo."""
    for call in calls:
        seconds_of(call, 3)
    count = torch.tensor([max(3, int(target_seconds / seconds_of(calls[0], 3)))])
    dist.broadcast(count, 0)
    found = [[seconds_of(call, int(count)) for call in calls] for _ in range(rounds)]
    gloo, yoke = ([each[i] * 1e6 for each in found] for i in (0, 1))
    return {"gloo_us": round(statistics.median(gloo), 1), "yoke_us": round(statistics.median(yoke), 1),
            "ratio": round(statistics.median(a / b for a, b in zip(gloo, yoke)), 2), "repetitions": int(count)}


def all_reduce(group, elements, dtype=torch.float32):
    tensor = torch.zeros(elements, dtype=dtype)
    tensor[-1] = dist.get_rank() + 1
    dist.all_reduce(tensor, group=group)
    assert tensor[-1].item() == dist.get_world_size() * (dist.get_world_size() + 1) / 2
    tensor.zero_()
    return lambda: dist.all_reduce(tensor, group=group)


def others(group, elements):
    """Other collectives, of which each rank gives or gets `elements` of float32."""
    size, root = dist.get_world_size(), dist.get_rank() == 0
    small, large = torch.zeros(elements), torch.zeros(elements * size)
    parts = list(large.chunk(size)) if root else None
    return {
        "all_gather": lambda: dist.all_gather_into_tensor(large, small, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(small, large, group=group),
        "broadcast": lambda: dist.broadcast(small, 0, group=group),
        "reduce": lambda: dist.reduce(small, 0, group=group),
        "gather": lambda: dist.gather(small, parts, 0, group=group),
        "scatter": lambda: dist.scatter(small, parts, 0, group=group),
        "all_to_all": lambda: dist.all_to_all_single(large, large.clone(), group=group),
        "barrier": lambda: dist.barrier(group=group),
    }


def step(group, widths, batch):
    torch.manual_seed(0)
    layers = []
    for before, after in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    model = DistributedDataParallel(torch.nn.Sequential(*layers[:-1]), process_group=group, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    x, y = torch.randn(batch, widths[0]), torch.randint(widths[-1], (batch,))

    def one():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return one


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["all_reduce", "dtypes", "others", "ddp_step"], help="a part")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it works")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("cpu:yoke")
    groups = [dist.new_group(backend="gloo"), dist.group.WORLD]
    assert groups[1]._get_backend(torch.device("cpu")).name() == "yoke"
    rounds, seconds = (1, 0.01) if options.quick else (7, 0.2)
    result = {"ranks": dist.get_world_size(), "torch": torch.__version__}

    def measure(part, name, calls, seconds):
        if options.only in (None, part):
            result.setdefault(part, {})[name] = compare(calls(), rounds, seconds)

    for name, elements in SIZES.items():
        measure("all_reduce", name, lambda: [all_reduce(group, elements) for group in groups], seconds)
    for dtype in DTYPES:
        elements = (1 << 20) // dtype.itemsize
        measure("dtypes", str(dtype), lambda: [all_reduce(group, elements, dtype) for group in groups], seconds / 4)
    for size, elements in {"16 B": 4, "1 MiB": 1 << 18}.items():
        both = [others(group, elements) for group in groups]
        for name in both[0]:
            measure("others", f"{name}, {size}", lambda: [calls[name] for calls in both], seconds / 4)
    models = {"mlp 64-64-64-10": ([64, 64, 64, 10], 64), "mlp 1024-1024-1024-10": ([1024, 1024, 1024, 10], 64)}
    for name, (widths, batch) in models.items():
        measure("ddp_step", name, lambda: [step(group, widths, batch) for group in groups], 2 * seconds)
    if dist.get_rank() == 0:
        print(json.dumps(result, indent=1))
    dist.destroy_process_group()


main()
