"""A peer of bench/replace: the same network under torchft, one replica group for each rank, which go on without a lost one.

Environment: TORCHFT_LIGHTHOUSE, REPLICA (from 0). Prints its pid, and each step with the number of replicas in it.
"""
import datetime
import os

import torch
from torch import nn
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

torch.manual_seed(1)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 4))
adam = torch.optim.AdamW(net.parameters(), lr=0.01)
timeout = datetime.timedelta(seconds=5)
store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
manager = Manager(pg=ProcessGroupGloo(timeout=timeout), min_replica_size=1, replica_id=f"replica_{os.environ['REPLICA']}_",
                  rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port, timeout=timeout, hostname="127.0.0.1",
                  state_dict=lambda: {"net": net.state_dict(), "adam": adam.state_dict()},
                  load_state_dict=lambda state: (net.load_state_dict(state["net"]), adam.load_state_dict(state["adam"])))
model = DistributedDataParallel(manager, net)
optimizer = Optimizer(manager, adam)
print(f"[{os.environ['REPLICA']}] pid {os.getpid()}", flush=True)
x, y = torch.randn(8, 16), torch.arange(8) % 4
while True:
    before = manager.current_step()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    if manager.current_step() > before:
        print(f"[{os.environ['REPLICA']}] step {manager.current_step()} of {manager.num_participants()}", flush=True)
