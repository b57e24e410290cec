"""A training for tests of `yoke profile`, in Python: profiled_program.py [CASE] [STEPS]."""

import os
import sys
import time

import torch
import torch.distributed as dist

case, num_steps = (sys.argv[1:] + ["none", "20"][len(sys.argv) - 1:])[:2]
if "RANK" in os.environ:
    dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
model = torch.nn.parallel.DistributedDataParallel(net) if dist.is_initialized() else net
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=2) if case == "lbfgs" else torch.optim.SGD(
    net.parameters(), lr=1e-3)
x, y = torch.randn(1024, 256), torch.randint(10, (1024,))


def closure():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    return loss


def load():
    with torch.profiler.record_function("data_loading"):
        time.sleep(0.05)  # clock: the work of a step


own = torch.profiler.profile() if case == "own_profiler" else None
if own:
    own.start()
if case == "within_backward":
    last = list(net.parameters())[-1]
    last.register_post_accumulate_grad_hook(lambda _: optimizer.step())
for _ in range(int(num_steps)):
    if case == "data_loading":
        load()
    closure() if case == "within_backward" else optimizer.step(closure)
if own:
    own.stop()
print(f"trained {num_steps} steps", os.environ.get("MARK_OF_SITE", ""))
if dist.is_initialized():
    dist.destroy_process_group()
sys.exit(3 if case == "fail" else 0)
