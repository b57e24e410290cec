"""Record torch.optim (fused; NAdam and RMSprop have no such kernel, and are foreach), torch.optim.lr_scheduler, clipping and AveragedModel, to compare yoke's with.

    python record_optimizers.py FOLDER      # writes optimizers.json, schedules.json and optimizer_*.safetensors

No random numbers. The network is 8-16-4 with tanh; element k of its parameters (counted through all of them) starts at
sin(k) / 2, of the input at cos(k), all computed in double and rounded; sample i is of class i % 4. "first" and "last"
are the sum and the first values of each tensor after step 1 and after the last, as hexadecimal floats.

The safetensors files hold an optimizer's state_dict after HALF steps: tensors "state.INDEX.NAME" and "parameter.NAME",
metadata "param_groups" as JSON. optimizers.json has the end of that training.
"""
import json
import math
import pathlib
import struct
import sys

import torch
from torch.optim import lr_scheduler as lrs
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

STEPS, HALF = 50, 20
FOREACH = ("NAdam", "RMSprop")


def hexes(values):
    return [float(v).hex() for v in values]


def digest(tensors):
    """Returns by name the sum in double, then the first three values."""
    return {name: hexes([t.detach().double().sum(), *t.detach().flatten()[:3]]) for name, t in tensors.items()}


class Network(torch.nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
        self.to(dtype)
        k = 0
        with torch.no_grad():
            for p in self.parameters():
                values = [math.sin(k + i) / 2 for i in range(p.numel())]
                p.copy_(torch.tensor(values, dtype=torch.float64).view(p.shape))
                k += p.numel()

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


def batch(dtype):
    x = torch.tensor([math.cos(k) for k in range(32 * 8)], dtype=torch.float64).view(32, 8).to(dtype)
    return x, torch.arange(32) % 4


def make(kind, network, options, groups=None):
    named = dict(network.named_parameters())
    if groups:
        named = [{"params": [(n, named[n]) for n in g["names"]], **{k: v for k, v in g.items() if k != "names"}}
                 for g in groups]
    else:
        named = list(named.items())
    implementation = {"foreach": True} if kind in FOREACH else {"fused": True}
    return getattr(torch.optim, kind)(named, **implementation, **options)


def train(network, optimizer, first, last, scale=None, found=(), before_step=None, after_step=None,
          dtype=torch.float32):
    x, y = batch(dtype)
    losses = []
    for step in range(first, last):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(x), y)
        losses.append(loss.item())
        (loss * scale if scale else loss).backward()
        if scale and type(optimizer).__name__ in FOREACH:  # GradScaler does this before these optimizers
            for p in network.parameters():
                p.grad.div_(scale)
        elif scale:
            optimizer.grad_scale = torch.tensor(scale)
            optimizer.found_inf = torch.tensor(1.0 if step in found else 0.0)
        if before_step:
            before_step(step)
        if not (type(optimizer).__name__ in FOREACH and step in found):
            optimizer.step()
        if after_step:
            after_step(step)
    return losses


def state_of(network, optimizer):
    return {f"{key}.{name}": t for name, p in network.named_parameters() for key, t in optimizer.state[p].items()}


def case(kind, options, groups=None, dtype=torch.float32, clip=None, clip_value=None, ema=None, **training):
    network = Network(dtype)
    optimizer = make(kind, network, options, groups)
    entry = {"optimizer": kind, "options": options, "dtype": str(dtype)[6:]}
    if groups:
        entry["groups"] = groups
    if training:
        entry.update({k: list(v) if k == "found" else v for k, v in training.items()})
    norms, first = [], {}

    def before_step(step):
        if clip:
            norm = torch.nn.utils.clip_grad_norm_(network.parameters(), clip["max_norm"], float(clip["norm_type"]))
            norms.append(norm.item().hex())
        if clip_value:
            torch.nn.utils.clip_grad_value_(network.parameters(), clip_value)

    averaged = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(ema)) if ema else None

    def after_step(step):
        if averaged:
            averaged.update_parameters(network)
        if step == 0:
            first.update(digest(dict(network.named_parameters())))

    losses = train(network, optimizer, 0, STEPS, before_step=before_step, after_step=after_step, dtype=dtype,
                   **training)
    entry.update(losses=hexes([losses[0], losses[-1]]), first=first, last=digest(dict(network.named_parameters())),
                 state=digest(state_of(network, optimizer)))
    if clip:
        entry.update(clip=clip, norms=norms[:5])
    if clip_value:
        entry["clip_value"] = clip_value
    if ema:
        entry.update(ema=ema, averages=digest(dict(averaged.module.named_parameters())))
    return entry


