"""Record short trainings of PyTorch's DistributedDataParallel with each of its options, to compare yoke's with.

    torchrun --nproc-per-node 2 record_ddp_options.py [--case NAME] [--out FILE]

Two Gloo ranks, one thread each, fp32, 20 steps of SGD with momentum 0.9 and learning rate 0.05. The batch of a rank at a
step (and micro-batch) comes from a generator seeded with 100000 * rank + 10 * step + micro: 16 rows of 12 inputs, then 16
labels below 4; for the embedding 16 x 3 indices below 40, then labels. The networks are below, seeded with 0. Losses and
sums are hexadecimal floats, parameters the CRC-32 of their little-endian float32 bytes.

sync_batch_norm is one process with BatchNorm1d on the batches of both ranks, because Python's SyncBatchNorm refuses the CPU;
its losses are those of the two halves.

Bits depend on the CPU model, so they are equal only on one machine. On others, compare within a tolerance.
"""
import argparse
import json
import os
import sys
import zlib

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS, MICRO = 20, 2


def generator(rank, step, micro=0):
    return torch.Generator().manual_seed(100000 * rank + 10 * step + micro)


def batch(rank, step, micro=0):
    g = generator(rank, step, micro)
    return torch.randn(16, 12, generator=g), torch.randint(4, (16,), generator=g)


def index_batch(rank, step):
    g = generator(rank, step)
    return torch.randint(40, (16, 3), generator=g), torch.randint(4, (16,), generator=g)


class Mlp(nn.Module):
    """Has matrices large enough for PowerSGD and, on request, a layer of batch norm."""

    def __init__(self, norm=False):
        super().__init__()
        self.a = nn.Linear(12, 32)
        self.norm = nn.BatchNorm1d(32) if norm else None
        self.b = nn.Linear(32, 24)
        self.c = nn.Linear(24, 4)

    def forward(self, x):
        x = self.a(x)
        if self.norm is not None:
            x = self.norm(x)
        return self.c(torch.relu(self.b(torch.relu(x))))


