"""Freezes and thaws containers through the kernel's files (Documentation/admin-guide/cgroup-v2.rst, cgroup.freeze).

A frozen process holds no kernel locks, because it stops on its return to user space, and SIGKILL ends it at once. The
container runtime is not involved: if it restarted while it had paused a container, it would consider the container lost
(containerd internal/cri/server/restart.go), and the kubelet would restart it.
"""

import os
import select
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from webhook.cgroups import places

PATIENCE = 1.0
"""Maximum seconds for a freeze. A process that waits for a disk or a driver freezes only after the answer."""

NOT_DONE, GONE = "not frozen in time", "gone"


def own(path: str) -> bool:
    """Whether a path below the mount is a container's cgroup. The agent writes to no other path."""
    place, (first, *parts) = places.place(f"0::{path}"), path.split("/")
    plain = not first and path.isprintable() and not {"", ".", ".."}.intersection(parts)
    return plain and place is not None and place.path == path


class Freezer:
    """Freezes containers below the mount of cgroup v2. Paths begin with `/` and end at a container."""

    def __init__(self, root: Path, patience: float = PATIENCE) -> None:
        self.root, self._patience = root, patience

    def freeze(self, paths: Collection[str]) -> Mapping[str, str]:
        """Freeze containers, and wait until the kernel reports them as frozen.

        Returns the containers that could not be frozen, with the reason; they are thawed again.
        """
        end, failed = time.monotonic() + self._patience, dict[str, str]()
        for path in paths:
            if why := self._write(path, b"1"):
                failed[path] = why
        for path in paths:
            if path not in failed and (why := self._wait(path, end)):
                failed[path] = why
        for path in failed:
            self.thaw(path)
        return failed

    def thaw(self, path: str) -> str:
        """Thaw a container. Returns why that failed, or an empty text; a container that is gone is no failure."""
        why = self._write(path, b"0")
        return "" if why == GONE else why

    def frozen(self, path: str) -> bool | None:
        """Whether a container is frozen, for whatever reason; None if it is gone or cannot be read."""
        text = self._read(path, "cgroup.events")
        return None if text is None else b"frozen 1" in text.splitlines()

    def requested(self, path: str) -> bool | None:
        """Whether any program has asked the kernel to freeze this container itself; None if the container is gone."""
        text = self._read(path, "cgroup.freeze")
        return None if text is None else text.strip() == b"1"

    def _wait(self, path: str, end: float) -> str:
        try:
            events = os.open(self._file(path, "cgroup.events"), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            return error.strerror or NOT_DONE
        try:
            poll = select.poll()
            poll.register(events, select.POLLPRI)
            while b"frozen 1" not in os.pread(events, 4096, 0).splitlines():
                left = end - time.monotonic()
                if left <= 0:
                    return NOT_DONE
                poll.poll(1000 * left)
        except OSError as error:  # it has been removed
            return error.strerror or NOT_DONE
        finally:
            os.close(events)
        return ""

    def _write(self, path: str, value: bytes) -> str:
        if not own(path):
            return "not the cgroup of a container"
        try:
            file = os.open(self._file(path, "cgroup.freeze"), os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(file, value)
            finally:
                os.close(file)
        except OSError as error:
            return (error.strerror or "not written") if Path(f"{self.root}{path}").exists() else GONE
        return ""

    def _read(self, path: str, name: str) -> bytes | None:
        if not own(path):
            return None
        try:
            file = os.open(self._file(path, name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return os.read(file, 4096)
        except OSError:
            return None
        finally:
            os.close(file)

    def _file(self, path: str, name: str) -> str:
        return f"{self.root}{path}/{name}"
