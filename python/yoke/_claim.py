"""Claims devices for this process, as `yoke claim` does for a program."""

from __future__ import annotations

import atexit
import ctypes
import os
import subprocess
import sys
import threading
import warnings
from numbers import Integral
from types import TracebackType
from typing import Any, Dict, List, Optional, Sequence, Type, Union, overload

from . import _command
from ._records import Device, VisibleDevice, visible

# Two processes hold a claim, and neither outlives the other for long. `yoke claim` runs _PROGRAM, which tells the
# environment that it was given, and ends at the end of its input. That input is a pipe from a shell with _WATCH, which waits
# for a line or the end of a pipe from this process. A line says that this process ends the claim itself. At the end of the
# pipe, this process and those that it forked have ended, so the shell also ends `yoke claim`, which may be in the queue.
_PROGRAM = "cat /proc/$$/environ; printf '\\0\\n'; exec >&-; read -r _"
_WATCH = """read -r _ && exit
exec >&-
kill "$1"
for second in 1 2 3 4 5 6 7 8 9 10; do sleep 1; kill -0 "$1" || exit; done
kill -9 "$1\""""

_END_LIMIT_S = 10.0  # afterwards the command gets SIGKILL, and its program SIGTERM

# Shells set these themselves.
_OF_SHELLS = {"PWD", "OLDPWD", "SHLVL", "_"}

_lock = threading.Lock()
_held: Optional["Claim"] = None


class Claim(Sequence[VisibleDevice]):
    """The devices that this process has claimed, in the order in which a program numbers them: [0] is cuda:0.

    pid: the process that holds the claim, as in `yoke claims` and `yoke release PID`.
    """

    pid: int

    def __init__(self, words: List[str], waits: bool) -> None:
        self._owner = os.getpid()
        self._old: Dict[str, Optional[str]] = {}
        self._devices: List[VisibleDevice] = []
        self._status: Optional[int] = None
        self._is_claimed = False
        self._words, self._waits = words, waits
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._watcher: Optional["subprocess.Popen[bytes]"] = None
        self._messages: Optional[_command.Relay] = None

    def _start(self) -> None:
        """Claims. Whatever it raises, _end() gives back what was claimed."""
        _refuse_late_claim()
        # In a session of its own: Ctrl-C in a terminal is for Python, which decides what becomes of the claim.
        self._process = process = _command.start(
            [_command.command(), "claim", *self._words, "--", "sh", "-c", _PROGRAM], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, bufsize=0)
        assert process.stdin and process.stdout and process.stderr
        self.pid = process.pid
        self._watcher = _command.start(["sh", "-c", _WATCH, "sh", process.pid], stdin=subprocess.PIPE, stdout=process.stdin,
                                       stderr=subprocess.DEVNULL, start_new_session=True, bufsize=0)
        process.stdin.close()
        self._messages = _command.Relay(process.stderr, "stderr", shows=self._waits, edit=_of_this_process)
        new = _read_all_that_is_told(process.stdout.fileno())
        if new is None:
            self._end()
            assert self._status is not None
            said = self._messages.text()
            if self._waits:  # the others were shown already
                said = said.strip().rpartition("\n")[2]
            raise _command.Error(_command.message_of(said, self._status, ["claim"]), self._status)
        self._messages.shows = True
        self._devices = visible(new)
        for name in (set(new) | set(os.environ)) - _OF_SHELLS:
            if new.get(name) != os.environ.get(name):
                self._old[name] = os.environ.get(name)
        _assign({name: new.get(name) for name in self._old})
        self._is_claimed = True

    @overload
    def __getitem__(self, index: int) -> VisibleDevice: ...

    @overload
    def __getitem__(self, index: slice) -> List[VisibleDevice]: ...

    def __getitem__(self, index: Union[int, slice]) -> Union[VisibleDevice, List[VisibleDevice]]:
        return self._devices[index]

    def __len__(self) -> int:
        return len(self._devices)

    def __repr__(self) -> str:
        if not self._is_claimed:
            return "a claim that another thread waits for"
        return f"<yoke.Claim of {', '.join(_id(each) for each in self)}, {'held' if self.is_held else 'released'}>"

    @property
    def is_held(self) -> bool:
        """False after release(), and if the claim has ended early: its time is over, or somebody released it."""
        return self._status is None and self._messages is not None and self._messages.is_open()

    def release(self) -> None:
        """Gives the devices back and restores os.environ. Does nothing in a process that was forked from the claimer.

        Raises Error if the claim ended before, so that the devices may have been somebody else's meanwhile.
        """
        global _held
        if self._status is not None or os.getpid() != self._owner:
            return
        ended_before = not self.is_held
        self._give_back()
        assert self._messages is not None and self._status is not None
        if ended_before:
            raise _command.Error(
                _command.message_of(self._messages.text(), self._status, ["claim"]) +
                f"\nthe claim of {', '.join(_id(each) for each in self)} ended before it was released", 69)

    def _give_back(self) -> None:
        global _held
        _assign(self._old)
        try:
            self._end()
        finally:
            with _lock:
                if _held is self:
                    _held = None

    def __enter__(self) -> "Claim":
        if self._status is not None:
            raise _command.Error("this claim was released; claim again", 69)
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        try:
            self.release()
        except _command.Error:
            if kind is None:  # otherwise that exception matters more; the message was shown
                raise

    def _end(self) -> None:
        """Ends both processes. Sets the status, also if Ctrl-C is pressed while they end."""
        process = self._process
        if self._status is not None or process is None:
            return
        try:
            if process.poll() is None:
                process.terminate()
            if self._watcher is not None and self._watcher.stdin is not None:
                try:
                    self._watcher.stdin.write(b"\n")  # not only its end: a forked process may have the pipe, too
                except OSError:
                    pass
                self._watcher.wait(_END_LIMIT_S)
            process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for each in (self._watcher, process):
                if each is not None and each.poll() is None:
                    each.kill()
            self._status = _command.exit_status(process.wait())
            for pipe in (process.stdin, process.stdout, self._watcher.stdin if self._watcher is not None else None):
                if pipe is not None:
                    pipe.close()


