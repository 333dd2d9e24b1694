"""Reads a process's container, start time and name from /proc. A process lives while one of its threads does."""

import os
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from webhook.cgroups import places
from webhook.cgroups.places import ContainerCgroup

AGAIN = 4
"""Looks after which the container of a running process is read again, because a process may be moved."""

THREADS = 1000
"""The most threads of a process that are read at a look to find one that has not ended."""

GONE, HEADLESS = "gone", "headless"  # all threads have ended, or only the first

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
            name, start, state = self._stat(pid)
            if state == GONE:
                continue
            known = self._known.get(pid)
            same = known is not None and known.start == start
            if known is not None and same and known.place is not None and (self._looks + pid) % AGAIN:
                found[pid] = known
            elif (text := self._text(f"{pid}/cgroup")) is not None:
                place = places.place(text)
                if place is None and state == HEADLESS:
                    place = (known.place if known is not None and same else None) or self._place_of_thread(pid)
                found[pid] = Process(pid, start, name, place)
        self._known = found
        return found

    def alive(self, process: Process) -> bool:
        """Whether a process still runs, and its PID has not been reused."""
        _, start, state = self._stat(process.pid)
        return start == process.start and state != GONE

    def _stat(self, path: int | str) -> tuple[str, int, str]:
        """Read the name, the start time and the state of a process, or of a thread, by its path in /proc.

        See man 5 proc_pid_stat, fields 2, 3, 20 and 22. A process is HEADLESS if its first thread has ended and others
        are left: they may use a card, although the kernel calls the process a zombie. It is GONE if none is left.
        """
        before, _, after = (self._text(f"{path}/stat") or "").rpartition(")")
        fields = after.split()
        if len(fields) < 20 or not fields[19].isdigit():
            return "", 0, GONE
        ended = HEADLESS if fields[17] not in ("0", "1") else GONE
        return before.partition("(")[2], int(fields[19]), ended if fields[0] in "ZX" else ""

    def _place_of_thread(self, pid: int) -> ContainerCgroup | None:
        """Return the container of a thread that has not ended, of a HEADLESS process.

        The kernel shows an ended thread outside any cgroup of version 1 (kernel/cgroup/cgroup.c, proc_cgroup_show). A
        tenant may have a tracer keep a hundred thousand ended threads, so each look reads other THREADS of them. The
        links of the folder are two more than the threads (fs/proc/base.c, proc_task_getattr).
        """
        folder = f"{self._proc}/{pid}/task"
        try:
            first = THREADS * (self._looks % (1 + max(0, Path(folder).stat().st_nlink - 3) // THREADS))
            with os.scandir(folder) as threads:
                paths = [f"{pid}/task/{each.name}" for each in islice(threads, first, first + THREADS)]
        except OSError:
            return None
        living = (path for path in paths if not self._stat(path)[2])
        return next((places.place(self._text(f"{path}/cgroup") or "") for path in living), None)

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
