#!/usr/bin/env python3
"""Continues trainings that yoke wrote: loads parameters and optimizer state, takes 5 more steps, and writes both.

Usage: continue_training.py OURS.pt THEIRS.pt

OURS holds {NAME of the class in torch.optim: {"model": {...}, "optimizer": state_dict, "gradients": {...}}}; THEIRS gets
{NAME: {"model": ..., "optimizer": ...}}.
"""

import sys

import torch

torch.set_num_threads(1)
result = {}
for name, given in torch.load(sys.argv[1], weights_only=True).items():
    parameters = {key: torch.nn.Parameter(value.clone()) for key, value in given["model"].items()}
    implementation = {"foreach": True} if name in ("NAdam", "RMSprop") else {"fused": True}
    optimizer = getattr(torch.optim, name)(parameters.items(), lr=1.0, **implementation)
    optimizer.load_state_dict(given["optimizer"])
    for _ in range(5):
        for key, parameter in parameters.items():
            parameter.grad = given["gradients"][key].clone()
        optimizer.step()
    result[name] = {
        "model": {key: parameter.detach() for key, parameter in parameters.items()},
        "optimizer": optimizer.state_dict(),
    }
torch.save(result, sys.argv[2])
