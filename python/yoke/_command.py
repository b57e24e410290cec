"""Finds the command `yoke` and runs it. Its messages become exceptions, and its JSON becomes objects."""

from __future__ import annotations

import collections
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any, Callable, Deque, Dict, IO, Optional, Sequence


class Error(RuntimeError):
    """What the command, or a function of this module, could not do. The text is the command's own message.

    status: the exit status of the command. 64 wrong arguments, 65 damaged data or a mistake in a configuration, 66 not
    found, 69 something else must be done first, 75 it may work later, 77 not allowed, 124 a time limit, 127 the command is
    not installed.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> Any:  # an exception of two arguments crosses processes only so
        return (Error, (str(self), self.status))


def command() -> str:
    """The path of the command: YOKE_COMMAND, the one that was installed with this module, or the first one in PATH.

    Raises Error (status 127) if there is none.
    """
    named = os.environ.get("YOKE_COMMAND")
    if named:
        if not os.access(named, os.X_OK):
            raise Error(f"YOKE_COMMAND is {named}, which is no program; give the path of the command `yoke`", 127)
        return named
    folders = [sysconfig.get_path("scripts"), str(Path(__file__).absolute().parents[1] / "bin")]  # pip's --target
    if os.name + "_user" in sysconfig.get_scheme_names():
        folders.append(sysconfig.get_path("scripts", os.name + "_user"))
    found = shutil.which("yoke", path=os.pathsep.join(folders)) or shutil.which("yoke")
    if found is None:
        raise Error("the command `yoke` is neither beside this Python nor in PATH; install it with `pip install yoke-gpu`, "
                    "or set YOKE_COMMAND to its path", 127)
    return found


def start(words: Sequence[Any], **options: Any) -> "subprocess.Popen[Any]":
    """Starts a program. Raises Error (127, 126) if that fails."""
    words = [str(word) for word in words]
    try:
        return subprocess.Popen(words, **options)
    except OSError as failure:
        folder = options.get("cwd")
        if folder is not None and not os.path.isdir(folder):
            raise Error(f"cannot start {words[0]}: {folder} is no folder", 66) from failure
        status = 127 if isinstance(failure, FileNotFoundError) else 126
        raise Error(f"cannot start {words[0]}: {failure.strerror}", status) from failure


def exit_status(status: int) -> int:
    """As a shell shows it."""
    return status if status >= 0 else 128 - status


def message_of(text: str, status: int, words: Sequence[object]) -> str:
    """What the command said, or if that is nothing, how it ended."""
    return text.strip() or f"`yoke {' '.join(str(word) for word in words)}` ended with status {status} and no message"


def ask(words: Sequence[object], environment: Optional[Dict[str, str]] = None, also: Sequence[int] = ()) -> Any:
    """The JSON that `yoke WORDS... --json` prints. Raises Error with the command's message if it fails.

    also: statuses besides 0 with which it prints JSON.
    """
    words = [*words, "--json"]
    process = start([command(), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    env=environment)
    with process:
        try:
            output, errors = process.communicate()
        except BaseException:  # Ctrl-C
            process.terminate()
            raise
    said = errors.decode(errors="replace")
    if process.returncode != 0 and not (output and process.returncode in also):
        raise Error(message_of(said, process.returncode, words), process.returncode)
    try:
        return json.loads(output)
    except ValueError as failure:
        raise Error(f"`yoke {' '.join(map(str, words))}` printed no JSON ({failure}); is {command()} the command of "
                    "yoke-gpu? Another project has the same name", 70) from failure


class Relay:
    """Shows what a program writes to a pipe, line by line, where Python's own output goes, and keeps the end of it.

    Output of a child does not reach a notebook or contextlib.redirect_stderr by itself. Runs on a thread of its own.
    """

    def __init__(self, pipe: IO[bytes], to: str, shows: bool = True, edit: Callable[[str], str] = str) -> None:
        self._pipe, self._to, self._edit = pipe, to, edit
        self._lines: Deque[str] = collections.deque(maxlen=200)
        self.shows = shows
        self._thread = threading.Thread(target=self._run, daemon=True, name="yoke " + to)
        self._thread.start()

    def _run(self) -> None:
        for raw in self._pipe:
            line = self._edit(raw.decode(errors="replace"))
            self._lines.append(line)
            if not self.shows:
                continue
            try:
                stream = getattr(sys, self._to)
                stream.write(line)
                stream.flush()
            except (AttributeError, OSError, ValueError):  # it is closed, or there is none
                pass
        self._pipe.close()

    def is_open(self) -> bool:
        """Whether a process still has the other end."""
        return self._thread.is_alive()

    def text(self) -> str:
        """The last lines. Waits until the program has closed its end."""
        self._thread.join()
        return "".join(self._lines)

    def own_lines(self, speaker: str) -> str:
        """Those of the last lines that the command itself wrote, as `yoke run: ...`."""
        return "".join(line for line in self.text().splitlines(True) if line.startswith(speaker))
