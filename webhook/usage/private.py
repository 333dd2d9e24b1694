"""A folder that only this process's user may write to, and the files in it. No link is followed."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def opened(path: Path) -> Iterator[tuple[int, os.stat_result]]:
    """Open a folder for the block; a link is refused. Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield folder, os.fstat(folder)
    finally:
        os.close(folder)


def foreign(about: os.stat_result) -> str:
    """Return the other users who may write to a folder, in words; empty if there are none."""
    if about.st_uid != os.geteuid():
        return f"it belongs to the user {about.st_uid}, and not to the agent's ({os.geteuid()})"
    mode = stat.S_IMODE(about.st_mode)
    return f"its mode is {mode:o}, so others may write into it; remove it" if mode & 0o022 else ""


def trouble(about: os.stat_result) -> str:
    """Return why a folder is unsafe: another user owns it, or its mode is not 0700. Empty if it is safe."""
    mode = stat.S_IMODE(about.st_mode)
    return foreign(about) or (f"its mode is {mode:o}, but must be 700" if mode != 0o700 else "")


def plain(name: str, flags: int, folder: int) -> int:
    """Open a regular file of the agent; links, devices and hard links are refused. Raises OSError.

    The file is inspected before it is opened, because opening a device may have side effects.
    """
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1 or about.st_uid != os.geteuid():
            raise OSError(0, f"{name} is not a file of the agent; remove it")
        return os.open(f"/proc/self/fd/{handle}", flags | os.O_CLOEXEC)
    finally:
        os.close(handle)
