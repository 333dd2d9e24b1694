"""Reads /proc: which container a process belongs to, when it was started, and what it is called."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from webhook.agent import places
from webhook.agent.places import Place

PROC = Path("/proc")


BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot() -> str:
    """Return the id of this boot of the node, which a restart changes (man 5 proc); empty if it cannot be read."""
    try:
        return BOOT.read_text("ascii", "replace").strip()
    except OSError:
        return ""


class Process(NamedTuple):
    """A process by its PID on the host and its start (clock ticks since boot), which its PID's next owner has not.

    `place` is None for a process of no pod.
    """

    pid: int
    start: int
    name: str
    place: Place | None


class Processes:
    """Finds processes, and remembers those that still live, so that a look reads one file for each."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = str(proc)  # a path is joined 50 times a look, which pathlib makes the dearest part of it
        self._known: dict[int, Process] = {}

    def find(self, pids: Iterable[int]) -> Mapping[int, Process]:
        """Return the processes with these PIDs; one that has ended is left out. Forgets all others."""
        found: dict[int, Process] = {}
        for pid in pids:
            name, start = self._stat(pid)
            if not start:
                continue
            known = self._known.get(pid)
            if known is not None and known.start == start:
                found[pid] = known
            elif (text := self._text(pid, "cgroup")) is not None:
                found[pid] = Process(pid, start, name, places.place(text))
        self._known = found
        return found

    def still(self, process: Process) -> bool:
        """Tell whether a process lives, and is not another one with its PID."""
        return self._stat(process.pid)[1] == process.start

    def _stat(self, pid: int) -> tuple[str, int]:
        """Read a process's name and its start; 0 if it has ended (man 5 proc_pid_stat, fields 2, 3 and 22)."""
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
