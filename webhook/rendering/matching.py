"""Finds the places in the sources of the objects that a program made, and the files whose objects they replace."""

import json
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import NamedTuple

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, string
from webhook.api.objects import CONFIG_MAP, judges
from webhook.documents import files
from webhook.documents.documents import Document, Source, read
from webhook.documents.files import Item
from webhook.kustomize import following, patching
from webhook.kustomize.followed import Built, BuiltIndex, name_of
from webhook.kustomize.origins import ItemLayer, Rendered, without_origin
from webhook.model import Object, Problem
from webhook.rendering import deploying
from webhook.rendering.building import COPY, OVER, Job, reads_annotations
from webhook.rendering.created import SHARING, creates, is_created
from webhook.rendering.flux_sources import GIT, SOURCES
from webhook.rendering.variables import MAX_FILLED, Variables, substituted
from webhook.repository.tree import Tree, Unseen


class Matched(NamedTuple):
    """The objects in a program's output with their places in the sources; the real path of each origin, with a kind."""

    items: list[Item]
    origins: list[tuple[str, tuple[str, str]]]


def matched(job: Job, data: bytes, tree: Tree, prefix: str) -> tuple[Matched, list[Problem]]:
    """Return the objects in a program's output, and the problems of unreadable parts.

    `prefix` is the path of the repository from the working folder.
    """
    documents, problems = read(data.decode("utf-8", "replace"), job.place)
    items, unusable = files.items(documents)
    index, made = BuiltIndex(job.found.objects), Matched([], [])
    for value, origin in (without_origin(item.value) for item in items):
        file = _file(job, origin, tree, prefix) if origin else ""
        made.items.append(_placed(job, value, index, file))
        made.origins.append((os.path.realpath(file) if file else "", group_kind(value)))
    return made, [each._replace(line=0) for each in (*problems, *unusable)]


def _file(job: Job, origin: str, tree: Tree, prefix: str) -> str:
    path = os.path.join(OVER if job.over else tree.checked(os.path.join(job.folder, ".")), origin)
    path = os.path.relpath(path, COPY) if job.over else path
    return os.path.normpath(os.path.join(prefix, path))


def _placed(job: Job, value: Object, index: BuiltIndex, file: str) -> Item:
    if each := index.find(value):
        return Rendered(each.layers[0].document, (), value, root=job.root, layers=each.layers)
    place = file if file and os.path.isfile(file) else job.place
    return Item(Document(place, 0, None, 0, Source("", 0)), (), value, root=job.root)


def finished(item: Item, job: Job, *, flux: bool) -> Item:
    """Return an object with its placeholders filled in, and in the default namespace if it has none.

    If no object here deploys a folder and `flux` deploys the repository, an object elsewhere may do so: the defaults
    are filled in then, unless that makes two keys one.
    """
    value, some = item.value, job.variables or (_ELSEWHERE if flux and job.over is None else None)
    if some and some.active and not (some.filled(value) > MAX_FILLED or _is_disabled(value, job)):
        kept = some is _ELSEWHERE and some.merges(value)
        value = value if kept else substituted(value, some.known, strict=some.strict)
    if job.default and following.is_namespaced(value) and not mapping(value.get("metadata")).get("namespace"):
        value = patching.placed(value, job.default)
    return item if value is item.value else replace(item, value=value)


_ELSEWHERE = Variables({})
"""What is known of the variables if no object here deploys a folder."""


def unfilled(items: Iterable[Item], made: Iterable[Item], job: Job) -> Iterator[Item]:
    """Yield the objects of a folder that no object here deploys as they were before their placeholders were filled in.

    They are judged too, because kubectl creates them like that.
    """
    for item, each in zip(items, made, strict=True):
        if job.over is None and each.value != item.value:
            yield item


def unmoved(items: Iterable[Item], job: Job) -> Iterator[Item]:
    """Yield the objects of charts that a kustomization moves, in the namespaces that the charts write, if any.

    Kustomize since 5.8 leaves them there (api/internal/builtins NamespaceTransformer.go). An object that is not
    recognised may be one of a chart.
    """
    for item in items if job.of_charts else ():
        first = item.layers[0] if isinstance(item, Rendered) else None
        if first is None or isinstance(first, ItemLayer):
            own = name_of(mapping(first.value))[1] if first else ""
            if following.is_namespaced(item.value) and name_of(item.value)[1] != own:
                made = replace(item, value=patching.placed(item.value, own))
                yield finished(made, job, flux=job.variables is not None)


