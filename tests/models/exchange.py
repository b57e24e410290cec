#!/usr/bin/env python3
"""Exchanges whole networks between torchvision, timm and yoke/models, by files in both directions.

    exchange.py PROGRAM    PROGRAM: build/release/bin/yoke_models_peer; needs torch, torchvision, timm and safetensors

Each network gets random weights and statistics in Python, and is written as safetensors and by torch.save. PROGRAM must compute
Python's outputs from each file, within rounding, and what it writes must load with strict=True and have the same bits. No part of
ctest, because it needs Python's packages: gold.json has the figures that CI compares.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import timm
import torch
import torchvision
from safetensors.torch import load_file, save_file

NETWORKS = {  # name of the program's: made by, images, prefix that a wrapper leaves
    "resnet18": (torchvision.models.resnet18, 4),
    "resnet50": (torchvision.models.resnet50, 4),
    "vit_small": (lambda: timm.create_model("vit_small_patch16_224"), 2),
    "vit_base": (torchvision.models.vit_b_16, 2),
}
# torchvision's names of yoke's, for what is written by yoke, which has timm's.
OUTSIDE = {"cls_token": "class_token", "pos_embed": "encoder.pos_embedding", "patch_embed.proj": "conv_proj", "norm": "encoder.ln",
           "head": "heads.head"}
INSIDE = {"norm1": "ln_1", "norm2": "ln_2", "attn.qkv.weight": "self_attention.in_proj_weight", "attn.qkv.bias": "self_attention.in_proj_bias",
          "attn.proj": "self_attention.out_proj", "mlp.fc1": "mlp.0", "mlp.fc2": "mlp.3"}


def torchvision_name(name):
    if name.startswith("blocks."):
        _, number, rest = name.split(".", 2)
        for ours, theirs in INSIDE.items():
            if rest.startswith(ours):
                return f"encoder.layers.encoder_layer_{number}.{theirs}{rest[len(ours):]}"
    for ours, theirs in OUTSIDE.items():
        if name == ours or name.startswith(ours + "."):
            return theirs + name[len(ours):]
    return name


def randomize(model, x):
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point() and tensor.dim() == 1:
                tensor.add_(0.1 * torch.rand_like(tensor))
        if hasattr(model, "heads"):
            torch.nn.init.normal_(model.heads.head.weight, std=0.02)  # torchvision begins with zeros
        model.train()(x)  # moves batch norm's statistics
    return model.eval()


def main(program):
    for name, (make, batch) in NETWORKS.items():
        torch.manual_seed(1)
        x = torch.randn(batch, 3, 224, 224)
        model = randomize(make(), x)
        with torch.no_grad():
            expected = model(x)
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            save_file({"x": x}, folder / "x.safetensors")
            save_file(model.state_dict(), folder / "w.safetensors")
            torch.save({"state_dict": {"module." + key: value for key, value in model.state_dict().items()}}, folder / "w.pth")
            for weights in ("w.safetensors", "w.pth"):
                subprocess.run([program, "exchange", name, folder / weights, folder / "x.safetensors", folder / "out"], check=True)
                y = load_file(folder / "out.safetensors")["y"]
                difference = ((y - expected).abs().max() / expected.abs().max()).item()
                same = torch.equal(y, expected)
                print(f"{name} from {weights}: largest difference {difference:.1e} of the largest output{', same bits' if same else ''}")
                assert difference < 1e-5, difference
            for written in ("out.weights.safetensors", "out.weights.pt"):
                back = load_file(folder / written) if written.endswith("safetensors") else torch.load(folder / written, weights_only=True)
                if name == "vit_base":
                    back = {torchvision_name(key): value for key, value in back.items()}
                fresh = make()
                fresh.load_state_dict(back, strict=True)
                for key, value in model.state_dict().items():
                    assert torch.equal(value, fresh.state_dict()[key]), key
            print(f"{name}: both files that it wrote load with strict=True and have the same bits")


if __name__ == "__main__":
    main(sys.argv[1])
