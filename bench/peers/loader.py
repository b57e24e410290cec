"""Peer of the loader bench: samples per second of torch.utils.data.DataLoader over Fashion-MNIST, shuffled.

    python loader.py [--workers 2] [--batch 256] [--variant torchvision|tensors|batched]...

Three ways to write it, one JSON object: `torchvision` as torchvision.datasets.FashionMNIST does it (PIL image,
ToTensor, Normalize), `tensors` a TensorDataset of normalised images, `batched` one gather per batch, which few users
write. Each is measured over a first epoch, which starts the workers, and a second one with the same workers.
"""
import argparse
import json
import time

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, TensorDataset

import fashion_mnist_idx
from fashion_mnist_idx import MEAN, STD


class TorchvisionStyle(Dataset):
    def __init__(self, images, labels):
        from PIL import Image
        from torchvision import transforms
        self.images, self.labels, self.from_array = images, labels, Image.fromarray
        self.transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((MEAN,), (STD,))])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(self.from_array(self.images[i])), int(self.labels[i])


class Batched(Dataset):
    """Indexed by a whole batch: gathers the bytes and normalises them at once."""

    def __init__(self, images, labels):
        self.images, self.labels = torch.tensor(images).unsqueeze(1), torch.tensor(labels).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, indices):
        x = self.images[indices].float().sub_(255 * MEAN).div_(255 * STD)
        return x, self.labels[indices]


def loader(variant, images, labels, batch, workers):
    options = dict(num_workers=workers, persistent_workers=workers > 0)
    if variant == "torchvision":
        return DataLoader(TorchvisionStyle(images, labels), batch_size=batch, shuffle=True, **options)
    if variant == "tensors":
        x = (torch.tensor(images).unsqueeze(1).float() / 255 - MEAN) / STD
        return DataLoader(TensorDataset(x, torch.tensor(labels).long()), batch_size=batch, shuffle=True, **options)
    data = Batched(images, labels)
    batches = BatchSampler(RandomSampler(data), batch, drop_last=False)
    return DataLoader(data, batch_size=None, sampler=batches, **options)


def samples_per_second(batches):
    start, samples = time.perf_counter(), 0
    for x, y in batches:
        samples += len(y)
    return round(samples / (time.perf_counter() - start))


def main():
    variants = ("torchvision", "tensors", "batched")
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--variant", choices=variants, action="append", help="default: all of them")
    args = parser.parse_args()
    images, labels = fashion_mnist_idx.read("train")
    result = {"workers": args.workers, "batch": args.batch, "unit": "samples/s"}
    for variant in args.variant or variants:
        batches = loader(variant, images, labels, args.batch, args.workers)
        result[variant] = {"first_epoch": samples_per_second(batches), "second_epoch": samples_per_second(batches)}
    print(json.dumps(result))


main()
