"""Measures the cost of a server's processes, as Linux counts it in /proc, and the cost of a command."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import IO

from bench.generator import Wrong

PROC = Path("/proc")
_TICK = 1_000_000 // os.sysconf("SC_CLK_TCK")  # microseconds


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a command: elapsed seconds, CPU seconds of all cores, and the MiB of its largest process."""

    wall: float
    cpu: float
    memory: float


_WATCH = """
import json, os, sys, time
null = os.open(os.devnull, os.O_RDWR)
begun = time.perf_counter()
actions = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, null, 2)]
process = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ, file_actions=[
    *actions, (os.POSIX_SPAWN_OPEN, 1, sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
])
_, status, used = os.wait4(process, 0)
took = time.perf_counter() - begun
print(json.dumps([os.waitstatus_to_exitcode(status), took, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""


def cost(
    command: Sequence[str],
    environment: dict[str, str],
    statuses: Sequence[int] = (0, 1),
    output: str = os.devnull,
) -> Cost:
    """Run a command to its end, with its standard output to a file. Raises Wrong for another exit status.

    A small process starts it: Linux counts the memory of the process that starts a program as the program's own peak
    (exec_mmap in fs/exec.c), and a benchmark may have grown large.
    """
    watch = [sys.executable, "-I", "-S", "-c", _WATCH, output, *command]
    done = subprocess.run(watch, env=environment, check=True, stdout=subprocess.PIPE)
    code, wall, cpu_time, memory = json.loads(done.stdout)
    if code not in statuses:
        raise Wrong(f"{' '.join(command)}: exit status {code}")
    return Cost(wall, cpu_time, memory)


@contextmanager
def running(command: list[str], cwd: Path, errors: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server while the block lasts; then stop it and every process it started.

    It gets its own process group, so that Ctrl-C reaches it only through this process, once.
    """
    null = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=cwd, stdin=null, stdout=null, stderr=errors, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, SIGKILL)
        process.wait()


def tree(root: int) -> list[int]:
    """Return the process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, ())
    return found


def cpu(pids: list[int]) -> int:
    """Return the microseconds of CPU time that the processes have used, in user and in system mode."""
    return sum(_TICK * (int(fields[11]) + int(fields[12])) for pid in pids if (fields := _stat(pid)))


def resident(pids: list[int]) -> float:
    """Return the MiB of memory that the processes use. A page that several of them share counts for each."""
    page = os.sysconf("SC_PAGE_SIZE")
    return sum(page * int(fields[21]) for pid in pids if (fields := _stat(pid))) / 2**20


def charged(pids: list[int]) -> float:
    """Return the MiB of memory that the processes use together. A page that several of them share counts once (Pss)."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            rollup = (PROC / str(pid) / "smaps_rollup").read_text()
            total += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return total / 1024


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat that follow the name, from the state on; none if it has ended."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
