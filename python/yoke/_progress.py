"""Tells the launcher how many steps of the training were made: yoke/contract/progress.h."""

import mmap
import os
from typing import Optional

_page = None  # type: Optional[memoryview]
_tried = False


def _map() -> Optional[memoryview]:
    path = os.environ.get("YOKE_PROGRESS")
    if not path:
        return None
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(descriptor, b"\xff" * 8)
            return memoryview(mmap.mmap(descriptor, 8)).cast("q")
        finally:
            os.close(descriptor)
    except OSError:
        return None


def progress(num_steps: int) -> None:
    """Says that so many steps of the training were made; those before a restart count, too. `yoke run --max-restarts
    3/1000steps` restarts by it. Takes less than a microsecond, and does nothing if the launcher did not ask.
    """
    global _page, _tried
    if not _tried:
        _page, _tried = _map(), True
    if _page is not None:
        _page[0] = num_steps
