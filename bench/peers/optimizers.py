"""Peer of the optimizers bench: microseconds of Python's fused optimizers, alone and within a whole training step.

    python optimizers.py [--seconds 0.2]

The networks, the batch and the keys are those of train/optimizers.cpp, "WIDTH OPTIMIZER step|whole python"; the loop is
the usual one. Medians over chunks of 50 steps, one thread, denormals flushed.
"""
import argparse
import json
import statistics
import time

import torch

CHUNK = 50


def make(width):
    model = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, width),
                                torch.nn.ReLU(), torch.nn.Linear(width, 10))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.arange(p.numel(), dtype=torch.float64).sin().mul(0.1).view(p.shape))
    return model


def microseconds(call, seconds):
    times = []
    for _ in range(CHUNK):
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(CHUNK):
            call()
        times.append((time.perf_counter() - start) / CHUNK * 1e6)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0.2)
    seconds = parser.parse_args().seconds
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    x = torch.arange(64 * 64, dtype=torch.float64).cos().float().view(64, 64)
    y = torch.arange(64) % 10
    result = {}
    for kind, options in (("AdamW", {}), ("Adam", {}), ("SGD", {"momentum": 0.9}), ("Adagrad", {})):
        for width in (64, 256):
            model = make(width)
            optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-3, fused=True, **options)

            def whole():
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()

            whole()
            result[f"{width} {kind} step python"] = microseconds(optimizer.step, seconds)
            result[f"{width} {kind} whole python"] = microseconds(whole, seconds)
    print(json.dumps(result, indent=2))


main()
