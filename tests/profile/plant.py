#!/usr/bin/env python3
"""Trains a small network with one planted bottleneck on the CPU and writes the trace that Python's profiler makes.

    plant.py CASE OUTPUT [--seed N] [--steps N] [--keep]

CASE is one of those below. Steps with the bottleneck and steps of the same training without it take turns. Each rank
writes the former as OUTPUT/traces/rankN.json.gz, trimmed to what tests need (--keep: the whole trace). OUTPUT/gain.json has by
how much a step is shorter without the bottleneck, which `yoke profile` should have foretold, and how often other
programs took the processor from the ranks: record several times, at a high priority, and keep the run that was
interrupted least. This needs PyTorch; the project's tests only read what it wrote.
"""

import argparse
import glob
import gzip
import json
import os
import random
import resource
import socket
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

nn = torch.nn

CASES = {  # name: number of ranks
    "healthy_mlp": 1,
    "healthy_cnn": 1,
    "healthy_ddp": 2,
    "slow_dataset": 1,  # data_loading: each sample takes 1 ms
    "slow_worker": 1,  # data_loading: as slow_dataset, but in a worker process that cannot keep up
    "slow_collate": 1,  # data_loading: this process collates many small samples
    "large_gradients": 2,  # communication: 5 million parameters, batches of 8, one bucket, reduced after backward
    "synchronous_all_reduce": 2,  # communication: many small collectives, one after the other
    "slow_rank": 2,  # skew: rank 1 computes three times as long
    "slow_loader_of_one_rank": 2,  # skew: rank 1 waits for its data
    "tiny_operations": 1,  # small_operations: a recurrence that computes element by element
    "loop_optimizer": 1,  # optimizer: Adam, one parameter at a time, on a wide embedding
    "one_thread": 1,  # threads: uses one thread on a machine with more processors
}


class Samples(torch.utils.data.Dataset):
    def __init__(self, shape, delay=0.0):
        self.shape, self.delay = shape, delay

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if self.delay:
            time.sleep(self.delay)  # clock: the work of a sample
        return torch.full(self.shape, index / 1e5), index % 10


class Batches(torch.utils.data.IterableDataset):
    """Ready batches: what a loader costs that keeps up."""

    def __init__(self, shape, batch):
        self.data = torch.randn(batch, *shape), torch.randint(0, 10, (batch,))

    def __iter__(self):
        while True:
            yield self.data


class Recurrence(nn.Module):
    def __init__(self, width, one_by_one):
        super().__init__()
        self.weight, self.one_by_one = nn.Parameter(torch.rand(width)), one_by_one

    def forward(self, x):
        if self.one_by_one:
            total = x.new_zeros(())
            for value in self.weight:
                total = total + value * value
        else:
            total = (self.weight * self.weight).sum()
        return x + total * 1e-6


def mlp(width, depth=2, inputs=256):
    layers = [nn.Linear(inputs, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def cnn(channels):
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(channels * 16, 10))


class Planted:
    """The network, its data and its optimizer for one case."""

    def __init__(self, case, rank, fixed, rng):
        self.case, self.rank, self.fixed = case, rank, fixed
        width, batch, shape, delay, workers = rng.choice([256, 320, 384]), rng.choice([192, 256, 320]), (256,), 0.0, 0
        model = None
        if case == "healthy_cnn":
            shape, batch, model = (3, 32, 32), rng.choice([32, 48, 64]), cnn(rng.choice([24, 32, 40]))
        elif case in ("slow_dataset", "slow_worker"):
            batch, delay, workers = 24, 1e-3, 1 if case == "slow_worker" else 0
        elif case == "slow_collate":
            batch = 512
        elif case == "large_gradients":
            width, batch = 2048, 8
        elif case == "synchronous_all_reduce":
            width = 256
        elif case in ("slow_rank", "slow_loader_of_one_rank", "healthy_ddp"):
            batch, width = (4096, 256) if case == "healthy_ddp" else (512, 384)
        elif case == "one_thread":
            width, batch = 512, 1024
        elif case == "tiny_operations":
            model = nn.Sequential(Recurrence(120, not fixed), mlp(128))
        elif case == "loop_optimizer":
            width, batch = 768, 32
        if case.startswith("slow_") and case not in ("slow_rank", "slow_loader_of_one_rank"):
            dataset = Batches(shape, batch) if fixed else Samples(shape, delay)
            self.loader = torch.utils.data.DataLoader(dataset, batch_size=None if fixed else batch,
                                                      num_workers=0 if fixed else workers)
        else:
            self.loader = torch.utils.data.DataLoader(Batches(shape, batch), batch_size=None)
        self.batches = iter(self.loader)
        self.model = model if model is not None else mlp(width, 3 if case == "loop_optimizer" else 2)
        self.net = self.model
        if dist.is_initialized() and case != "synchronous_all_reduce":
            one_bucket = {"bucket_cap_mb": 1000, "gradient_as_bucket_view": True} if case == "large_gradients" else {}
            self.net = nn.parallel.DistributedDataParallel(self.model, **one_bucket)
        if case == "loop_optimizer":
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, foreach=False, fused=fixed)
        else:
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)

    def step(self):
        if self.case == "one_thread":
            torch.set_num_threads(len(os.sched_getaffinity(0)) if self.fixed else 1)
        x, y = next(self.batches)
        late = self.rank == 1 and not self.fixed
        if self.case == "slow_loader_of_one_rank" and late:
            with torch.profiler.record_function("enumerate(DataLoader)#slow"):
                time.sleep(0.03)  # clock: the work of a sample
        self.optimizer.zero_grad()
        if self.case == "slow_rank" and late:
            for _ in range(2):
                nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.zero_grad()
        net = self.model if self.case == "large_gradients" and self.fixed else self.net
        nn.functional.cross_entropy(net(x), y).backward()
        if self.case == "synchronous_all_reduce" and not self.fixed:
            for parameter in self.model.parameters():
                for part in parameter.grad.flatten().split(32768):
                    dist.all_reduce(part)
        self.optimizer.step()