def is_guessed(item: Item, job: Job) -> bool:
    """Whether Flux may fill in a placeholder of an object otherwise than `variables.substituted` does.

    Objects that are neither judged nor deploy others do not count.
    """
    value = item.value
    if job.variables is None or _is_disabled(value, job):
        return False
    of_map = group_kind(value) == CONFIG_MAP and job.variables.opens(value)
    if not (of_map or job.variables.guesses(value)):
        return False
    made = {key: value.get(key) for key in ("apiVersion", "kind")}
    kind = group_kind(substituted(made, job.variables.known, strict=job.variables.strict))
    if kind == CONFIG_MAP:
        return SHARING in json.dumps(value)
    deploys = kind in (deploying.FLUX, deploying.RELEASE, deploying.APPLICATION, deploying.SET, GIT, _CHART)
    return deploys or judges(*kind) or is_created(value) or job.variables.guesses([*made.values()])


def unsure_keys(item: Item, job: Job) -> frozenset[str]:
    """Return the keys of a ConfigMap whose texts Flux may fill in otherwise than `variables.substituted` does."""
    if job.variables is None or group_kind(item.value) != CONFIG_MAP or _is_disabled(item.value, job):
        return frozenset()
    data = mapping(item.value.get("data"))
    if job.variables.filled(data) > MAX_FILLED:
        return frozenset(data)
    return frozenset(key for key, text in data.items() if job.variables.guesses({key: text}))


_CHART = (SOURCES, "HelmChart")


def _is_disabled(value: Object, job: Job) -> bool:
    """Whether Flux fills in no placeholder of an object (fluxcd/pkg kustomize/kustomize_varsub.go).

    Labels of its `commonMetadata` are set afterwards.
    """
    metadata = mapping(value.get("metadata"))
    keys = ["annotations"] if job.over and "labels" in job.over.value else ["annotations", "labels"]
    return any(mapping(metadata.get(key)).get(_SUBSTITUTE) == "disabled" for key in keys)


_SUBSTITUTE = "kustomize.toolkit.fluxcd.io/substitute"


def judged_by(job: Job, tree: Tree, output: Matched | None) -> Iterator[str]:
    """Yield the files that need not be judged by themselves, because their objects are among those that a root makes.

    A file that a generator reads, or only the program, may have an object that somebody applies: then the file is not
    yielded. Nor is a file with objects that kustomize does not read or make, nor a whole object outside the root's
    folders, unless Flux or Argo CD lets the root read it, nor an object that kustomize leaves out because it is marked
    as a local one. `output` is what a program makes, if one was run.
    """
    found = job.found
    written = {each.layers[0].document.file for each in found.written} if job.built else set()
    unmade = {name for name in written if _reads_less(name, tree)}
    unmade |= {*_left_out(job, output, tree)} & written if output else set()
    marked = (*found.written, *found.objects) if job.built else ()
    local = {each.layers[0].document.file for each in marked if _is_local(each.value)}
    kustomizations = {name for name in found.files if os.path.basename(name) in files.KUSTOMIZATIONS}
    longer = {name for name in kustomizations if _has_more(name, tree)}  # generators and patches may be in them
    own = {tree.kustomization(folder) for folder in found.folders}
    own |= {each.layers[0].document.file for each in found.objects} if job.over else set()
    known = found.deleted | {layer.document.file for each in found.objects for layer in each.layers if not layer.text}
    for name in found.files - local - longer - unmade:
        if name in own or (name in known and _belongs(name, found.folders, tree)) or not holds_objects(name, tree):
            yield os.path.normpath(name)


def _left_out(job: Job, output: Matched, tree: Tree) -> Iterator[str]:
    """Yield the files of which a program's output may lack an object that no patch has deleted.

    What only the program follows may delete an object, too. Then it counts only if something may mark it as a local
    one. Its name is not known then, but the origins of all objects of its kind, unless something has changed one.
    """
    found = job.found
    if not found.unfollowed:
        made = {id(each.layers[0]) for each in output.items if isinstance(each, Rendered)}
        objects = found.objects if len(output.items) < len(found.objects) else ()
        yield from (each.layers[0].document.file for each in objects if id(each.layers[0]) not in made)
    else:
        numbers = Counter(output.origins)
        wanted = Counter((each.layers[0].document.file, group_kind(each.value)) for each in found.objects)
        lacking = {kind for (file, kind), number in wanted.items() if numbers[os.path.realpath(file), kind] < number}
        if lacking and reads_annotations(job, tree):
            yield from (file for file, kind in wanted if kind in lacking)


