"""A rank of the test `launcher`: does what MODE says. Modes with a * need torch.

    launcher_rank.py FOLDER MODE [ARGUMENT...]

    touch        makes the file FOLDER/RANK
    info         writes its environment to FOLDER/RANK-ATTEMPT.json, and prints a line
    fail         raises an exception in each rank
    fail-odd     raises an exception in odd ranks; the others wait until they are told to end
    kill-once    rank 1 of the first attempt kills itself
    deaf         ignores SIGTERM, prints "up", and waits until it is killed
    asleep       rank 1 waits in uninterruptible sleep; with an argument rank 0 wakes it when it has seen this
    last         ranks end one after the other, rank 0 first; the last one waits for SECONDS
    explain*     as fail-odd, with torch's record()
    sum*         an all-reduce over Gloo; SECONDS before it, and the init method
    again*       leaves the default group and makes another one, six times
    first-leaves*  rank 0 ends; the others then make a group of their own
    rpc*         rank 0 calls rank 1
    launched*    writes is_torchelastic_launched() to FOLDER/RANK
"""
import json
import os
import pathlib
import signal
import sys
import time

folder, mode, *arguments = sys.argv[1:]
folder = pathlib.Path(folder)
rank, size, attempt = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["TORCHELASTIC_RESTART_COUNT"]


def note(name, text):
    (folder / f".{name}").write_text(text)
    (folder / f".{name}").rename(folder / name)  # whole or not at all


def wait_for(*names):
    while not all((folder / name).exists() for name in names):
        time.sleep(0.005)


def fail_odd():
    note(f"{attempt}-{rank}", "")
    wait_for(*(f"{attempt}-{other}" for other in range(size)))
    if rank % 2 == 1:
        raise RuntimeError(f"rank {rank} is odd")
    time.sleep(60)  # the launcher ends this rank; if it does not, the test sees the status 0


def summed(tensor):
    import torch.distributed as dist
    dist.all_reduce(tensor)
    return int(tensor.item())


if mode == "touch":
    note(str(rank), "")
elif mode == "info":
    note(f"{rank}-{attempt}.json", json.dumps(dict(os.environ)))
    print(f"rank {rank} prints", flush=True)
elif mode == "fail":
    raise RuntimeError("as asked for")
elif mode == "fail-odd":
    fail_odd()
elif mode == "kill-once":
    if rank == 1 and attempt == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    note(f"{rank}-{attempt}", "")
elif mode == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("up", flush=True)
    signal.pause()
elif mode == "asleep":
    # The kernel suspends the parent of a vfork uninterruptibly until the child runs its program. This child waits for a
    # writer of the FIFO before it does so.
    fifo, ready = folder / f"fifo-{attempt}", f"pid-{attempt}"
    if rank == 1:
        os.mkfifo(fifo)
        note(ready, str(os.getpid()))
        os.posix_spawn("/bin/true", ["true"], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 0, str(fifo), os.O_RDONLY, 0)])
        note("awake", "")
    else:
        wait_for(ready)
        stat = pathlib.Path("/proc", (folder / ready).read_text(), "stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "D":
            time.sleep(0.005)
        if arguments:
            fifo.open("w").close()
        else:
            time.sleep(60)  # the launcher ends this rank; if it does not, the test sees the status 0
elif mode == "last":
    if rank == size - 1:
        wait_for(*(str(other) for other in range(size - 1)))
        time.sleep(float(arguments[0]))  # clock: nodes that end at different times are what is tested
    note(str(rank), "")
elif mode == "explain":
    from torch.distributed.elastic.multiprocessing.errors import record
    record(fail_odd)()
elif mode == "launched":
    import torch.distributed as dist
    note(str(rank), str(dist.is_torchelastic_launched()))
elif mode == "sum":
    import torch
    import torch.distributed as dist
    init_method = arguments[1] if len(arguments) > 1 else "env://"
    dist.init_process_group("gloo", init_method=init_method, rank=rank, world_size=size)
    note(f"up-{rank}-{attempt}", "")
    time.sleep(float(arguments[0]) if arguments else 0)  # clock: the time in which the test kills a node
    assert summed(torch.tensor(rank)) == sum(range(size))
    dist.destroy_process_group()
    note(f"{rank}-{attempt}", "")
elif mode == "again":
    import torch
    import torch.distributed as dist
    for turn in range(6):
        dist.init_process_group("gloo")
        assert summed(torch.tensor(rank + turn)) == sum(range(size)) + turn * size
        dist.destroy_process_group()
    note(str(rank), "")
elif mode == "first-leaves":
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    summed(torch.tensor(rank))
    if rank == 0:
        note("zero", str(os.getpid()))
        os._exit(0)
    wait_for("zero")
    zero = int((folder / "zero").read_text())
    while os.path.exists(f"/proc/{zero}"):
        time.sleep(0.005)
    others = dist.new_group([1, 2], use_local_synchronization=True)
    tensor = torch.tensor(rank)
    dist.all_reduce(tensor, group=others)
    assert tensor.item() == 3
    note(str(rank), "")
    os._exit(0)  # the default group cannot be left in order without rank 0
elif mode == "rpc":
    import torch.distributed.rpc as rpc
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size)
    if rank == 0:
        note("answer", rpc.rpc_sync("worker1", str.upper, args=("hello",)))
    rpc.shutdown()
else:
    sys.exit(f"no mode {mode}")
