"""Record 20 steps of torch.optim.SGD(fused=True) on the CPU, to compare yoke's fused SGD with it.

    python record_fused_sgd.py > sgd.json

No random numbers: parameter i starts at sin(i) and its gradient at step t (from 0) is cos(i * t + 1), both computed in
double and rounded to float32. 37 elements are two vectors of 16 and a tail. "parameters" are those after the last step,
"after_first" those after the first, which starts the momentum buffer from the gradient (dampening or not).
"""
import json
import math

import torch

SIZE, STEPS, LR = 37, 20, 0.1

OPTIONS = [
    dict(),
    dict(weight_decay=0.05),
    dict(momentum=0.9),
    dict(momentum=0.9, weight_decay=0.05),
    dict(momentum=0.9, dampening=0.5),
    dict(momentum=0.9, dampening=0.5, weight_decay=0.05),
    dict(momentum=0.9, nesterov=True),
    dict(momentum=0.9, nesterov=True, weight_decay=0.05),
    dict(momentum=0.9, weight_decay=0.05, maximize=True),
]


def to_hex(tensor):
    return [value.hex() for value in tensor.tolist()]


def record(options):
    p = torch.tensor([math.sin(i) for i in range(SIZE)], requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=LR, fused=True, **options)
    first = None
    for t in range(STEPS):
        p.grad = torch.tensor([math.cos(i * t + 1) for i in range(SIZE)])
        optimizer.step()
        first = first or to_hex(p.detach())
    return {"options": options, "after_first": first, "parameters": to_hex(p.detach())}


torch.set_num_threads(1)
print('{"torch": "%s", "cpu_capability": "%s", "size": %d, "steps": %d, "lr": %r, "cases": [' %
      (torch.__version__, torch.backends.cpu.get_cpu_capability(), SIZE, STEPS, LR))
print(",\n".join(json.dumps(record(o), separators=(",", ":")) for o in OPTIONS))
print("]}")
