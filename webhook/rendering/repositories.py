"""Decides which sources of Flux and Argo CD are this repository, and which are other repositories."""

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from webhook.api.encryption import holds
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, string
from webhook.catalog import deployer_fields
from webhook.documents import files
from webhook.model import Object
from webhook.rendering import unfollowed
from webhook.repository import ignored
from webhook.repository.tree import Tree
from webhook.text.words import shown

SOURCES = "source.toolkit.fluxcd.io"
"""The group of Flux's sources."""

GIT = (SOURCES, "GitRepository")
"""The kind of a source of Flux that may be this repository."""

ENCRYPTED = "texts that SOPS has encrypted"
"""Why an object does not show what it deploys."""

MISSING = "its path is not in the repository"
"""Why an object whose source is this repository as it is here is not rendered."""

MOST_SPECS = 100
"""Maximum specs of one source that are compared."""


def name_of(url: str) -> str:
    """Return the name of a Git repository without its owner, because the owner differs in a fork."""
    return re.split("[/:]", url.rstrip("/").removesuffix(".git"))[-1].lower()


class RepositoryPlace(NamedTuple):
    """The host of a Git repository, and its path there with the owner. Both are empty if they are not known."""

    host: str = ""
    path: str = ""


def place_of(url: str) -> RepositoryPlace:
    """Return the place of a Git repository, which is the same for each way to write the address.

    Hosts of Azure write the path by `_git`, or after `v3`, and Bitbucket's server after `scm`. Some hosts have another
    name for SSH.
    """
    after = url.lower().rpartition("://")[2].rpartition("@")[2].rstrip("/").removesuffix(".git")
    host, path = (*re.split("[:/]+", after, maxsplit=1), "")[:2]
    host, path = re.sub(r"^(?:www|ssh|altssh)\.", "", host), re.sub(r"^\d+/", "", path)  # a port
    if found := _AZURE.fullmatch(host):
        parts = [found[1], *path.split("/")] if found[1] else path.split("/")
        parts = [part for part in parts if part and part not in ("v3", "defaultcollection")]
        if len(parts) == 3 and parts[1] == "_git":  # the project has the name of the repository
            parts[1] = parts[2]
        return RepositoryPlace("dev.azure.com", "/".join(part for part in parts if part != "_git"))
    if host not in _WITHOUT_SCM and (found := re.fullmatch(r"scm/([^/]+/[^/]+)", path)):
        return RepositoryPlace(host, found[1])
    return RepositoryPlace(host, path)


_AZURE = re.compile(r"dev\.azure\.com|vs-ssh\.visualstudio\.com|([^.]+)\.visualstudio\.com")
"""The hosts of Azure DevOps; an older one has the name of the organization."""

_WITHOUT_SCM = ("github.com", "gitlab.com", "bitbucket.org")
"""Hosts where `scm` at the start of a path is an owner."""


def home(root: str, urls: Iterable[str], own: str) -> RepositoryPlace:
    """Return the place of the repository at a path, of the addresses that have its own name.

    It is that of its origin. If no address has that, because the repository is a fork, it is the most common one. It is
    empty if no address has the name.
    """
    counted = Counter(place_of(url) for url in urls if url and name_of(url) == own)
    origin = place_of(_origin(root))
    return origin if origin in counted else next((place for place, _ in counted.most_common(1)), RepositoryPlace())


def is_namesake(url: str, own: str, place: RepositoryPlace) -> bool:
    """Whether an address belongs to another repository of the same name: with another owner or host than `place`."""
    unlike = (one != other and not _OPEN.search(one) for one, other in zip(place_of(url), place, strict=True))
    return bool(url and place.path) and name_of(url) == own and any(unlike)


_OPEN = re.compile(r"\{\{|\$\{")
"""The start of a parameter of Argo CD, and of a variable of Flux."""


def instead_of(url: str) -> str:
    """Return the words for an object that is judged by the files here, in place of those at an address."""
    return f"judged by the files here, though its source is {shown(url, quotes=False)}"


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