GROUPS = [{"names": ["fc1.weight", "fc2.weight"], "weight_decay": 0.1},
          {"names": ["fc1.bias", "fc2.bias"], "weight_decay": 0.0, "lr": 0.05}]
SCALED = dict(scale=1024.0, found=(3, 10, 11))


def optimizer_cases():
    for kind, lr in (("Adam", 0.01), ("AdamW", 0.01), ("SGD", 0.1), ("Adagrad", 0.05), ("NAdam", 0.01),
                     ("RMSprop", 0.01)):
        o = dict(lr=lr)
        yield case(kind, o)
        yield case(kind, {**o, "weight_decay": 0.1})
        yield case(kind, {**o, "weight_decay": 0.1, "maximize": True})
        yield case(kind, o, GROUPS)
        yield case(kind, o, dtype=torch.float64)
        yield case(kind, o, **SCALED)
    for kind in ("Adam", "AdamW"):
        yield case(kind, dict(lr=0.01, amsgrad=True, betas=(0.8, 0.9)))
        yield case(kind, dict(lr=0.01, amsgrad=True, eps=1e-3, weight_decay=0.1), GROUPS, **SCALED)
    yield case("SGD", dict(lr=0.1, momentum=0.9))
    yield case("SGD", dict(lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.01))
    yield case("SGD", dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01))
    yield case("SGD", dict(lr=0.1, momentum=0.9, nesterov=True), **SCALED)
    yield case("Adagrad", dict(lr=0.05, lr_decay=0.1, initial_accumulator_value=0.1, eps=1e-6))
    yield case("NAdam", dict(lr=0.01, betas=(0.8, 0.9), eps=1e-3, momentum_decay=0.1))
    yield case("NAdam", dict(lr=0.01, weight_decay=0.1, decoupled_weight_decay=True), GROUPS, **SCALED)
    yield case("RMSprop", dict(lr=0.01, alpha=0.9, eps=1e-3, momentum=0.9))
    yield case("RMSprop", dict(lr=0.01, centered=True))
    yield case("RMSprop", dict(lr=0.01, centered=True, momentum=0.9, weight_decay=0.01, maximize=True))
    yield case("RMSprop", dict(lr=0.01, centered=True, momentum=0.9), GROUPS, **SCALED)
    for norm_type in ("2.0", "1.0", "3.0", "inf"):
        yield case("SGD", dict(lr=0.5, momentum=0.9), clip=dict(max_norm=0.1, norm_type=norm_type))
    yield case("SGD", dict(lr=0.5), clip_value=0.01)
    yield case("AdamW", dict(lr=0.01), ema=0.9)


