#!/usr/bin/env python3
"""Trains a small model on random data with the batch size of BATCH_SIZE, until it is ended.

    tune_model.py [--rounds N --seconds S] mlp|cnn|attention|wide [SIZE...]

With sizes, it measures each of them in rounds, and prints lines of a size and its samples/s.
"""
import argparse
import os
import time

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        self.layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, tokens):
        return self.head(self.layer(self.embedding(tokens)).mean(1))


class Wide(nn.Module):
    """Large activations, little work, and 50 ms that do not depend on the batch: a larger batch is always faster."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4096, 10)

    def forward(self, data):
        time.sleep(0.05)
        return self.head(data.repeat(1, 64).relu())


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)), lambda size: torch.randn(size, 256)),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 10)
        ),
        lambda size: torch.randn(size, 1, 16, 16),
    ),
    "attention": (Attention, lambda size: torch.randint(100, (size, 16))),
    "wide": (Wide, lambda size: torch.randn(size, 64)),
}


class Training:
    def __init__(self, name):
        torch.manual_seed(0)
        make_model, self.make_data = MODELS[name]
        self.model = make_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self, size):
        data, target = self.make_data(size), torch.randint(10, (size,))
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(data), target).backward()
        self.optimizer.step()

    def rate(self, size, seconds):
        self.step(size)
        begin, steps = time.perf_counter(), 0
        while time.perf_counter() < begin + seconds or steps < 2:
            self.step(size)
            steps += 1
        return steps * size / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("sizes", nargs="*", type=int)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    training = Training(args.model)
    for _ in range(args.rounds):
        for size in args.sizes:
            print(size, training.rate(size, args.seconds), flush=True)
    while not args.sizes:
        training.step(int(os.environ.get("BATCH_SIZE", 32)))


if __name__ == "__main__":
    main()
