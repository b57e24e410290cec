"""safe_gpu_program.py COUNT FILE SECONDS: what a program that uses safe_gpu does, with a placeholder that the fake driver shows."""
import json
import os
import sys
import time

import safe_gpu

state = os.environ["YOKE_FAKE_NVML"]


def placeholder(number):
    """Stands for the CUDA context: adds this process to the device in the fake driver's state."""
    index = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[number]
    machine = json.load(open(state))
    device = machine.setdefault("overrides", {}).setdefault(index, {})
    device.setdefault("processes", []).append({"pid": os.getpid(), "memory_mib": 500})
    with open(state + ".part", "w") as file:
        json.dump(machine, file)
    os.rename(state + ".part", state)
    time.sleep(0.05)  # the fake reads its state again a millisecond after it changed


safe_gpu.claim_gpus(int(sys.argv[1]), placeholder_fn=placeholder)
with open(sys.argv[2] + ".part", "w") as record:
    record.write(f"{time.time()} {os.getpid()} {os.environ['CUDA_VISIBLE_DEVICES']}\n")
os.rename(sys.argv[2] + ".part", sys.argv[2])
time.sleep(float(sys.argv[3]))