def claim(num_devices: Optional[int] = None, *, devices: Union[str, int, Device, VisibleDevice, Sequence[Union[str, int, Device, VisibleDevice]], None] = None,
          memory: Optional[str] = None, share: bool = False, wait: Union[bool, str] = False,
          duration: Optional[str] = None, backfill: bool = False, name: Optional[str] = None) -> Claim:
    """Claims devices for this process until the end of the `with`, release(), or the end of the process.

        with yoke.claim(2, memory="20GiB") as devices:
            print(devices[0].name)          # torch's cuda:0

    Sets CUDA_VISIBLE_DEVICES and what else `yoke claim` sets in os.environ, so claim before torch uses a device. Programs
    that are started meanwhile see the same devices. A process has one claim at a time.

    num_devices: how many; 1 unless `devices` names some.
    devices: take them from these only, by ids as in `yoke devices`, "0,2" or [0, 2], by UUID, or those of devices().
    memory: what must be free on each, with its unit: "20GiB".
    share: share the devices with others who do this, and use `memory` of each.
    wait: queue until devices are free; a text limits the time: "30m".
    duration: for how long at most, such as "4h". The command then ends the claim, and not this process; see `is_held`.
    backfill: start before those who wait where that does not delay the first of them; needs `duration`.
    name: what it is for; everybody sees it in `yoke claims`. Unless given, the name of the script.

    Raises Error: status 75 not enough devices are free, 124 the wait took too long, 69 there are not so many or torch has
    opened its devices already, 66 there is no such device or no GPU, 64 wrong arguments.
    """
    global _held
    words: List[str] = []
    if num_devices is not None:
        words += ["-n", str(num_devices)]
    if devices is not None:
        words += ["--device", _names_of(devices)]
    for option, value in (("--memory", memory), ("--for", duration)):
        if value is not None:
            words += [option, str(value)]
    for what, flag in (("share", share), ("backfill", backfill)):
        if not isinstance(flag, bool):
            raise _command.Error(f"claim: {what}={flag!r}; give True or False", 64)
    words += ["--share"] * share + ["--backfill"] * backfill
    words += ["--name", name or "python " + (os.path.basename(sys.argv[0]) or "")]
    if wait is not False:
        if wait is not True and not isinstance(wait, str):
            raise _command.Error(f"claim: wait={wait!r}; give True, False or a time such as '30m'", 64)
        words += ["--wait"] if wait is True else [f"--wait={wait}"]
    with _lock:
        if _held is not None and _held._owner == os.getpid():
            raise _command.Error(f"{_held!r} is this process's claim already, and os.environ can name one; claim all devices "
                                 "at once, or release() that one first", 69)
        _held = made = Claim(words, bool(wait))
    try:
        made._start()
        return made
    except BaseException:  # also Ctrl-C
        made._give_back()
        raise


