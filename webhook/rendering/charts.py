"""Renders charts of the repository with their values by `helm template`."""

import json
import os
import re
import shlex
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache, partial
from pathlib import Path as FilePath
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple

from webhook.api.lenient import mapping, string
from webhook.documents import files, yaml_versions
from webhook.documents.documents import Document, Source, stream, unskipped
from webhook.documents.files import Item
from webhook.documents.goyaml_writer import as_json
from webhook.kustomize.following import is_namespaced
from webhook.kustomize.patching import placed
from webhook.model import Object, Path, Problem, immutable
from webhook.repository import chart_folders, packing, programs, results_cache, template_lines
from webhook.repository.builders import Builder
from webhook.repository.tree import Tree, Unseen
from webhook.text.words import shown

RELEASE = "release-name"
"""The name that `helm template` gives to a release without one."""


class Remote(NamedTuple):
    """A chart outside the repository: its name, the address of its registry or index, and its version."""

    name: str
    url: str
    version: str

    @property
    def words(self) -> str:
        """The chart's name and version."""
        return f"{self.name} {self.version}".strip()

    @property
    def arguments(self) -> list[str]:
        """The arguments with which `helm pull` finds the chart."""
        version = [f"--version={self.version}"] if self.version else []
        if self.url.startswith("oci://"):
            return [*version, "--", f"{self.url.rstrip('/')}/{self.name}" if self.name else self.url]
        return [f"--repo={self.url}", *version, "--", self.name]


@immutable
class Release:
    """A chart with the values, name and namespace of one release. `root` names the object that installs it.

    Values are texts of YAML, which helm reads itself; later ones override earlier ones. `settings` are the values that
    helm gets as arguments, in the form NAME=VALUE behind `--set` or `--set-string`; they override the others. With
    `places`, objects without a namespace get the release's, which a kustomization does not do. With `versioned`, helm
    gets the version of the nodes; of kustomizations, only those of Argo CD do that. `crds` is whether the objects below
    `crds` are created. `defaults` are written in place of the chart's own values, if there are any. `built` is whether
    the dependencies of dependencies were built before, and `builder` what builds those of the chart. With `packed`,
    helm gets the chart as Flux packs it; with `revised`, its version names the revision of the source.
    """

    chart: str | Remote
    root: str
    name: str = RELEASE
    namespace: str = ""
    values: tuple[bytes, ...] = ()
    settings: tuple[str, ...] = ()
    places: bool = True
    versioned: bool = True
    crds: bool = True
    defaults: bytes = b""
    built: bool = True
    builder: Builder = Builder.SOMEBODY
    packed: bool = False
    revised: bool = False


def written(values: Mapping[str, Any]) -> list[bytes]:
    """Return some values as the texts that helm gets: none if there are none."""
    return [as_json(values)] if values else []


_DOCUMENT = re.compile(r"^---(?=\s|#|$)", re.MULTILINE)
"""The line before a document of YAML."""

_CONTENT = re.compile(r"^[ \t]*[^#%\s]", re.MULTILINE)
"""A line that is neither blank, nor a comment, nor a directive."""


def has_more(text: str) -> bool:
    """Whether values have a second document: Flux reads the first one, and helm all of them since 3.18."""
    first, *others = _DOCUMENT.split(text)
    return any(map(_CONTENT.search, others if _CONTENT.search(first) else others[1:]))


_CHART_NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)*)?")
"""Names of charts in a repository. Helm would look for others, such as /etc, among the files of the machine."""


NO_APPLICATION = "library charts are not installable"
"""What helm says of a library (helm pkg/cmd/install.go, checkIfInstallable)."""


_VALUES = re.compile(r"(?:charts/[^._/][^/]*/)*values\.yaml")
"""A chart's own values, or those of a subchart."""

_NO_SCHEMAS = "--skip-schema-validation"
"""A schema of values may name any file of the machine, and an address. Helm has the option since 3.16."""

