"""Finds the files of a folder that are not complete manifests: a chart's templates, and kustomize's patches."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from webhook.api.lenient import mapping, mappings, sequence
from webhook.documents import files
from webhook.documents.documents import Document
from webhook.model import immutable
from webhook.rendering.model import Rendering, is_helmfile, is_root, lists_releases
from webhook.text.words import listed, several, shown


@immutable
class Apart:
    """Files of folders that are not manifests by themselves, and were not judged.

    `charts` are the numbers of templates by the folder of their chart, `templates` those of no chart. `others` hold no
    Kubernetes object; neither do `values`, which use a GPU as a chart's values do. `hidden` files have one. `rendered`
    are lines about parts that were not rendered, or only partly.
    """

    charts: Counter[str] = field(default_factory=Counter)
    templates: list[str] = field(default_factory=list)
    patches: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    rendered: list[str] = field(default_factory=list)

    def __add__(self, more: "Apart") -> "Apart":
        return Apart(
            self.charts + more.charts,
            self.templates + more.templates,
            self.patches + more.patches,
            self.others + more.others,
            self.values + more.values,
            self.hidden + more.hidden,
            self.rendered + more.rendered,
        )

    @property
    def notes(self) -> Iterator[str]:
        """Lines about all files that were not judged, each with the way to have them judged."""
        yield from self.rendered
        yield from self._charts()
        if self.templates:
            words = "file looks like a template" if len(self.templates) == 1 else "files look like templates"
            yield f"{len(self.templates):,} {words}, not rendered: {listed(self.templates, _NAMED)}"
        if self.patches:
            words = "patch" if len(self.patches) == 1 else "patches"
            render = f"kustomize build FOLDER | slicewarden check -; {listed(self.patches, _NAMED)}"
            yield f"{len(self.patches):,} {words} of kustomize not judged; {render}"
        if self.values:
            words = "file uses a GPU and has" if len(self.values) == 1 else "files use GPUs and have"
            render = "values of a chart are judged by helm template CHART -f FILE | slicewarden check -"
            yield f"{len(self.values):,} {words} no Kubernetes object: {listed(self.values, _NAMED)}; {render}"
        if self.hidden:
            words = "file with an object is" if len(self.hidden) == 1 else "files with objects are"
            yield f"{len(self.hidden):,} hidden {words} only judged if named: {listed(self.hidden, _NAMED)}"
        if self.others:
            yield f"{several(len(self.others), 'file')} without a Kubernetes object: {listed(self.others, _NAMED)}"

    def _charts(self) -> Iterator[str]:
        charts = sorted(self.charts)
        if len(charts) > _NAMED:
            templates = several(self.charts.total(), "template")
            names = listed([shown(chart, quotes=False) for chart in charts], _NAMED)
            yield f"{several(len(charts), 'chart')}, {templates} not rendered: {names}"
            return
        for chart in charts:
            render = f"helm template {shlex.quote(chart)} | slicewarden check -"
            count = several(self.charts[chart], "template")
            yield f"chart {shown(chart, quotes=False)}: {count} not rendered; {render}"


_NAMED = 3
"""Maximum files or charts named on one line."""


def chart_of(name: str) -> str:
    """Return the folder of the outermost chart that has a file among its templates, or an empty string."""
    if "templates" not in name:
        return ""
    parts = PurePath(name).parts
    for index, part in enumerate(parts[:-1]):
        folder = os.path.join(*parts[:index]) if index else "."  # noqa: PTH118
        if part in _OF_HELM and _is_chart(os.path.abspath(folder)):  # noqa: PTH100
            kind = _folder_of(parts[index:])
            if kind in ("templates", "crds"):
                return folder if kind == "templates" else ""
    return ""


def _folder_of(parts: Sequence[str]) -> str:
    """Return the first folder of a path below a chart, or below the innermost of its subcharts.

    Helm reads templates only from `templates` there (helm pkg/chart/v2/loader/load.go, LoadFiles).
    """
    start = 0
    while len(parts) - start > 2 and parts[start] == "charts":
        start += 2
    return parts[start] if len(parts) - start > 1 else ""


def left_out(made: Rendering) -> list[str]:
    """Return the templates of rendered charts that name more containers or devices than they make in any release.

    So are those of which Helm makes nothing, and kubectl would create something that is judged: partials, too. A
    manifest that is no template is judged as it is.
    """
    most, known = Counter[str](), set[str]()
    for output in made.outputs:
        counted = Counter[str]()
        for item in output.items:
            known.add(name := os.path.normpath(item.document.file))
            counted[name] += _parts(item.value)
        most |= counted
    names = (name for chart in sorted(made.charts) for name in _templates(chart))
    return [name for name in names if _is_left_out(name, most[name], made=name in known)]


def _is_left_out(name: str, count: int, *, made: bool) -> bool:
    """Whether a template names more containers or devices than a count, or kubectl would create what Helm does not."""
    is_manifest, base = name.lower().endswith(files.SUFFIXES), os.path.basename(name)  # noqa: PTH119
    if is_manifest and not files.is_template(name):
        return False
    if not base.startswith("_") and base != "NOTES.txt" and _named_parts(name) > count:
        return True
    return is_manifest and not made and _creates(name)


def _templates(chart: str) -> Iterator[str]:
    """Yield the files among the templates of a chart and of its subcharts that are not hidden."""
    for at, inner, names in os.walk(chart, followlinks=True):
        inner.sort()
        if _folder_of((*PurePath(os.path.relpath(at, chart)).parts, "")) == "templates":
            for name in sorted(names):
                if not name.startswith("."):
                    yield os.path.normpath(os.path.join(at, name))  # noqa: PTH118


def _named_parts(name: str) -> int:
    try:
        return len(_PARTS.findall(files.contents(name)))
    except (OSError, files.Unfit):
        return 0


_LISTED = ("containers", "deviceClassName")
"""A key of each pod, and one of each request of a claim."""

_PARTS = re.compile(
    rb"""\b(?:%b)["']?[ \t]*:"""
    rb"""|"(?:[^"\\\n]|\\[^xuU\n])*+\\[xuU](?:[^"\\\n]|\\.)*+"[ \t]*+:"""
    rb"""|(?:^[ \t]*+(?:-[ \t]++)*+|[,{\[][ \t]*+)"""
    rb"""(?:\?\s|!\S{1,80}+[ \t]++[\w+/=]{1,99}+[ \t]*+:|\*[^\s:,\]}]{1,80}+[ \t]*+:)""" % "|".join(_LISTED).encode(),
    re.MULTILINE,
)
"""Such a key; also a key that may hide one: with an escape or a tag, behind a question mark, or an alias."""


