"""Claims devices for this process, as `yoke claim` does for a program."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import Dict, List, Optional, Tuple, Type, Union

from . import _command
from ._records import VisibleDevice, visible

# The claim's holder: a shell with a pipe from this process as input. When this process releases the claim, or ends in
# whatever way, `read` returns and the shell ends `yoke claim`, also while that one still waits in the queue. The program of
# the claim tells the environment that it was given and the PID of `yoke claim`, and waits for its end.
_HOLDER = '"$@" & exec >&- 2>&-; read -r _; kill $!; wait $!'
_PROGRAM = "cat /proc/$$/environ; printf '\\0%s\\n' $PPID; exec sleep 2147483647"

# Shells set these themselves.
_OF_SHELLS = {"PWD", "OLDPWD", "SHLVL", "_"}

_lock = threading.Lock()
_held: Optional["Claim"] = None


class Claim(Sequence):  # type: ignore[type-arg]
    """The devices that this process has claimed, in the order in which a program numbers them: [0] is cuda:0.

    pid: the process that holds the claim, as in `yoke claims` and `yoke release PID`.
    """

    pid: int

    def __init__(self, words: List[str], waits: bool) -> None:
        self._owner = os.getpid()
        self._old: Dict[str, Optional[str]] = {}
        self._devices: List[VisibleDevice] = []
        self._status: Optional[int] = None
        _refuse_late_claim()
        words = [_command.command(), "claim", *words, "--", "sh", "-c", _PROGRAM]
        # In a session of its own: Ctrl-C in a terminal is for Python, which decides what becomes of the claim.
        self._holder = _command.start(["sh", "-c", _HOLDER, "sh", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, start_new_session=True, bufsize=0)
        self._messages = _command.Relay(self._holder.stderr, "stderr", shows=waits)
        try:
            told = _read_all_that_is_told(self._holder.stdout.fileno())
            if told is None:
                self._end()
                said = self._messages.text()
                if waits:  # the others were shown already
                    said = said.strip().rpartition("\n")[2]
                raise _command.Error(_command.message_of(said, self._status, ["claim"]), self._status)
            new, self.pid = told
            self._messages.shows = True
            self._devices = visible(new)
        except BaseException:  # also Ctrl-C
            self._end()
            raise
        for name in (set(new) | set(os.environ)) - _OF_SHELLS:
            if new.get(name) != os.environ.get(name):
                self._old[name] = os.environ.get(name)
        _assign({name: new.get(name) for name in self._old})

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._devices[index]

    def __len__(self) -> int:
        return len(self._devices)

    def __repr__(self) -> str:
        return f"<yoke.Claim of {', '.join(_id(each) for each in self)}, {'held' if self.is_held else 'released'}>"

    @property
    def is_held(self) -> bool:
        """False after release(), and if the claim has ended early: its time is over, or somebody released it."""
        return self._status is None and self._messages.is_open()

    def release(self) -> None:
        """Gives the devices back and restores os.environ. Does nothing in a process that was forked from the claimer.

        Raises Error if the claim ended before, so that the devices may have been somebody else's meanwhile.
        """
        global _held
        if self._status is not None or os.getpid() != self._owner:
            return
        ended_before = not self._messages.is_open()
        _assign(self._old)
        try:
            self._end()
        finally:
            with _lock:
                _held = None
        if ended_before:
            raise _command.Error(
                _command.message_of(self._messages.text(), self._status, ["claim"]) +
                f"\nthe claim of {', '.join(_id(each) for each in self)} ended before it was released", 69)

    def __enter__(self) -> "Claim":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        try:
            self.release()
        except _command.Error:
            if kind is None:  # otherwise that exception matters more; the message was shown
                raise

    def _end(self) -> None:
        if self._status is not None:
            return
        try:
            self._holder.stdin.write(b"\n")  # not only its end: a forked process may have the pipe, too
            self._holder.stdin.close()
        except OSError:
            pass
        self._status = self._holder.wait()
        self._holder.stdout.close()


def claim(num_devices: Optional[int] = None, *, devices: Union[str, int, Sequence, None] = None,  # type: ignore[type-arg]
          memory: Optional[str] = None, share: bool = False, wait: Union[bool, str] = False,
          duration: Optional[str] = None, backfill: bool = False, name: Optional[str] = None) -> Claim:
    """Claims devices for this process until the end of the `with`, release(), or the end of the process.

        with yoke.claim(2, memory="20GiB") as devices:
            print(devices[0].name)          # torch's cuda:0

    Sets CUDA_VISIBLE_DEVICES and what else `yoke claim` sets in os.environ, so claim before torch uses a device. Programs
    that are started meanwhile see the same devices. A process has one claim at a time.

    num_devices: how many; 1 unless `devices` names some.
    devices: take them from these only, by ids as in `yoke devices`: "0,2", [0, 2] or a UUID.
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
        several = not isinstance(devices, (str, int))
        words += ["--device", ",".join(map(str, devices)) if several else str(devices)]
    for option, value in (("--memory", memory), ("--for", duration)):
        if value is not None:
            words += [option, str(value)]
    words += ["--share"] * share + ["--backfill"] * backfill
    words += ["--name", name or "python " + (os.path.basename(sys.argv[0]) or "")]
    if wait is not False:
        words += ["--wait"] if wait is True else ["--wait", str(wait)]
    with _lock:
        if _held is not None and _held._owner == os.getpid():
            raise _command.Error(f"{_held!r} is this process's claim already, and os.environ can name one; claim all devices "
                                 "at once, or release() that one first", 69)
        _held = _Pending()
    made: Optional[Claim] = None
    try:
        made = Claim(words, bool(wait))
        return made
    finally:
        with _lock:
            _held = made


class _Pending:
    """Stands for a claim that another thread waits for."""

    def __init__(self) -> None:
        self._owner = os.getpid()

    def __repr__(self) -> str:
        return "a claim that another thread waits for"


def _refuse_late_claim() -> None:
    """CUDA reads the variables once. Afterwards torch would go on with devices of others, and nothing would say so."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise _command.Error("torch has opened its devices already, so variables no longer choose them; claim before the "
                             "first use of a device, or start the program by `yoke claim -- python ...`", 69)
    with open("/proc/self/maps", errors="replace") as maps:
        if any("/libcuda.so" in line or "/libamdhip64.so" in line for line in maps):
            warnings.warn("the driver of the devices is loaded in this process already; if it has been asked for devices, as "
                          "torch.cuda.is_available() does, the claim's variables have no effect in this process",
                          RuntimeWarning, stacklevel=4)


def _read_all_that_is_told(pipe: int) -> Optional[Tuple[Dict[str, str], int]]:
    """What _PROGRAM prints: variables that end with NUL, and after another NUL a PID. None: the claim ended without it."""
    told = b""
    while b"\0\0" not in told or not told.endswith(b"\n"):
        part = os.read(pipe, 65536)
        if not part:
            return None
        told += part
    variables, _, pid = told.rpartition(b"\0\0")
    pairs = (pair.partition(b"=") for pair in variables.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}, int(pid)


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
    if isinstance(_held, Claim):
        try:
            _held.release()
        except _command.Error:
            pass  # its message was shown
