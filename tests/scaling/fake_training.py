"""A program for tests of `yoke plan`: writes step times and a trace as a training does, on a clock of its own.

Each option is NAME=VALUE: `runs=FILE` counts its runs; from the second one on, a step takes `second_run` (1.2) times its 10 ms.
`ranks=N`: it says that it is one of N ranks. `devices=FILE`: it uses a GPU, and adds a line with those that it sees. `fails`: it
prints a line and ends with status 3. `never_steps`: it ends without a step. `copy=ends`, `copy=hangs`: a copy whose output
nobody reads ends, or makes no step. `uneven`: it steps in real time, with an optimizer that yoke observes (fake_torch): 10 and
30 ms in turn, and a second copy the other way round.
"""

import json
import os
import socket
import stat
import sys
import time

arguments = dict(word.partition("=")[::2] for word in sys.argv[1:])
STEP_MS = 10


def number_of_run():
    with open(arguments["runs"], "a") as file:
        file.write("run\n")
        return file.tell() // len("run\n")


def step_ms():
    if "runs" not in arguments or number_of_run() == 1:
        return STEP_MS
    return float(arguments.get("second_run", 1.2)) * STEP_MS


def step_unevenly():
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "fake_torch"))
    from torch.optim.optimizer import Optimizer

    optimizer = Optimizer()
    for step in range(number_of_run(), 5000):
        time.sleep(0.01 if step % 2 else 0.03)  # clock: the work of a step
        optimizer.step()


def write_step_times(folder):
    ranks = int(arguments.get("ranks", 1))
    milliseconds = step_ms()
    memory = {}
    if "devices" in arguments:
        memory = {"device_peak_bytes": 1 << 20, "device_limit_bytes": 1 << 30}
        with open(arguments["devices"], "a") as file:
            file.write(os.environ.get("CUDA_VISIBLE_DEVICES", "all") + "\n")
    with open(os.path.join(folder, f"rank-0.{os.getpid()}.jsonl"), "w") as file:
        print(json.dumps({"rank": 0, "world_size": ranks, "local_world_size": ranks, "pid": os.getpid()}), file=file)
        for step in range(2000):
            print(json.dumps({"step": step, "seconds": 1000 + step * milliseconds / 1000, **memory}), file=file)


def event(category, name, begin_ms, length_ms, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": 1000 * begin_ms, "dur": 1000 * length_ms, "args": args}


def trace(num_steps):
    """Recorded steps take twice as long: 4 ms before backward, 14 ms of backward, 2 ms of the optimizer."""
    events = []
    for step in range(num_steps):
        start = 100 + 20 * step
        events.append(event("user_annotation", f"ProfilerStep#{step}", start, 20))
        events.append(event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", start + 4, 6))
        shape = {"Input Dims": [[1000, 1000]], "Input type": ["float"]}
        events.append(event("cpu_op", "torch::autograd::AccumulateGrad", start + 10, 1, **shape))
        events.append(event("cpu_op", "torch::autograd::AccumulateGrad", start + 17, 1, **shape))
        events.append(event("user_annotation", "Optimizer.step#SGD.step", start + 18, 2))
    return {"traceEvents": events, "distributedInfo": {"rank": 0, "world_size": 1}}


def write_trace(name):
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.connect("\0" + name)
    with open("/proc/self/stat") as file:
        start_ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    hello = {"rank": 0, "world_size": 1, "local_world_size": 1, "pid": os.getpid(), "start_ticks": start_ticks, "attempt": 0,
             "num_steps": 0}
    client.sendall(json.dumps(hello).encode() + b"\n")
    request = json.loads(client.makefile().readline())
    assert request["detail"] == "shapes", request
    path = os.path.join(request["folder"], "rank0.json")
    with open(path, "w") as file:
        json.dump(trace(request["active"]), file)
    client.sendall(json.dumps({"num_steps": request["first"] + request["active"]}).encode() + b"\n")
    client.sendall(json.dumps({"trace": path}).encode() + b"\n")
    time.sleep(60)  # until it is ended


if "fails" in arguments:
    print("the data set is not there")
    sys.exit(3)
is_copy = "copy" in arguments and not stat.S_ISFIFO(os.fstat(1).st_mode)
if "never_steps" in arguments or (is_copy and arguments["copy"] == "ends"):
    sys.exit(0)
if is_copy:
    time.sleep(60)
if "YOKE_STEP_TIMES" in os.environ and "uneven" in arguments:
    step_unevenly()
elif "YOKE_STEP_TIMES" in os.environ:
    write_step_times(os.environ["YOKE_STEP_TIMES"])
    time.sleep(60)
if "trace" in arguments:
    with open(arguments["trace"], "w") as file:
        json.dump(trace(4), file)
elif "YOKE_PROFILE" in os.environ:
    write_trace(os.environ["YOKE_PROFILE"])