def write_safetensors(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, t in tensors.items():
        raw = struct.pack(f"<{t.numel()}f", *t.detach().flatten().tolist())
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def exchange(folder, kind, options, groups=None):
    network = Network()
    optimizer = make(kind, network, options, groups)
    train(network, optimizer, 0, HALF)
    state = optimizer.state_dict()
    tensors = {f"state.{i}.{key}": t for i, s in state["state"].items() for key, t in s.items()}
    tensors.update({f"parameter.{n}": p for n, p in network.named_parameters()})
    write_safetensors(folder / f"optimizer_{kind.lower()}.safetensors", tensors,
                      {"param_groups": json.dumps(state["param_groups"])})
    train(network, optimizer, HALF, STEPS)
    return {"optimizer": kind, "last": digest(dict(network.named_parameters()))}


def rates(build, num_steps=STEPS, lr=0.5):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    scheduler, recorded = build(optimizer), []
    for _ in range(num_steps):
        recorded.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return recorded


def schedules():
    """Returns the schedules by name, the same as in schedule_test.cpp; base rate 0.5."""
    return {
        "constant": rates(lambda o: lrs.ConstantLR(o, factor=0.25, total_iters=10)),
        "linear up": rates(lambda o: lrs.LinearLR(o, start_factor=0.01, total_iters=20)),
        "linear down": rates(lambda o: lrs.LinearLR(o, start_factor=1.0, end_factor=0.1, total_iters=40)),
        "polynomial": rates(lambda o: lrs.PolynomialLR(o, total_iters=40, power=2.0)),
        "polynomial 1": rates(lambda o: lrs.PolynomialLR(o, total_iters=45)),
        "exponential": rates(lambda o: lrs.ExponentialLR(o, gamma=0.9)),
        "step": rates(lambda o: lrs.StepLR(o, step_size=7, gamma=0.3)),
        "multi step": rates(lambda o: lrs.MultiStepLR(o, milestones=[5, 20, 20, 33], gamma=0.2)),
        "cosine": rates(lambda o: lrs.CosineAnnealingLR(o, T_max=50, eta_min=0.01)),
        "cosine and on": rates(lambda o: lrs.CosineAnnealingLR(o, T_max=20)),
        "warm restarts": rates(lambda o: lrs.CosineAnnealingWarmRestarts(o, T_0=10)),
        "warm restarts, growing": rates(lambda o: lrs.CosineAnnealingWarmRestarts(o, T_0=5, T_mult=2, eta_min=0.02)),
        "one cycle": rates(lambda o: lrs.OneCycleLR(o, max_lr=0.5, total_steps=51), num_steps=50),
        "sequence": rates(lambda o: lrs.SequentialLR(
            o, [lrs.LinearLR(o, start_factor=0.1, total_iters=10), lrs.CosineAnnealingLR(o, T_max=30),
                lrs.ConstantLR(o, factor=0.125, total_iters=1000)], milestones=[10, 40])),
        "product": rates(lambda o: lrs.ChainedScheduler(
            [lrs.ConstantLR(o, factor=0.1, total_iters=20), lrs.ExponentialLR(o, gamma=0.9)])),
    }


def plateau(**options):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    scheduler, recorded = lrs.ReduceLROnPlateau(optimizer, **options), []
    for i in range(STEPS):
        scheduler.step(1 / (i + 1) if i < 10 else 0.1 + 0.01 * math.sin(i))
        recorded.append(optimizer.param_groups[0]["lr"])
    return {"options": options, "lr": recorded}


def dump(path, value):
    lines = [f'"torch": {json.dumps(torch.__version__)}, "steps": {STEPS}, "half": {HALF}']
    for key, content in value.items():
        items = [json.dumps(v, separators=(",", ":")) for v in content] if isinstance(content, list) else \
            [json.dumps(k) + ":" + json.dumps(v, separators=(",", ":")) for k, v in content.items()]
        left, right = "[]" if isinstance(content, list) else "{}"
        lines.append(f'{json.dumps(key)}: {left}\n' + ",\n".join(items) + right)
    path.write_text("{" + ",\n".join(lines) + "}\n")


def main():
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1])
    dump(folder / "optimizers.json", {
        "cases": list(optimizer_cases()),
        "exchange": [
            exchange(folder, "AdamW", dict(lr=0.01, amsgrad=True), GROUPS),
            exchange(folder, "SGD", dict(lr=0.1, momentum=0.9, nesterov=True)),
            exchange(folder, "Adagrad", dict(lr=0.05, lr_decay=0.01)),
            exchange(folder, "NAdam", dict(lr=0.01, momentum_decay=0.1, decoupled_weight_decay=True), GROUPS),
            exchange(folder, "RMSprop", dict(lr=0.01, momentum=0.9, centered=True)),
        ]})
    dump(folder / "schedules.json", {
        "schedules": schedules(),
        "plateau": [
            plateau(patience=3), plateau(mode="max", factor=0.5, patience=2, cooldown=4),
            plateau(patience=2, threshold=0.01, threshold_mode="abs", min_lr=0.01, factor=0.3),
            plateau(mode="max", patience=1, threshold=0.02, threshold_mode="abs", factor=0.5, eps=0.05),
        ]})


main()
