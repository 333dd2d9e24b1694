"""Reads the folder of a chart as Helm does: its files, and those of the charts that it depends on by a path."""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any, NamedTuple

from webhook.api.lenient import mapping, mappings, string
from webhook.catalog.white_space import WHITE_SPACE
from webhook.documents import files
from webhook.documents.gitignore import Matcher
from webhook.model import immutable
from webhook.repository import packing
from webhook.repository.tree import Tree, Unseen, matcher
from webhook.text.words import shown


def is_chart(folder: str) -> bool:
    """Whether a folder is a chart."""
    return os.path.isfile(os.path.join(folder, files.CHART))


def has_version(tree: Tree, folder: str, wanted: str) -> bool:
    """Whether a chart may have the version that is wanted."""
    try:
        return packing.has_version(_metadata(tree, folder), wanted)
    except Unseen:
        return False


def is_library(tree: Tree, folder: str) -> bool:
    """Whether a chart says that it is a library, which makes no objects itself. Helm may read it otherwise."""
    try:
        return _metadata(tree, folder).get("type") == "library"
    except Unseen:
        return False


def has_templates(tree: Tree, folder: str) -> bool:
    """Whether Helm may make an object of a template of a chart, or of a chart in it."""
    try:
        return any(path.startswith(("templates/", "charts/")) for path in staged(tree, folder).files)
    except Unseen:
        return True


def loads(tree: Tree, folder: str, inner: str) -> bool:
    """Whether Helm loads a chart below the folder `charts` of another one, with all of its files.

    Helm passes over names that begin with `_` or a dot (helm pkg/chart/v2/loader/load.go, LoadFiles), and over what
    the .helmignore of the outer chart leaves out.
    """
    above, steps = PurePath(folder), PurePath(inner).parts[len(PurePath(folder).parts) :]
    if not (steps and PurePath(inner).is_relative_to(above)) or len(steps) % 2 or {*steps[::2]} != {"charts"}:
        return False
    between = (str(above.joinpath(*steps[:count])) for count in range(2, len(steps), 2))
    if any(name[0] in "_." for name in steps[1::2]) or not all(map(is_chart, between)):
        return False
    ignoring = os.path.join(folder, ".helmignore")
    try:
        patterns = tree.data(ignoring) if os.path.lexists(ignoring) else b""
        below = {os.path.join(*steps, path): b"" for path, _ in _walked(tree, inner)} if patterns.strip() else {}
        return below.keys() <= _without_ignored({**below, ".helmignore": patterns}, folder).keys()
    except Unseen:
        return False


def paths(tree: Tree, folder: str) -> Iterator[str]:
    """Yield a chart's folder and the paths of its files, as Helm finds them. Raises Unseen."""
    yield folder
    yield from (os.path.join(folder, path) for path, _ in _walked(tree, folder))


def _walked(tree: Tree, folder: str) -> Iterator[tuple[str, bool]]:
    """Yield the paths of a chart's files, as Helm finds them, and whether a link leads to their folder once more.

    Helm follows links (helm internal/sympath/walk.go), so a folder may occur under several paths. Hidden folders that
    Helm does not search for objects are yielded like files. Raises Unseen for a link out of the repository, to a hidden
    file or to a folder around it, for a line break in a name, and if links lead to too many files.
    """
    left, seen, repeats = list[tuple[str, tuple[str, ...]]](), set[str](), 0
    left.append(("", (os.path.realpath(folder),)))
    while left:
        below, reals = left.pop()
        try:
            with os.scandir(os.path.join(folder, below)) as entries:
                found = sorted(entries, key=lambda each: each.name)
        except OSError as error:
            raise Unseen(f"{os.path.join(folder, below)}: {error.strerror}") from error
        again = reals[-1] in seen
        seen.add(reals[-1])
        repeats += 1 + len(found) if again else 0
        if repeats > MOST_FILES:
            raise Unseen(f"links lead to more than {MOST_FILES:,} files below {folder}")
        for entry in found:
            path = os.path.join(below, entry.name)
            if entry.name == ".git":
                continue
            if "\n" in entry.name:  # helm writes paths on lines of its output
                raise Unseen(f"{folder} has a file with a line break in its name: {shown(path)}")
            if not _is_loaded(path):
                yield path, again
                continue
            name = os.path.join(folder, path)
            tree.checked(name, hidden=_is_hidden(path) and not entry.is_symlink())
            if not os.path.isdir(name):
                yield path, again
                continue
            real = os.path.realpath(name) if entry.is_symlink() else os.path.join(reals[-1], entry.name)
            if real in reals:
                raise Unseen(f"{name} leads to a folder around it")
            left.append((path, (*reals, real)))


