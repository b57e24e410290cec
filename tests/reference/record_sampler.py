"""Record the index lists of torch.utils.data.DistributedSampler, which yoke's sampler must equal element for element.

    python record_sampler.py > sampler.json

A case is [n, world_size, shuffle, drop_last, seed, epoch] and "ranks" the list of every rank in order. Without
shuffling, seed and epoch do not matter: those cases are recorded only with 0, 0. "large" holds data sets of real size
as the CRC-32 of each rank's indices, little-endian int64.
"""
import itertools
import json
import zlib

import numpy as np
import torch
from torch.utils.data import DistributedSampler


def ranks(n, world, shuffle, drop_last, seed, epoch):
    lists = []
    for rank in range(world):
        sampler = DistributedSampler(range(n), world, rank, shuffle=shuffle, seed=seed, drop_last=drop_last)
        sampler.set_epoch(epoch)
        lists.append(list(sampler))
    return lists


cases = []
grid = itertools.product((1, 7, 10, 64, 103), (1, 2, 3, 4, 8), (False, True), (False, True))
for n, world, shuffle, drop_last in grid:
    for seed, epoch in itertools.product((0, 42), (0, 1, 5)) if shuffle else [(0, 0)]:
        case = (n, world, shuffle, drop_last, seed, epoch)
        cases.append({"case": list(case), "ranks": ranks(*case)})

large = []
for case in ((60000, 2, True, False, 42, 1), (60000, 7, True, False, 0, 3), (60000, 7, True, True, 0, 3)):
    crc32 = [zlib.crc32(np.array(indices, "<i8").tobytes()) for indices in ranks(*case)]
    large.append({"case": list(case), "crc32": crc32})

print('{"torch": "%s",\n "columns": ["n", "world_size", "shuffle", "drop_last", "seed", "epoch"],\n "cases": [' %
      torch.__version__)
print(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
print('], "large": [')
print(",\n".join(json.dumps(c, separators=(",", ":")) for c in large))
print("]}")
