"""The ledger: the containers that may be frozen, in a file before the kernel is asked. Its reader thaws them.

It lies in memory (/run), so it ends with the node, as freezes do. A second file next to it is locked for as long as the
agent lives, and touched at each look: by it the thawer tells a dead agent and a silent one.

Nobody else may write into the folder, or nothing is frozen. Where somebody could nevertheless, what he puts there can
make a container run and never stand still: no link is followed, no device is opened, and nothing is believed that
would prolong a freeze.
"""

import fcntl
import math
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from webhook.agent import freezer

FOLDER = Path("/run/slicewarden")

FILE, FRESH, LOCK = "frozen", "frozen.new", "agent.lock"

MAX_BYTES = 256 * 1024
"""Bytes of a ledger that are read. One line has about 250, and a node has at most some hundred containers."""

SILENCE = 3.0
"""Seconds without a look after which an agent counts as silent, and all is thawed for it."""

TRIES, STEP = 10, 0.05
"""How often the lock is asked for, and the seconds between: the thawer has it for a moment."""


class Entries(NamedTuple):
    """A ledger's paths, each with the moment until which it may be frozen (seconds of the monotonic clock).

    `strange` counts the lines that say nothing usable.
    """

    until: Mapping[str, float]
    strange: int = 0


class Ledger:
    """The ledger in a folder, and its lock. Nothing here raises: a text says why something failed."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        self._lock: int | None = None

    @property
    def held(self) -> bool:
        """Whether this process has the lock."""
        return self._lock is not None

    def take(self, tries: int = TRIES) -> str:
        """Take the lock, which one process of a node has. Returns why that failed, or an empty text.

        A folder that others may read is closed to them first: the kubelet makes it so.
        """
        if self._lock is not None:
            return ""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._opened() as (folder, about):
                if not _foreign(about):
                    os.fchmod(folder, 0o700)
                if why := _trouble(os.fstat(folder)):
                    return f"{self.folder}: {why}"
                lock = _locked(folder)
        except OSError as error:
            return f"{self.folder}: {error.strerror}"
        for step in range(tries):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(STEP if step + 1 < tries else 0)
            else:
                self._lock = lock
                self.beat()
                return ""
        os.close(lock)
        return "another agent runs on this node"

    def leave(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def beat(self) -> None:
        """Say that the agent looks."""
        if self._lock is not None:
            try:
                os.utime(self._lock)
            except OSError:
                return

    @property
    def trouble(self) -> str:
        """Why nothing may be frozen by this ledger; an empty text if it may, or if there is no folder yet."""
        try:
            with self._opened() as (folder, about):
                return _trouble(about) or self._replaced(folder)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return error.strerror or "it cannot be opened"

    @property
    def missing(self) -> bool:
        """Whether no agent has ever written here. False where that cannot be told."""
        for file in (FILE, LOCK):
            try:
                (self.folder / file).lstat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                return False
            return False
        return True

    @property
    def beaten(self) -> int:
        """When the agent last said so: a number that changes with each look. 0 where there is no agent's file."""
        try:
            return (self.folder / LOCK).lstat().st_mtime_ns
        except OSError:
            return 0

    def write(self, until: Mapping[str, float]) -> str:
        """Write the ledger anew, whole or not at all. Returns why it failed, or an empty text.

        It is not flushed to a disk: it has to outlive the process, and not the node.
        """
        text = "".join(f"{moment:.3f} {path}\n" for path, moment in sorted(until.items()))
        try:
            with self._opened() as (folder, about):
                if why := _trouble(about) or self._replaced(folder):
                    return f"{self.folder}: {why}"
                _write(folder, text.encode())
        except OSError as error:
            return f"{self.folder}: {error.strerror}"
        return ""

    def read(self) -> Entries:
        """Read what can be read: a cut line, and one that names no container's cgroup, count as strange."""
        try:
            with self._opened() as (folder, _):
                data = _read(folder)
        except FileNotFoundError:
            return Entries({})
        except OSError:
            return Entries({}, 1)
        until, strange = dict[str, float](), 0
        for line in data.decode("utf-8", "replace").split("\n"):
            moment, _, path = line.partition(" ")
            if freezer.own(path):
                until[path] = _number(moment)
            elif line:
                strange += 1
        return Entries(until, strange)

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, os.stat_result]]:
        """Open the folder, which is no link, for as long as the block lasts. Raises OSError."""
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield folder, os.fstat(folder)
        finally:
            os.close(folder)

    def _replaced(self, folder: int) -> str:
        """Return a few words if the file is gone whose lock this process has: another one may have the new file's."""
        if self._lock is None:
            return ""
        try:
            there = os.stat(LOCK, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return f"{LOCK} was removed"
        return "" if os.path.samestat(there, os.fstat(self._lock)) else f"{LOCK} was replaced"


def _foreign(about: os.stat_result) -> str:
    """Say who else may write into a folder; empty if nobody."""
    if about.st_uid != os.geteuid():
        return f"it belongs to the user {about.st_uid}, and not to the agent's ({os.geteuid()})"
    mode = stat.S_IMODE(about.st_mode)
    return f"its mode is {mode:o}, so others may write into it; remove it" if mode & 0o022 else ""


def _trouble(about: os.stat_result) -> str:
    """Say why nothing is frozen by a folder: it belongs to somebody else, or its mode is not 0700."""
    mode = stat.S_IMODE(about.st_mode)
    return _foreign(about) or (f"its mode is {mode:o}, and has to be 700" if mode != 0o700 else "")


def _locked(folder: int) -> int:
    """Open the file to lock, and make it if it is not there. Raises OSError."""
    try:
        return os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    except FileExistsError:
        return _plain(LOCK, os.O_RDWR, folder)


def _plain(name: str, flags: int, folder: int) -> int:
    """Open a file of ours that is no link, no device and no other file's second name. Raises OSError.

    It is looked at before it is opened: to open a device may already do something.
    """
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1 or about.st_uid != os.geteuid():
            raise OSError(0, f"{name} is no file of the agent; remove it")
        return os.open(f"/proc/self/fd/{handle}", flags | os.O_CLOEXEC)
    finally:
        os.close(handle)


def _write(folder: int, data: bytes) -> None:
    """Write a new file, and give it the ledger's name. Raises OSError."""
    with suppress(FileNotFoundError):
        os.unlink(FRESH, dir_fd=folder)  # of an agent that died meanwhile
    fresh = os.open(FRESH, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        while data:
            data = data[os.write(fresh, data) :]
    finally:
        os.close(fresh)
    os.replace(FRESH, FILE, src_dir_fd=folder, dst_dir_fd=folder)


def _read(folder: int) -> bytes:
    """Read the beginning of the ledger. Raises OSError."""
    file, data = _plain(FILE, os.O_RDONLY, folder), b""
    try:
        while len(data) < MAX_BYTES and (more := os.read(file, MAX_BYTES - len(data))):
            data += more
    finally:
        os.close(file)
    return data


def _number(text: str) -> float:
    """Read a moment; one that says nothing has passed long ago."""
    try:
        moment = float(text)
    except ValueError:
        return -math.inf
    return moment if math.isfinite(moment) else -math.inf