def _is_hidden(path: str) -> bool:
    return "/." in f"/{path}"


def _is_loaded(path: str) -> bool:
    """Whether a file or folder of a chart is read: if it is not hidden, or if Helm may make objects from it.

    Helm leaves out only `templates/.NAME` by itself. Sources: helm pkg/ignore/rules.go (AddDefaults) and
    pkg/chart/v2/loader/load.go (LoadFiles).
    """
    above, name = os.path.split(path)
    return not _is_hidden(above if name == ".helmignore" else path) or bool(_SEARCHED.match(path))


_SEARCHED = re.compile(r"(?:charts/[^._/][^/]*/)*crds/|(?:charts/[^._/][^/]*/)+templates/|templates/(?!\.)")
"""The start of a path from which Helm may make an object, though a part of the path is hidden."""


class Archive(NamedTuple):
    """A dependency that Helm packs: its name, and the files in its archive."""

    name: str
    files: Mapping[str, bytes]


@immutable
class Staged:
    """The files of a chart by their paths in it: its own, and the archives in which Helm packs dependencies.

    `chained` is whether such a dependency has one itself.
    """

    own: dict[str, bytes]
    packed: dict[str, Archive]
    chained: bool = False

    @property
    def files(self) -> dict[str, bytes]:
        """All files, as if no dependency were packed."""
        inner = (
            (f"charts/{one.name}/{path}", data) for one in self.packed.values() for path, data in one.files.items()
        )
        return {**self.own, **dict(inner)}

    @property
    def archives(self) -> dict[str, bytes]:
        """The files as Helm reads them."""
        return {**self.own, **{path: packing.archive(*one) for path, one in self.packed.items()}}

    def as_packed(self, folder: str) -> dict[str, bytes]:
        """Return the files that are in an archive of the chart. Raises Unseen."""
        kept = self.without_ignored(folder)
        return replace(kept, own=packing.saved(kept.own)).files

    def without_ignored(self, folder: str) -> "Staged":
        """Return what Helm reads: not what the chart's .helmignore leaves out. Raises Unseen for an odd pattern."""
        kept = _without_ignored({**self.own, **dict.fromkeys(self.packed, b"")}, folder)
        packed = {path: one for path, one in self.packed.items() if path in kept}
        return replace(self, own={path: data for path, data in self.own.items() if path in kept}, packed=packed)

    def twins(self, folder: str, *, packed: bool = False) -> str:
        """Return the name of several subcharts of which Helm takes any; empty if there are none. Raises Unseen."""
        try:
            return packing.twins(self.without_ignored(folder).files, packed=packed)
        except Unseen:
            return packing.twins(self.files, packed=packed)


def staged(tree: Tree, folder: str, depth: int = 0, *, built: bool = True) -> Staged:
    """Return the files of a chart that Helm gets, with dependencies from elsewhere in the repository.

    `helm dependency build`, Flux and Argo CD add the dependencies of a chart, but not those of a dependency. Somebody
    may have built the dependencies before; `built` is whether they are. Helm follows links, and a template may write
    any file of its chart into an object (`.Files.Get`). So links that lead out of the repository are refused. Raises
    Unseen.
    """
    found, repeated = dict[str, bytes](), 0
    for path, again in _walked(tree, folder):
        if _is_loaded(path):
            found[path] = tree.data(os.path.join(folder, path), hidden=_is_hidden(path))
            repeated += len(found[path]) if again else 0
            if repeated > MOST_BYTES:
                raise Unseen(f"links lead to more than {MOST_BYTES // 2**20} MiB below {folder}")
    found |= _hidden(tree, folder)[0]
    packed, origins, chained = dict[str, Archive](), dict[str, str](), False
    for inner, name in _added(tree, folder, found):
        chained = chained or depth > 0
        if depth == _DEEPEST or (depth and not built):
            continue
        tree.checked(inner)
        metadata = _metadata(tree, inner)
        called, version = packing.name_of({"name": name, **metadata}), string(metadata.get("version"))
        archive = f"charts/{called}-{version if _VERSION.fullmatch(version) else ''}.tgz"
        if origins.setdefault(archive, inner) != inner:
            raise Unseen(f"{folder} has several dependencies that Helm packs as {shown(archive, quotes=False)}")
        if archive not in packed:
            below = staged(tree, inner, depth + 1, built=built)
            packed[archive], chained = Archive(called, below.as_packed(inner)), chained or below.chained
            files = Staged(found, packed).files
            if len(files) > MOST_FILES or sum(map(len, files.values())) > MOST_BYTES:
                raise Unseen(f"{folder} has more than {MOST_FILES:,} files or {MOST_BYTES // 2**20} MiB")
    return Staged(found, packed, chained)


