"""Starts jobs by `yoke run`, and measures programs by `yoke watch`."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from types import TracebackType
from typing import Any, Dict, List, Optional, Sequence, Type, Union

from . import _command
from ._records import Usage


class Launched:
    """A job or program that was started. Its output appears where Python's own does, also in a notebook.

    pid: the launcher's, which names the job in `yoke jobs`, `yoke logs PID` and `yoke stop PID`.
    """

    def __init__(self, words: Sequence[object], program: Sequence[object], environment: Optional[Dict[str, str]],
                 folder: Optional[str], waits: bool) -> None:
        self._words: Sequence[object] = [*words, "--", *program]
        self._program = program
        process: Any = None
        self._process = process
        environment = dict(os.environ if environment is None else environment)
        environment.setdefault("PYTHON_EXEC", sys.executable)  # a script runs with this Python, as under torchrun
        try:
            self._start(environment, folder)
            if waits:
                self._process.wait()
        except KeyboardInterrupt:
            self._interrupt()
            raise

    def _start(self, environment: Dict[str, str], folder: Optional[str]) -> None:
        # In a session of its own: Ctrl-C in a terminal is for Python, and _interrupt() passes it on once.
        self._process = _command.start([_command.command(), *self._words], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=folder,
                                       start_new_session=True)
        self.pid = self._process.pid
        self._output = _command.Relay(self._process.stdout, "stdout")
        self._errors = _command.Relay(self._process.stderr, "stderr")

    @property
    def status(self) -> Optional[int]:
        """The exit status, as a shell shows it; None while it runs."""
        status = self._process.poll()
        return None if status is None else _command.exit_status(status)

    def wait(self, timeout: Optional[float] = None, *, check: bool = False) -> int:
        """Waits for the end, at most `timeout` seconds, and returns the exit status. Ctrl-C ends the job and is raised then.

        Raises subprocess.TimeoutExpired; with `check`, Error if the status is not 0.
        """
        try:
            self._process.wait(timeout)
        except KeyboardInterrupt:
            self._interrupt()
            raise
        self._output.text()
        said, status = self.said(), self.status
        assert status is not None
        if check and status != 0:
            raise _command.Error(_command.message_of(said, status, self._words), status)
        return status

    def _interrupt(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()

    def said(self) -> str:
        """What the command itself wrote to its standard error, after the end."""
        return self._errors.own_lines("yoke")

    def stop(self) -> int:
        """Ends the job as `yoke stop` does: SIGTERM to all ranks, SIGKILL after the grace time. Returns its exit status."""
        if self._process.poll() is None:
            self._process.terminate()
        return self.wait()

    def __repr__(self) -> str:
        program = " ".join(shlex.quote(str(word)) for word in self._program)
        return f"<yoke.Launched {program!r}, pid {self.pid}, status {self.status}>"


def run(*program: object, ranks: Union[int, str, None] = None, options: Sequence[object] = (), wait: bool = True,
        check: bool = True, env: Optional[Dict[str, str]] = None, cwd: Optional[str] = None) -> Launched:
    """Starts a program once for each rank, as `yoke run` and torchrun do, and waits for its end.

        yoke.run("train.py", "--epochs", 3, ranks=2)
        job = yoke.run("./train", ranks="gpu", options=["--max-restarts", 3], wait=False)

    ranks: how many on this machine; "gpu" one for each device, "cpu" one for each processor. 1 unless given.
    options: other options of `yoke run`, such as ["--claim", "--hosts", "n1,n2"].
    wait: wait for the end. Otherwise Launched has wait() and stop(), and the job goes on after the end of Python unless
        stop() was called.
    check: raise Error with the exit status if that is not 0 (only with `wait`).
    env, cwd: the job's variables and folder in place of this process's.

    Raises Error: the command's messages, of which the last names the rank that failed and why.
    """
    if not program:
        raise _command.Error('say what to run, as in yoke.run("train.py", ranks=2)', 64)
    words: List[object] = ["run"]
    if ranks is not None:
        words += ["-n", ranks]
    if isinstance(options, (str, bytes)):
        raise _command.Error(f"run: options={options!r}; give a list of words, as in options=['--max-restarts', 3]", 64)
    job = Launched([*words, *options], program, env, cwd, wait)
    if wait:
        job.wait(check=check)
    return job


class Watch:
    """What `yoke watch` measures: see watch()."""

    def __init__(self, options: List[object], program: Sequence[object]) -> None:
        self._report: Optional[Usage] = None
        self.status: Optional[int] = None  #: of the program
        self._folder = tempfile.TemporaryDirectory(prefix="yoke-watch-")
        self._file = os.path.join(self._folder.name, "report.json")
        self._options: List[object] = ["watch", "--json", "-o", self._file, *options]
        self._process: Optional["subprocess.Popen[Any]"] = None
        if program:
            try:
                launched = Launched(self._options, program, None, None, True)
                self.status = launched.wait()
                self._read(launched.said())
            finally:
                self._folder.cleanup()

    @property
    def report(self) -> Usage:
        """What was measured, from the end on. Raises Error (64) before it."""
        if self._report is None:
            raise _command.Error("the report of a watch is there after its end", 64)
        return self._report

    def __enter__(self) -> "Watch":
        if self._report is not None:
            raise _command.Error("this watch has ended; make another one", 64)
        self._process = _command.start([_command.command(), *self._options], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        while self._process.poll() is None and not _catches_interrupt(self._process.pid):
            time.sleep(0.001)  # a SIGINT before that would end it without a report
        if self._process.poll() is not None:
            self.__exit__(None, None, None)  # raises
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        assert self._process is not None
        try:
            self._process.send_signal(signal.SIGINT)
            said = self._process.communicate()[1].decode(errors="replace")
            self.status = self._process.returncode
            if kind is None:
                self._read(said)
        finally:
            self._folder.cleanup()

    def _read(self, said: str) -> None:
        try:
            with open(self._file, encoding="utf-8") as file:
                self._report = Usage.of(json.load(file))
        except (OSError, ValueError) as failure:
            raise _command.Error(_command.message_of(said, self.status or 70, self._options), self.status or 70) from failure


def _catches_interrupt(pid: int) -> bool:
    """Whether the child process in which `yoke watch` measures has begun."""
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):  # an option of the kernel
        return True
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            child = children.read().split()[0]
        with open(f"/proc/{child}/status") as file:
            masks = dict(line.split(":\t") for line in file if line.startswith("Sig") and "Q" not in line)
    except (OSError, IndexError):
        return False
    interrupt = 1 << (signal.SIGINT - 1)
    return bool(int(masks["SigCgt"], 16) & ~int(masks["SigBlk"], 16) & interrupt)


def watch(*program: object, pid: Optional[int] = None, interval: float = 0.5, goal: float = 90) -> Watch:
    """Measures how well a program uses its devices, as `yoke watch` does.

        with yoke.watch() as use:           # this process; with pid=, another one
            train()
        print(use.report.devices[0].mean_utilization_percent)

        use = yoke.watch("python", "train.py")    # a program: returns at its end; use.status is its exit status

    interval: seconds between two samples. goal: the report says how much of the time utilisation was under this percentage.
    Raises Error (66) if there is no such process.
    """
    options: List[object] = ["--interval", interval, "--goal", goal]
    if program and pid is not None:
        raise _command.Error("give a program or a pid, not both", 64)
    return Watch(options if program else [*options, "--pid", pid or os.getpid()], program)