_CRDS = "--include-crds"
"""Helm installs every object below `crds`, of any kind (helm pkg/action/install.go, installCRDs).

Only those in archives need the option: all others are read from the files. Helm prints such a file verbatim, with any
lines that look like its own, so templates are rendered without them.
"""


class Archives:
    """Downloads or packs each chart once for all of its releases. helm itself would download it for each."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._done = dict[Remote | str, Future[bytes]]()

    def pulled(self, chart: Remote) -> bytes:
        """Return the archive of a chart that helm downloads. Raises Failed."""
        return self._once(chart, lambda: _archive(["pull", *chart.arguments], {}, network=True))

    def packed(self, chart: Mapping[str, bytes], words: Sequence[str]) -> bytes:
        """Return the archive that a command of helm makes of the files of a chart. Raises Failed."""
        key = results_cache.key([*map(str.encode, words)], results_cache.pairs(chart))
        return self._once(key, lambda: _archive([*words, "--", "chart"], chart))

    def _once(self, key: Remote | str, make: Callable[[], bytes]) -> bytes:
        with self._lock:
            mine = key not in self._done
            future = self._done.setdefault(key, Future())
        if mine:
            try:
                future.set_result(make())
            except BaseException as error:  # waiting threads raise it too
                future.set_exception(error)
        return future.result()


def _archive(words: Sequence[str], contents: Mapping[str, bytes], *, network: bool = False) -> bytes:
    """Return the archive that a command of helm writes next to some folders. Raises Failed."""
    with tempfile.TemporaryDirectory() as folder:
        write(FilePath(folder), contents)
        programs.output([programs.helm(), *words], folder, network=network)
        found = [entry.path for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)]
        if len(found) != 1:
            raise programs.Failed(f"helm {words[0]} brings {len(found)} files")
        return FilePath(found[0]).read_bytes()


class Manifests(NamedTuple):
    """The manifests of a release: those of its templates, and those below `crds`, which Helm creates as they are.

    `whole` is the output with the files below `crds` too. It is empty if no archive may have such files. For a chart
    from elsewhere it is the only one. `verbatim` are the files below `crds` by their paths in the chart. `unsure` is
    whether releases of helm may read other values, and `complete` whether the chart has all of its dependencies.
    """

    templates: bytes
    whole: bytes = b""
    verbatim: Mapping[str, bytes] = MappingProxyType({})
    unsure: bool = False
    complete: bool = True

    @property
    def printed(self) -> bytes:
        """All of them as one text, as helm prints them for kustomize."""
        crds = (b"---\n%s\n" % data.removeprefix(b"\xef\xbb\xbf") for data in self.verbatim.values())
        return self.whole or b"".join((*crds, self.templates))


def reads_unlike(made: Manifests) -> bool:
    """Whether kustomize may read a merge key in some manifests otherwise than kubectl does."""
    chunks = (chunk for data in (made.templates, made.whole, *made.verbatim.values()) for chunk in _chunks(data))
    return any(yaml_versions.unlike(chunk, scalars=False) for chunk in chunks)


def template(
    tree: Tree, release: Release, archives: Archives, *, version: str, cached: bool, without: Collection[str] = ()
) -> Manifests:
    """Return the manifests of a release, without the dependencies of some names. Raises Failed and Unseen."""
    helm = programs.helm()
    if not helm:
        raise programs.Failed("there is no helm on PATH")
    options = [_NO_SCHEMAS, "--namespace", release.namespace or "default"]
    if version and release.versioned:
        options += ["--kube-version", version]
    if isinstance(release.chart, Remote):
        if not _CHART_NAME.fullmatch(release.chart.name):
            raise programs.Failed(f"{shown(release.chart.name)} is no name of a chart")
        given, own = {"chart.tgz": archives.pulled(release.chart)}, dict[str, bytes]()
    else:
        chart = chart_folders.staged(tree, release.chart, built=release.built)
        given, own = {f"chart/{path}": data for path, data in chart.archives.items()}, chart.files
        if twin := chart.twins(release.chart, packed=release.packed):
            why = "Flux packs them as one" if release.packed else "Helm takes any of them"
            raise Unseen(f"it has several charts named {shown(twin, quotes=False)}, and {why}")
        given |= {f"chart/{path}": data for path, data in packing.without(own, without).items()} if without else {}
    if release.defaults:
        given["chart/values.yaml"], own = release.defaults, {**own, "values.yaml": release.defaults}
    texts = (*release.values, *(data for path, data in own.items() if _VALUES.fullmatch(path)))
    unsure = any(has_more(text.decode("utf-8", "replace")) for text in texts)
    options += release.settings
    packs = _packing(release, own) if own and release.packed else []
    run = partial(_printed, helm, release, given, archives, packs, cached=cached)
    remote, packed = isinstance(release.chart, Remote), any(path.endswith(".tgz") for path in own)
    whole = run([*options, _CRDS]) if release.crds and (remote or packed) else b""
    found = sorted(own.items()) if release.crds else []
    verbatim = {path: data for path, data in found if _BELOW_CRDS.fullmatch(path)}
    return Manifests(b"" if remote and whole else run(options), whole, verbatim, unsure, not without)


def _packing(release: Release, chart: Mapping[str, bytes]) -> list[str]:
    """Return the words with which helm packs the files of a chart as Flux does. Raises Unseen.

    Flux adds the revision of the source to the version, and the generation of a HelmChart that names files of values
    (source-controller internal/controller/helmchart_controller.go). A hash stands for the revision.
    """
    packing.refuse_backslashes(chart)
    revision = results_cache.key(results_cache.pairs(chart))[:12] if release.revised else ""
    added = ".".join(filter(None, (revision, "1" if release.defaults else "")))
    return ["package", *([f"--version={packing.version(chart, added)}"] if added else [])]


def _printed(
    helm: str,
    release: Release,
    staged: Mapping[str, bytes],
    archives: Archives,
    packs: Sequence[str],
    options: list[str],
    *,
    cached: bool,
) -> bytes:
    """Return what helm prints for a release with some options. Its chart is packed first if `packs` says how.

    Raises Failed.
    """
    words = [part.encode("utf-8", "surrogatepass") for part in (programs.identity(helm), release.name, *options)]
    key = results_cache.key(words, [*map(str.encode, packs)], release.values, results_cache.pairs(staged))
    if cached and (data := results_cache.get(key)) is not None:
        return data
    files = {"chart.tgz": archives.packed(staged, packs)} if packs else staged
    with tempfile.TemporaryDirectory() as folder:
        write(FilePath(folder), files)
        for index, text in enumerate(release.values):
            FilePath(folder, f"values-{index}.yaml").write_bytes(text)
            options = [*options, "--values", f"values-{index}.yaml"]
        chart = "chart.tgz" if "chart.tgz" in files else "chart"
        data = programs.output([helm, "template", *options, "--", release.name, chart], folder)
    if cached:
        results_cache.put(key, data)
    return data


def write(folder: FilePath, contents: Mapping[str, bytes]) -> None:
    """Write files below a folder that only this process uses."""
    for path, data in contents.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


@immutable
class Templated(Item):
    """An object that helm made from a template. Its lines in the template's file are guesses.

    A line is known if its key occurs only once in the file. Otherwise it is the line of the object's kind, or of the
    document. If the chart is not in the repository, the file is that of the object which installs it, with its values.
    """

    def line(self, path: Path = (), text_line: int = 0) -> int:  # noqa: ARG002 - the text's lines are not known
        """Guess the line of a place: that of the last key of its path that the template has only once."""
        lines = template_lines.of(self.document.file)
        for key in (each for each in reversed(path) if isinstance(each, str)):
            if found := lines.keys.get(key):
                return found
        return lines.kinds.get(string(self.value["kind"])) or self.document.first_line

    def where(self, path: Path, text_line: int = 0) -> tuple[str, int]:
        """Return the template's file, and the guessed line."""
        return self.document.file, self.line(path, text_line)


