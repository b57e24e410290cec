"""Peer of first_tensor.cpp: a rank that makes its first tensor, writes its pid to a file RESTART-RANK, and waits.

    torchrun --nproc-per-node 2 first_tensor.py FOLDER
"""
import os
import signal
import sys

import torch

assert torch.ones(3).sum().item() == 3
name = f"{sys.argv[1]}/{os.environ['TORCHELASTIC_RESTART_COUNT']}-{os.environ['RANK']}"
with open(name + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(name + ".new", name)
while True:
    signal.pause()
