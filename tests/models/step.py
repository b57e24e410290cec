#!/usr/bin/env python3
"""Times a training step of yoke/models beside the same network in PyTorch eager, in turn.

    step.py PROGRAM [--rounds 9] [--threads 2]    PROGRAM: build/release/bin/yoke_models_peer; needs torch, torchvision and timm

Both train in channels_last with SGD's fused kernel, with the same threads, batch and precision. A round is some steps of one, then as
many of the other, so that both see the same machine. Prints medians, and the smallest and largest ratio of a round.
"""

import argparse
import statistics
import subprocess
import time

import timm
import torch
import torchvision

CASES = [  # network, made by, batch, side, steps in a round
    ("resnet18", torchvision.models.resnet18, 8, 224, 2),
    ("resnet50", torchvision.models.resnet50, 4, 224, 1),
    ("vit_small", lambda: timm.create_model("vit_small_patch16_224"), 8, 224, 1),
]


def steps_of(model, batch, side, precision):
    model = model.train().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True)
    x = torch.randn(batch, 3, side, side).to(memory_format=torch.channels_last)
    y = torch.randint(1000, (batch,))

    def run(count):
        begin = time.perf_counter()
        for _ in range(count):
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return time.perf_counter() - begin

    return run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    print("network, batch, precision: yoke, PyTorch eager (medians), ratio (smallest to largest of a round)")
    for name, make, batch, side, count in CASES:
        for precision in ("fp32", "bf16"):
            environment = {"OMP_NUM_THREADS": str(arguments.threads)}
            ours = subprocess.Popen([arguments.program, "steps", name, str(batch), str(side), precision], env=environment, text=True,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE)

            def yoke(steps):
                print(steps, file=ours.stdin, flush=True)
                return float(ours.stdout.readline())

            eager = steps_of(make(), batch, side, precision)
            yoke(2), eager(2)  # warm up
            rounds = [(yoke(count) / count, eager(count) / count) for _ in range(arguments.rounds)]
            ours.stdin.close()
            ours.wait()
            ratios = [theirs / mine for mine, theirs in rounds]
            mine, theirs = (statistics.median(column) for column in zip(*rounds))
            print(f"{name}, {batch}, {precision}: {1e3 * mine:.0f} ms, {1e3 * theirs:.0f} ms, "
                  f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


if __name__ == "__main__":
    main()
