"""Peer of the memory bench: the memory of a rank of a plain PyTorch training, as JSON from rank 0.

    torchrun --nproc-per-node 2 rank_memory.py

The script a user would write (DDP, a small CNN, random batches of 64), a few steps, then /proc/self/status. VmRSS
counts pages shared with other processes in each of them; RssAnon is the cost of each further rank. MB is 10^6 bytes.
"""
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

STEPS = 20


def status_mb(*keys):
    with open("/proc/self/status") as f:
        fields = dict(line.split(":", 1) for line in f)
    return {key: round(int(fields[key].split()[0]) * 1024 / 1e6, 1) for key in keys}


torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(1600, 256), nn.ReLU(), nn.Linear(256, 10))
ddp = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
for step in range(STEPS):
    x, y = torch.randn(64, 1, 28, 28), torch.randint(10, (64,))
    optimizer.zero_grad()
    F.cross_entropy(ddp(x), y).backward()
    optimizer.step()

ranks = [None] * dist.get_world_size()
dist.all_gather_object(ranks, status_mb("VmRSS", "VmHWM", "RssAnon"))
if dist.get_rank() == 0:
    print(json.dumps({"unit": "MB", "torch": torch.__version__, "steps": STEPS, "ranks": ranks}))
sys.stdout.flush()
dist.barrier()
os._exit(0)  # a normal exit may call std::terminate while Gloo's threads run
