"""Finds why what builds a chart's dependencies may add others than those that are rendered here."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from webhook.api.lenient import mapping, mappings, string
from webhook.repository import chart_folders, packing
from webhook.repository.tree import Tree, Unseen
from webhook.text.words import shown

Dependency = Mapping[str, Any]


class Builder(StrEnum):
    """What adds the dependencies of a chart. Argo CD and Helmfile run `helm dependency build`."""

    SOMEBODY = "helm"
    FLUX = "Flux"
    ARGO = "Argo CD"
    HELMFILE = "Helmfile"


class _Chart(NamedTuple):
    """A chart with its own files, those that Helm reads, and its dependencies.

    The second are None if a pattern of its .helmignore may leave out any file.
    """

    tree: Tree
    folder: str
    own: packing.Files
    read: packing.Files | None
    wanted: list[Dependency]

    def lacks(self) -> bool:
        """Whether Helm may not find a dependency below `charts`."""
        have = () if self.read is None else packing.names(self.read)
        return any(each.get("name") not in have for each in self.wanted)

    def place(self, url: str) -> str:
        """Return the file or folder at an address `file://`, as Helm reads it."""
        return os.path.normpath(os.path.join(self.folder, url.removeprefix("file://")))


def doubt(tree: Tree, folder: str, builder: Builder) -> str:
    """Return why a chart may get other dependencies than `check` gives it; empty if it gets these.

    A chart that cannot be staged brings another note.
    """
    try:
        staged = chart_folders.staged(tree, folder)
    except Unseen:
        return ""
    try:
        if key := packing.odd_key(staged.files):
            return f"the key {shown(key, quotes=False)} of a chart is not followed"
        chart = _Chart(tree, folder, staged.own, _read(staged, folder), mappings(packing.said(staged.own).get(_LIST)))
        return next(filter(None, _reasons(chart, builder)), "")
    except Unseen as error:  # Helm refuses it, too
        return "" if builder is Builder.SOMEBODY else str(error)


_LIST = "dependencies"


def _read(staged: chart_folders.Staged, folder: str) -> packing.Files | None:
    try:
        return staged.without_ignored(folder).own
    except Unseen:
        return None


def _reasons(chart: _Chart, builder: Builder) -> Iterator[str]:
    for name in packing.LOCKS:
        if name in chart.own and not agree(_locked(chart, name), chart.wanted):
            yield f"its {name} names other dependencies than the chart"
    if packing.REQUIREMENTS in chart.own and packing.REQUIREMENTS not in (chart.read or ()):
        yield f"its .helmignore may leave out {packing.REQUIREMENTS}"
    packed = sum(path.startswith("charts/") and path.endswith(".tgz") for path in chart.own)
    if builder is not Builder.SOMEBODY and packed * len(chart.wanted) > MOST_PAIRS:
        yield "it has too many packed dependencies to compare"
        return
    if builder is Builder.ARGO and any(_is_linked(chart, string(each.get("repository"))) for each in chart.wanted):
        yield "Argo CD follows the link to the chart before it looks for its dependencies"
    if builder is Builder.FLUX:
        yield from _of_flux(chart)
    elif builder is Builder.HELMFILE or (builder is Builder.ARGO and chart.lacks()):
        yield from _of_helm(chart, builder)


MOST_PAIRS = 2_500
"""Maximum dependencies of a chart, times its archives, that are compared: each comparison opens all archives."""


# Locks


def _locked(chart: _Chart, name: str) -> list[Dependency]:
    """Return the dependencies in a lock. Raises Unseen."""
    try:
        return mappings(mapping(chart.tree.first(os.path.join(chart.folder, name)).value).get(_LIST))
    except Unseen as error:
        if not error.absent:
            raise
        return []  # an empty lock counts, too


def agree(locked: Sequence[Dependency], wanted: Sequence[Dependency]) -> bool:
    """Whether a lock is one of some dependencies: it counts in their place.

    Flux does not compare its digest (source-controller internal/helm/chart/dependency_manager.go, Build), and anybody
    can write a digest that Helm takes (helm pkg/downloader/manager.go, Build).
    """
    one, other = (sorted(each, key=lambda dependency: string(dependency.get("name"))) for each in (locked, wanted))
    return len(one) == len(other) and all(map(_is_lock_of, one, other))


def _is_lock_of(locked: Dependency, wanted: Dependency) -> bool:
    """Whether a lock has a dependency as Helm writes it: with a version of the range, and the address of a name."""
    version, asked = (string(each.get("version")) for each in (locked, wanted))
    url, named = (string(each.get("repository")).rstrip("/") for each in (locked, wanted))
    return (
        locked.get("name") == wanted.get("name")
        and not locked.get("alias")
        and (url == named or (named.startswith(("@", "alias:")) and url.startswith(("https://", "http://", "oci://"))))
        and (version == asked or packing.has_version(locked, asked))
    )


# Builders


def _of_flux(chart: _Chart) -> Iterator[str]:
    """Yield why Flux may add another dependency, or one twice.

    It adds nothing to a chart with as many charts as dependencies. Without a lock, it looks for the alias of each among
    the names of these charts. It reads an address as a URL (source-controller internal/helm/chart,
    dependency_manager.go: collectMissing, secureLocalChartPath).
    """
    have = packing.names(chart.own if chart.read is None else chart.read)
    if chart.read is not None and len(have) == len(chart.wanted):
        return
    is_locked = any(name in (chart.read or ()) for name in packing.LOCKS)
    for each in chart.wanted:
        name, url = string(each.get("name")), string(each.get("repository"))
        if (name if is_locked else string(each.get("alias")) or name) in have:
            continue
        if not url:
            yield f"Flux takes the chart for its dependency {shown(name)} without an address"
        elif url.startswith("file://") and not _is_plain(chart, url):
            yield f"Flux may read the address {shown(url)} of a dependency otherwise"
        elif name in have and packing.is_unlike(chart.own, name, _made(chart, url)):
            yield _next_to(Builder.FLUX, name)
        elif (made := _made(chart, url)) is not None and (other := packing.said(made).get("name")) != name:
            yield f"Flux adds {shown(string(other))} for its dependency {shown(name)}"


def _of_helm(chart: _Chart, builder: Builder) -> Iterator[str]:
    """Yield why `helm dependency build` adds a dependency next to another one, or removes an archive.

    It removes those that it did not make (helm pkg/downloader/manager.go, safeMoveDeps), unless the chart has no list
    of dependencies.
    """
    named = {string(each.get("name")) for each in chart.wanted}
    lists = packing.said(chart.own).get(_LIST) is not None or any(name in chart.own for name in packing.LOCKS)
    for place, below in packing.subcharts(chart.own) if lists else ():
        if f"charts/{place}" in chart.own and packing.said(below).get("name") not in named:
            yield f"{builder} removes charts/{shown(place, quotes=False)}, which no dependency names"
    for each in chart.wanted if packing.names(chart.own) else ():
        name, url = string(each.get("name")), string(each.get("repository"))
        if url and packing.is_unlike(chart.own, name, _made(chart, url)):
            yield _next_to(builder, name)


def _next_to(builder: Builder, name: str) -> str:
    return f"{builder} adds its dependency {shown(name)} next to another of that name"


def _made(chart: _Chart, url: str) -> packing.Files | None:
    """Return the files of the dependency that an address adds; None if it is not in the repository. Raises Unseen."""
    if not url.startswith("file://") or not chart_folders.is_chart(inner := chart.place(url)):
        return None
    return chart_folders.staged(chart.tree, inner, 1, built=False).as_packed(inner)


def _is_plain(chart: _Chart, url: str) -> bool:
    """Whether Flux and Helm read an address `file://` as the same folder.

    Flux reads the path from the chart, and never leaves the repository.
    """
    try:
        chart.tree.checked(chart.place(url))
    except Unseen:
        return False
    return not _URL.search(url)


def _is_linked(chart: _Chart, url: str) -> bool:
    """Whether an address leads elsewhere from the folder to which links lead. Argo CD runs helm there."""
    real = os.path.join(os.path.realpath(chart.folder), url.removeprefix("file://"))
    return url.startswith("file://") and os.path.realpath(real) != os.path.realpath(chart.place(url))


_URL = re.compile(r"[%?#]|^file://(?:/|[^/]*@)")
"""What a URL has besides a relative path."""
