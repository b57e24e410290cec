"""Writes the wheels of packaging/, with the same bytes for the same files."""

import os
import pathlib
import stat
import time
import zipfile


def write_wheel(path, contents, seconds):
    """Writes the wheel `path`, unless that fails: then nothing is left. `contents` are pairs of a name in the wheel and the
    file or text that it gets; the folder .dist-info should be last. All files get the time `seconds` after 1970."""
    from wheel.wheelfile import WheelFile

    os.environ["SOURCE_DATE_EPOCH"] = str(seconds)  # WheelFile gives RECORD this time
    moment = time.gmtime(max(seconds, 315532800))[:6]  # zip archives know no time before 1980
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.parent / f".unfinished-{os.getpid()}" / path.name
    unfinished.parent.mkdir()
    try:
        with WheelFile(unfinished, "w") as wheel:
            for name, source in contents:
                entry = zipfile.ZipInfo(name, moment)
                entry.compress_type = zipfile.ZIP_DEFLATED
                executable = isinstance(source, pathlib.Path) and os.access(source, os.X_OK)
                entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
                wheel.writestr(entry, source if isinstance(source, str) else source.read_bytes())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
        unfinished.parent.rmdir()
