"""Freezes and thaws containers by the kernel's files (Documentation/admin-guide/cgroup-v2.rst, cgroup.freeze).

A frozen process holds no lock of the kernel: it stands still on its way back to its program, and SIGKILL ends it at
once. No container runtime is asked, so none remembers a pause: one that restarts would take the container for lost
(containerd internal/cri/server/restart.go), and the kubelet would start it anew.
"""

import os
import select
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from webhook.agent import places

PATIENCE = 1.0
"""Seconds for a freeze. A process that waits for a disk or a driver stands still only when that has answered."""

NOT_DONE, GONE = "not frozen in time", "gone"


def own(path: str) -> bool:
    """Tell whether a path below the mount is that of a container's cgroup: no other one is ever written to."""
    place, (first, *parts) = places.place(f"0::{path}"), path.split("/")
    plain = not first and path.isprintable() and not {"", ".", ".."}.intersection(parts)
    return plain and place is not None and place.path == path


class Freezer:
    """Freezes below the mount of a whole hierarchy of version 2. Paths begin with `/` and end at a container."""

    def __init__(self, root: Path, patience: float = PATIENCE) -> None:
        self.root, self._patience = root, patience

    def freeze(self, paths: Collection[str]) -> Mapping[str, str]:
        """Freeze containers, and wait until the kernel says that they are.

        Returns why for each one that is not; it is thawed again.
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
        """Thaw a container. Returns why it failed, or an empty text; one that is gone is thawed."""
        why = self._write(path, b"0")
        return "" if why == GONE else why

    def frozen(self, path: str) -> bool | None:
        """Tell whether all of a container stands still, for whatever reason; None if it is gone or cannot be read."""
        text = self._read(path, "cgroup.events")
        return None if text is None else b"frozen 1" in text.splitlines()

    def asked(self, path: str) -> bool | None:
        """Tell whether somebody asked the kernel to freeze this very container; None if it is gone."""
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
        except OSError as error:  # it was removed meanwhile
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
