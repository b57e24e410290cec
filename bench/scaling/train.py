#!/usr/bin/env python3
"""Trains a model on random data under DistributedDataParallel (Gloo), or measures the all-reduces of its ranks.

    train.py mlp|cnn|transformer [STEPS]      until it is ended, or for so many steps
    train.py all-reduce SECONDS               prints what `yoke bench all-reduce --json` does, on rank 0

bench/scaling/check starts it. With one rank it is wrapped in DistributedDataParallel, too.
"""
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Transformer(nn.Module):
    def __init__(self, width=192, num_layers=4, num_words=4096):
        super().__init__()
        self.embedding = nn.Embedding(num_words, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, num_words)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens))).flatten(0, 1)


def mlp():
    wide = [module for _ in range(4) for module in (nn.Linear(1024, 1024), nn.ReLU())]
    return nn.Sequential(*wide, nn.Linear(1024, 10)), lambda: (torch.randn(256, 1024), torch.randint(10, (256,)))


def cnn():
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 49, 256), nn.ReLU(), nn.Linear(256, 10))  # fmt: skip
    return model, lambda: (torch.randn(64, 1, 28, 28), torch.randint(10, (64,)))


def transformer():
    return Transformer(), lambda: (torch.randint(4096, (8, 64)), torch.randint(4096, (8 * 64,)))


def train(make, num_steps):
    torch.manual_seed(0)
    model, batch = make()
    net = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    data, target = batch()
    step = 0
    while step < num_steps:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(data), target).backward()
        optimizer.step()
        step += 1


def compute_delay_percent(tensor, all_reduce_s, num_rounds=15):
    """By how much an all-reduce delays what the slowest rank computes beside it, in percent of the time it takes alone."""
    one, other = torch.rand(128, 512), torch.rand(512, 512)

    def compute_s(num_products, communicates):
        dist.barrier()
        begin = time.monotonic()
        pending = dist.all_reduce(tensor, async_op=True) if communicates else None
        for _ in range(num_products):
            one @ other
        slowest = torch.tensor([time.monotonic() - begin])
        if pending:
            pending.wait()
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return slowest.item()

    compute_s(50, False)
    num_products = int(max(4 * all_reduce_s, 0.01) / (compute_s(50, False) / 50)) + 1  # the same on all ranks
    alone, beside = [], []
    for _ in range(num_rounds):
        alone.append(compute_s(num_products, False))
        beside.append(compute_s(num_products, True))
    return 100 * (statistics.median(beside) - statistics.median(alone)) / all_reduce_s


def measure_all_reduces(seconds):
    sizes = [4, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 32 << 20]
    tensors = [torch.zeros(size // 4) for size in sizes]
    times = [[] for _ in sizes]
    for tensor in tensors:
        dist.all_reduce(tensor)
    end = torch.tensor([time.monotonic() + seconds])
    dist.broadcast(end, 0)
    more = torch.ones(1)
    while more.item():
        for i, tensor in enumerate(tensors):
            count = max(1, min(50, (1 << 20) // sizes[i]))
            dist.barrier()
            begin = time.monotonic()
            for _ in range(count):
                dist.all_reduce(tensor)
            slowest = torch.tensor([(time.monotonic() - begin) / count])
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            times[i].append(slowest.item())
        more = torch.tensor([float(time.monotonic() < end.item() or len(times[0]) < 3)])
        dist.broadcast(more, 0)
    medians = [statistics.median(one) for one in times]
    large = sizes.index(16 << 20)
    delay = compute_delay_percent(tensors[large], medians[large])
    results = [{"bytes": size, "time_ms": 1e3 * median, "num_rounds": len(one)}
               for size, median, one in zip(sizes, medians, times)]  # fmt: skip
    if dist.get_rank() == 0:
        print(json.dumps({"name": "all-reduce", "num_ranks": dist.get_world_size(), "compute_delay_percent": delay,
                          "results": results}), flush=True)  # fmt: skip


def main():
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.set_flush_denormal(True)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    if "RANK" not in os.environ:  # alone; several copies must not choose the same port
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    else:
        dist.init_process_group("gloo")
    if sys.argv[1] == "all-reduce":
        measure_all_reduces(float(sys.argv[2]))
    else:
        num_steps = float(sys.argv[2]) if len(sys.argv) > 2 else float("inf")
        train({"mlp": mlp, "cnn": cnn, "transformer": transformer}[sys.argv[1]], num_steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
