"""The input and the output of a lint."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, timedelta
from typing import NamedTuple, TypeVar

from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.model import Action, Object, Path, immutable
from webhook.policy.model import Policy, Pool
from webhook.policy.scopes import Scope


@immutable
class Linted:
    """The input of a lint: a policy, its `spec` as written, and the facts.

    `soon` is how long before an end a lint warns of it.
    """

    policy: Policy
    spec: Object
    facts: Facts
    today: date
    soon: timedelta

    @property
    def pools(self) -> Iterator[tuple[Path, Pool, list[Node]]]:
        """Every pool that has nodes, with its path and its known nodes; nothing if no nodes are known."""
        if self.facts.nodes:
            for path, pool in at("pools", self.policy.pools):
                if not pool.has_nodes:
                    continue
                yield path, pool, [node for node in self.facts.nodes if pool.nodes.matches(node.labels)]

    @property
    def scopes(self) -> Iterator[tuple[Path, Scope]]:
        """Every scope in the policy, with its path."""
        yield from ((path, each.scope) for path, each in at("trust.grants", self.policy.grants))
        yield from (
            ((*path, "tenants"), pool.tenants)
            for path, pool in at("pools", self.policy.pools)
            if pool.tenants is not None
        )
        yield from at("gpus.claims", self.policy.forms.claims)
        for path, override in at("overrides", self.policy.overrides):
            if override.scope is not None:
                yield path, override.scope
        yield from ((path, each.scope) for path, each in at("exemptions", self.policy.exemptions))
        yield from ((path, each.scope) for path, each in at("priorities", self.policy.priorities) if each.scope)

    def reached(self, scope: Scope) -> set[str]:
        """Return the known namespaces that a scope covers."""
        return {name for name, labels in self.facts.namespaces.items() if scope.reaches(name, labels)}


T = TypeVar("T")


def at(place: str, values: Iterable[T]) -> Iterator[tuple[Path, T]]:
    """Yield the items of a list in the policy, each with its path."""
    for index, value in enumerate(values):
        yield ("spec", *place.split("."), index), value


class LintFinding(NamedTuple):
    """The output of a lint: a path, and one line with the way out."""

    path: Path
    message: str


Lint = Callable[[Linted], Iterator[LintFinding]]
Table = Mapping[Lint, Action]
"""Lints with their severity."""


def within(narrow: Scope, wide: Scope) -> bool:
    """Whether another scope covers everything that this one covers, for any labels of namespaces."""
    if narrow.everywhere or wide.everywhere:
        return wide.everywhere
    if narrow.selector:
        if wide.selector is None:
            return False
        if not set(wide.selector.requirements) <= set(narrow.selector.requirements):
            return False
    return narrow.namespaces <= wide.namespaces
