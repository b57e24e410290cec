"""Writes when the steps of this rank ended, for `yoke tune`: yoke/contract/step_times.h has the format."""

import atexit
import os
import resource
import sys
import time

import yoke_steps

FIRST_STEPS = 20  # each of the first steps has a line
PERIOD_NS = 100_000_000


def _rank():
    """The rank, the number of ranks, and that of this host. torch.multiprocessing.spawn sets no variable."""
    distributed = sys.modules.get("torch.distributed")
    if "RANK" not in os.environ and distributed and distributed.is_available() and distributed.is_initialized():
        size = distributed.get_world_size()
        return distributed.get_rank(), size, size
    size = int(os.environ.get("WORLD_SIZE", 1))
    return int(os.environ.get("RANK", 0)), size, int(os.environ.get("LOCAL_WORLD_SIZE", size))


def _host_memory():
    text = ""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                text += f',"resident_peak_bytes":{int(line.split()[1]) * 1024}'
            elif line.startswith("VmPeak:"):
                text += f',"address_space_peak_bytes":{int(line.split()[1]) * 1024}'
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        text += f',"address_space_limit_bytes":{limit}'
    return text


def _gpu():
    """torch.cuda if this process uses a GPU; otherwise None."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda and cuda.is_initialized() else None


def _device_memory():
    cuda = _gpu()
    if not cuda:
        return ""
    free = cuda.mem_get_info()[0] + cuda.memory_reserved()
    return f',"device_peak_bytes":{cuda.max_memory_allocated()},"device_limit_bytes":{free}'


class StepTimes:
    def __init__(self, folder):
        self.folder = folder
        self.fd = None
        self.pid = os.getpid()  # a forked child must not write into its parent's file
        self.next_line_ns = 0
        self.last = self.written = (-1, 0)

    def __call__(self, step):
        now = time.monotonic_ns()
        self.last = (step, now)
        if now < self.next_line_ns and step >= FIRST_STEPS:
            return
        try:
            self._write(step)
        except Exception as error:  # noqa: BLE001: the user's program must run anyway
            self.next_line_ns = 1 << 62
            self.fd = None
            print(f"warning: step times are not written: {error}", file=sys.stderr)

    def _write(self, step):
        if self.next_line_ns == 1 << 62:
            return
        gpu = _gpu()
        if gpu:
            gpu.synchronize()  # steps end on the host before they end on the device
        if self.fd is None or os.getpid() != self.pid:
            self._open()
        now = time.monotonic_ns()
        self.last = self.written = (step, now)
        self._append(self._time() + _host_memory() + _device_memory() + "}\n")
        self.next_line_ns = now + PERIOD_NS

    def _time(self):
        step, now = self.last
        return f'{{"step":{step},"seconds":{now // 10**9}.{now % 10**9:09}'

    def _open(self):
        self.pid = os.getpid()
        rank, size, local_size = _rank()
        path = os.path.join(self.folder, f"rank-{rank}.{self.pid}.jsonl")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self.fd = os.open(path, flags, 0o600)
        self._append(f'{{"rank":{rank},"world_size":{size},"local_world_size":{local_size},"pid":{self.pid}}}\n')

    def _append(self, text):
        data = text.encode()
        if os.write(self.fd, data) != len(data):
            raise OSError("the disk is full")

    def finish(self):
        if self.fd is not None and os.getpid() == self.pid and self.last != self.written:
            self._append(self._time() + "}\n")


def start():
    times = StepTimes(os.environ["YOKE_STEP_TIMES"])
    atexit.register(times.finish)
    yoke_steps.add_observer(times)
