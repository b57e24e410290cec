"""Record 200 steps of torch.amp.GradScaler on the CPU, to compare yoke's GradScaler with it.

    python record_grad_scaler.py > grad_scaler.json

No random numbers: optimizer k has one parameter of 5 elements, element i starting at sin(i + k), and in step t (from 0)
the loss is the sum of the parameter times 4 cos(i t + k + 1), computed in double and rounded to float32. In the steps of
"inf" and "nan" that factor of element 2 is replaced, for the first optimizer only. In the case "grows" the scale also
grows until 4 cos() times it leaves float32's range. Floats are their bits, in hexadecimal.
"""
import json
import math
import struct

import torch

SIZE, STEPS = 5, 200
INF, NAN = [17, 18, 100], [60, 150]
GROWS = dict(init_scale=2.0**118, growth_interval=5)
ODD = dict(init_scale=1000.0, growth_factor=1.7, backoff_factor=0.3, growth_interval=3)

CASES = [
    dict(name="defaults", scaler={}, optimizers=["sgd_fused"]),
    dict(name="grows", scaler=GROWS, optimizers=["sgd_fused"]),
    dict(name="odd factors", scaler=ODD, optimizers=["adamw_fused"]),
    dict(name="unscaled first", scaler=ODD, optimizers=["adamw_fused"], unscale=True),
    dict(name="torch's optimizer", scaler=ODD, optimizers=["sgd_plain"]),
    dict(name="torch's optimizer grows", scaler=GROWS, optimizers=["sgd_plain"], unscale=True),
    dict(name="two optimizers", scaler=GROWS, optimizers=["sgd_fused", "sgd_plain"]),
]

OPTIMIZERS = {
    "sgd_fused": lambda p: torch.optim.SGD([p], lr=0.01, momentum=0.9, fused=True),
    "adamw_fused": lambda p: torch.optim.AdamW([p], lr=0.01, weight_decay=0.05, fused=True),
    "sgd_plain": lambda p: torch.optim.SGD([p], lr=0.01, foreach=False),
}


def bits(value):
    return struct.pack(">f", value).hex()


def factors(t, k):
    values = [4 * math.cos(i * t + k + 1) for i in range(SIZE)]
    if k == 0 and t in INF:
        values[2] = math.inf
    if k == 0 and t in NAN:
        values[2] = math.nan
    return torch.tensor(values)


def record(case):
    scaler = torch.amp.GradScaler("cpu", **case["scaler"])
    parameters = [torch.tensor([math.sin(i + k) for i in range(SIZE)], requires_grad=True)
                  for k in range(len(case["optimizers"]))]
    optimizers = [OPTIMIZERS[kind](p) for kind, p in zip(case["optimizers"], parameters)]
    scales, trackers, values = [], [], []
    for t in range(STEPS):
        for k, (p, optimizer) in enumerate(zip(parameters, optimizers)):
            p.grad = None
            scaler.scale((p * factors(t, k)).sum()).backward()
            if case.get("unscale"):
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
        scaler.update()
        scales.append(bits(scaler.get_scale()))
        trackers.append(scaler._get_growth_tracker())
        values.append("".join(bits(v) for p in parameters for v in p.tolist()))
    return {**case, "scales": scales, "trackers": trackers, "parameters": values}


torch.set_num_threads(1)
print('{"torch": "%s", "cpu_capability": "%s", "size": %d, "steps": %d, "inf": %s, "nan": %s, "cases": [' %
      (torch.__version__, torch.backends.cpu.get_cpu_capability(), SIZE, STEPS, INF, NAN))
print(",\n".join(json.dumps(record(case), separators=(",", ":")) for case in CASES))
print("]}")