def _names_of(devices: Any) -> str:
    """What --device gets."""
    if isinstance(devices, (str, Integral, Device, VisibleDevice)):
        devices = [devices]
    elif isinstance(devices, (bytes, dict)) or not hasattr(devices, "__iter__"):
        raise _command.Error(f"claim: devices={devices!r}; give ids as in `yoke devices`, such as '0,2' or [0, 2]", 64)
    names = []
    for each in devices:
        if isinstance(each, (Device, VisibleDevice)):
            each = each.uuid or each.index
        elif isinstance(each, (bool, float, bytes)):
            raise _command.Error(f"claim: devices has {each!r}; give ids as in `yoke devices`, such as 0 or '0'", 64)
        names.append(str(each))
    return ",".join(names)


def _of_this_process(line: str) -> str:
    """The command speaks of its program. A claim of Python ends without a signal to Python."""
    return line.replace("; the program gets SIGTERM, and SIGKILL in 10 s",
                        "; this process goes on, though others may get the devices now")


def _refuse_late_claim() -> None:
    """CUDA reads the variables once. Afterwards a program would go on with devices of others, and nothing would say so."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise _command.Error("torch has opened its devices already, so variables no longer choose them; claim before the "
                             "first use of a device, or start the program by `yoke claim -- python ...`", 69)
    if _has_asked_cuda() or (torch is None and _loaded("libamdhip64.so")):
        warnings.warn("the driver has been asked for devices in this process already, as torch.cuda.is_available() does, so "
                      "the claim's variables have no effect in this process; claim first", RuntimeWarning, stacklevel=4)


def _loaded(library: str) -> Optional[str]:
    """The path by which this process has loaded a library."""
    with open("/proc/self/maps", errors="replace") as maps:
        return next((line.split(maxsplit=5)[5].rstrip("\n") for line in maps if "/" + library in line), None)


def _has_asked_cuda() -> bool:
    """Whether cuInit() was called. That libcuda is loaded says nothing: libraries of torch link to it."""
    path = _loaded("libcuda.so")
    if path is None:
        return False
    not_initialized = 3
    try:
        driver = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != not_initialized)
    except (OSError, AttributeError):
        return False


def _read_all_that_is_told(pipe: int) -> Optional[Dict[str, str]]:
    """The variables that _PROGRAM prints: each ends with NUL, and the last with another one. None: there is no claim."""
    told = b""
    while not told.endswith(b"\0\0\n"):
        part = os.read(pipe, 65536)
        if not part:
            return None
        told += part
    pairs = (pair.partition(b"=") for pair in told[:-3].split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _assign(variables: Dict[str, Optional[str]]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _id(device: VisibleDevice) -> str:
    return f"device {device.index}" + ("" if device.instance is None else f":{device.instance}")


@atexit.register
def _release_at_exit() -> None:
    if _held is not None and _held._is_claimed:
        try:
            _held.release()
        except _command.Error:
            pass  # its message was shown