def is_here(root: str, url: str) -> bool:
    """Whether an address is that of the origin of the repository at a path."""
    return bool(url and (origin := _origin(root))) and place_of(url) == place_of(origin)


def is_elsewhere(url: str, own: str) -> bool:
    """Whether an address belongs to a repository with another name. False if the address contains a parameter."""
    return bool(url) and "{{" not in url and name_of(url) != own


class FluxSources:
    """The sources of Flux among some objects, by kind and name.

    `own` is the name of the repository itself, and `place` its host and its path with the owner.
    """

    def __init__(self, objects: Iterable[Object], own: str = "", place: RepositoryPlace = RepositoryPlace()) -> None:  # noqa: B008 - it is immutable
        self.own, self._place = own, place
        self._left_out = dict[tuple[str, ...], str]()
        self._named = defaultdict[tuple[str, str], dict[str, tuple[str, Mapping[str, Any]]]](dict)
        for each in objects:
            if group_kind(each)[0] == SOURCES:
                metadata, spec = mapping(each.get("metadata")), mapping(each.get("spec"))
                found = string(metadata.get("namespace")), spec
                named = self._named[string(each.get("kind")), string(metadata.get("name"))]
                named.setdefault(json.dumps(found, sort_keys=True), found)

    def spec(self, reference: Mapping[str, Any], namespace: str) -> Mapping[str, Any]:
        """Return the spec of the source that an object in a namespace names; empty if no file has it."""
        where, named = self._all(reference, namespace)
        return next((spec for own, spec in named if own == where), named[0][1] if named else {})

    def specs(self, reference: Mapping[str, Any], namespace: str) -> list[Mapping[str, Any]]:
        """Return the specs of all sources that it may name: files may be of several clusters, and patches change them.

        A source without a namespace may get any; without one in the namespace, those in others count.
        """
        where, named = self._all(reference, namespace)
        near = [spec for own, spec in named if own in (where, "")] if where else []
        return near or [spec for _, spec in named]

    def _all(self, reference: Mapping[str, Any], namespace: str) -> tuple[str, list[tuple[str, Mapping[str, Any]]]]:
        """Return the namespace of a source, and all sources of its kind and name with their namespaces."""
        named = self._named.get((string(reference.get("kind")), string(reference.get("name"))), {})
        return string(reference.get("namespace")) or namespace, [*named.values()]

    def url(self, reference: Mapping[str, Any], namespace: str) -> str:
        """Return the address of a source; empty if no file has it."""
        return string(self.spec(reference, namespace).get("url"))

    def unlike(self, reference: Mapping[str, Any], namespace: str, tree: Tree, names: Iterable[str]) -> str:
        """Return why a source is not the repository as it is here: it leaves out one of some files, or adds others."""
        specs, needed = self.specs(reference, namespace) if reference.get("kind") == GIT[1] else [], [*names]
        if len(specs) > MOST_SPECS:
            return f"its source is written in more than {MOST_SPECS} ways"
        for spec in specs:
            if reason := unfollowed.reason(spec, deployer_fields.GIT):
                return f"{reason} in its source"
            if holds(spec):
                return f"{ENCRYPTED} in its source"
            if is_namesake(url := string(spec.get("url")), self.own, self._place):
                return instead_of(url)
        for ignore in dict.fromkeys(string(spec.get("ignore")) for spec in specs or [{}]):
            if (key := (ignore, *needed)) not in self._left_out:
                self._left_out[key] = ignored.left_out(tree, needed, ignore)
            if name := self._left_out[key]:
                return f"its source leaves out {shown(name, quotes=False)}"
        return ""

    def is_elsewhere(self, reference: Mapping[str, Any], namespace: str) -> bool:
        """Whether a source is another repository of Git, in all files that have it."""
        urls = [string(spec.get("url")) for spec in self.specs(reference, namespace)]
        return reference.get("kind") == GIT[1] and bool(urls) and all(is_elsewhere(url, self.own) for url in urls)
