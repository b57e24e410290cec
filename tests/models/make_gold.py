#!/usr/bin/env python3
"""Makes gold.json: what torchvision's and timm's networks compute, for the tests of yoke/models.

    make_gold.py > gold.json    needs torch, torchvision and timm

The tests in yoke/models fill networks by the same formula (`fill`), so no file of weights is needed.
"""

import json

import timm
import torch
import torch.nn.functional as F
import torchvision
from timm.layers import resample_abs_pos_embed
from timm.models.vision_transformer import VisionTransformer
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.models.vision_transformer import VisionTransformer as TorchvisionViT

PERIOD = 10007


def noise(count, number):
    """`count` values in [-0.5, 0.5) that depend on `number`: a hash of 32 bits, the same in Python and C++, repeated after a prime
    number of them."""
    x = (torch.arange(min(count, PERIOD), dtype=torch.int64) * 2654435761 + number * 40503 + 1) & 0xFFFFFFFF
    x = x ^ (x >> 16)
    x = (x * 2246822519) & 0xFFFFFFFF
    x = x ^ (x >> 13)
    values = (x & 0xFFFF).double() / 65536 - 0.5
    return values.repeat(-(-count // PERIOD))[:count]


def fill(model):
    """Gives each tensor of the model, in the order of its state_dict, values of a sensible size."""
    with torch.no_grad():
        for number, (name, tensor) in enumerate(model.state_dict().items()):
            if not tensor.is_floating_point():
                continue
            values = noise(tensor.numel(), number)
            if tensor.dim() in (2, 4):
                values *= (24 / (tensor.numel() / tensor.shape[0])) ** 0.5
            elif name.endswith("running_var"):
                values += 1
            elif tensor.dim() == 1 and name.endswith("weight"):
                values = 0.5 + 0.2 * values
            elif tensor.dim() == 1:
                values *= 0.2
            tensor.copy_(values.view_as(tensor).float())
    return model


def images(batch, side):
    return (2 * noise(batch * 3 * side * side, 1000)).view(batch, 3, side, side).float()


def numbers(tensor):
    return [float(f"{value:.7g}") for value in tensor.detach().double().flatten().tolist()]


def evaluated(model, side):
    with torch.no_grad():
        return numbers(fill(model).eval()(images(2, side))[:, :8])


def trained(model, side, names):
    """The loss of one step, the norms of some gradients, and for batch norm a mean that the step has moved."""
    loss = F.cross_entropy(fill(model).train()(images(4, side)), torch.arange(4))
    loss.backward()
    parameters = dict(model.named_parameters())
    gold = {"loss": loss.item(), "gradients": {name: parameters[name].grad.norm().item() for name in names}}
    if "bn1.running_mean" in model.state_dict():
        gold["running_mean"] = numbers(model.state_dict()["bn1.running_mean"][:4])
    return gold


def small_resnet():
    model = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10)
    model.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)  # the usual stem for CIFAR
    model.maxpool = torch.nn.Identity()
    return model


def small_vit():
    return VisionTransformer(img_size=32, patch_size=8, embed_dim=48, depth=2, num_heads=3, num_classes=10)


def first_weights():
    torch.manual_seed(3)
    state = torchvision.models.resnet18(num_classes=10).state_dict()
    names = ["conv1.weight", "layer2.0.downsample.0.weight", "layer4.1.conv2.weight", "fc.weight", "fc.bias"]
    return {name: numbers(state[name].flatten()[:4]) for name in names}


def main():
    torch.set_num_threads(1)
    other = TorchvisionViT(image_size=32, patch_size=8, num_layers=2, num_heads=3, hidden_dim=48, mlp_dim=192, num_classes=10)
    gold = {
        "versions": {"torch": torch.__version__, "torchvision": torchvision.__version__, "timm": timm.__version__},
        "resnet18": evaluated(torchvision.models.resnet18(), 64),
        "resnet50": evaluated(torchvision.models.resnet50(), 64),
        "vit_small": evaluated(timm.create_model("vit_small_patch16_224"), 224),
        "small_resnet": trained(small_resnet(), 32, ["conv1.weight", "layer2.0.downsample.0.weight", "layer4.0.bn2.weight", "fc.bias"]),
        "small_vit": trained(small_vit(), 32, ["cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.0.attn.qkv.weight",
                                               "blocks.1.mlp.fc2.bias", "norm.weight", "head.weight"]),
        "first_weights": first_weights(),
        "torchvision_vit": list(other.state_dict()),
        "timm_vit": list(small_vit().state_dict()),
        "torchvision_vit_output": evaluated(other, 32),  # filled in torchvision's order
        "positions": numbers(resample_abs_pos_embed(noise(17 * 3, 5).view(1, 17, 3).float(), [6, 6], [4, 4])),
    }
    print("{" + ",\n ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in gold.items()) + "}")


if __name__ == "__main__":
    main()