def _parts(value: Any) -> int:
    count, left = 0, [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            count += sum(key in each for key in _LISTED)
            left += each.values()
        elif isinstance(each, list):
            left += each
    return count


def is_of_templates(name: str) -> bool:
    """Whether a file lies in a folder for templates, of a chart or of another program, or has a name of one."""
    path = PurePath(name)
    return "templates" in path.parts[:-1] or not _SUFFIXES.isdisjoint(path.suffixes)


_SUFFIXES = frozenset((".gotmpl", ".j2", ".tftpl", ".tmpl", ".tpl"))
"""Parts of the names of templates: Helmfile's, Jinja's, Terraform's and Go's."""


@cache
def _is_chart(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, files.CHART))  # noqa: PTH113, PTH118


def terraform(paths: Iterable[str]) -> Iterator[str]:
    """Yield the files of Terraform in some folders that hold a sharing configuration as a text."""
    for path in paths:
        for at, inner, names in os.walk(path):
            inner[:] = [each for each in inner if not each.startswith(".")]
            for name in sorted(names):
                if name.endswith(".tf"):
                    file = os.path.normpath(os.path.join(at, name))  # noqa: PTH118
                    try:
                        if _SHARES.search(files.contents(file)):
                            yield file
                    except (OSError, files.Unfit):
                        continue