class Branches(nn.Module):
    """Uses one of two branches in each step; `never` is not used."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 16)
        self.left = nn.Linear(16, 16)
        self.right = nn.Linear(16, 16)
        self.never = nn.Linear(2, 2)
        self.c = nn.Linear(16, 4)

    def forward(self, x, left):
        x = torch.relu(self.a(x))
        return self.c(torch.relu(self.left(x) if left else self.right(x)))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 8, sparse=True)
        self.c = nn.Linear(8, 4)

    def forward(self, indices):
        return self.c(self.embedding(indices).mean(1))


def goes_left(rank, step):
    """Both left, both right, then rank 0 and rank 1 in turn."""
    return [True, False, rank == 0, rank == 1][step % 4]


def optimizer_of(model, momentum=0.9):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum, foreach=False, fused=False)


def train(model, loss_of, rank, steps=STEPS, momentum=0.9):
    optimizer = optimizer_of(model, momentum)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def plain(rank, hook=None, norm=False, steps=STEPS, join=None, **options):
    model = Mlp(norm)
    ddp = DDP(model, **options)
    if hook:
        ddp.register_comm_hook(*hook)

    def loss_of(step):
        x, y = batch(rank, step)
        return F.cross_entropy(ddp(x), y)

    if join is None:
        return model, train(ddp, loss_of, rank, steps)
    with ddp.join(**join):
        return model, train(ddp, loss_of, rank, steps)


def branches(rank, fixed=None, **options):
    model = Branches()
    ddp = DDP(model, **options)

    def loss_of(step):
        x, y = batch(rank, step)
        return F.cross_entropy(ddp(x, goes_left(rank, step) if fixed is None else fixed), y)

    return model, train(ddp, loss_of, rank)


def no_sync(rank, **options):
    model = Mlp()
    ddp = DDP(model, **options)
    optimizer = optimizer_of(ddp)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        for micro in range(MICRO):
            x, y = batch(rank, step, micro)
            if micro + 1 < MICRO:
                with ddp.no_sync():
                    F.cross_entropy(ddp(x), y).backward()
            else:
                loss = F.cross_entropy(ddp(x), y)
                loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def sparse_embedding(rank):
    model = Words()
    ddp = DDP(model)

    def loss_of(step):
        indices, y = index_batch(rank, step)
        return F.cross_entropy(ddp(indices), y)

    return model, train(ddp, loss_of, rank, momentum=0)


def ignored(rank):
    model = Mlp()
    DDP._set_params_and_buffers_to_ignore_for_model(model, ["b.weight", "b.bias"])
    ddp = DDP(model)

    def loss_of(step):
        x, y = batch(rank, step)
        return F.cross_entropy(ddp(x), y)

    return model, train(ddp, loss_of, rank)


def sync_batch_norm(rank):
    model = Mlp(norm=True)
    optimizer = optimizer_of(model)
    losses = []
    for step in range(STEPS):
        halves = [batch(r, step) for r in range(2)]
        optimizer.zero_grad()
        out = model(torch.cat([x for x, _ in halves]))
        parts = [F.cross_entropy(o, y) for o, (_, y) in zip(out.split(16), halves)]
        (sum(parts) / 2).backward()
        optimizer.step()
        losses.append(parts[rank].item())
    return model, losses


def power_sgd_hook(rank, **options):
    state = power_sgd.PowerSGDState(process_group=None, **options)
    return plain(rank, hook=(state, power_sgd.powerSGD_hook))


CASES = {
    "plain": plain,
    "views": lambda r: plain(r, gradient_as_bucket_view=True),
    "static_graph": lambda r: plain(r, static_graph=True),
    "static_graph_unused": lambda r: branches(r, fixed=True, static_graph=True),
    "find_unused": lambda r: branches(r, find_unused_parameters=True),
    "no_sync": no_sync,
    "no_sync_views": lambda r: no_sync(r, gradient_as_bucket_view=True),
    "buffers": lambda r: plain(r, norm=True),
    "join": lambda r: plain(r, norm=True, steps=STEPS - 8 * (1 - r), join={}),
    "join_active": lambda r: plain(r, steps=STEPS - 8 * r, join={"divide_by_initial_world_size": False}),
    "join_find_unused": lambda r: plain(r, steps=STEPS - 8 * r, join={}, find_unused_parameters=True),
    "sparse_embedding": sparse_embedding,
    "ignored": ignored,
    "fp16": lambda r: plain(r, hook=(None, default_hooks.fp16_compress_hook)),
    "bf16": lambda r: plain(r, hook=(None, default_hooks.bf16_compress_hook)),
    "power_sgd": lambda r: power_sgd_hook(r, matrix_approximation_rank=1, start_powerSGD_iter=3),
    "power_sgd_rank_4": lambda r: power_sgd_hook(r, matrix_approximation_rank=4, start_powerSGD_iter=2,
                                                 min_compression_rate=0.5),
    "power_sgd_plain": lambda r: power_sgd_hook(r, matrix_approximation_rank=2, start_powerSGD_iter=2, warm_start=False,
                                                use_error_feedback=False, min_compression_rate=1),
    "sync_batch_norm": sync_batch_norm,
}


def record(case, rank):
    torch.manual_seed(0)
    model, losses = CASES[case](rank)
    tensors = {n: t.detach().numpy().astype("<f4") for n, t in [*model.named_parameters(), *model.named_buffers()]}
    return {
        "losses_hex": [loss.hex() for loss in losses],
        "crc32": {n: zlib.crc32(t.tobytes()) for n, t in tensors.items()},
        "sums_hex": {n: float(t.sum(dtype="f8")).hex() for n, t in tensors.items()},
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, help="default: all")
    parser.add_argument("--out", help="default: standard output")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    result = {"torch": torch.__version__, "cpu_capability": torch.backends.cpu.get_cpu_capability(), "cases": {}}
    for case in [args.case] if args.case else CASES:
        ranks = [None, None]
        dist.all_gather_object(ranks, record(case, rank))
        result["cases"][case] = ranks
    if rank == 0:
        text = json.dumps(result, indent=0) + "\n"
        if args.out:
            with open(args.out, "w") as f:
                f.write(text)
        else:
            sys.stdout.write(text)
    dist.barrier()


main()
sys.stdout.flush()
os._exit(0)  # a normal exit may call std::terminate while Gloo's threads run
