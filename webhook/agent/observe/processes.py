"""Reads a process's container, start time and name from /proc. A process lives while one of its threads does."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from webhook.cgroups import places
from webhook.cgroups.places import ContainerCgroup

AGAIN = 4
"""Looks after which the container of a running process is read again, because a process may be moved."""

PROC = Path("/proc")
BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot() -> str:
    """Return the id of this boot of the node (man 5 proc); empty if it cannot be read."""
    try:
        return BOOT.read_text("ascii", "replace").strip()
    except OSError:
        return ""


class Process(NamedTuple):
    """A process, identified by its PID on the host and its start time (clock ticks since boot).

    `place` is None for a process outside any container.
    """

    pid: int
    start: int
    name: str
    place: ContainerCgroup | None


class Processes:
    """Finds processes and remembers those that run, so that most looks read only one file for each."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = str(proc)  # text, because joining 50 paths with pathlib would be the slowest part of a look
        self._known: dict[int, Process] = {}
        self._looks = 0

    def find(self, pids: Iterable[int]) -> Mapping[int, Process]:
        """Return the processes with these PIDs that have not ended. Forgets all other processes.

        A process outside any container is read again at each look, because the program that starts it often moves it
        into a container later.
        """
        self._looks += 1
        found: dict[int, Process] = {}
        for pid in pids:
            name, start, ended = self._stat(pid)
            thread = self._living(pid) if ended else ""
            if not start or thread is None:
                continue
            known = self._known.get(pid)
            same = known is not None and known.start == start
            if known is not None and same and known.place is not None and (self._looks + pid) % AGAIN:
                found[pid] = known
            elif (text := self._text(f"{pid}{thread}/cgroup")) is not None:
                found[pid] = Process(pid, start, name, places.place(text))
        self._known = found
        return found

    def alive(self, process: Process) -> bool:
        """Whether a process still runs, and its PID has not been reused."""
        _, start, ended = self._stat(process.pid)
        return start == process.start and not (ended and self._living(process.pid) is None)

    def _stat(self, pid: int, thread: str = "") -> tuple[str, int, bool]:
        """Read a process's name, its start time, and whether its first thread has ended; 0 if there is no process.

        See man 5 proc_pid_stat, fields 2, 3 and 22. With a `thread`, read those of a thread.
        """
        before, _, after = (self._text(f"{pid}{thread}/stat") or "").rpartition(")")
        fields = after.split()
        if len(fields) < 20 or not fields[19].isdigit():
            return "", 0, True
        return before.partition("(")[2], int(fields[19]), fields[0] in "ZX"

    def _living(self, pid: int) -> str | None:
        """Return the path of a thread of a process that has not ended, below the process's; None if all have.

        A process whose first thread has ended looks like one that has ended, but its other threads may use a card. The
        kernel shows the first one outside any cgroup of version 1 then (kernel/cgroup/cgroup.c, proc_cgroup_show).
        """
        try:
            with os.scandir(f"{self._proc}/{pid}/task") as threads:
                paths = (f"/task/{each.name}" for each in threads)
                return next((path for path in paths if not self._stat(pid, path)[2]), None)
        except OSError:
            return None

    def _text(self, path: str) -> str | None:
        try:
            descriptor = os.open(f"{self._proc}/{path}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return os.read(descriptor, places.MAX_TEXT).decode("utf-8", "replace")
        except OSError:  # the process ended between the two calls
            return None
        finally:
            os.close(descriptor)