_VERSION = re.compile(r"[0-9A-Za-z.+-]+")


def _added(tree: Tree, folder: str, found: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the folders of charts, and their names, that are added to a chart with some files. Raises Unseen."""
    own = {path: _name(tree, os.path.join(folder, path)) for path in found if _PACKED.fullmatch(path)}
    enough, has, urls = len(own) >= len(_dependencies(tree, folder)), {*own.values()}, dict[str, str]()
    for name, url in _local(tree, folder):
        if urls.setdefault(name, url) != url:
            raise Unseen(f"{folder} has the dependency {shown(name, quotes=False)} at several addresses")
        vendored = re.compile(rf"charts/{re.escape(name)}(?:/|-v?\d[^/]*\.tgz$)")
        if name in has or any(map(vendored.match, found)):  # Helm and Flux take what is there
            continue
        if enough:
            raise Unseen(f"{folder}/charts has other charts, so Flux adds no {shown(name, quotes=False)}")
        inner = os.path.normpath(os.path.join(folder, url.removeprefix("file://")))
        if os.path.isfile(inner):  # Flux loads it
            raise Unseen(f"{folder} has the dependency {shown(name, quotes=False)}, which is packed: {inner}")
        if is_chart(inner):
            yield inner, name


MOST_FILES, MOST_BYTES = 10_000, 64 * 2**20
"""Maximum of a chart with its dependencies, each of which counts as often as a chart names it.

So much may links repeat too.
"""


def needed(tree: Tree, folder: str, values: Collection[bytes] = (), depth: int = 0) -> list[str]:
    """Return the files of a chart, and of those that it depends on, without which it may make other objects.

    Files that Helm does not read by itself count only if a template may read them, as `.Files`, with some values.
    """
    try:
        found = staged(tree, folder, depth).files
        inner = [os.path.join(folder, url.removeprefix("file://")) for _, url in _local(tree, folder)]
    except Unseen:
        return []
    reads = _reads_files(found, values)
    names = (name for name in found if (reads and not _is_hidden(name)) or _READ.fullmatch(name))
    own = [path for name in sorted(names) if os.path.lexists(path := os.path.normpath(os.path.join(folder, name)))]
    charts = (path for each in inner if depth < _DEEPEST and is_chart(path := os.path.normpath(each)))
    return [*own, *(name for path in charts for name in needed(tree, path, values, depth + 1))]


_READ = re.compile(r"(?:charts/[^/]+/)*(?:Chart\.|values\.|requirements\.|\.helmignore|(?:templates|crds)/)[\s\S]*")
"""Files of a chart that Helm reads by itself (helm pkg/chart/loader/load.go, LoadFiles)."""


def unread(tree: Tree, folder: str, values: Collection[bytes] = ()) -> str:
    """Return a hidden file of a chart that is left out, though a template may read it as `.Files`; empty if none is.

    Some values may have the text of a template.
    """
    try:
        if not _reads_files(staged(tree, folder).files, values):
            return ""
        return next(filter(None, (_hidden(tree, top)[1] for top in sorted(folders(tree, folder)) if is_chart(top))), "")
    except Unseen:
        return ""


def texts(tree: Tree, folder: str, values: Collection[bytes]) -> list[str]:
    """Return the files of a chart, and of those that it depends on by a path, of which a template may read the text.

    A template may compare what another one makes, line by line. Other files count if it may read them, as `.Files`,
    with some values.
    """
    try:
        reads = _reads_files(staged(tree, folder).files, values)
        found = [each for top in folders(tree, folder) if is_chart(top) for each in paths(tree, top) if each != top]
        below = (each for name in found if reads or "templates" in PurePath(name).parts for each in _below(name))
        return [os.path.normpath(each) for each in below]
    except Unseen:
        return []


def _reads_files(found: Mapping[str, bytes], values: Iterable[bytes]) -> bool:
    """Whether a template may read files, as `.Files`. It may be among the files of a chart, or the text of a value."""
    if any(name.endswith(".tgz") or (b"Files" in data and "templates/" in name) for name, data in found.items()):
        return True
    return any(map(_FILES.search, (*values, *(data for name, data in found.items() if _READ.fullmatch(name)))))


_FILES = re.compile(
    rb"""[."`]Files\b|\.(?:Get|GetBytes|Glob|Lines|AsConfig|AsSecrets)\b"""
    rb"""|\\(?:(?:x|u00|U000000)[4-7][\dA-Fa-f]|1[0-7]{2})|!!binary\s"""
    rb"""|\brange\s+(?:\$\w+(?:\s*,\s*\$\w+)?\s*:=\s*)?\$(?![\w.{])"""
    rb"""|\b(?:get|index|to[A-Z]\w+)\s+\$(?![\w.{])|\b(?:deepCopy|merge\w*|must[A-Z]\w+)\s+\$(?![\w.{])"""
    rb"""|\b(?:omit|pick|pluck|values)\s+[$.](?![\w.{])"""
)
"""A sign that a template reads files without the word in it.

It calls a method that only they have (helm pkg/engine/files.go), hides letters by an escape, or goes through all that a
template has. A template gives a dot to other functions for many reasons, and `$` for few.
"""


def _hidden(tree: Tree, folder: str) -> tuple[dict[str, bytes], str]:
    """Return the hidden files of a chart from which Helm makes no object itself, and the first one that is left out.

    Links are left out, and files beyond MOST_HIDDEN, as a program's environment has them. Raises Unseen.
    """
    found, out, size = dict[str, bytes](), list[str](), 0
    tops = (path for path, _ in _walked(tree, folder) if not _is_loaded(path))
    for name in (each for top in tops for each in _below(os.path.join(folder, top))):
        try:
            size += os.lstat(name).st_size
            if os.path.islink(name) or len(found) == MOST_HIDDEN or size > MOST_HIDDEN_BYTES:
                raise Unseen(name)
            found[os.path.relpath(name, folder)] = tree.data(name, hidden=True)
        except (OSError, Unseen):
            out.append(name)
            if len(found) == MOST_HIDDEN or size > MOST_HIDDEN_BYTES:
                break
    return found, next(iter(out), "")


def _below(name: str) -> Iterator[str]:
    """Yield a file or a link, or the files and links below a folder."""
    if os.path.islink(name) or not os.path.isdir(name):
        yield name
        return
    for at, inner, names in os.walk(name):
        inner.sort()
        links = [each for each in inner if os.path.islink(os.path.join(at, each))]
        yield from (os.path.join(at, each) for each in sorted((*names, *links)))


MOST_HIDDEN, MOST_HIDDEN_BYTES = 1_000, 8 * 2**20
"""Maximum of a chart's hidden files that helm gets, and of their bytes together."""

_DEEPEST = 5
"""Maximum length of a chain of charts in which each depends on the next by a path."""


def _without_ignored(staged: dict[str, bytes], folder: str) -> dict[str, bytes]:
    """Return the files of a chart without those that its .helmignore leaves out. Raises Unseen for an odd pattern.

    Helm and Flux read the patterns as they add a dependency. Helm does not read those of a chart below another one. A
    pattern with a slash fits a whole path, any other one a name. Only a line feed ends a pattern (helm
    pkg/ignore/rules.go).
    """
    text = staged.get(".helmignore", b"").decode("utf-8", "replace").removeprefix("\ufeff")
    own = (line.strip(WHITE_SPACE) for line in text.split("\n"))
    lines = [_ALWAYS_LEFT_OUT, *(line for line in own if line and not line.startswith("#"))]
    if len(lines) > _MOST_PATTERNS or any(map(_ODD.search, lines)):
        raise Unseen(f"{folder}/.helmignore has more than {_MOST_PATTERNS} patterns, or one that is not simple")
    patterns = [(line, [*map(matcher, line.strip("/").split("/"))]) for line in lines]

    def fits(steps: list[str], line: str, parts: list[Matcher], *, is_file: bool) -> bool:
        if line.endswith("/") and is_file:
            return False
        if "/" not in line[:-1]:
            return bool(parts[0](steps[-1]))
        return len(parts) == len(steps) and all(part(step) for part, step in zip(parts, steps, strict=True))

    def is_left_out(path: str) -> bool:
        steps = path.split("/")
        above = (steps[:count] for count in range(1, len(steps)))
        if any(fits(steps, *pattern, is_file=True) for pattern in patterns):
            return True
        return any(fits(folder, *pattern, is_file=False) for folder in above for pattern in patterns)

    return {path: data for path, data in staged.items() if not is_left_out(path)}


_ALWAYS_LEFT_OUT = "templates/.?*"
"""What Helm and Flux leave out of every chart (helm pkg/ignore/rules.go, AddDefaults)."""

_MOST_PATTERNS = 100
"""Maximum patterns of a .helmignore that are compared with the files of a chart."""

_ODD = re.compile(r"^!|\\|\[[!^]")
"""A pattern that leaves out what does not fit, or that Go reads otherwise than Python does."""


_PACKED = re.compile(r"charts/[^/]+(?:/Chart\.yaml|\.tgz)")
"""A chart that is a dependency of the one around it."""


def _name(tree: Tree, path: str) -> str:
    """Return the name of a chart by its file; empty if it is an archive."""
    return string(_metadata(tree, os.path.dirname(path)).get("name")) if path.endswith(files.CHART) else ""


def _dependencies(tree: Tree, folder: str) -> list[Mapping[str, Any]]:
    """Return the dependencies of a chart. Raises Unseen."""
    return mappings(_metadata(tree, folder).get("dependencies"))


def _metadata(tree: Tree, folder: str) -> Mapping[str, Any]:
    """Return what a chart says of itself. Raises Unseen."""
    own, more = mapping(tree.first(os.path.join(folder, files.CHART)).value), os.path.join(folder, packing.REQUIREMENTS)
    try:
        over = mapping(tree.first(more).value) if os.path.lexists(more) else {}
    except Unseen as error:
        if not error.absent:
            raise
        over = {}
    return packing.merged(own, over)


def _local(tree: Tree, folder: str) -> Iterator[tuple[str, str]]:
    for each in _dependencies(tree, folder):
        name, url = string(each.get("name")), string(each.get("repository"))
        own = name and os.path.basename(name) == name and not name.startswith(".")
        if own and url.startswith("file://") and "\0" not in name + url:
            yield name, url


def folders(tree: Tree, folder: str) -> set[str]:
    """Return the folders of a chart, and of those in the repository that it depends on by a path."""
    found, left = set[str](), [os.path.normpath(folder)]
    while left:
        if (each := left.pop()) not in found:
            found.add(each)
            try:
                urls = [url for _, url in _local(tree, each)]
            except Unseen:
                continue
            left += (os.path.normpath(os.path.join(each, url.removeprefix("file://"))) for url in urls)
    return found


def missing(tree: Tree, folder: str) -> set[str]:
    """Return the names of a chart's dependencies that are not in the repository."""
    try:
        found, wanted = staged(tree, folder).files, {string(each.get("name")) for each in _dependencies(tree, folder)}
        have = {path.split("/")[1] for path in found if path.startswith("charts/")}
        own = (path for path in found if _PACKED.fullmatch(path) and os.path.lexists(os.path.join(folder, path)))
        have |= {_name(tree, os.path.join(folder, path)) for path in own}
    except Unseen:
        return set()
    return {name for name in wanted if name and not any(each == name or each.startswith(f"{name}-") for each in have)}


def is_chained(tree: Tree, chart: str) -> bool:
    """Whether a dependency that Helm adds to a chart lacks one that is in the repository."""
    try:
        return staged(tree, chart).chained
    except Unseen:
        return False


def subchart(tree: Tree, folder: str, name: str) -> str:
    """Return the folder of a chart's subchart by the name that Helm writes: its own one, or its alias.

    It is empty if several folders have the name, since .helmignore may leave out any of them. A dependency at a path
    counts if no folder below `charts` has the name.
    """
    try:
        names = {name, *(string(one.get("name")) for one in _dependencies(tree, folder) if one.get("alias") == name)}
        urls = [url.removeprefix("file://") for _, url in _local(tree, folder)]
        above = os.path.join(folder, "charts")
        below = [os.path.join(above, each) for each in (os.listdir(above) if os.path.isdir(above) else ())]
        for paths in (below, [os.path.join(folder, url) for url in urls]):
            charts = filter(is_chart, map(os.path.normpath, paths))
            if found := {path for path in charts if string(_metadata(tree, path).get("name")) in names}:
                return found.pop() if len(found) == 1 else ""
    except (OSError, Unseen):
        pass
    return ""