@immutable
class Verbatim(Templated):
    """An object below `crds`, which Helm creates as it stands in the file."""

    def line(self, path: Path = (), text_line: int = 0) -> int:
        """Return the line of a place in the object."""
        return self.document.line((*self.base, *path), text_line)


def items(tree: Tree, made: Manifests, release: Release) -> tuple[list[Item], list[str]]:
    """Return the objects that Helm creates, and the reasons why some of its output cannot be read."""
    found, wrong = list[Item](), list[str]()
    for chunk, file in (*_of_templates(tree, made, release), *_of_archives(made, release)):
        both = list(stream(chunk, file))  # of repeated keys the last counts
        documents = [each for each in both if isinstance(each, Document)]
        problems = [each for each in both if isinstance(each, Problem)]
        opened, unusable = files.items(documents)
        wrong += [each.message for each in (*problems, *unusable)]
        for item in opened:
            document = Document(file, item.document.index, None, 0, Source("", 0))
            found.append(Templated(document, (), _placed(item.value, release), root=release.root))
    for path, data in made.verbatim.items():
        objects, faults = _read(data, _file(tree, release, f"/{path}"), whole=not release.places)
        wrong += faults
        found += (
            Verbatim(each.document, each.base, _placed(each.value, release), root=release.root, inside=each.inside)
            for each in objects
        )
    return found, wrong


