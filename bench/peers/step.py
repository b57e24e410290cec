"""Peer of bench/train/step.cpp: a step of PyTorch's DistributedDataParallel with its fused AdamW, at its best.

    torchrun --standalone --nproc-per-node 2 step.py MODEL [STEPS]
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist

from models import MODELS

WARM_UP = 20


def status_mb(key):
    with open("/proc/self/status") as f:
        fields = dict(line.split(":", 1) for line in f)
    return int(fields[key].split()[0]) * 1024 / 1e6


name, num_steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
net = MODELS[name]()
ddp = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
optimizer = torch.optim.AdamW(ddp.parameters(), fused=True)
torch.manual_seed(1 + dist.get_rank())
batches = [net.make_batch() for _ in range(8)]
milliseconds, losses = [], []
for i in range(WARM_UP + num_steps):
    began = time.perf_counter()
    optimizer.zero_grad()
    loss = ddp(*batches[i % len(batches)])
    loss.backward()
    optimizer.step()
    if i >= WARM_UP:
        milliseconds.append((time.perf_counter() - began) * 1e3)
    if i < 10:
        losses.append(loss.item())
milliseconds.sort()
memory = torch.tensor([status_mb("VmHWM")], dtype=torch.float64)
dist.all_reduce(memory, dist.ReduceOp.MAX)
if dist.get_rank() == 0:
    print(json.dumps({"model": name, "median_ms": milliseconds[len(milliseconds) // 2],
                      "p99_ms": milliseconds[len(milliseconds) * 99 // 100], "peak_mb": memory.item(),
                      "losses": losses}))
sys.stdout.flush()
dist.barrier()
os._exit(0)  # a normal exit may call std::terminate while Gloo's threads run
