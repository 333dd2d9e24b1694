"""Judges many files on all cores, in two passes: the facts of a run are complete only when every file has been read.

Between the passes the objects are compressed to about a tenth of their text. After the second only verdicts are kept.
So memory grows with the findings and the largest file, and hardly with the number of files. A few objects that one
process reads and judges are not packed, since that would cost more than judging them.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from webhook.api.encryption import is_encrypted
from webhook.api.fields import group_kind
from webhook.api.objects import CONFIG_MAP, judges
from webhook.catalog import passive
from webhook.catalog.places import Workloads
from webhook.catalog.workloads import WORKLOADS
from webhook.documents import files
from webhook.documents.documents import Document
from webhook.documents.files import Item
from webhook.engine.engine import Engine
from webhook.facts import rights
from webhook.facts.kinds import CLUSTER_SCOPED, KINDS, kept
from webhook.facts.kinds.resource_slice import SLICE
from webhook.facts.snapshot import Facts
from webhook.model import Object, Problem
from webhook.policy.resources import GPUResources
from webhook.rendering.model import Options, Rendering, identity, is_root
from webhook.scan import folders, sops, values
from webhook.scan import judge as check
from webhook.scan.folders import Apart
from webhook.scan.results import (
    REVIEW,
    Encrypted,
    GroupKind,
    InText,
    Judged,
    LeftAlone,
    PassedOver,
    Report,
    count_unjudged,
    kind_of,
)
from webhook.scan.unjudged import makes, may_have_places, places, uses_gpu, within_texts
from webhook.text.words import listed

NO_OBJECT = "no Kubernetes object in it"
"""The message for a path without objects."""

FILES = 64
"""Files that are read, or documents that are judged, at a time."""

ALONE, MOST = 2 * 2**20, 16 * 1024
"""Bytes of files that one process reads, for less work than others would make of it, and the most that count of a file.

