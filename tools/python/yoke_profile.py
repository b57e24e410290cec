"""Records the steps that `yoke profile -- CMD` asks for, with torch.profiler.

It speaks the protocol of yoke/contract/profile_protocol.h, and does what yoke/train/watch/profile_agent.cpp does for
programs in C++.
"""

import atexit
import json
import os
import socket
import struct
import threading

import yoke_steps

PATIENCE_S = 2.0  # how long to wait for the request; `yoke profile` answers at once


def start():
    name = os.environ["YOKE_PROFILE"]
    if name != "off":
        yoke_steps.add_observer(_Agent(name).end_step)


def _connect(name):
    """Connects to the `yoke profile` of this user that listens as `name`: "yoke-profiling/UID/PID/RANDOM"."""
    service, uid, pid, _ = name.split("/")
    if service != "yoke-profiling" or int(uid) != os.geteuid():
        return None
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.connect("\0" + name)
        peer = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        if peer[:2] == (int(pid), int(uid)):
            return client
    except OSError:
        pass  # `yoke profile` has ended already
    client.close()
    return None


def _memory_stall_us():
    for path in _pressure_files():
        try:
            with open(path) as file:
                return int(file.readline().rsplit("total=", 1)[1])
        except (OSError, IndexError, ValueError):
            continue
    return 0


def _pressure_files():
    try:
        with open("/proc/self/cgroup") as file:
            line = file.readline().strip()
        if line.startswith("0::/"):
            yield "/sys/fs/cgroup" + line[3:] + "/memory.pressure"
    except OSError:
        pass
    yield "/proc/pressure/memory"


def _num_cpus():
    """The processors that this process may use, divided by the ranks of this host if they share them."""
    own = os.sched_getaffinity(0)
    is_bound = own != os.sched_getaffinity(os.getppid())
    return len(own) if is_bound else max(1, len(own) // _ranks()[2])


def _ranks():
    """The rank, the number of ranks, and how many of them run on this host."""
    import torch.distributed as dist

    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if dist.is_available() and dist.is_initialized():
        rank, world = dist.get_rank(), dist.get_world_size()
    return rank, world, min(world, int(os.environ.get("LOCAL_WORLD_SIZE", world)))


class _Window:
    """Some steps, as ProfileWindow of yoke/train/watch has them."""

    def __init__(self, request, rank, world):
        self.folder, self.first, self.warmup, self.active = (
            request[name] for name in ("folder", "first", "warmup", "active"))
        self.has_shapes = request["detail"] == "shapes"
        if request["detail"] == "annotations":
            raise RuntimeError("--light is for C++ programs on yoke; leave it out for Python")
        self.rank, self.world = rank, world
        self.profiler, self.mark, self.thread = None, None, None
        self.num_recorded = 0

    def begin_step(self, step):
        """Returns the path of the trace after the last step, otherwise None."""
        if self.mark is not None:
            self.num_recorded += 1
            self._require_thread()
            if self.num_recorded >= self.active:
                return self._save()
        if self.profiler is None and step >= self.first - self.warmup:
            self._prepare()
        if self.profiler is not None and step >= self.first:
            self._mark(step)
        return None

    def discard(self):
        if self.profiler is None or self.thread != threading.get_ident():
            return
        if self.mark is None:
            self.profiler.start_trace()
        else:
            self.mark.__exit__(None, None, None)
        self.profiler.stop_trace()

    def _prepare(self):
        import torch
        from torch.profiler.profiler import _KinetoProfile

        if torch.autograd._profiler_enabled():
            raise RuntimeError("the program uses torch.profiler itself now, and a process has only one profiler")
        if torch._C._current_graph_task_id() != -1:
            raise RuntimeError("the optimizer steps within backward(), and torch.profiler cannot begin or end there")
        self.profiler = _KinetoProfile(acc_events=True, record_shapes=self.has_shapes)
        self.profiler.prepare_trace()
        self.thread = threading.get_ident()

    def _mark(self, step):
        import torch

        self._require_thread()
        if self.mark is None:
            if torch.autograd._profiler_enabled():
                self.profiler = None
                raise RuntimeError("the program uses torch.profiler itself now, and a process has only one profiler")
            self.profiler.start_trace()
            self.stalled_us = _memory_stall_us()
        else:
            self.mark.__exit__(None, None, None)
        self.mark = torch.profiler.record_function(f"ProfilerStep#{step}")
        self.mark.__enter__()

    def _save(self):
        import torch

        self.mark.__exit__(None, None, None)
        profiler, self.profiler = self.profiler, None
        profiler.add_metadata_json("distributedInfo", json.dumps({"rank": self.rank, "world_size": self.world}))
        profiler.add_metadata_json("host", json.dumps({
            "num_threads": torch.get_num_threads(),
            "num_cpus": _num_cpus(),
            "memory_stall_us": _memory_stall_us() - self.stalled_us,
            "has_operations": 1}))
        profiler.stop_trace()
        path = os.path.join(self.folder, f"rank{self.rank}.json")
        temporary = os.path.join(self.folder, f".rank{self.rank}.json.{os.getpid()}.tmp")
        profiler.export_chrome_trace(temporary)
        if not _is_whole(temporary):
            raise RuntimeError(f"the trace {path} cannot be written; is the disk full?")
        os.rename(temporary, path)
        return path

    def _require_thread(self):
        if self.thread != threading.get_ident():
            raise RuntimeError("this step began on another thread than the steps before, and torch.profiler records "
                               "one thread and what it starts")


def _is_whole(path):
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - 16))
            return file.read().rstrip().endswith(b"}")
    except OSError:
        return False