def helmfiles(paths: Iterable[str]) -> Iterator[str]:
    """Yield the files in some folders that only Helmfile reads, by their names: templates, and some in helmfile.d.

    There it reads hidden files too, and endings that nothing else takes for YAML (helmfile pkg/app/app.go).
    """
    for path in paths:
        for at, inner, names in os.walk(path):
            inner[:] = [each for each in inner if not each.startswith(".")]
            for name in sorted(names):
                of_folder = PurePath(at).name == "helmfile.d" and _OF_HELMFILE.fullmatch(name)
                is_template = name.endswith(".gotmpl")
                file = os.path.normpath(os.path.join(at, name))  # noqa: PTH118
                if (of_folder or _may_list(file)) if is_template else (of_folder and not _is_found(name)):
                    yield file


def _may_list(path: str) -> bool:
    """Whether a template may make a file that lists releases."""
    name = path.removesuffix(".gotmpl")
    try:
        return is_helmfile(name) and lists_releases(name, files.contents(path).decode("utf-8", "replace"))
    except (OSError, files.Unfit):
        return is_helmfile(name)


def _is_found(name: str) -> bool:
    return name.endswith((".yaml", ".yml")) and not name.startswith(".")


_OF_HELMFILE = re.compile(r"[\s\S]*\.y[\s\S]*ml(?:\.gotmpl)?")
"""A file that Helmfile reads in helmfile.d."""


def attributes(paths: Collection[str]) -> list[str]:
    """Return the `.gitattributes` in some folders, and in those above up to the top of a repository."""
    found = set[str]()
    for path in paths:
        folder = os.path.realpath(path)
        while not os.path.lexists(os.path.join(folder, ".git")) and folder != (above := os.path.dirname(folder)):  # noqa: PTH118, PTH120
            folder, file = above, os.path.join(above, _ATTRIBUTES)  # noqa: PTH118
            found |= {os.path.relpath(file)} if os.path.isfile(file) else set()  # noqa: PTH113
    return sorted(found | {name for name in files.all_hidden(paths) if os.path.basename(name) == _ATTRIBUTES})  # noqa: PTH119


_ATTRIBUTES = ".gitattributes"


def pointers(names: Iterable[str]) -> list[str]:
    """Return those of some files of which Git LFS has the contents elsewhere (git-lfs docs/spec.md)."""
    return [name for name in names if is_pointer(name)]


_POINTER = re.compile(
    rb"version (?:https://git-lfs\.github\.com/spec/|https://hawser\.github\.com/spec/|http://git-media\.io/v/)"
)
"""The start of a pointer, in all its versions. Git LFS passes over space before it (git-lfs lfs/pointer.go)."""

_LONGEST_POINTER = 1024
"""Bytes of the longest file that Git LFS takes for a pointer."""


def is_pointer(name: str) -> bool:
    """Whether Git LFS has the contents of a file elsewhere."""
    if not os.path.isfile(name):  # noqa: PTH113 - a pipe has no end
        return False
    try:
        with open(name, "rb") as file:  # noqa: PTH123
            return _POINTER.match(file.read(_LONGEST_POINTER).lstrip()) is not None
    except OSError:
        return False


def hidden_roots(paths: Iterable[str]) -> list[str]:
    """Return the hidden folders below some folders that have a kustomization, a chart or releases of charts."""
    tops = [os.path.realpath(path) for path in paths]
    found = {Path(name).parent for name in files.all_hidden(paths) if is_root(name.removesuffix(".gotmpl"))}
    return sorted(str(folder) for folder in found if not _is_walked(os.path.realpath(folder), tops))


def linked(paths: Iterable[str], made: Rendering) -> Iterator[str]:
    """Yield the links below some folders to folders elsewhere that may have manifests, and that nothing rendered reads.

    `files.find` follows no link to a folder. Helm follows those in a chart's own folders. A hidden link counts only if
    it leads out of all the folders, since a hidden folder in them counts itself.
    """
    tops = [path for path in paths if Path(path).is_dir()]
    reals, has = [*map(os.path.realpath, tops)], dict[str, bool]()
    known = {os.path.realpath(PurePath(name).parent) for name in made.files} | {*map(os.path.realpath, made.charts)}
    for top in tops:
        for at, inner, _ in os.walk(top):
            inner[:] = sorted(each for each in inner if each != ".git")
            for link in (Path(at, each) for each in inner):
                if not link.is_symlink() or _is_of_chart(link, made.charts):
                    continue
                real = os.path.realpath(link)
                is_hidden = "/." in f"/{os.path.relpath(link, top)}"
                if real in known or _is_walked(real, reals) or (is_hidden and _is_below(real, reals)):
                    continue
                if real not in has:
                    has[real] = _may_have_manifests(real, reals)
                if has[real]:
                    yield str(link)


