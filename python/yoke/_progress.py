"""Tells the launcher how many steps of the training were made: yoke/contract/progress.h."""

import errno
import mmap
import operator
import os
import stat
import sys
from typing import Optional

_SIZE = 8
_page = None  # type: Optional[memoryview]
_tried_by = 0  # the process that has tried to map the file; one that was forked before it was a rank tries again


def _map() -> Optional[memoryview]:
    """Maps the launcher's file. It is never cut, because other processes and threads of the rank may have mapped it, and a
    file with other content than a number stays as it is."""
    path = os.environ.get("YOKE_PROGRESS")
    if not path:
        return None
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o600)
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or info.st_size not in (0, _SIZE):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            # Takes the space at once: on a full file system, the first access to the memory would be a SIGBUS.
            os.posix_fallocate(descriptor, 0, _SIZE)
            return memoryview(mmap.mmap(descriptor, _SIZE)).cast("q")
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        print(f"yoke: the progress of this rank cannot be recorded, so a failure may end the job: {path}: {error}",
              file=sys.stderr)
        return None


def progress(num_steps: int) -> None:
    """Says that so many steps of the training were made; those before a restart count, too. `yoke run --max-restarts
    3/1000steps` restarts by it. Each rank says so. Takes less than a microsecond, and does nothing if the launcher did not
    ask. Raises TypeError or ValueError if `num_steps` is no number of steps.
    """
    global _page, _tried_by
    number = operator.index(num_steps)
    if not 0 <= number < 2**63 - 1:
        raise ValueError(f"progress(): {number} is no number of steps")
    if _page is None and _tried_by != os.getpid():
        _tried_by = os.getpid()
        _page = _map()
    if _page is not None:
        _page[0] = number + 1
