"""Judges many files on all cores, in two passes: the facts of a run are complete only when every file has been read.

Between the passes the objects are packed, to about a tenth of their text. After the second only the verdicts are kept.
So memory grows with the findings and the largest file, and hardly with the number of files. A few objects that one
process reads and judges are not packed, since that would cost more than judging them.
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
"""Files that are read, or documents that are judged, at a time."""

ALONE = 512 * 1024
"""Bytes of files that one process reads before a second one would have started."""

FEW = 2
"""Packs of objects that one process judges before a second one would have started."""

PROCESSES = 8
"""The most processes. With more, the one process that gathers the results is the bottleneck."""


_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


Pack = bytes | list[Item]
"""Some objects, packed if there are many or if another process needs them."""


@dataclass
class Read:
    """The contents of some files: packs of objects, those among them that are facts, and problems."""

    packs: list[Pack] = field(default_factory=list)
    facts: list[Object] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


class ReadRun(NamedTuple):
    """The contents of all files of a run, ready to be judged."""

    read: tuple[Read, ...]

    @property
    def facts(self) -> Iterator[Object]:
        """The objects that are facts, in order."""
        return chain.from_iterable(read.facts for read in self.read)

    @property
    def problems(self) -> Iterator[Problem]:
        """The problems from reading the files."""
        return chain.from_iterable(read.problems for read in self.read)

    def each(self, work: Callable[[Item], _Made | None]) -> Iterator[_Made]:
        """Call `work` for each object in order, and yield the results that are not None. Raises its errors."""
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


def read(paths: Iterable[str], namespace: str | None = None) -> ReadRun:
    """Read all files of some paths (see `files.find`). A file that cannot be read is a problem; the others are read.

    Objects without a namespace get `namespace`, if it is given.
    """
    names_or_problems = list(files.find(paths))
    names = [name for name in names_or_problems if isinstance(name, str)]
    alone = "-" in names or sum(map(_size, names)) < ALONE  # standard input is open in this process alone
    processes = 1 if alone else _cores()
    batches = [names[start : start + FILES] for start in range(0, len(names), FILES)]
    done = tuple(_each(partial(_read, namespace, sent=processes > 1), batches, processes))
    unfound = Read(problems=[problem for problem in names_or_problems if isinstance(problem, Problem)])
    return ReadRun((unfound, *done))


def _cores() -> int:
    """Return the number of processes to use; 1 if this process cannot be forked."""
    return min(len(os.sched_getaffinity(0)), PROCESSES) if sys.platform.startswith("linux") else 1


def _size(name: str) -> int:
    try:
        return Path(name).stat().st_size
    except OSError:
        return 0


def _each(work: Callable[[_Given], _Made], arguments: Iterable[_Given], processes: int) -> Iterator[_Made]:
    """Call `work` for every argument, and yield the results in order. Uses this number of processes."""
    if processes < 2:
        yield from map(work, arguments)
        return
    import multiprocessing  # only for large runs, since the import takes a tenth of the startup

    # A forked process has the policy and the facts already, so they are never pickled.
    with multiprocessing.get_context("fork").Pool(processes, _begin, (work,)) as pool:
        yield from pool.imap(_do, arguments)


_work: list[Callable[[Any], Any]] = []
"""The work of this process, if it was forked for it."""


def _begin(work: Callable[[Any], Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    _work[:] = [work]


def _do(argument: Any) -> Any:
    return _work[0](argument)


def _read(namespace: str | None, names: Sequence[str], *, sent: bool) -> Read:
    contents, items = Read(), list[Item]()
    for name in names:
        for document in files.read(name):
            if isinstance(document, Problem):
                contents.problems.append(document)
                continue
            opened, unusable = files.items([document])
            contents.problems += unusable
            if namespace:
                opened = [_placed(item, namespace) for item in opened]
            contents.facts += (_fact(item.value) for item in opened if group_kind(item.value) in KINDS)
            items += opened
            while len(items) >= FILES:
                contents.packs.append(_packed(items[:FILES]))
                del items[:FILES]
    if items:
        contents.packs.append(_packed(items) if sent else items)
    return contents


def _placed(item: Item, namespace: str) -> Item:
    metadata = item.value.get("metadata") or {}
    if not isinstance(metadata, dict) or metadata.get("namespace") or item.value["kind"] in check.CLUSTER_SCOPED:
        return item
    return replace(item, value={**item.value, "metadata": {**metadata, "namespace": namespace}})


def _fact(value: Object) -> Object:
    """Return the part of an object that facts need; its name alone if there is none, to replace an earlier namesake."""
    part = kept(value)
    if part is not None:
        return part
    metadata = value.get("metadata")
    named = {key: metadata.get(key) for key in ("namespace", "name")} if isinstance(metadata, dict) else {}
    return {"apiVersion": value["apiVersion"], "kind": value["kind"], "metadata": named}


def _judged(item: Item, engine: Engine, facts: Facts, *, diffs: bool) -> Judged | Problem | Kind:
    """Judge an object, or return its kind if that kind is not judged."""
    return check.judge(item, engine, facts, diffs=diffs) or kind_of(item)


def _packed(items: list[Item]) -> bytes:
    import pickle  # only for many objects
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
    return [result for item in _unpacked(pack) if (result := work(item)) is not None]
