"""What a lint is given, and what it says."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import NamedTuple, TypeVar

from webhook.facts.snapshot import Facts, Node
from webhook.model import Action, Object, Path
from webhook.policy.model import Policy, Pool, Scope


@dataclass(frozen=True, eq=False)
class Linted:
    """A policy, its `spec` as the file has it, what is known of the cluster, and by when an end is soon."""

    policy: Policy
    spec: Object
    facts: Facts
    today: date
    soon: timedelta

    @property
    def pools(self) -> Iterator[tuple[Path, Pool, list[Node]]]:
        """Each pool with its path and its nodes, where any nodes are known."""
        if self.facts.nodes:
            for path, pool in at("pools", self.policy.pools):
                yield path, pool, [node for node in self.facts.nodes if pool.nodes.matches(node.labels)]

    @property
    def scopes(self) -> Iterator[tuple[Path, Scope]]:
        """Everything that speaks of namespaces, with its path."""
        yield from ((path, each.scope) for path, each in at("trust.grants", self.policy.grants))
        yield from (
            ((*path, "circle"), pool.circle) for path, pool in at("pools", self.policy.pools) if pool.circle is not None
        )
        yield from at("gpus.claims", self.policy.forms.claims)
        for path, override in at("overrides", self.policy.overrides):
            if override.scope is not None:
                yield path, override.scope
        yield from ((path, each.scope) for path, each in at("exemptions", self.policy.exemptions))

    def reached(self, scope: Scope) -> set[str]:
        """The known namespaces that a scope covers."""
        return {name for name, labels in self.facts.namespaces.items() if scope.reaches(name, labels)}


T = TypeVar("T")


def at(place: str, values: Iterable[T]) -> Iterator[tuple[Path, T]]:
    """Give each item of a list of the policy its path."""
    for index, value in enumerate(values):
        yield ("spec", *place.split("."), index), value


class Found(NamedTuple):
    """Where, and what: one line with the way out."""

    path: Path
    message: str


Lint = Callable[[Linted], Iterator[Found]]
Table = Mapping[Lint, Action]
"""Lints, and how bad what each finds is."""


def within(narrow: Scope, wide: Scope) -> bool:
    """Tell whether a scope reaches no namespace that another does not, whatever the labels of namespaces are."""
    if narrow.selector:
        if wide.selector is None:
            return False
        if not set(wide.selector.requirements) <= set(narrow.selector.requirements):
            return False
    return narrow.namespaces <= wide.namespaces
