"""Fashion-MNIST as uint8 arrays, from the gzipped IDX files of Debian's package dataset-fashion-mnist."""
import gzip

import numpy as np

DATA = "/usr/share/datasets/fashion-mnist"
MEAN, STD = 0.2860, 0.3530  # mean and standard deviation of the pixels of the training images, scaled to 0..1


def read(split, directory=DATA):
    """The images [n, 28, 28] and labels [n] of "train" or "t10k", read-only."""
    with gzip.open(f"{directory}/{split}-images-idx3-ubyte.gz") as f:
        images = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(f"{directory}/{split}-labels-idx1-ubyte.gz") as f:
        labels = np.frombuffer(f.read(), np.uint8, offset=8)
    return images, labels