def patches_over(job: Job, tree: Tree) -> Iterator[str]:
    """Yield the files of whole objects that an object of Argo CD names as patches, and its folder does not use.

    They are judged too, because somebody may apply them.
    """
    if job.over is None:
        return
    first = {job.over.document.file, *(each.layers[0].document.file for each in job.found.objects)}
    layers = (layer for each in job.found.objects for layer in each.layers[1:] if not layer.text)
    for file in {layer.document.file for layer in layers} - first:
        if creates(tree.documents(file)):
            yield os.path.normpath(file)


def before(job: Job, output: Sequence[Item] | None) -> Iterator[Item]:
    """Yield the objects of other folders that a root changes or deletes, in their state before that.

    They are judged too, because somebody may apply their files without building the root, in the namespace that is
    written there. Those without one get that of the root. An object counts as changed, too, if it is not in the
    `output` of a program as it is written: the program may follow a patch otherwise.
    """
    missing = () if output is None else _missing(job, output)
    for each in (*job.found.before, *missing):
        namespace = string(job.over.value.get("namespace")) if job.over else ""
        written = mapping(each.value.get("metadata")).get("namespace")
        placed = namespace and not written and following.is_namespaced(each.value)
        one = each.become(patching.placed(each.value, namespace)) if placed else each
        yield finished(one.rendered(job.root), job, flux=job.variables is not None)


def _missing(job: Job, output: Iterable[Item]) -> Iterator[Built]:
    """Yield the objects of other folders' files that are in no output as they are written, apart from a namespace."""
    known = {id(each.value) for each in job.found.before}
    others = [each for each in job.found.written if following.folder_of(each) not in job.found.folders]
    values = [value for item in output for value in (item.value, patching.unplaced(item.value))] if others else []
    made = {json.dumps(value, sort_keys=True) for value in values}
    for each in others:
        if id(each.value) not in known and json.dumps(each.value, sort_keys=True) not in made:
            yield each


def _is_local(value: Object) -> bool:
    """Whether kustomize leaves an object out of its output (kustomize api/resmap/reswrangler.go, kyaml/kio)."""
    return _LOCAL in mapping(mapping(value.get("metadata")).get("annotations"))


_LOCAL = "config.kubernetes.io/local-config"


def is_below(name: str, folders: set[str]) -> bool:
    """Whether a file lies below one of some folders."""
    return not folders.isdisjoint(map(str, PurePath(name).parents))


def _belongs(name: str, folders: set[str], tree: Tree) -> bool:
    """Whether a file lies below one of some folders, or kubectl creates nothing from it."""
    return is_below(name, folders) or not creates(tree.documents(name))


def _reads_less(name: str, tree: Tree) -> bool:
    """Whether kustomize reads fewer objects in a file than kubectl, or may read a merge key otherwise.

    It reads one document between lines with `---` (kyaml kio/byteio_reader.go), and kubectl each value of JSON there.
    """
    data, starts = tree.data(name), [each.first_line for each in tree.documents(name)]
    marks = [at for at, line in enumerate(data.split(b"\n"), 1) if line.startswith(b"---")] if len(starts) > 1 else []
    return len({bisect_right(marks, start) for start in starts}) < len(starts) or following.is_unlike(data)


def _has_more(name: str, tree: Tree) -> bool:
    """Whether kubectl finds objects in a kustomization: items, or those of documents that kustomize does not read."""
    try:
        first, *others = (each.value for each in tree.documents(name))
        return (isinstance(first, dict) and files.is_list(first)) or any(map(files.is_created, others))
    except Unseen:
        return True


def holds_objects(name: str, tree: Tree) -> bool:
    """Whether a file holds a Kubernetes object, or might."""
    try:
        return files.may_hold_objects(name) and any(files.is_created(each.value) for each in tree.documents(name))
    except Unseen:
        return True
