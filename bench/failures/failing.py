"""One rank of a job that goes wrong, in Python: failing.py KIND RANK STEP [TIMEOUT_S]

As tests/culprit/failing_rank.cpp: rank RANK fails in step STEP as KIND says. It prints "failing" right before.
"""

import ctypes
import datetime
import os
import queue
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

NUM_STEPS = 300


def send(number):
    os.kill(os.getpid(), number)
    time.sleep(1000)


def loop():
    while True:
        pass


def use_up_memory():
    with open(os.environ["CGROUP_PROCS"], "w") as procs:
        procs.write(str(os.getpid()))
    blocks = []
    while True:
        blocks.append(b"x" * (1 << 20))


def write_to_full_disk():
    with open("/dev/full", "w") as log:
        log.write("x" * 100_000)


def sleep_in_kernel():
    libc = ctypes.CDLL(None)
    if libc.vfork() == 0:  # the parent waits in state D until its child has ended
        while True:
            libc.pause()


def throw():
    raise ValueError("no more rice")


FAILURES = {
    "throw": throw,
    "import": lambda: __import__("no_such_module"),
    "full_disk": write_to_full_disk,
    "segv": lambda: send(signal.SIGSEGV),
    "abort": os.abort,
    "kill": lambda: send(signal.SIGKILL),
    "_exit3": lambda: os._exit(3),
    "_exit0": lambda: os._exit(0),
    "exit0": lambda: sys.exit(0),
    "oom": use_up_memory,
    "stop": lambda: send(signal.SIGSTOP),
    "loop": loop,
    "deadlock": lambda: queue.Queue().get(),
    "kernel_sleep": sleep_in_kernel,
    "other_call": lambda: dist.all_gather([torch.ones(4) for _ in range(dist.get_world_size())], torch.ones(4)),
    "other_size": lambda: dist.all_reduce(torch.ones(999)),
    "other_dtype": lambda: dist.all_reduce(torch.ones(1000, dtype=torch.long)),
    "alone": lambda: dist.all_gather_object([None] * dist.get_world_size(), "as if it saved"),
    "skip": lambda: None,
}


@record
def main():
    kind, failing, failing_step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    timeout = datetime.timedelta(seconds=float(sys.argv[4]) if len(sys.argv) > 4 else 60)
    dist.init_process_group("gloo", timeout=timeout)
    tensor = torch.ones(1000)
    for step in range(NUM_STEPS):
        time.sleep(0.005 if failing >= 0 else 0.1)  # a failure from outside needs time
        fails = dist.get_rank() == failing and step == failing_step
        if fails:
            print("failing", flush=True)
            FAILURES[kind]()
        if not fails or kind != "skip":
            dist.all_reduce(tensor)
        if step % 7 == 3:
            dist.barrier()
        if step == 20 and dist.get_rank() == 0:
            print("step 20", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