class _Agent:
    """The connection of this process to `yoke profile`."""

    def __init__(self, name):
        self.name, self.client, self.window = name, None, None
        self.received = b""

    def end_step(self, step):
        try:
            if self.name is not None:
                self._say_hello()
            if self.client is not None and self._hear():
                trace = self.window.begin_step(step + 1)
                self._send({"num_steps": step + 1})
                if trace is not None:
                    self._end({"trace": trace})
        except Exception as error:  # noqa: BLE001: the user's program must run anyway
            self._end({"failure": str(error)})

    def _say_hello(self):
        name, self.name = self.name, None
        self.client = _connect(name)
        if self.client is None:
            return
        os.register_at_fork(after_in_child=self._leave_to_parent)
        atexit.register(self._end, None)  # a process may crash if it exits while a profiler runs
        self.rank, self.world, local_world = _ranks()
        with open("/proc/self/stat") as file:
            start_ticks = int(file.read().rsplit(")", 1)[1].split()[19])
        self._send({"rank": self.rank, "world_size": self.world, "local_world_size": local_world, "pid": os.getpid(),
                    "start_ticks": start_ticks, "attempt": int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)),
                    "num_steps": 0})
        self.client.settimeout(PATIENCE_S)

    def _hear(self):
        """Reads the request. Returns false if there is none, or if `yoke profile` has gone."""
        try:
            data = self.client.recv(4096)
            if not data:
                self._end(None)
                return False
            self.received += data
        except (BlockingIOError, TimeoutError):
            pass
        except OSError:
            self._end(None)
            return False
        self.client.setblocking(False)
        if self.window is None and b"\n" in self.received:
            self.window = _Window(json.loads(self.received.split(b"\n", 1)[0]), self.rank, self.world)
        return self.window is not None

    def _send(self, message):
        self.client.sendall(json.dumps(message).encode() + b"\n")

    def _end(self, news):
        client, window, self.client, self.window = self.client, self.window, None, None
        try:
            if window is not None:
                window.discard()
            if client is not None:
                if news is not None:
                    client.sendall(json.dumps(news).encode() + b"\n")
                client.close()
        except Exception:  # noqa: BLE001: the user's program must run anyway
            pass

    def _leave_to_parent(self):
        """In a forked child, such as a worker of a loader."""
        if self.client is not None:
            self.client.close()
        self.client = self.window = self.name = None