def _placed(value: Object, release: Release) -> Object:
    """Return an object in the namespace that Helm gives to one without."""
    own = mapping(value.get("metadata")).get("namespace")
    if own or not (release.places and release.namespace and is_namespaced(value)):
        return value
    return placed(value, release.namespace)


@lru_cache(256)
def _read(data: bytes, file: str, *, whole: bool) -> tuple[list[Item], list[str]]:
    """Return the objects in a file below `crds`, once for all releases, and the reasons why some cannot be read.

    A file without any object may be another one, such as a kustomization. Unless they are read as a `whole`, which
    only kustomize changes, definitions of kinds have only their kind.
    """
    both = [*files.parsed(data, file, unskipped if whole else _is_definition)]
    opened, unusable = files.items(each for each in both if isinstance(each, Document))
    broken = [each for each in both if isinstance(each, Problem)]
    wrong = [*broken, *unusable] if opened or (broken and files.may_hold_objects(file)) else []
    return opened, [f"{each.file}:{each.line}: {each.message}" for each in wrong]


def _is_definition(api_version: str, kind: str, _: str) -> bool:
    return kind == "CustomResourceDefinition" and api_version.startswith("apiextensions.k8s.io/")


def _chunks(data: bytes) -> list[str]:
    return re.split(r"^---[ \t]*\n", data.decode("utf-8", "replace"), flags=re.MULTILINE)


def _of_templates(tree: Tree, made: Manifests, release: Release) -> Iterator[tuple[str, str]]:
    """Yield the manifests of templates with their files. Helm itself writes the first comment of each."""
    for chunk in _chunks(made.templates):
        source = re.search(r"^# Source: ([^\n]*)$", chunk, re.MULTILINE)
        yield chunk, _file(tree, release, source[1] if source else "")


def _of_archives(made: Manifests, release: Release) -> Iterator[tuple[str, str]]:
    """Yield the parts of the output that neither a template nor a file of the repository makes.

    No comment says which file one is from, so the chart's folder stands for them. A template that makes another text
    each time may be among them.
    """
    if isinstance(release.chart, Remote):
        yield from ((chunk, release.chart.words) for chunk in _chunks(made.whole))
        return
    left = _counted(made.whole) - _counted(made.templates) if made.whole else Counter[str]()
    for data in made.verbatim.values() if left else ():
        left.subtract(_counted(b"# Source: \n" + data.removeprefix(b"\xef\xbb\xbf")))
    yield from ((chunk, release.chart) for chunk in +left)


_BELOW_CRDS = re.compile(r"(?:charts/[^._/][^/]*/)*crds/[\s\S]*\.(?i:ya?ml|json)")
"""A file that Helm creates as it is (helm pkg/chart/v2/chart.go, CRDObjects)."""

_SOURCE_AND_BLANKS = re.compile(r"\A(?:# Source: [^\n]*(?:\n|\Z))?(?:[ \t\r]*\n)*")


