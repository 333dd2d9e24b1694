"""Builds one kustomization with kustomize or kubectl, in a copy of the files that it refers to."""

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any, NamedTuple

from webhook.api.lenient import mapping, mappings, sequence
from webhook.documents.goyaml_writer import as_json
from webhook.kustomize import following
from webhook.kustomize.followed import ChartEntry, ChartObjects, Followed, Kustomization
from webhook.kustomize.origins import may_read_annotations, same_but_for_origins
from webhook.rendering import charts
from webhook.rendering.deploying import ORIGINS
from webhook.rendering.model import Options
from webhook.rendering.variables import Variables
from webhook.repository import programs, results_cache
from webhook.repository.tree import Tree, Unseen

OVER = "kustomization-of-another-object"
"""The folder for a kustomization that is written in an object of Flux or Argo CD."""

COPY = "repository"
"""The folder next to it for the files, since kustomize refuses a resource around the kustomization that names it."""

OF_CHARTS = ".objects-of-charts.yaml"
"""The file for the objects of a kustomization's charts. No file of a repository has this name, since it is hidden."""

_ANYWHERE = "--load-restrictor=LoadRestrictionsNone"
"""Flux lets a kustomization read files above its folder (fluxcd/pkg kustomize/kustomize_generator.go, Build).

Here they are those of the copy: without `generators` and the like each path was followed first.
"""


_LOCAL = ("resources", "bases", "components")


class Job(NamedTuple):
    """A kustomization to build: its name, the parts of it that were followed, and changes by other objects.

    If `built` is false, the program is not run for it: it has plain files, or is a component that nothing includes.
    `of_charts` are the objects of its charts, and `printed` are the texts that helm printed for them: kustomize reads
    some words in a text otherwise than helm does.
    """

    root: str
    folder: str
    found: Followed
    over: Kustomization | None = None
    names: tuple[str, ...] = ()
    default: str = ""
    variables: Variables | None = None
    built: bool = True
    of_charts: ChartObjects = MappingProxyType({})
    printed: Mapping[ChartEntry, bytes] = MappingProxyType({})

    @property
    def place(self) -> str:
        """The place where people edit it: the file of the object that changes it, or the folder."""
        return self.over.document.file if self.over else self.folder

    @property
    def spreads(self) -> bool:
        """Whether it includes a chart in several namespaces: the copy for the program has its objects only once."""
        return len({entry[:2] for entry in self.of_charts}) < len(self.of_charts)

    def with_charts(self, tree: Tree, of_charts: ChartObjects, printed: Mapping[ChartEntry, bytes]) -> "Job":
        """Return the job with the objects of its charts among the resources."""
        if self.over is None:
            found = following.follow(tree, self.folder, of_charts)
        else:
            names = [os.path.relpath(name, self.folder) for name in self.names or (self.folder,)]
            found = following.follow_over(tree, names, self.over, of_charts)
        return self._replace(found=found, of_charts=of_charts, printed=printed)


def build(job: Job, command: tuple[str, ...], tree: Tree, options: Options) -> bytes | str | None:
    """Return the program's output for a kustomization, the reason why there is none, or None without a program."""
    found = job.found
    if not (command and job.built) or found.outside or found.too_large or (found.blocked and not options.fetch):
        return None
    if job.spreads:
        return None
    fetch = options.fetch and bool(found.remote)
    if job.variables is not None and found.unfollowed <= following.WITHOUT_FILES:
        command = (*command, _ANYWHERE)
    try:
        staged, target = _staged(job, tree, fetch=fetch, origins=True)
        if not (found.unfollowed or may_read_annotations(staged.values())):
            return _output(command, staged, target, options, fetch=fetch)
        data = _output(command, *_staged(job, tree, fetch=fetch, origins=False), options, fetch=fetch)
        with suppress(programs.Failed):
            other = _output(command, staged, target, options, fetch=fetch)
            return other if same_but_for_origins(data, other) else data
        return data
    except (programs.Failed, Unseen, OSError) as error:
        return str(error)


def _output(
    command: tuple[str, ...], staged: Mapping[str, bytes], target: str, options: Options, *, fetch: bool
) -> bytes:
    """Return what the program makes of a folder of some files. Raises programs.Failed, or OSError."""
    key = results_cache.key(
        [programs.identity(command[0]).encode(), *map(str.encode, command[1:])],
        [os.fsencode(target)],
        results_cache.pairs(staged),
    )
    cached = options.cached and not fetch  # the content of an address may change
    if cached and (data := results_cache.get(key)) is not None:
        return data
    with tempfile.TemporaryDirectory() as folder:
        charts.write(FilePath(folder), staged)
        data = programs.output([*command, os.path.join(".", target)], folder, network=fetch)
    if cached:
        results_cache.put(key, data)
    return data


