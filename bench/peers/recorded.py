"""Peer of bench/train/recorded.cpp: PyTorch's step with its fused AdamW. One thread, float.

    python recorded.py [MODEL [STEPS [compile]]]     MODEL: mlp-WIDTH, or one of models.py
"""
import json
import sys
import time

import torch

from models import MODELS

name = sys.argv[1] if len(sys.argv) > 1 else "mlp-64"
num_steps = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
torch.set_num_threads(1)
torch.set_flush_denormal(True)
torch.manual_seed(0)
if name.startswith("mlp-"):
    width = int(name[4:])
    layers = [torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers, torch.nn.Linear(width, 10))
    x, y = torch.randn(32, width), torch.randint(10, (32,))

    def loss_of(x, y):
        return torch.nn.functional.cross_entropy(net(x), y)
else:
    net = loss_of = MODELS[name]()
    x, y = net.make_batch()
optimizer = torch.optim.AdamW(net.parameters(), fused=True)
forward = torch.compile(loss_of) if "compile" in sys.argv[3:] else loss_of


def step():
    optimizer.zero_grad()
    loss = forward(x, y)
    loss.backward()
    optimizer.step()


for _ in range(20):
    step()
microseconds = []
for _ in range(num_steps):
    began = time.perf_counter()
    step()
    microseconds.append((time.perf_counter() - began) * 1e6)
print(json.dumps({"model": name, "step_us": sorted(microseconds)[num_steps // 2]}))