def _counted(data: bytes) -> Counter[str]:
    """Count the parts of helm's output or of a file, each without the comment that names its file.

    The space before the first line of text belongs to that line.
    """
    bare = (_SOURCE_AND_BLANKS.sub("", chunk).rstrip() for chunk in _chunks(data))
    return Counter(filter(None, bare))


def _file(tree: Tree, release: Release, source: str) -> str:
    """Return the file of a template in the repository, by the path in helm's output; else the chart's folder."""
    if isinstance(release.chart, Remote):
        return release.chart.words
    folder, below = release.chart, source.partition("/")[2]
    while below.startswith("charts/"):
        name, _, rest = below.removeprefix("charts/").partition("/")
        inner = chart_folders.subchart(tree, folder, name)
        if not rest or inner in ("", folder):
            return release.chart
        folder, below = inner, rest
    name = os.path.normpath(os.path.join(folder, below))
    printed = below.startswith(("templates/", "crds/")) and ".." not in below.split("/")
    return name if printed and os.path.isfile(name) else release.chart


def covered(tree: Tree, made: Iterable[Item], release: Release) -> Iterator[str]:
    """Yield the files of a chart that need not be judged by themselves, because all their objects were made from them.

    Helm's output says only by a name which file an object is from. So an object that kubectl reads in the file has to
    be among those which were made. Templates with actions are not compared.
    """
    found = defaultdict[str, list[Item]](list)
    for each in made:
        found[os.path.normpath(each.document.file)].append(each)
    for file, own in found.items():
        if os.path.isdir(file) or files.is_template(file) or all(isinstance(each, Verbatim) for each in own):
            yield file
            continue
        values = {json.dumps(each.value, sort_keys=True) for each in own}
        try:
            written = [_placed(each.value, release) for each in files.items(tree.documents(file))[0]]
        except Unseen:
            continue
        if values.issuperset(json.dumps(each, sort_keys=True) for each in written):
            yield file


def unlike(made: Iterable[Item], release: Release) -> Iterator[Item]:
    """Yield the objects that kubectl reads in the templates of a chart, if Helm makes other objects of these.

    A text with actions may become any that has its other parts. Templates are left out that no object is from. So many
    objects that comparing each with each would take long count as others.
    """
    found = defaultdict[str, list[Item]](list)
    for each in made:
        if each.document.file.lower().endswith(files.SUFFIXES) and not isinstance(each, Verbatim):
            found[os.path.normpath(each.document.file)].append(each)
    for file, own in found.items():
        if os.path.isfile(file) and files.is_template(file):
            documents = (each for each in files.read(file) if isinstance(each, Document))
            objects = files.items(documents)[0]
            many = len(objects) * len(own) > MOST_PAIRS
            for written in objects:
                value = _placed(written.value, release)
                if many or not any(_may_become(value, each.value) for each in own):
                    yield written


MOST_PAIRS = 10_000
"""Maximum pairs of a written object and one that Helm makes which are compared for one template."""


def _may_become(written: Any, made: Any) -> bool:
    """Whether Helm may make a value of one that has actions only in texts."""
    left = [(written, made)]
    while left:
        one, other = left.pop()
        if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
            left += ((one[key], other[key]) for key in one)
        elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            left += zip(one, other, strict=True)
        elif isinstance(one, str) and isinstance(other, str) and "{{" in one:
            start = 0
            for part in map(str.strip, _ACTION.split(one)):
                at = other.find(part, start)
                if at < 0:
                    return False
                start = at + len(part)
        elif type(one) is not type(other) or one != other:
            return False
    return True


_ACTION = re.compile(r"\{\{[\s\S]*?(?:\}\}|\Z)")


def pull(chart: Remote) -> str:
    """Return the shell command that copies a chart into the repository. Words from the repository are quoted."""
    *options, _, name = chart.arguments
    words = [*options, *(["--"] if name.startswith("-") else []), name]
    return f"helm pull --untar -d charts {shlex.join(words)}"
