"""Record 100 steps of PyTorch's DistributedDataParallel, to compare yoke's with.

    torchrun --nproc-per-node 2 record_ddp_trajectory.py [--bucket-cap-mb MB] [--steps N] [--out FILE]

Two Gloo ranks, one thread each, fp32, a small CNN without batch norm or dropout, plain SGD with momentum. The batch
of a rank at a step comes from a generator seeded with 1000 * rank + step: first the images, then the labels. Losses
and sums are hexadecimal floats, parameters the CRC-32 of their little-endian float32 bytes.

Bits depend on the CPU model and on the thread count, so they are equal only on one machine. On others, compare the
losses within a tolerance; the labels are noise, so rounding grows. Other kernels on the machine of the record
(AVX2, SSE4.1) moved the losses by at most 1e-5 in the first 12 steps, 6e-4 in the first 20 and 6e-3 in all 100; the
losses of the two ranks differ by up to 5e-2. `--bucket-cap-mb 0.1` makes several buckets; the sums of two ranks do not
depend on how the gradients are cut.
"""
import argparse
import json
import os
import sys
import zlib

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def cpu_model():
    with open("/proc/cpuinfo") as f:
        fields = dict(map(str.strip, line.split(":", 1)) for line in f if ":" in line)
    return fields.get("model name", "unknown")


def network():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 256), nn.ReLU(), nn.Linear(256, 10))


def batch(rank, step):
    g = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(64, 1, 28, 28, generator=g), torch.randint(10, (64,), generator=g)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bucket-cap-mb", type=float,
                        help="default: PyTorch's own, 25 MB after a first one of 1 MB")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", help="default: standard output")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = network()
    ddp = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=args.bucket_cap_mb)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9, foreach=False, fused=False)

    losses = []
    for step in range(args.steps):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        loss = F.cross_entropy(ddp(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())

    all_losses = [None] * world
    dist.all_gather_object(all_losses, losses)
    if rank == 0:
        parameters = {name: p.detach().numpy().astype("<f4") for name, p in net.named_parameters()}
        record = {
            "torch": torch.__version__,
            "cpu": cpu_model(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "steps": args.steps,
            "world_size": world,
            "bucket_cap_mb": args.bucket_cap_mb,
            "losses_hex": all_losses,
            "parameter_crc32": {n: zlib.crc32(p.tobytes()) for n, p in parameters.items()},
            "parameter_sums_hex": {n: float(p.sum(dtype="f8")).hex() for n, p in parameters.items()},
        }
        text = json.dumps(record, indent=1) + "\n"
        if args.out:
            with open(args.out, "w") as f:
                f.write(text)
        else:
            sys.stdout.write(text)
    dist.barrier()


main()
sys.stdout.flush()
os._exit(0)  # a normal exit may call std::terminate while Gloo's threads run
