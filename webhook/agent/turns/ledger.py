"""Keeps the ledger: a file that lists the containers that may be frozen, written before the freeze, read to thaw them.

The file is in memory (/run), so a restart of the node ends it together with all freezes. The agent locks a second file
while it runs, and touches that file at each look: this shows the thawer whether the agent is dead or silent.

Nothing is frozen if another user can write to the folder. If another program writes there nevertheless, it can make a
container run but cannot keep it frozen: no link is followed, no device is opened, and no entry can prolong a freeze.
"""

import fcntl
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from webhook.agent.turns import freezer
from webhook.usage import private

FOLDER = Path("/run/slicewarden")

FILE, FRESH, LOCK = "frozen", "frozen.new", "agent.lock"

MAX_BYTES = 256 * 1024
"""Maximum bytes read from a ledger. A line has about 250 bytes, and a node has a few hundred containers at most."""

SILENCE = 3.0
"""Seconds without a look after which an agent counts as silent, and its containers are thawed."""

TRIES, STEP = 10, 0.05
"""Attempts to take the lock, and the seconds between them: the thawer may hold it for a moment."""


class Entries(NamedTuple):
    """The cgroup paths of a ledger, each with the deadline of its freeze (seconds of the monotonic clock).

    `invalid` is the number of unusable lines.
    """

    until: Mapping[str, float]
    invalid: int = 0


class Ledger:
    """The ledger in a folder, and its lock. Its methods never raise; they return the reason of a failure."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        self._lock: int | None = None

    @property
    def locked(self) -> bool:
        """Whether this process holds the lock."""
        return self._lock is not None

    def take(self, tries: int = TRIES) -> str:
        """Take the lock, which only one process on a node can have. Returns why that failed, or an empty text.

        If others may read the folder, as when the kubelet has made it, its mode is changed to 0700 first.
        """
        if self._lock is not None:
            return ""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with private.opened(self.folder) as (folder, about):
                if not private.foreign(about):
                    os.fchmod(folder, 0o700)
                if why := private.trouble(os.fstat(folder)):
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
        """Release the lock, so that another process can take it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def beat(self) -> None:
        """Record that the agent is alive and has begun a look."""
        if self._lock is not None:
            try:
                os.utime(self._lock)
            except OSError:
                return

    @property
    def trouble(self) -> str:
        """The reason why this ledger is unsafe; empty if it is safe, or if there is no folder yet."""
        try:
            with private.opened(self.folder) as (folder, about):
                return private.trouble(about) or self._replaced(folder)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return error.strerror or "it cannot be opened"

    @property
    def missing(self) -> bool:
        """Whether no agent has ever written a ledger in this folder. False if that cannot be determined."""
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
        """A number that changes at each look of the agent; 0 if no agent has written its file."""
        try:
            return (self.folder / LOCK).lstat().st_mtime_ns
        except OSError:
            return 0

    def write(self, until: Mapping[str, float]) -> str:
        """Replace the ledger atomically. Returns why that failed, or an empty text.

        It is not flushed to a disk, because it must survive the process but not the node.
        """
        text = "".join(f"{deadline:.3f} {path}\n" for path, deadline in sorted(until.items()))
        try:
            with private.opened(self.folder) as (folder, about):
                if why := private.trouble(about) or self._replaced(folder):
                    return f"{self.folder}: {why}"
                _write(folder, text.encode())
        except OSError as error:
            return f"{self.folder}: {error.strerror}"
        return ""

    def read(self) -> Entries:
        """Read all usable lines. A truncated line, and one without a container's cgroup, count as invalid."""
        try:
            with private.opened(self.folder) as (folder, _):
                data = _read(folder)
        except FileNotFoundError:
            return Entries({})
        except OSError:
            return Entries({}, 1)
        until, invalid = dict[str, float](), 0
        for line in data.decode("utf-8", "replace").split("\n"):
            deadline, _, path = line.partition(" ")
            if freezer.own(path):
                until[path] = _number(deadline)
            elif line:
                invalid += 1
        return Entries(until, invalid)

    def _replaced(self, folder: int) -> str:
        """Return why the lock no longer counts, or an empty text. Another process may have locked a new file."""
        if self._lock is None:
            return ""
        try:
            there = os.stat(LOCK, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return f"{LOCK} was removed"
        return "" if os.path.samestat(there, os.fstat(self._lock)) else f"{LOCK} was replaced"


def _locked(folder: int) -> int:
    """Open the lock file, and create it if it does not exist. Raises OSError."""
    try:
        return os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    except FileExistsError:
        return private.plain(LOCK, os.O_RDWR, folder)


def _write(folder: int, data: bytes) -> None:
    """Write a new file, and rename it to the ledger's name. Raises OSError."""
    with suppress(FileNotFoundError):
        os.unlink(FRESH, dir_fd=folder)  # left by an agent that was killed
    fresh = os.open(FRESH, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        while data:
            data = data[os.write(fresh, data) :]
    finally:
        os.close(fresh)
    os.replace(FRESH, FILE, src_dir_fd=folder, dst_dir_fd=folder)


def _read(folder: int) -> bytes:
    """Read the beginning of the ledger. Raises OSError."""
    file, data = private.plain(FILE, os.O_RDONLY, folder), b""
    try:
        while len(data) < MAX_BYTES and (more := os.read(file, MAX_BYTES - len(data))):
            data += more
    finally:
        os.close(file)
    return data


def _number(text: str) -> float:
    """Read a deadline; an invalid one counts as passed."""
    try:
        deadline = float(text)
    except ValueError:
        return -math.inf
    return deadline if math.isfinite(deadline) else -math.inf
