"""Does the same as tests/gpu/training.cpp with Python's torch: the same networks, optimizers and steps. Prints one line
of JSON.

    peer.py trajectories|scaled [--device cpu|cuda]
    peer.py steps MODEL STEPS [--device cpu|cuda] [--compile]
    peer.py record                    runs trajectories and scaled on the CPU; its output is reference.json, which is
                                      used where Python has no torch
"""
import argparse
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def network(device):
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.arange(p.numel(), dtype=torch.double).sin().mul(0.1).view(p.shape))
    x = torch.arange(64 * 64, dtype=torch.double).cos().float().view(64, 64)
    return model.to(device), x.to(device), torch.arange(64).remainder(10).to(device)


def sums(model):
    return [p.detach().cpu().double().square().sum().item() for p in model.parameters()]


def trajectory(device, make_optimizer):
    model, x, y = network(device)
    optimizer = make_optimizer(model.parameters())
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "sums": sums(model)}


def trajectories(device):
    optim = torch.optim
    return {"device": device,
            "AdamW": trajectory(device, lambda p: optim.AdamW(p, 1e-2, fused=True)),
            "Adam": trajectory(device, lambda p: optim.Adam(p, 1e-2, weight_decay=1e-2, amsgrad=True, fused=True)),
            "SGD": trajectory(device, lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, fused=True)),
            "Adagrad": trajectory(device, lambda p: optim.Adagrad(p, 1e-2))}


def scaled(device):
    model, x, y = network(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=True)
    scaler = torch.amp.GradScaler(device, init_scale=1024, growth_interval=3)
    losses, scales = [], []
    for i in range(12):
        optimizer.zero_grad()
        with torch.autocast(device, torch.float16):
            loss = F.cross_entropy(model(x), y)
        losses.append(loss.item())
        if i in (2, 7):
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return {"device": device, "losses": losses, "scales": scales, "sums": sums(model)}


def steps(device, name, num_steps, is_compiled):
    from models import MODELS  # bench/peers/models.py
    torch.manual_seed(0)
    model = MODELS[name]()
    torch.manual_seed(1)
    batches = [tuple(t.to(device) for t in model.make_batch()) for _ in range(8)]
    net = model.to(device)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    if is_compiled:
        net = torch.compile(net)

    def step(i):
        optimizer.zero_grad()
        loss = net(*batches[i % 8])
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(i).item() for i in range(10)]
    milliseconds = []
    for i in range(0, num_steps, 10):
        began = time.perf_counter()
        for j in range(10):
            loss = step(i + j)
        loss.item()
        milliseconds.append((time.perf_counter() - began) * 100)
    milliseconds.sort()
    return {"device": device, "median_ms": milliseconds[len(milliseconds) // 2], "worst_ms": milliseconds[-1],
            "losses": losses}


parser = argparse.ArgumentParser()
parser.add_argument("what", choices=["trajectories", "scaled", "steps", "record"])
parser.add_argument("model", nargs="?")
parser.add_argument("num_steps", nargs="?", type=int)
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()
if args.device == "cpu":
    torch.set_num_threads(1)
if args.what == "record":
    result = {"torch": torch.__version__, "trajectories": trajectories("cpu"), "scaled": scaled("cpu")}
elif args.what == "steps":
    result = steps(args.device, args.model, args.num_steps, args.compile)
else:
    result = globals()[args.what](args.device)
json.dump(result, sys.stdout, indent=1 if args.what == "record" else None)
print()
