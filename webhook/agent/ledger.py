"""The ledger: the containers that may be frozen, in a file before the kernel is asked. Its reader thaws them.

It lies in memory (/run), so it ends with the node, as freezes do. A second file beside it is locked for as long as the
agent lives, and touched at each look: by it the thawer tells a dead agent and a silent one.
"""

import fcntl
import math
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from webhook.agent import freezer

FOLDER = Path("/run/slicewarden")

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
        self._file, self._lock_file = folder / "frozen", folder / "agent.lock"
        self._lock: int | None = None

    @property
    def held(self) -> bool:
        """Whether this process has the lock."""
        return self._lock is not None

    def take(self, tries: int = TRIES) -> str:
        """Take the lock, which one process of a node has. Returns why that failed, or an empty text."""
        if self._lock is not None:
            return ""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
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
    def missing(self) -> bool:
        """Whether no agent has ever written here. False where that cannot be told."""
        for file in (self._file, self._lock_file):
            try:
                file.lstat()
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
            return self._lock_file.stat().st_mtime_ns
        except OSError:
            return 0

    def write(self, until: Mapping[str, float]) -> str:
        """Write the ledger anew, whole or not at all. Returns why it failed, or an empty text.

        It is not flushed to a disk: it has to outlive the process, and not the node.
        """
        new = self.folder / "frozen.new"
        text = "".join(f"{moment:.3f} {path}\n" for path, moment in sorted(until.items()))
        try:
            fresh = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                rest = text.encode()
                while rest:
                    rest = rest[os.write(fresh, rest) :]
            finally:
                os.close(fresh)
            new.replace(self._file)
        except OSError as error:
            return f"{self.folder}: {error.strerror}"
        return ""

    def read(self) -> Entries:
        """Read what can be read: a cut line, and one that names no container's cgroup, count as strange."""
        try:
            file = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except FileNotFoundError:
            return Entries({})
        except OSError:
            return Entries({}, 1)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return Entries({}, 1)
            data = b""
            while len(data) < MAX_BYTES and (more := os.read(file, MAX_BYTES - len(data))):
                data += more
        except OSError:
            return Entries({}, 1)
        finally:
            os.close(file)
        until, strange = dict[str, float](), 0
        for line in data.decode("utf-8", "replace").split("\n"):
            moment, _, path = line.partition(" ")
            if freezer.own(path):
                until[path] = _number(moment)
            elif line:
                strange += 1
        return Entries(until, strange)


def _number(text: str) -> float:
    """Read a moment; one that says nothing has passed long ago."""
    try:
        moment = float(text)
    except ValueError:
        return -math.inf
    return moment if math.isfinite(moment) else -math.inf
