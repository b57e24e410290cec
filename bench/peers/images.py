"""Peer of the images bench: images per second of a folder of JPEG files, to normalised float batches of 224 x 224.

    python images.py FOLDER [--variant pillow|draft|torchvision]... [--workers 0] [--batch 64] [--epochs 3]

`pillow` is Pillow and NumPy in one loop, without a DataLoader: decode, crop and resize in one call, normalise. `draft`
also asks libjpeg for a smaller image by draft(). `torchvision` is ImageFolder and the usual transforms under a
DataLoader. One JSON object, with the median of the epochs after the first.
"""
import argparse
import json
import pathlib
import random
import statistics
import time

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SCALE, SHIFT = (1 / 255 / np.array(STD)).astype(np.float32), (-np.array(MEAN) / np.array(STD)).astype(np.float32)


def torchvision_epochs(folder, training, workers, batch):
    normalise = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    if training:
        steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), *normalise]
    else:
        steps = [transforms.Resize(256), transforms.CenterCrop(224), *normalise]
    data = datasets.ImageFolder(folder, transforms.Compose(steps))
    loader = DataLoader(data, batch, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    return lambda: sum(len(targets) for _, targets in loader)


def pillow_epochs(folder, training, batch, draft):
    paths = sorted(pathlib.Path(folder).glob("*/*.jpg"))

    def sample(path, out):
        image = Image.open(path)
        width, height = image.size
        if training:
            left, top, w, h = crop_of(width, height)
        else:
            side = 224 * min(width, height) / 256
            left, top, w, h = (width - side) / 2, (height - side) / 2, side, side
        shrink = 1
        if draft:
            image.draft("RGB", (int(224 * width / w), int(224 * height / h)))
            shrink = width / image.size[0]
        box = (left / shrink, top / shrink, (left + w) / shrink, (top + h) / shrink)
        image = image.convert("RGB").resize((224, 224), Image.BILINEAR, box=box)
        if training and random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        np.multiply(np.asarray(image), SCALE, out=out)
        out += SHIFT

    def crop_of(width, height):
        top, left, h, w = transforms.RandomResizedCrop.get_params(Plain(height, width), (0.08, 1.0), (3 / 4, 4 / 3))
        return left, top, w, h

    def epoch():
        for first in range(0, len(paths), batch):
            part = paths[first:first + batch]
            out = np.empty((len(part), 224, 224, 3), np.float32)  # channels-last, as Pillow's images
            for i, path in enumerate(part):
                sample(path, out[i])
        return len(paths)

    return epoch


def Plain(height, width):
    return torch.empty(3, height, width, device="meta")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--variant", action="append", choices=("pillow", "draft", "torchvision"))
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    result = {}
    for variant in args.variant or ("pillow", "draft", "torchvision"):
        for training in (False, True):
            if variant == "torchvision":
                epoch = torchvision_epochs(args.folder, training, args.workers, args.batch)
            else:
                epoch = pillow_epochs(args.folder, training, args.batch, variant == "draft")
            rates = []
            for _ in range(args.epochs + 1):
                start = time.perf_counter()
                count = epoch()
                rates.append(count / (time.perf_counter() - start))
            result[f"{variant} {'training' if training else 'evaluation'}"] = statistics.median(rates[1:])
    print(json.dumps(result))


main()
