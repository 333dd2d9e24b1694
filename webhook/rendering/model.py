"""Defines the input and the output of a rendering, and tests whether files need one."""

import json
import os
import re
from collections.abc import Iterable
from dataclasses import field
from pathlib import PurePath
from typing import NamedTuple

from webhook.documents import files
from webhook.documents.files import Item
from webhook.model import Problem, immutable
from webhook.telemetry.progress import Tell, quietly

_ROOTS = frozenset((*files.KUSTOMIZATIONS, files.CHART))

HELMFILES = ("helmfile.yaml", "helmfile.yml")
"""The files that list releases of charts; so do those in a folder helmfile.d (helmfile.readthedocs.io)."""

_MARKS = re.compile(
    rb"toolkit\.fluxcd\.io|fluxcd\.controlplane\.io|argoproj\.io\\?/v1alpha1"
    rb"|\\[xuU\s\x80-\xff]|!!?binary|!!\w{0,6}%|!<|^%",  # what may hide them: escapes, and tags for base64
    re.MULTILINE,
)
"""A part of each file with an object of Flux or Argo CD that deploys others.

A text may be broken after a backslash, and have one before a slash. A tag may have escapes, be written in full, or
begin with a handle of a directive (yaml.org/spec/1.1).
"""


class Options(NamedTuple):
    """How roots are rendered. `fetch` allows programs to download, and `cached` keeps their output.

    `version` is that of the cluster, for charts, and `namespace` that of charts which no object installs. With
    `touched`, only the roots that use the files given by name are rendered.
    """

    fetch: bool = False
    cached: bool = True
    version: str = ""
    namespace: str = ""
    touched: bool = False
    tell: Tell = quietly


@immutable
class Output:
    """The objects that one root makes."""

    root: str
    items: list[Item]


@immutable
class Rendering:
    """The result of a rendering: objects by their roots, the files that need not be judged, and the charts.

    Helm may leave out a file of a chart, which then is none of `files`. `installed` are objects whose charts were all
    rendered, by their identity. `unfollowed` are objects that deploy others than those that were made.
    `before` are the objects that a root changes or deletes though another folder has them, as they were before.
    `patches` are the files of whole objects that serve an object of Argo CD only as patches.
    `texts` are the files that kustomizations name, and those of charts of which a template may read the text.
    """

    outputs: list[Output] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    charts: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unfollowed: list[str] = field(default_factory=list)
    before: list[Item] = field(default_factory=list)
    installed: set[tuple[str, int, str]] = field(default_factory=set)
    patches: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)


def identity(item: Item) -> tuple[str, int, str]:
    """Return what identifies an object of a run: its file and line, and its contents, which roots may change."""
    return item.document.file, item.line(), json.dumps(item.value, sort_keys=True)


def deployers(names: Iterable[str]) -> list[str]:
    """Return the files that may hold objects of Flux or Argo CD."""
    found = list[str]()
    for name in names:
        try:
            data = files.contents(name)
        except (OSError, files.Unfit):
            continue
        if _MARKS.search(data):
            found.append(name)
    return found


def is_root(name: str) -> bool:
    """Whether a file makes its folder a kustomization or a chart, or lists releases of charts."""
    return os.path.basename(name) in _ROOTS or is_helmfile(name)


def is_helmfile(name: str) -> bool:
    """Whether a file may list releases of charts by its name: `helmfile` is a part of it, or of its folder's name."""
    path = PurePath(name)
    return "helmfile" in name and path.suffix in (".yaml", ".yml") and "helmfile" in f"{path.parent.name}/{path.name}"


def lists_releases(name: str, text: str) -> bool:
    """Whether such a file lists releases by its exact name (helmfile.readthedocs.io), or by its text."""
    path = PurePath(name)
    return path.name in HELMFILES or path.parent.name == "helmfile.d" or _RELEASES.search(text) is not None


_RELEASES = re.compile(r"""(?:^|[{,]\s*)["']?releases["']?\s*:""", re.MULTILINE)
"""A field of a helmfile."""
