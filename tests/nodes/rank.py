"""A Python rank in a World of C++ ranks: one all-reduce of rank + 1. docs/dist.md lists the steps."""
import os
from datetime import timedelta

import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
assert os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "True"  # all ranks are clients of the program yoke-store
server = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
job = f"yoke/{os.environ['TORCHELASTIC_RUN_ID']}/{os.environ['TORCHELASTIC_RESTART_COUNT']}"


for world in range(2):  # one round for each of the process's two Worlds
    store = dist.PrefixStore(f"{job}/{world}", server)
    store.set(f"here/{rank}", "1")
    store.wait([f"here/{other}" for other in range(size)])
    group = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timedelta(seconds=60))
    tensor = torch.full((1,), float(rank + 1))
    group.allreduce([tensor]).wait()
    print(f"Python rank {rank} of {size} sum {tensor.item():g}", flush=True)
    if store.add("leaving", 1) == size:
        store.set("all_leaving", "1")
    store.wait(["all_leaving"])
