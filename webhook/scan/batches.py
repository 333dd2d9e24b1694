"""Judges many files: twice through, for the facts of a run are known only when all of it was read, and on all cores.

Between the two passes objects are kept packed, at about a tenth of their text; after it only the verdicts are kept. So
memory grows with the findings and with the largest file, and hardly with the number of files. A few objects that one
process reads and judges stay as they are: to pack and unpack them would cost more than to judge them.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from webhook.api.fields import group_kind
from webhook.documents import files
from webhook.documents.files import Item
from webhook.engine.engine import Engine
from webhook.facts.snapshot import KINDS, Facts, kept
from webhook.model import Object, Problem
from webhook.scan import judge as check
from webhook.scan.results import Judged, Kind, Report, count_unjudged, kind_of

FILES = 64
"""How many files are read, or documents judged, at a time."""

ALONE = 512 * 1024
"""Bytes of files up to which one process is done before a second one is up."""

FEW = 2
"""Packs of objects that are judged before a second process is up."""

PROCESSES = 8
"""At most: reading is soon bound by the one process that gathers what was found."""


_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


Pack = bytes | list[Item]
"""Some objects, packed if they are many or go to another process."""


@dataclass
class Read:
    """What was read of some files: packs of objects, what of them are facts, and what could not be read."""

    packs: list[Pack] = field(default_factory=list)
    facts: list[Object] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


class Run(NamedTuple):
    """A run over some paths that was read, and can be judged."""

    read: tuple[Read, ...]

    @property
    def facts(self) -> Iterator[Object]:
        """The objects of the run that are facts, in their order."""
        return chain.from_iterable(read.facts for read in self.read)

    @property
    def problems(self) -> Iterator[Problem]:
        """What could not be read."""
        return chain.from_iterable(read.problems for read in self.read)

    def each(self, work: Callable[[Item], _Made | None]) -> Iterator[_Made]:
        """Do a work for each object, in order, and yield what it makes, if anything. Raises what the work raises."""
        packs = [pack for read in self.read for pack in read.packs]
        return chain.from_iterable(_each(partial(_done, work), packs, _cores() if len(packs) > FEW else 1))

    def judge(
        self, engine: Engine, facts: Facts, *, at: datetime, explained: bool = False, diffs: bool = False
    ) -> Report:
        """Judge every object. Raises check.Broke."""
        results = list(self.each(partial(_judged, engine=engine, facts=facts, diffs=diffs)))
        problems = [*self.problems, *(result for result in results if isinstance(result, Problem))]
        return Report(
            tuple(result for result in results if isinstance(result, Judged)),
            tuple(sorted(problems, key=lambda problem: (problem.file, problem.line))),
            explained,
            policy=engine.policy.name,
            digest=engine.policy.digest,
            at=at,
            unjudged=count_unjudged((kind for kind in results if isinstance(kind, Kind)), engine.policy.workloads),
        )


def read(paths: Iterable[str], namespace: str | None = None) -> Run:
    """Read all files of some paths; see `files.find`. What cannot be read is a problem, and the rest is still read.

    Objects without a namespace get `namespace`, if it is given.
    """
    found = list(files.find(paths))
    names = [name for name in found if isinstance(name, str)]
    alone = "-" in names or sum(map(_size, names)) < ALONE  # standard input is open in this process alone
    processes = 1 if alone else _cores()
    batches = [names[start : start + FILES] for start in range(0, len(names), FILES)]
    done = tuple(_each(partial(_read, namespace, sent=processes > 1), batches, processes))
    unfound = Read(problems=[problem for problem in found if isinstance(problem, Problem)])
    return Run((unfound, *done))


def _cores() -> int:
    """How many processes there may be; one where they cannot be started as copies of this one."""
    return min(len(os.sched_getaffinity(0)), PROCESSES) if sys.platform.startswith("linux") else 1


def _size(name: str) -> int:
    try:
        return Path(name).stat().st_size
    except OSError:
        return 0


def _each(work: Callable[[_Given], _Made], given: Iterable[_Given], processes: int) -> Iterator[_Made]:
    """Do a work for every argument, in order, in so many processes."""
    if processes < 2:
        yield from map(work, given)
        return
    import multiprocessing  # a tenth of the start of a run that needs none

    # A copy of this process has the policy and the facts already: they are never sent, and stay one object each.
    with multiprocessing.get_context("fork").Pool(processes, _begin, (work,)) as pool:
        yield from pool.imap(_do, given)


_work: list[Callable[[Any], Any]] = []
"""The one work of a process that was started for it."""


def _begin(work: Callable[[Any], Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asked ends this one
    _work[:] = [work]


def _do(given: Any) -> Any:
    return _work[0](given)


def _read(namespace: str | None, names: Sequence[str], *, sent: bool) -> Read:
    done, items = Read(), list[Item]()
    for name in names:
        for one in files.read(name):
            if isinstance(one, Problem):
                done.problems.append(one)
                continue
            opened, unusable = files.items([one])
            done.problems += unusable
            if namespace:
                opened = [_placed(item, namespace) for item in opened]
            done.facts += (_fact(item.value) for item in opened if group_kind(item.value) in KINDS)
            items += opened
            while len(items) >= FILES:
                done.packs.append(_packed(items[:FILES]))
                del items[:FILES]
    if items:
        done.packs.append(_packed(items) if sent else items)
    return done


def _placed(item: Item, namespace: str) -> Item:
    metadata = item.value.get("metadata") or {}
    if not isinstance(metadata, dict) or metadata.get("namespace") or item.value["kind"] in check.CLUSTER_SCOPED:
        return item
    return replace(item, value={**item.value, "metadata": {**metadata, "namespace": namespace}})


def _fact(value: Object) -> Object:
    """Keep the part of an object that facts are made of; one without it still replaces an earlier namesake."""
    small = kept(value)
    if small is not None:
        return small
    metadata = value.get("metadata")
    named = {key: metadata.get(key) for key in ("namespace", "name")} if isinstance(metadata, dict) else {}
    return {"apiVersion": value["apiVersion"], "kind": value["kind"], "metadata": named}


def _judged(item: Item, engine: Engine, facts: Facts, *, diffs: bool) -> Judged | Problem | Kind:
    """Judge an object, or return its kind if that kind is not judged."""
    return check.judge(item, engine, facts, diffs=diffs) or kind_of(item)


def _packed(items: list[Item]) -> bytes:
    import pickle  # for many objects alone
    import zlib

    return zlib.compress(pickle.dumps(items, pickle.HIGHEST_PROTOCOL), 1)


def _unpacked(pack: Pack) -> list[Item]:
    if isinstance(pack, list):
        return pack
    import pickle
    import zlib

    items: list[Item] = pickle.loads(zlib.decompress(pack))  # noqa: S301 - packed above
    return items


def _done(work: Callable[[Item], _Made | None], pack: Pack) -> list[_Made]:
    return [made for item in _unpacked(pack) if (made := work(item)) is not None]