def _is_below(real: str, tops: Collection[str]) -> bool:
    """Whether a folder is one of some tops, or is below one, by their real paths."""
    return any(str(each) in tops for each in (real, *PurePath(real).parents))


def _may_have_manifests(folder: str, tops: Sequence[str]) -> bool:
    """Whether a folder has a file for manifests by its name, or a link to a folder that is not below one of some tops.

    All are given by their real paths.
    """
    for at, inner, names in os.walk(folder):
        links = (os.path.realpath(each) for name in inner if (each := Path(at, name)).is_symlink())
        if any(files.is_read(Path(at, each)) for each in names) or not all(_is_walked(each, tops) for each in links):
            return True
    return False


def _is_walked(real: str, tops: Iterable[str]) -> bool:
    """Whether a folder is one of some tops, or is below one through no hidden folder, by their real paths."""
    paths = (os.path.relpath(real, top) for top in tops)
    return any(path == "." or "/." not in f"/{path}" for path in paths)


def _is_of_chart(path: PurePath, charts: Collection[str]) -> bool:
    """Whether a path is in a folder of a rendered chart that Helm searches for objects, or is that folder."""
    return any(str(each.parent) in charts for each in (path, *path.parents) if each.name in _OF_HELM)


_OF_HELM = ("templates", "charts", "crds")

_SHARES = re.compile(rb"^[ \t]*(?:timeSlicing|mps):[ \t]*$", re.MULTILINE)
"""The key of a sharing configuration in a text of YAML."""


class Patches(NamedTuple):
    """The files that kustomizations name as patches.

    Those that are whole objects are `own` patches of the kustomization's folder, or `whole` ones of another. Somebody
    may apply such an object, so a kustomization elsewhere does not hide it.
    """

    parts: frozenset[str]
    whole: frozenset[str]
    own: frozenset[str]


def patches(names: Iterable[str]) -> Patches:
    """Return the files that the given kustomizations name as patches, by their normal paths."""
    within, others = set[str](), set[str]()
    for name in names:
        if os.path.basename(name) in files.KUSTOMIZATIONS:  # noqa: PTH119
            folder = os.path.dirname(name)  # noqa: PTH120
            for path in _named(_kustomization(name)):
                file = os.path.normpath(os.path.join(folder, path))  # noqa: PTH118
                is_own = os.path.normpath(os.path.dirname(file)) == os.path.normpath(folder)  # noqa: PTH120
                (within if is_own else others).add(file)
    whole = {file for file in others - within if _creates(file)}
    own = frozenset(file for file in within if _creates(file))
    return Patches(frozenset(within | others - whole), frozenset(whole), own)


def _kustomization(name: str) -> Mapping[str, Any]:
    from webhook.repository import kustomizations  # which runs without roots do not need

    try:
        first = kustomizations.first(files.contents(name), name)
    except (OSError, files.Unfit):
        return {}
    return mapping(first.value if isinstance(first, Document) else None)


def _creates(file: str) -> bool:
    from webhook.rendering.created import creates  # which runs without roots do not need

    return creates(each for each in files.read(file) if isinstance(each, Document))


def _named(kustomization: Any) -> Iterator[str]:
    for key in ("patches", "patchesJson6902", "replacements", "transformers", "configurations"):
        for each in mappings(kustomization.get(key)):
            yield from (path for path in [each.get("path")] if isinstance(path, str))
    for key in ("patchesStrategicMerge", "configurations"):
        yield from (path for path in sequence(kustomization.get(key)) if isinstance(path, str) and "\n" not in path)
