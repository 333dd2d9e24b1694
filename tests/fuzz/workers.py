"""Processes that hunt, and what watches them: for cases that never end, end the process, or fill the memory."""

import ctypes
import mmap
import multiprocessing
import os
import resource
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from statistics import median

from tests import ROOT
from tests.fuzz import reviews, sockets, texts, wire
from tests.fuzz.campaign import Found, Hunt, Tally, Target
from webhook.cli import inputs

DEADLINE = 60.0
"""Seconds by the clock after which a case hangs; a thousand times what the slowest takes on a busy machine."""

MAX_CASE = 16 * 1024 * 1024

SHARES = {"reviews": 550, "wire": 150, "files": 130, "configurations": 150, "policies": 17, "sockets": 3}
"""How many of a thousand cases each target gets."""

BLOCK = 50
"""Cases between two looks at the clock."""

SLACK = 16.0
"""MiB of memory that may be in use late beyond what was early, besides the cases that are kept to be changed further.

In 30,000 cases the blocks that Python has in use grow by half a hundredth, which are the cases that are kept. What the
process grows by beyond is free, and kept by its allocators: glibc's gives it back when told to, and Python's never.
"""

LOOK = 10
"""Blocks between two looks at the memory: to give back what is free takes some milliseconds."""

MAX_MEMORY = 2 * 1024**3
"""Bytes of addresses that a process may take; a case that wants more is a fault."""


@dataclass(frozen=True)
class Share:
    """How long a process hunts: until either is used up."""

    cases: float
    seconds: float


def targets() -> list[Target]:
    """Every reader that strangers reach, as the webhook is run with the sample policy and cluster."""
    engine, facts = inputs.load_engine(
        str(ROOT / "policies" / "sample.yaml"), str(ROOT / "webhook" / "sample" / "facts.yaml")
    )
    return [
        reviews.Reviews(engine, facts),
        wire.Wire(engine, facts),
        texts.Files(engine, facts),
        texts.Configurations(),
        texts.Policies(facts),
        sockets.Sockets(engine, facts),
    ]


_HEAD = struct.Struct("<Q20sQ")


class Marked:
    """The case that a process is at, in memory that outlives it."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, MAX_CASE)

    def set(self, number: int, name: str, case: bytes) -> None:
        """Note a case before it is tried, and whose it is."""
        self._map.seek(_HEAD.size)
        self._map.write(case[: MAX_CASE - _HEAD.size])
        _HEAD.pack_into(self._map, 0, number, name.encode("ascii"), len(case))

    def get(self) -> tuple[int, str, bytes]:
        """Return what was noted last."""
        number, name, size = _HEAD.unpack_from(self._map)
        return number, name.rstrip(b"\0").decode("ascii"), self._map[_HEAD.size : _HEAD.size + size]


def hunt(make: Callable[[], Sequence[Target]], share: Share, seed: str, marked: Marked) -> dict[str, Tally]:
    """Hunt with every target in turn."""
    end = time.monotonic() + share.seconds
    made = 0

    def mark(name: str, case: bytes) -> None:
        nonlocal made
        made += 1
        marked.set(made, name, case)

    hunts = [Hunt(target, f"{seed} {target.name}", partial(mark, target.name)) for target in make()]
    # Each goes on when it is the one furthest behind its share.
    weights = [SHARES.get(each.target.name, 1000) for each in hunts]
    memory: list[float] = []
    blocks = 0
    while made < share.cases and time.monotonic() < end:
        behind = min(range(len(hunts)), key=lambda place: hunts[place].tally.cases / weights[place])
        before = made
        hunts[behind].run(BLOCK)
        blocks += 1
        if blocks % LOOK == 0:
            memory.append(_in_use() - sum(each.kept for each in hunts) / 2**20)
        if made == before:  # it has found more faults than anyone reads
            break
    for each in hunts:
        each.close()
    tallies = {each.target.name: each.tally for each in hunts}
    if what := grown(memory):
        next(iter(tallies.values())).found.append(Found("memory", what, b""))
    return tallies


def grown(memory: Sequence[float]) -> str | None:
    """Say by how much memory has grown, in MiB, from the second quarter of a run to its last, if by too much."""
    quarter = len(memory) // 4
    if quarter < 5:
        return None
    early, late = median(memory[quarter : 2 * quarter]), median(memory[-quarter:])
    if late <= early + SLACK:
        return None
    return f"memory grows from {early:.0f} to {late:.0f} MiB in {quarter * 2 * BLOCK * LOOK} cases"


def _in_use() -> float:
    """MiB of this process's own memory, without what glibc only keeps for later (malloc_trim(3)).

    Pages of files and shared memory are not its own: the largest case fills that many of `Marked` (proc(5), statm).
    """
    ctypes.CDLL(None).malloc_trim(0)
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text("ascii").split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE") / 2**20


def run(
    share: Share,
    seed: str,
    jobs: int,
    make: Callable[[], Sequence[Target]] = targets,
    deadline: float = DEADLINE,
) -> Mapping[str, Tally]:
    """Hunt in so many processes. One that hangs or dies is a fault of the case it was at."""
    together: dict[str, Tally] = {}
    watched = [Worker(make, share, f"{seed} {job}") for job in range(jobs)]
    while watched:
        ready = wait([worker.answer for worker in watched], 0.2)
        for worker in [each for each in watched if each.answer in ready]:
            watched.remove(worker)
            for name, tally in worker.ended().items():
                known = together.setdefault(name, Tally())
                known.cases += tally.cases
                known.outcomes = max(known.outcomes, tally.outcomes)
                known.found += tally.found
        for worker in watched:
            worker.look(deadline)
    return together


class Worker:
    """A process that hunts."""

    def __init__(self, make: Callable[[], Sequence[Target]], share: Share, seed: str) -> None:
        context = multiprocessing.get_context("fork")
        self.answer, theirs = context.Pipe(duplex=False)
        self._marked = Marked()
        self._at, self._since = 0, time.monotonic()
        self._hung = False

        def work() -> None:
            _, most = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, most))
            theirs.send(hunt(make, share, seed, self._marked))

        self._process = context.Process(target=work)
        self._process.start()
        theirs.close()

    def look(self, deadline: float) -> None:
        """End it if it has been at one case for too long."""
        number, _, _ = self._marked.get()
        if number != self._at:
            self._at, self._since = number, time.monotonic()
        elif time.monotonic() - self._since > deadline and not self._hung:
            self._hung = True
            self._process.kill()

    def ended(self) -> Mapping[str, Tally]:
        """Return what it has found, or what ended it."""
        try:
            tallies: Mapping[str, Tally] = self.answer.recv()
        except EOFError:
            number, name, case = self._marked.get()
            self._process.join()
            what = "hangs" if self._hung else f"ends the process, which exits with {self._process.exitcode}"
            tallies = {name: Tally(number, 0, [Found(name, what, case)])}
        self._process.join()
        self.answer.close()
        return tallies