def write_planted_steps(path, output, keep):
    """Writes the steps with the bottleneck; returns the mean length of these and of those without, in ms."""
    with open(path) as file:
        trace = json.load(file)
    events = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] in ("cpu_op", "user_annotation")]
    steps = [e for e in events if e["name"].startswith("ProfilerStep#")]
    steps.sort(key=lambda e: e["ts"])
    planted, fixed = steps[0::2], steps[1::2]
    if not keep:
        fields = ("ph", "cat", "name", "pid", "tid", "ts", "dur")
        trace = {key: trace[key] for key in ("schemaVersion", "distributedInfo", "host") if key in trace}
        trace["traceEvents"] = [
            {key: event[key] for key in fields} for event in events
            if any(step["ts"] <= event["ts"] < step["ts"] + step["dur"] for step in planted)]
    trace.pop("traceName", None)
    with gzip.GzipFile(output, "wb", 9, mtime=0) as file:
        file.write(json.dumps(trace, separators=(",", ":")).encode())
    return [statistics.mean(step["dur"] for step in some) / 1e3 for some in (planted, fixed)]


def train(rank, ranks, args, port):
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    if ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks))
        dist.init_process_group("gloo")
    variants = [Planted(args.case, rank, fixed, random.Random(args.seed)) for fixed in (False, True)]
    for _ in range(3):
        for variant in variants:
            variant.step()
    times = [[], []]  # the variants alternate, so that other load on the machine affects both
    for i in range(6 * args.steps):
        begin = time.perf_counter()
        variants[i % 2].step()
        times[i % 2].append(time.perf_counter() - begin)
    with tempfile.TemporaryDirectory() as folder:
        with profile(activities=[ProfilerActivity.CPU],
                     schedule=schedule(wait=0, warmup=2, active=2 * args.steps, repeat=1),
                     on_trace_ready=tensorboard_trace_handler(folder)) as profiler:
            if args.case == "one_thread":
                num_cpus = len(os.sched_getaffinity(0))
                profiler.add_metadata_json("host", json.dumps({"num_threads": 1, "num_cpus": num_cpus}))
            switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
            for i in range(2 * args.steps + 2):
                variants[i % 2].step()
                profiler.step()
        switches = torch.tensor(resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - switches)
        if ranks > 1:
            dist.all_reduce(switches)
        planted, fixed = write_planted_steps(glob.glob(folder + "/*.json")[0], f"{args.output}/traces/rank{rank}.json.gz",
                                             args.keep)
    if rank == 0:
        medians = [statistics.median(some) for some in times]
        gain = json.dumps({"case": args.case, "gain_percent": round(100 * (1 - fixed / planted), 1),
                           "gain_without_profiler_percent": round(100 * (1 - medians[1] / medians[0]), 1),
                           "planted_ms": round(planted, 2), "fixed_ms": round(fixed, 2),
                           "interruptions": int(switches)})
        with open(f"{args.output}/gain.json", "w") as file:
            file.write(gain + "\n")
        print(gain, flush=True)
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("output")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    os.makedirs(f"{args.output}/traces", exist_ok=True)
    ranks = CASES[args.case]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if ranks == 1:
        train(0, 1, args, port)
    else:
        mp.spawn(train, args=(ranks, args, port), nprocs=ranks)


if __name__ == "__main__":
    main()
