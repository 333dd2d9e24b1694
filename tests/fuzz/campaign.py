"""Cases without end: made from a seed, put to a target, kept when they bring something new to light."""

import re
import time
import traceback
import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from tests.fuzz import changes
from tests.fuzz.fault import Fault

CPU = 10.0
"""Seconds of a processor that a case may take, on a machine that is busy and slow. Most take a thousandth."""

AGAIN = 8
"""One of so many cases is put a second time, as is every one with a new outcome."""

MAX_ENTRY, MAX_KEPT = 64 * 1024, 8 * 1024 * 1024
"""Bytes of one case that is kept to be changed further, and of all of them."""

MAX_FAULTS = 20

TRIES = 400
"""How often a case is tried with something left out, to make it small."""


class Target(Protocol):
    """Something that reads what strangers send."""

    name: str

    @property
    def seeds(self) -> Sequence[bytes]:
        """Good cases, from which others are made."""

    def change(self, random: Random, case: bytes, other: bytes) -> bytes:
        """Make another case of one, or of two."""

    def judge(self, case: bytes, *, again: bool) -> Hashable:
        """Try a case. Returns what kind of outcome it was; raises Fault, or anything at all, for what must not be."""

    def close(self) -> None:
        """Check what has to hold of all cases together."""


@dataclass
class Found:
    """A case that shows a fault, as small as it was made."""

    target: str
    what: str
    case: bytes

    @property
    def file(self) -> str:
        """The name under which it is kept."""
        return f"{self.target}-{zlib.crc32(self.case):08x}"


@dataclass
class Tally:
    """How many cases there were, of how many kinds of outcome, and what was wrong."""

    cases: int = 0
    outcomes: int = 0
    found: list[Found] = field(default_factory=list)


class Hunt:
    """One target, with the cases that are worth changing further: one of so many seeds to begin with."""

    def __init__(
        self, target: Target, seed: str, mark: Callable[[bytes], None] = lambda _: None, one_of: int = 1
    ) -> None:
        self.target = target
        self.tally = Tally()
        self._random = Random(seed)  # noqa: S311 - the same cases again for the same seed
        self._mark = mark
        self._seeds = target.seeds[::one_of]
        self._kept = list(self._seeds)
        self.kept = sum(map(len, self._kept))
        """Bytes of the cases that are kept."""
        self._seen: set[int] = set()
        self._faults: set[str] = set()
        self._cases = self._made()

    def run(self, cases: int) -> None:
        """Try so many cases more."""
        for _ in range(cases):
            if len(self.tally.found) >= MAX_FAULTS:
                return
            self._try(next(self._cases))

    def close(self) -> None:
        """Check what holds of all cases together."""
        if what := wrong(self.target.close):
            self.tally.found.append(Found(self.target.name, what, b""))

    def _made(self) -> Iterator[bytes]:
        yield from self._seeds
        random = self._random
        while True:
            case = random.choice(self._kept)
            yield self.target.change(random, case, random.choice(self._kept))

    def _try(self, case: bytes) -> None:
        self.tally.cases += 1
        self._mark(case)
        outcomes: list[Hashable] = []
        what = self._wrong(case, outcomes, again=self.tally.cases % AGAIN == 0)
        if what is None:
            outcome = hash(outcomes[0])
            if outcome in self._seen:
                return
            self._seen.add(outcome)
            self.tally.outcomes += 1
            self._keep(case)
            what = self._wrong(case, outcomes, again=True)
        if what is not None and (key := re.sub(r"\d+", "#", what)) not in self._faults:
            self._faults.add(key)
            self.tally.found.append(Found(self.target.name, what, self._smallest(case, key)))

    def _wrong(self, case: bytes, outcomes: list[Hashable], *, again: bool) -> str | None:
        return wrong(lambda: outcomes.append(self.target.judge(case, again=again)))

    def _keep(self, case: bytes) -> None:
        if len(case) > MAX_ENTRY:
            return
        self._kept.append(case)
        self.kept += len(case)
        while self.kept > MAX_KEPT:
            place = self._random.randrange(len(self._seeds), len(self._kept))
            self._kept[place], self._kept[-1] = self._kept[-1], self._kept[place]
            self.kept -= len(self._kept.pop())

    def _smallest(self, case: bytes, key: str) -> bytes:
        """Leave out of a case whatever the fault does not need."""
        tries = TRIES
        left = True
        while left and tries:
            left = False
            for smaller in changes.smaller(case):
                tries -= 1
                if not tries:
                    break
                if len(smaller) < len(case):
                    self._mark(smaller)  # it may hang too, and so many together take long
                    what = self._wrong(smaller, [], again=True)
                    if what is not None and re.sub(r"\d+", "#", what) == key:
                        case, left = smaller, True
                        break
        return case


def wrong(act: Callable[[], object]) -> str | None:
    """Say what is wrong if an act is, or takes longer than anything may."""
    start = time.process_time()
    try:
        act()
    except Fault as error:
        cause = error.__cause__
        return f"{error}{f', at {_place(cause)}' if cause else ''}"
    except Exception as error:  # what a target raises by itself is a fault of what it tries
        return f"{type(error).__name__} at {_place(error)}"
    if (took := time.process_time() - start) > CPU:
        return f"takes {took:.0f} s"
    return None


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/webhook/" in frame.filename] or list(frames)
    return f"{Path(ours[-1].filename).name} {ours[-1].name}: {' '.join(str(error).split())[:120]}"
