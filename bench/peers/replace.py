"""The peer of bench/replace: the same network under torchrun, which starts all ranks again from the last checkpoint."""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, path = dist.get_rank(), os.path.join(sys.argv[1], "checkpoint.pt")
torch.manual_seed(1)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
step = 0
if os.path.exists(path):
    state = torch.load(path)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
model = nn.parallel.DistributedDataParallel(net)
print(f"pid {os.getpid()}", flush=True)
x, y = torch.randn(8, 16), torch.arange(8) % 4
while True:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    step += 1
    if rank == 0:
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path + ".new")
        os.replace(path + ".new", path)
        print(f"step {step}", flush=True)
