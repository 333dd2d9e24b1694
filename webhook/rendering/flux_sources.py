"""Decides which sources of Flux are this repository, and which are other repositories."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from webhook.api.encryption import holds
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, string
from webhook.catalog import deployer_fields
from webhook.model import Object
from webhook.rendering import unfollowed
from webhook.repository import addresses, ignored
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


class FluxSources:
    """The sources of Flux among some objects, by kind and name.

    `own` is the name of the repository itself, and `place` its host and its path with the owner.
    """

    def __init__(
        self, objects: Iterable[Object], own: str = "", place: addresses.RepositoryPlace = addresses.UNKNOWN
    ) -> None:
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
            if "${" in "/".join(addresses.place_of(url := string(spec.get("url")))):
                return "a variable that no file shows, in the address of its source"
            if addresses.is_elsewhere(url, self.own) or addresses.is_namesake(url, self.own, self._place):
                return addresses.instead_of(url)
        for ignore in dict.fromkeys(string(spec.get("ignore")) for spec in specs or [{}]):
            if (key := (ignore, *needed)) not in self._left_out:
                self._left_out[key] = ignored.left_out(tree, needed, ignore)
            if name := self._left_out[key]:
                return f"its source leaves out {shown(name, quotes=False)}"
        return ""

    def is_elsewhere(self, reference: Mapping[str, Any], namespace: str) -> bool:
        """Whether a source is another repository of Git, in all files that have it."""
        urls = [string(spec.get("url")) for spec in self.specs(reference, namespace)]
        return (
            reference.get("kind") == GIT[1]
            and bool(urls)
            and all(addresses.is_elsewhere(url, self.own) for url in urls)
        )