One process reads a file, however long it is. Most long ones are definitions, of which no more than the kind is read.
"""

FEW = 12
"""Packs of objects that one process judges, for less work than others would make of them."""

PROCESSES = 8
"""The most processes. With more, the one process that gathers the results is the bottleneck."""


_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


Pack = bytes | list[Item]
"""Some objects, packed if there are many or if another process needs them."""


@dataclass(eq=False, repr=False)
class Read:
    """The contents of some files: compressed packs of objects, the facts among them, problems and warnings.

    `kinds` are the kinds of objects of which only the kind was read. Files that are `apart` were not judged.
    `unfollowed` is the number of objects that deploy objects which were not rendered. Nodes and ResourceSlices are
    only `claimed` to exist: the components of a cluster write them.
    """

    packs: list[Pack] = field(default_factory=list)
    facts: list[Object] = field(default_factory=list)
    claimed: list[Object] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    kinds: Counter[GroupKind] = field(default_factory=Counter)
    apart: Apart = field(default_factory=Apart)
    unfollowed: int = 0


class ReadRun(NamedTuple):
    """The contents of all files of a run, ready to be judged.

    `before` are objects in the state before a root in another folder changes them. They are judged too.
    """

    read: tuple[Read, ...]
    before: Sequence[Pack] = ()

    @property
    def facts(self) -> Iterator[Object]:
        """The objects from which facts are made, in their order."""
        return chain.from_iterable((*read.facts, *read.claimed) for read in self.read)

    def facts_next_to(self, known: Iterable[Object]) -> Iterator[Object]:
        """Yield the objects from which facts are made next to known ones. If a node is known, no other counts."""
        if all(group_kind(each) != _NODE for each in known):
            return self.facts
        return chain.from_iterable(read.facts for read in self.read)

    @property
    def problems(self) -> Iterator[Problem]:
        """The problems from reading the files."""
        return chain.from_iterable(read.problems for read in self.read)

    @property
    def warnings(self) -> Iterator[Problem]:
        """Warnings about text that kubectl accepts, but with a meaning that its author probably did not intend."""
        return chain.from_iterable(read.warnings for read in self.read)

    @property
    def kinds(self) -> Iterator[GroupKind]:
        """The kind of each object that was not read further, because no rule judges its kind."""
        return chain.from_iterable(read.kinds.elements() for read in self.read)

    @property
    def notes(self) -> Iterator[str]:
        """Lines about files in folders that were not judged."""
        return sum((read.apart for read in self.read), Apart()).notes

    def lacking(self, paths: Sequence[str]) -> tuple[Problem, ...]:
        """The problem that none of the paths has an object. Standard input may have none."""
        some = any(read.packs or read.kinds or read.problems for read in self.read)
        return () if some or "-" in paths else (Problem(paths[0], 0, NO_OBJECT),)

    @property
    def charts(self) -> int:
        """The number of charts that were not rendered."""
        return len(sum((read.apart for read in self.read), Apart()).charts)

    def each(self, work: Callable[[Item], _Made | None]) -> Iterator[_Made]:
        """Call `work` for each object in order, and yield the results that are not None. Raises its errors."""
        packs = [pack for read in self.read for pack in read.packs]
        return chain.from_iterable(_each(partial(_done, work), packs, _cores() if len(packs) > FEW else 1))

    def judge(
        self,
        engine: Engine,
        facts: Facts,
        *,
        at: datetime,
        explained: bool = False,
        diffs: bool = False,
        system: bool = False,
        dumps: Collection[str] = (),
    ) -> Report:
        """Judge every object; with `system`, also those that are never sent to the webhook. Raises check.Broke.

        Standard input and the files `dumps`, given by their real paths, may hold objects of a cluster. In other files
        nothing proves that an object comes from one.
        """
        work = partial(_judged, engine=engine, facts=facts, diffs=diffs, system=system, dumps=dumps)
        results = list(chain.from_iterable(self.each(work)))
        as_written = chain.from_iterable(_each(partial(_done, work), self.before, 1))
        unlike = _denied_files(chain.from_iterable(as_written)) - _denied_files(results)
        lines = [_UNLIKE.format(listed(sorted(unlike), 3))] if unlike else []
        problems = [*self.problems, *(result for result in results if isinstance(result, Problem))]
        return Report(
            tuple(result for result in results if isinstance(result, Judged)),
            tuple(sorted(problems, key=lambda problem: (problem.file, problem.line))),
            explained,
            policy=engine.policy,
            at=at,
            unjudged=count_unjudged(
                (*map(PassedOver, self.kinds), *(each for each in results if isinstance(each, PassedOver))),
                engine.policy.workloads,
            ),
            warnings=tuple(self.warnings),
            unread=(*self.notes, *lines),
            unfollowed=sum(read.unfollowed for read in self.read),
            encrypted=tuple(result for result in results if isinstance(result, Encrypted)),
            texts=tuple(result.place for result in results if isinstance(result, InText)),
            left_alone=Counter(result.namespace for result in results if isinstance(result, LeftAlone)),
        )


_UNLIKE = (
    "denied as they are written, and judged only as Helm, a kustomization, Flux or Argo CD changes them: {}; check "
    "FILE judges one as it is"
)


def _denied_files(results: Iterable[object]) -> set[str]:
    denied = (result for result in results if isinstance(result, Judged) and not result.verdict.allowed)
    return {os.path.normpath(name) for result in denied for name in (result.file, *result.files)}


class ReadOptions(NamedTuple):
    """How the files of a run are read.

    Objects without a namespace get `namespace`, if there is one. A file that is `given` by name must contain an object.
    `patches` are files that a kustomization names, and kinds of `workloads` are read whole. So are objects of other
    kinds that may contain a container or name one of `gpus`; all of them without `gpus`.
    """

    namespace: str | None
    given: frozenset[str]
    patches: frozenset[str]
    workloads: Workloads
    gpus: GPUResources | None = None
    rbac: bool = False

    def passes_over(self, key: tuple[str, str]) -> bool:
        """Return whether objects of a group and kind contain nothing that is judged."""
        return key in passive.KINDS and not (self.rbac and key in rights.KINDS) and key not in self.workloads

    def skips(self, api_version: str, kind: str, text: str) -> bool:
        """Return whether only the kind of an object is read."""
        key = api_version.rpartition("/")[0], kind
        if self.passes_over(key):
            return True
        if key in passive.KINDS and not (self.rbac and key in rights.KINDS):
            return False
        if self.gpus is None or key in _READ or kind.endswith("List") or judges(*key, self.workloads):
            return False
        return not may_have_places(text, self.gpus)


_READ = KINDS.keys() | values.KINDS | {REVIEW}
"""Kinds that are not judged, or not always, and read whole."""


_BY_DEFAULT = Options(cached=False)


def read(
    paths: Iterable[str],
    namespace: str | None = None,
    *,
    workloads: Workloads = WORKLOADS,
    gpus: GPUResources | None = None,
    rbac: bool = False,
    skip_others: bool = False,
    rendering: Options | None = _BY_DEFAULT,
) -> ReadRun:
    """Read all files of some paths (see `files.find`). A file that cannot be read is a problem; the others are read.

    Kustomizations, charts, and what objects of Flux and Argo CD deploy are rendered: their output is judged, and the
    files that it comes from are not judged again. Without `rendering` each file is read as it is. In a folder,
    templates, patches and files without a Kubernetes object are counted and passed over; so are those that are given by
    name with `skip_others`. The other arguments are those of `ReadOptions`.
    """
    paths = list(paths)
    names_or_problems = list(files.find(paths))
    names = [name for name in names_or_problems if isinstance(name, str)]
    given = frozenset(("-",) if skip_others else paths)
    patches = folders.patches(names)
    reading = ReadOptions(namespace, given, patches.parts, workloads, gpus, rbac)
    made = _made(names, frozenset(paths), rendering._replace(namespace=namespace or "")) if rendering else Rendering()
    path = os.path.realpath if rendering and rendering.touched else os.path.normpath
    within = set(map(path, made.files))
    is_among = files.among(names, paths)
    before = [item for item in made.before if is_among(item.document.file)]
    patched = (
        patches.own | made.patches | {os.path.normpath(name) for name in names if path(name) in within} & patches.whole
    )
    unlike = [name for name in names if os.path.normpath(name) in patched]
    names = [name for name in names if name == "-" or not (path(name) in within or _is_rendered(name, made))]
    # Standard input is open only in this process.
    alone = "-" in names or sum(min(_size(name), MOST) for name in names) < ALONE
    processes = 1 if alone else _cores()
    step = FILES if processes > 1 else max(len(names), 1)  # in a single process, packs do not end with a batch
    batches = [names[start : start + step] for start in range(0, len(names), step)]
    done = tuple(_each(partial(_read, reading, made, sent=processes > 1), batches, processes))
    unfound = Read(problems=[*(each for each in names_or_problems if isinstance(each, Problem)), *made.problems])
    unfound.unfollowed = len(made.unfollowed)
    unfound.apart.rendered.extend(made.notes)
    unfound.apart.hidden.extend(name for name in files.hidden(paths) if name not in given)
    if whole := sorted(patches.whole - patched):
        unfound.apart.rendered.append(
            f"judged as objects, though kustomizations of other folders name them as patches: {listed(whole, 3)}"
        )
    if some := folders.left_out(made):
        words = "template makes" if len(some) == 1 else "templates make"
        unfound.apart.rendered.append(
            f"{len(some):,} {words} no pod or claim, or not each, with the values of the charts here; the rest is not "
            f"judged: {listed(some, 3)}"
        )
    if found := list(folders.helmfiles(path for path in paths if path != "-")) if rendering else ():
        unfound.unfollowed += len(found)
        words = "file" if len(found) == 1 else "files"
        unfound.apart.rendered.append(f"{len(found):,} {words} of Helmfile not rendered: {listed(found, 3)}")
    on_disk = [name for name in names_or_problems if isinstance(name, str) and name != "-"]
    if found := _converted(folders.attributes([path for path in paths if path != "-"]), on_disk, made.texts):
        unfound.unfollowed += len(found)
        words = "file changes" if len(found) == 1 else "files change"
        unfound.apart.rendered.append(
            f"{len(found):,} {words} what Git checks out, and Flux reads what Git keeps: {listed(found, 3)}"
        )
    if found := folders.pointers(dict.fromkeys(map(os.path.normpath, (*on_disk, *sorted(made.texts))))):
        unfound.unfollowed += len(found)
        words = "file is a pointer" if len(found) == 1 else "files are pointers"
        unfound.apart.rendered.append(
            f"{len(found):,} {words} of Git LFS, and the content is not here: {listed(found, 3)}"
        )
    if found := folders.hidden_roots(paths):
        words = "hidden folder has" if len(found) == 1 else "hidden folders have"
        unfound.apart.rendered.append(
            f"{len(found):,} {words} a kustomization, chart or helmfile, only rendered if named: {listed(found, 3)}"
        )
    if found := list(folders.linked((path for path in paths if path != "-"), made)):
        words = "link to a folder is" if len(found) == 1 else "links to folders are"
        unfound.apart.rendered.append(f"{len(found):,} {words} only followed if named: {listed(found, 3)}")
    if found := list(folders.terraform(path for path in paths if path != "-")):
        words = "file of Terraform holds" if len(found) == 1 else "files of Terraform hold"
        unfound.apart.rendered.append(f"{len(found):,} {words} a sharing configuration, not judged: {listed(found, 3)}")
    return ReadRun(
        (unfound, _rendered(reading, made), *done), _as_before(reading._replace(patches=frozenset()), before, unlike)
    )


def _converted(given: Sequence[str], names: Iterable[str], texts: Iterable[str]) -> list[str]:
    if not given:
        return []
    from webhook.scan import attributes  # which few runs need

    return attributes.converted(given, names, texts)


def _as_before(reading: ReadOptions, items: Iterable[Item], names: Sequence[str]) -> Sequence[Pack]:
    """Return objects before a root changed them, and those of some files. One of several roots occurs only once."""
    found = {(*item.where(()), json.dumps(item.value, sort_keys=True)): item for item in items}
    contents = _read(reading, Rendering(), names, sent=False)
    _gather((_placed(each, reading.namespace) for each in found.values()), contents)
    return contents.packs


def _made(names: Sequence[str], given: frozenset[str], options: Options) -> Rendering:
    """Render the roots among some files. A file given by name is a kustomization, but not a root."""
    if not options.touched and all(name in given and not is_root(name) for name in names):
        return Rendering()
    from webhook.rendering import rendering  # to run programs takes long to import

    return rendering.render(names, options, given=given)


def _is_rendered(name: str, made: Rendering) -> bool:
    """Whether a file is a template of a chart that was rendered. Helm may leave out others, which are judged."""
    return folders.chart_of(name) in made.charts and files.is_template(name)


def _rendered(reading: ReadOptions, made: Rendering) -> Read:
    """Return the rendered objects. An object that several roots render in the same way occurs only once."""
    contents, seen = Read(), set[tuple[Any, ...]]()
    _gather(_once(reading, made, contents, seen), contents, sent=len(made.outputs) > FEW)
    return contents


def _once(reading: ReadOptions, made: Rendering, contents: Read, seen: set[tuple[Any, ...]]) -> Iterator[Item]:
    for output in made.outputs:
        for item in output.items:
            key = group_kind(item.value)
            same = (*item.where(()), item.document.index, json.dumps(item.value, sort_keys=True))
            if same in seen:
                continue
            seen.add(same)
            if _is_installed(item, made) or reading.passes_over(key):
                contents.kinds[GroupKind(*key)] += 1
                continue
            yield from values.config_maps_of(item)
            yield _placed(item, reading.namespace)


def _is_installed(item: Item, made: Rendering) -> bool:
    """Whether an object installs a chart that was rendered."""
    return group_kind(item.value) in values.KINDS and identity(item) in made.installed


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
    import signal  # as multiprocessing, only for large runs

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    _work[:] = [work]


def _do(argument: Any) -> Any:
    return _work[0](argument)


def _read(reading: ReadOptions, made: Rendering, names: Sequence[str], *, sent: bool) -> Read:
    contents = Read()
    found = (item for name in names for item in _opened(reading, name, contents))
    _gather((item for item in found if not _counted(item, made, contents)), contents, sent=sent)
    return contents


def _counted(item: Item, made: Rendering, contents: Read) -> bool:
    """Count an object that installs a chart which was rendered, and return whether it is one."""
    if installs := _is_installed(item, made):
        contents.kinds[GroupKind(*group_kind(item.value))] += 1
    return installs


_NODE = ("", "Node")

_OF_NODES = frozenset((_NODE, SLICE))
"""Kinds whose objects kubelets and drivers write."""


def _gather(found: Iterable[Item], contents: Read, *, sent: bool = False) -> None:
    """Add objects to the contents: in packs, and those that are facts."""
    items = list[Item]()
    for item in found:
        if not item.inside and (kind := group_kind(item.value)) in KINDS:
            (contents.claimed if kind in _OF_NODES else contents.facts).append(_fact(item.value))
        items.append(item)
        if len(items) == FILES:
            contents.packs.append(_packed(items))
            items = []
    if items:
        contents.packs.append(_packed(items) if sent else items)


def _opened(reading: ReadOptions, name: str, contents: Read) -> Iterator[Item]:
    """Yield the objects of a file, and note everything else in the contents."""
    apart = contents.apart
    if name not in reading.given:
        if os.path.normpath(name) in reading.patches:
            apart.patches.append(name)
            return
        chart = folders.chart_of(name)
        if chart and files.is_template(name):
            apart.charts[chart] += 1
            return
    yield from _held(reading, name, files.read(name, reading.skips), contents)


def _held(reading: ReadOptions, name: str, documents: Iterable[Document | Problem], contents: Read) -> Iterator[Item]:
    """Yield the objects of the documents of a file or chart, and note everything else in the contents."""
    given, apart = name in reading.given, contents.apart
    objects, faults, untyped, broken = 0, 0, list[Problem](), list[Problem]()
    values_use_gpu = False
    for document in documents:
        if isinstance(document, Problem):
            if given:
                contents.problems.append(document)
                faults += 1
            elif not _is_of_template(document, name):
                broken.append(_with_way(document))
            else:
                faults += 1
                if name not in apart.templates:
                    apart.templates.append(name)
            continue
        if document.glanced:
            objects += 1
            contents.kinds[GroupKind(*group_kind(document.value))] += 1
            continue
        for item in values.config_maps(document):
            objects += 1
            yield item
        opened, unusable = files.items([document])
        if not (given or opened or files.is_created(document.value)):
            values_use_gpu = values_use_gpu or (reading.gpus is not None and uses_gpu(document.value, reading.gpus))
            untyped += unusable
            continue
        contents.problems += unusable
        contents.warnings += (
            Problem(name, repeat.line, f"{repeat.text}; the last counts, as kubectl reads it")
            for repeat in document.repeats
            if opened
        )
        faults += len(unusable)
        objects += bool(opened) or files.is_created(document.value)
        yield from (_placed(item, reading.namespace) for item in opened)
    usual = files.is_read(Path(name))  # others are given by name to be skipped if they have no object
    if broken and (objects or faults or (usual and files.may_hold_objects(name))):
        contents.problems += broken
        faults += len(broken)
    if objects:
        contents.problems += untyped  # among other objects, one without apiVersion or kind is an error
    elif not faults and given and name != "-":
        contents.problems.append(Problem(name, 0, NO_OBJECT))
    elif usual and not (faults or given):
        (apart.values if values_use_gpu else apart.others).append(name)


def _is_of_template(problem: Problem, name: str) -> bool:
    """Whether a file of a folder cannot be read because it is a template."""
    if folders.is_of_templates(name):
        return problem.message.endswith((files.TEMPLATE, files.TERRAFORM))
    return problem.message.endswith(files.TERRAFORM)


def _with_way(problem: Problem) -> Problem:
    """Say where a template may stay in a folder."""
    if not problem.message.endswith(files.TEMPLATE):
        return problem
    return problem._replace(message=problem.message.removesuffix(files.TEMPLATE) + files.MISPLACED)


def _placed(item: Item, namespace: str | None) -> Item:
    metadata = item.value.get("metadata") or {}
    if (
        not namespace
        or not isinstance(metadata, dict)
        or metadata.get("namespace")
        or group_kind(item.value) in CLUSTER_SCOPED
    ):
        return item
    return replace(item, value={**item.value, "metadata": {**metadata, "namespace": namespace}})


def _fact(value: Object) -> Object:
    """Return the part of an object that facts need, or only its name, to replace an earlier namesake."""
    part = kept(value)
    if part is not None:
        return part
    metadata = value.get("metadata")
    named = {key: metadata.get(key) for key in ("namespace", "name")} if isinstance(metadata, dict) else {}
    return {"apiVersion": value["apiVersion"], "kind": value["kind"], "metadata": named}


def _judged(
    item: Item, engine: Engine, facts: Facts, *, diffs: bool, system: bool, dumps: Collection[str]
) -> list[Judged | Problem | LeftAlone | PassedOver | InText | Encrypted]:
    """Judge an object. If its kind is not judged, return the kind and the contents that matter.

    A ConfigMap has a result more for each of its texts that is an object which uses a GPU. An encrypted object is only
    judged if something that is not encrypted in it is denied.
    """
    written = not _is_dump(item, dumps)
    result = check.judge(item, engine, facts, diffs=diffs, system=system, written=written)
    if is_encrypted(item.value) and not (isinstance(result, Judged) and sops.is_denied(item.value, result.verdict)):
        return [Encrypted(*sops.named(item))]
    gpus = engine.policy.gpu_resources
    texts = within_texts(item, gpus) if group_kind(item.value) == CONFIG_MAP else ()
    return [result or PassedOver(kind_of(item), places(item, gpus) or makes(item)), *map(InText, texts)]


def _is_dump(item: Item, dumps: Collection[str]) -> bool:
    """Whether an object is from standard input, or from one of the files `dumps` without a rendering."""
    name = item.document.file
    return name == "-" or bool(not item.root and dumps and os.path.realpath(name) in dumps)


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
