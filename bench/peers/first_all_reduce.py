"""Peer of the launch bench: the time from command to exit with one all-reduce of two ranks.

    torchrun --nproc-per-node 2 first_all_reduce.py
"""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
assert one.item() == dist.get_world_size()
dist.destroy_process_group()
