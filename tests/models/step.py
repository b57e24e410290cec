#!/usr/bin/env python3
"""Times a training step of yoke/models beside the same network in PyTorch, eager and compiled, in turn.

    step.py PROGRAM [--rounds 9] [--threads 2] [--only NETWORK...] [--compile]

PROGRAM is build/release/bin/yoke_models_peer; the Python needs torch, torchvision, timm and transformers, and --compile a
C++ compiler and Python's headers. All train with the same threads, batch and precision and with PyTorch's fused optimizers,
images in channels_last. A round is some steps of each in turn, so that all see the same machine. Prints medians, and the
median, smallest and largest ratio of a round.
"""

import argparse
import statistics
import subprocess
import time

import timm
import torch
import torchvision
import transformers

F = torch.nn.functional


def cifar_resnet18():
    net = torchvision.models.resnet18(num_classes=10)
    net.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    net.maxpool = torch.nn.Identity()
    return net


def gpt(**sizes):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **sizes))


def minilm():
    return transformers.BertModel(transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, hidden_dropout_prob=0,
        attention_probs_dropout_prob=0), add_pooling_layer=False)


def image_case(classes):
    def parts(model, batch, side):
        model = model.to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True)
        x = torch.randn(batch, 3, side, side).to(memory_format=torch.channels_last)
        y = torch.randint(classes, (batch,))
        return optimizer, lambda net: F.cross_entropy(net(x), y), model

    return parts


def text_case(model, batch, length):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(model.config.vocab_size, (batch, length + 1))
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()
    return optimizer, lambda net: F.cross_entropy(net(x, use_cache=False).logits.flatten(0, 1), y), model


def pair_case(model, batch, length):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    x = torch.randint(model.config.vocab_size, (2 * batch, length))
    y = torch.arange(batch)
    mask = torch.ones_like(x)

    def loss(net):
        weights = mask[:, :, None].to(torch.float32)
        vectors = (net(x, attention_mask=mask).last_hidden_state * weights).sum(1) / weights.sum(1)
        first, second = F.normalize(vectors).chunk(2)
        return F.cross_entropy((first @ second.T).float() / 0.05, y)

    return optimizer, loss, model


# network, made by, its loss, batch, size (side of an image, or tokens), steps in a round
CASES = [
    ("smallest_vit", lambda: timm.models.VisionTransformer(img_size=32, patch_size=8, embed_dim=64, depth=2, num_heads=4, num_classes=4),
     image_case(4), 64, 32, 50),
    ("gpt_page", lambda: gpt(vocab_size=256, n_positions=128, n_embd=128, n_layer=3, n_head=4), text_case, 8, 128, 20),
    ("cifar_resnet18", cifar_resnet18, image_case(10), 32, 32, 2),
    ("minilm", minilm, pair_case, 8, 64, 2),
    ("gpt2", gpt, text_case, 1, 128, 1),
    ("resnet18", torchvision.models.resnet18, image_case(1000), 8, 224, 2),
    ("resnet50", torchvision.models.resnet50, image_case(1000), 4, 224, 1),
    ("vit_small", lambda: timm.create_model("vit_small_patch16_224"), image_case(1000), 8, 224, 1),
]


def steps_of(parts, compiled, precision):
    optimizer, loss_of, model = parts
    net = torch.compile(model) if compiled else model

    def run(count):
        begin = time.perf_counter()
        for _ in range(count):
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                loss = loss_of(net)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return time.perf_counter() - begin

    return run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=[case[0] for case in CASES])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    for name, make, parts, batch, size, count in CASES:
        for precision in arguments.precisions if name in arguments.only else ():
            ours = subprocess.Popen([arguments.program, "steps", name, str(batch), str(size), precision],
                                    env={"OMP_NUM_THREADS": str(arguments.threads)}, text=True,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE)

            def yoke(steps):
                print(steps, file=ours.stdin, flush=True)
                return float(ours.stdout.readline())

            ways = {"yoke": yoke, "eager": steps_of(parts(make().train(), batch, size), False, precision)}
            if arguments.compile:
                ways["compile"] = steps_of(parts(make().train(), batch, size), True, precision)
            for way in ways.values():
                way(2)  # warm up
            rounds = [{way: step(count) / count for way, step in ways.items()} for _ in range(arguments.rounds)]
            ours.stdin.close()
            ours.wait()
            line = f"{name}, batch {batch}, {precision}:"
            for way in ways:
                ratios = [row[way] / row["yoke"] for row in rounds]
                line += f" {way} {1e3 * statistics.median(row[way] for row in rounds):.1f} ms"
                if way != "yoke":
                    line += f" ({statistics.median(ratios):.2f} times, {min(ratios):.2f} to {max(ratios):.2f})"
            print(line, flush=True)


if __name__ == "__main__":
    main()
