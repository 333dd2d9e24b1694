"""Decides which sources of Flux and Argo CD are this repository, and which are other repositories."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from webhook.api import unfollowed
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, string
from webhook.catalog import deployer_fields
from webhook.documents import files
from webhook.model import Object
from webhook.rendering import ignored
from webhook.rendering.tree import Tree
from webhook.text.words import shown

SOURCES = "source.toolkit.fluxcd.io"
"""The group of Flux's sources."""


def name_of(url: str) -> str:
    """Return the name of a Git repository without its owner, because the owner differs in a fork."""
    return re.split("[/:]", url.rstrip("/").removesuffix(".git"))[-1].lower()


def known(root: str, urls: Iterable[str]) -> str:
    """Return the name of the repository at a path, whose objects deploy from some addresses.

    It is the name of its origin. If no object names the origin, it is the name in the address that objects name most
    often. An address is empty if no file shows it.
    """
    counted = Counter(map(name_of, urls))
    origin = name_of(_origin(root))
    if not counted or (origin and origin in counted):
        return origin
    return counted.most_common(1)[0][0]


def _origin(root: str) -> str:
    try:
        config = files.contents(os.path.join(root, ".git", "config")).decode("utf-8", "replace")
    except (OSError, files.Unfit):
        return ""
    found = re.search(r'^\[remote "origin"\]\n(?:[ \t].*\n)*?[ \t]*url[ \t]*=[ \t]*(\S+)', config, re.MULTILINE)
    return found[1] if found else ""


def is_elsewhere(url: str, own: str) -> bool:
    """Whether an address belongs to a repository with another name. False if the address contains a parameter."""
    return bool(url) and "{{" not in url and name_of(url) != own


class FluxSources:
    """The sources of Flux among some objects, by kind and name. `own` is the name of the repository itself."""

    def __init__(self, objects: Iterable[Object], own: str = "") -> None:
        self.own = own
        self._named = defaultdict[tuple[str, str], list[Object]](list)
        for each in objects:
            if group_kind(each)[0] == SOURCES:
                key = string(each.get("kind")), string(mapping(each.get("metadata")).get("name"))
                self._named[key].append(each)

    def spec(self, reference: Mapping[str, Any], namespace: str) -> Mapping[str, Any]:
        """Return the spec of the source that an object in a namespace names; empty if no file has it."""
        named = self._named.get((string(reference.get("kind")), string(reference.get("name"))), [])
        where = string(reference.get("namespace")) or namespace
        same = (each for each in named if mapping(each.get("metadata")).get("namespace") == where)
        found = next(same, named[0] if named else None)
        return mapping(mapping(found).get("spec"))

    def url(self, reference: Mapping[str, Any], namespace: str) -> str:
        """Return the address of a source; empty if no file has it."""
        return string(self.spec(reference, namespace).get("url"))

    def unlike(self, reference: Mapping[str, Any], namespace: str, tree: Tree, names: Iterable[str]) -> str:
        """Return why a source is not the repository as it is here: it leaves out one of some files, or adds others."""
        spec = self.spec(reference, namespace) if reference.get("kind") == "GitRepository" else {}
        if reason := unfollowed.reason(spec, deployer_fields.GIT):
            return f"{reason} in its source"
        name = ignored.left_out(tree, names, string(spec.get("ignore")))
        return f"its source leaves out {shown(name, quotes=False)}" if name else ""

    def is_elsewhere(self, reference: Mapping[str, Any], namespace: str) -> bool:
        """Whether a source is another repository of Git."""
        return reference.get("kind") == "GitRepository" and is_elsewhere(self.url(reference, namespace), self.own)