def _staged(job: Job, tree: Tree, *, fetch: bool, origins: bool) -> tuple[dict[str, bytes], str]:
    """Return the files of a kustomization by their paths in the repository, and the folder that is built.

    Remote resources are left out: the program could only download them. So are charts, which helm has rendered, and
    resources and files of generators that do not exist, for which the program would build nothing.
    `origins` asks for the origins of objects, in annotations that selectors see.
    """
    staged = dict[str, bytes]()
    for name in job.found.files:
        path = tree.checked(name)
        staged[path] = tree.data(name)
    for folder in job.found.folders:
        name = tree.kustomization(folder)
        own = origins and folder == job.folder and job.over is None
        value: Mapping[str, Any] = mapping(tree.first(name).value)
        if job.over is not None and folder == os.path.normpath(job.folder):
            value = following.replaced(value, job.over.value)
        if job.found.absent and not job.found.unfollowed:
            value = _present(value, folder, tree)
        if texts := [job.printed[entry] for entry, items in job.of_charts.items() if entry.file == name and items]:
            staged[os.path.join(tree.checked(os.path.join(folder, ".")), OF_CHARTS)] = b"\n".join(texts)
            value = {**value, "resources": [*sequence(value.get("resources")), OF_CHARTS]}
        staged[tree.checked(name)] = _cleaned(value, folder, root=own, fetch=fetch)
    at = tree.checked(os.path.join(job.folder, "."))  # a link to a folder stands for that folder
    if job.over is None:
        return staged, at
    if job.names:
        names = [
            os.path.relpath(name, job.folder)
            for name in job.names
            if name in job.found.files or name in job.found.folders
        ]
        staged[os.path.join(at, "kustomization.yaml")] = as_json({"resources": names})
    value = {key: each for key, each in job.over.value.items() if each}
    value["patches"] = [_inline(each, job.folder, tree) for each in mappings(value.get("patches"))]
    value["components"] = [os.path.join("..", COPY, at, str(each)) for each in sequence(value.get("components"))]
    value = {**value, "resources": [os.path.join("..", COPY, at)]}
    value["buildMetadata"] = _metadata(job, tree)
    staged = {os.path.join(COPY, path): data for path, data in staged.items()}
    staged[os.path.join(OVER, "kustomization.yaml")] = _cleaned(value, OVER, root=origins, fetch=fetch, whole=True)
    return staged, OVER


def _metadata(job: Job, tree: Tree) -> list[Any]:
    """Return what kustomize is asked to record in the objects: by Flux, or by the folder's own kustomization."""
    if job.over and (asked := sequence(job.over.value.get("buildMetadata"))):
        return asked
    name = tree.kustomization(job.folder)
    return sequence(mapping(tree.first(name).value).get("buildMetadata")) if name else []


def reads_origins(job: Job, tree: Tree) -> bool:
    """Whether a kustomization may make an object depend on the origins that it records, which only kustomize knows."""
    try:
        return any(str(each).endswith("Annotations") for each in _metadata(job, tree)) and reads_annotations(job, tree)
    except Unseen:
        return False


def reads_annotations(job: Job, tree: Tree) -> bool:
    """Whether a kustomization may read the annotations of objects, or write those of kustomize. Raises Unseen."""
    over = as_json(job.over.value) if job.over else b""
    return may_read_annotations((over, *map(tree.data, job.found.files)))


def _present(value: Mapping[str, Any], folder: str, tree: Tree) -> Mapping[str, Any]:
    """Return a kustomization without the resources, and the files of its generators, that do not exist."""

    def some(paths: Any, *, keyed: bool = False) -> list[Any]:
        names = ((each, each.partition("=")[2] if keyed and "=" in each else each) for each in _texts(paths))
        return [each for each, name in names if not _is_absent(name, folder, tree)]

    def sources(entry: Mapping[str, Any]) -> Mapping[str, Any]:
        env = some([entry.get("env")])
        own = {"files": some(entry.get("files"), keyed=True), "envs": some(entry.get("envs")), "env": "".join(env)}
        return {**entry, **{key: each for key, each in own.items() if key in entry}}

    own = {key: some(value[key]) for key in ("resources", "bases") if key in value}
    return {**value, **own, **{key: [*map(sources, mappings(value[key]))] for key in _GENERATORS if key in value}}


_GENERATORS = ("configMapGenerator", "secretGenerator")


def _texts(value: Any) -> list[str]:
    return [each for each in sequence(value) if isinstance(each, str)]


def _is_absent(path: str, folder: str, tree: Tree) -> bool:
    """Whether a kustomization names a file that does not exist. One that cannot be read is another matter."""
    if following.is_remote(path, folder):
        return False
    try:
        tree.data(os.path.join(folder, path))
    except Unseen as error:
        return error.absent
    return False


def _cleaned(value: Mapping[str, Any], folder: str, *, root: bool, fetch: bool, whole: bool = False) -> bytes:
    """Return a kustomization without parts that must be downloaded.

    If it is a root, it asks for the objects' origins. JSON is YAML too.
    """
    own = {key: each for key, each in value.items() if key not in ("helmCharts", "helmGlobals")}
    if not fetch:
        for key in _LOCAL:
            if isinstance(own.get(key), list):
                own[key] = [
                    each
                    for each in _texts(own[key])
                    if whole or each == OF_CHARTS or not following.is_remote(each, folder)
                ]
    if root:
        own["buildMetadata"] = [*{*_texts(own.get("buildMetadata")), ORIGINS}]
    return as_json(own)


def _inline(patch: Mapping[str, Any], folder: str, tree: Tree) -> Mapping[str, Any]:
    """Return a patch of Flux or Argo CD as kustomize reads it: a text, also in place of a file. Raises Unseen."""
    inline = patch.get("patch")
    if not inline and isinstance(path := patch.get("path"), str) and path:
        own = {key: each for key, each in patch.items() if key != "path"}
        return {**own, "patch": tree.data(os.path.join(folder, path)).decode("utf-8", "replace")}
    return {**patch, "patch": as_json(inline).decode()} if isinstance(inline, (list, dict)) else patch
