"""Record gradients through the collectives of torch.distributed.nn.functional, to compare those of dist::gradient with.

    python record_gradient_collectives.py > gradient_collectives.json

Three Gloo ranks in double precision. The tensor of a rank is [6, 4] with elements sin(0.7 i + 1.3 rank). A loss is the sum of
sin(result * weight), where the weight has the shape of the result and elements sin(0.7 i + 2.1 rank + 1). "contrastive" is
InfoNCE: each normalized row, rolled by one, must find its own row among those of all ranks. The gradients are this rank's.
"""
import json
import os
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as nn
import torch.multiprocessing as multiprocessing

RANKS = 3


def numbers(shape, start):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float64) * 0.7 + start).sin().view(shape)


def loss_of(result, rank):
    return (result * numbers(result.shape, 2.1 * rank + 1)).sin().sum()


def reduce_scatter(own):
    parts = list(own.chunk(RANKS))
    return nn.reduce_scatter(torch.empty_like(parts[0]), parts)


def all_to_all(own):
    parts = list(own.chunk(RANKS))
    return torch.cat(nn.all_to_all([torch.empty_like(part) for part in parts], parts))


def contrastive(own, rank):
    features = own / own.norm(dim=1, keepdim=True)
    everyone = torch.cat(nn.all_gather(features))
    labels = torch.arange(len(own)) + rank * len(own)
    return torch.nn.functional.cross_entropy(features.roll(1, 1) @ everyone.t() / 0.1, labels)


def record(rank, folder):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    losses = {
        "all_reduce": lambda own: loss_of(nn.all_reduce(own), rank),
        "broadcast": lambda own: loss_of(nn.broadcast(own, 1), rank),
        "all_gather": lambda own: loss_of(torch.stack(nn.all_gather(own)), rank),
        "reduce_scatter": lambda own: loss_of(reduce_scatter(own), rank),
        "all_to_all": lambda own: loss_of(all_to_all(own), rank),
        "contrastive": lambda own: contrastive(own, rank),
    }
    cases = {}
    for name, loss_on in losses.items():
        own = numbers((6, 4), 1.3 * rank).requires_grad_()
        loss = loss_on(own)
        loss.backward()
        cases[name] = {"loss": loss.item(), "gradient": own.grad.flatten().tolist()}
    with open(os.path.join(folder, f"{rank}.json"), "w", encoding="utf-8") as file:
        json.dump(cases, file)
    dist.barrier()
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(record, (folder,), nprocs=RANKS)
        ranks = [json.load(open(os.path.join(folder, f"{rank}.json"), encoding="utf-8")) for rank in range(RANKS)]
    print(f'{{"torch": "{torch.__version__}",\n "cases": {{')
    for i, name in enumerate(ranks[0]):
        rows = ",\n    ".join(json.dumps(rank[name]) for rank in ranks)
        print(f'  "{name}": [\n    {rows}]' + ("," if i + 1 < len(ranks[0]) else ""))
    print(" }}")


if __name__ == "__main__":
    sys.exit(main())
