"""Keep what is made once between runs, outside of the tree."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path


class Missing(Exception):
    """Something has to be installed; the message says what, in one line."""


def made(name: str, digest: str, make: Callable[[Path], None]) -> Path:
    """Return a folder of the cache that was made from what the digest says, made now if need be.

    One process makes it at a time; the lock goes with the process. A folder that was cut off, or made from
    something else, is made again.
    """
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "slicewarden", "frameworks")
    folder = root / name
    whole = folder / ".whole"
    if not _says(whole, digest):
        root.mkdir(parents=True, exist_ok=True)
        with (root / f".{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _says(whole, digest):  # another run may have made it meanwhile
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                whole.write_text(digest, "utf-8")
    return folder


def _says(file: Path, digest: str) -> bool:
    return file.exists() and file.read_text("utf-8") == digest
