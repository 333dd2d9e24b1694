"""Reads a process's container, start time and name from /proc."""

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
            name, start = self._stat(pid)
            if not start:
                continue
            known = self._known.get(pid)
            same = known is not None and known.start == start
            if known is not None and same and known.place is not None and (self._looks + pid) % AGAIN:
                found[pid] = known
            elif (text := self._text(pid, "cgroup")) is not None:
                found[pid] = Process(pid, start, name, places.place(text))
        self._known = found
        return found

    def alive(self, process: Process) -> bool:
        """Whether a process still runs, and its PID has not been reused."""
        return self._stat(process.pid)[1] == process.start

    def _stat(self, pid: int) -> tuple[str, int]:
        """Read a process's name and start time; 0 if it has ended (man 5 proc_pid_stat, fields 2, 3 and 22)."""
        before, _, after = (self._text(pid, "stat") or "").rpartition(")")
        fields = after.split()
        if len(fields) < 20 or fields[0] in "ZX" or not fields[19].isdigit():
            return "", 0
        return before.partition("(")[2], int(fields[19])

    def _text(self, pid: int, file: str) -> str | None:
        try:
            descriptor = os.open(f"{self._proc}/{pid}/{file}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return os.read(descriptor, places.MAX_TEXT).decode("utf-8", "replace")
        except OSError:  # the process ended between the two calls
            return None
        finally:
            os.close(descriptor)
