"""Record the learning rates of torch.optim.lr_scheduler.OneCycleLR, to compare yoke's one-cycle schedule with it.

    python record_one_cycle.py > one_cycle.json

`lr[i]` is the rate that step i of `total_steps` trains with. `momentum` likewise, where it is cycled (from
`max_momentum` down to `base_momentum` and back, by PyTorch's defaults 0.95 and 0.85).
"""
import itertools
import json

import torch

MAX_LR = 0.4


def record(total_steps, pct_start, div_factor, final_div_factor, anneal_strategy, cycle_momentum=False):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0, momentum=0.9)
    options = dict(total_steps=total_steps, pct_start=pct_start, div_factor=div_factor,
                   final_div_factor=final_div_factor, anneal_strategy=anneal_strategy, cycle_momentum=cycle_momentum)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, MAX_LR, **options)
    group, lr, momentum = optimizer.param_groups[0], [], []
    for step in range(total_steps):
        lr.append(group["lr"])
        momentum.append(group["momentum"])
        optimizer.step()
        if step + 1 < total_steps:
            scheduler.step()
    return {"max_lr": MAX_LR, **options, "lr": lr, **({"momentum": momentum} if cycle_momentum else {})}


cases = [record(100, *options) for options in
         itertools.product((0.1, 0.25, 0.3, 0.5), (10.0, 25.0), (1e2, 1e4), ("linear", "cos"))]
cases += [record(total, 0.3, 25.0, 1e4, anneal) for total in (10, 33) for anneal in ("linear", "cos")]
cases += [record(100, 0.3, 25.0, 1e4, "cos", cycle_momentum=True)]

print('{"torch": "%s", "cases": [' % torch.__version__)
print(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
print("]}")
