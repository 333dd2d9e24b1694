"""A snapshot of the cluster, as a value that rules read. Nothing here does input or output."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, field, fields
from datetime import date
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

from webhook.api.devices import TEMPLATE
from webhook.facts import kinds
from webhook.facts.installations import PluginInstallation, Texts
from webhook.facts.kind import Fact, Table
from webhook.facts.kinds import (
    cluster_queue,
    compute_domain,
    local_queue,
    machine_set,
    node_pool,
    rbac,
    resource_flavor,
)
from webhook.facts.kinds.device_class import DeviceClass
from webhook.facts.kinds.node import Node
from webhook.facts.kinds.pod import Holder
from webhook.facts.kinds.resource_claim import ClaimedRequest
from webhook.facts.kinds.resource_slice import Device
from webhook.facts.queues import Queues, leading
from webhook.facts.rights import UNREAD, Account, GrantedRight, Rights
from webhook.facts.scaling import ScaledNodes
from webhook.model import Object, immutable

K = TypeVar("K")
V = TypeVar("V")


def _merged(parts: Iterable[Mapping[K, V]]) -> dict[K, V]:
    merged: dict[K, V] = {}
    for part in parts:
        merged |= part
    return merged


def _mapping() -> Any:
    """Make a field that has a table's mapping."""
    return field(default_factory=dict, metadata={"gather": lambda table: table, "join": _merged})


def _values(gather: Callable[[Mapping[Any, Any]], Any] = lambda table: tuple(table.values())) -> Any:
    """Make a field that has only the values of a table."""
    return field(default=(), metadata={"gather": gather, "join": _chained})


def _chained(parts: Iterable[tuple[V, ...]]) -> tuple[V, ...]:
    """Join tuples. If only one has values, it is returned as it is."""
    having = [part for part in parts if part]
    return having[0] if len(having) == 1 else tuple(chain.from_iterable(having))


@immutable
class Facts:
    """A snapshot: namespaces with their labels, nodes, sharing configurations, and the pods that have GPUs.

    Snapshots compare by identity, so that results derived from one can be cached. A field is filled from the table of
    its name (`facts.kinds`).
    """

    namespaces: Mapping[str, Mapping[str, str]] = _mapping()
    nodes: tuple[Node, ...] = _values()
    config_maps: Mapping[tuple[str, str], Texts] = _mapping()
    """ConfigMaps by namespace and name. In a live cluster, only those of the policy's sharing namespaces."""
    installations: tuple[PluginInstallation, ...] = _values()
    holders: tuple[Holder, ...] = _values()
    device_classes: Mapping[str, DeviceClass] = _mapping()
    """The DeviceClasses by name."""
    claimed: Mapping[tuple[str, str, str], tuple[ClaimedRequest, ...]] = _mapping()
    """The requests of claims and their templates, by kind, namespace and name."""
    devices: tuple[Device, ...] = _values(lambda table: tuple(chain.from_iterable(table.values())))
    """The devices of all ResourceSlices."""
    tables: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    """The tables that fill no field, by name; `table` returns one."""
    only_nodes: "Facts | None" = None
    """The snapshot of only the nodes, if it was joined with others."""
    rights: Rights = UNREAD
    """Which accounts have the right of trust: the API server answers, or the roles and bindings in files do."""
    today: date | None = None
    """The day in UTC, which decides whether an exemption has ended."""

    @property
    def of_nodes(self) -> "Facts":
        """A snapshot with these nodes, which stays the same while no node changes. Other facts may be missing.

        Results that depend only on nodes are cached by it: there are ten thousand nodes, and any tenant may change a
        claim ten times a second.
        """
        only = self.only_nodes
        return only if only and only.nodes is self.nodes else self

    @cached_property
    def named(self) -> Mapping[str, Node]:
        """The nodes, by their names."""
        return {node.name: node for node in self.nodes} if self.of_nodes is self else self.of_nodes.named

    @cached_property
    def queues(self) -> Queues:
        """The queues of Kueue. Only files provide them; they are never read from a live cluster."""
        flavors, quotas = self.table(resource_flavor.TABLE), self.table(cluster_queue.TABLE)
        return Queues(flavors, quotas, leading(self.table(local_queue.TABLE)))

    @property
    def scaled(self) -> tuple[ScaledNodes, ...]:
        """The GPU nodes that autoscalers can make. Only files provide them; they are never read from a live cluster."""
        return (*self.table(node_pool.TABLE).values(), *self.table(machine_set.TABLE).values())

    def table(self, table: Table[K, V]) -> Mapping[K, V]:
        """Return the facts of a kind whose table is no field of `Facts`."""
        return self.tables.get(table.name, {})

    def requested(self, kind: str, namespace: str, name: str) -> tuple[ClaimedRequest, ...] | None:
        """Return what a claim or a template requests; None if it is not among the facts.

        A template that a ComputeDomain names is known even before the driver has made it.
        """
        known = self.claimed.get((kind, namespace, name))
        if known is None and kind == TEMPLATE:
            return self.table(compute_domain.TABLE).get((namespace, name))
        return known

    def trusts(self, namespace: str, account: str = "") -> bool | None:
        """Whether an account has the right of trust; None if unknown.

        Without the name of an account: whether all accounts of the namespace have the right.
        """
        return self.rights.held(Account(namespace, account))

    @classmethod
    def of(cls, objects: Iterable[Object]) -> "Facts":
        """Make facts from API objects, as `kubectl get -o yaml` prints them.

        Objects of other kinds, and nodes without a name, are skipped. A later object replaces an earlier one with its
        name. A later namespace adds its labels, as `kubectl apply` does.
        """
        return gathered(filter(None, map(kinds.read, objects)))


class _Adding(dict[Any, Any]):
    """A table whose values are maps that are merged."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, {**self[key], **value} if key in self else value)


class _Tables(dict[str, dict[Any, Any]]):
    """Tables by name, created with the right type."""

    def __missing__(self, table: str) -> dict[Any, Any]:
        self[table] = made = _Adding() if table in _ADD_UP else {}
        return made


def gathered(facts: Iterable[Fact]) -> Facts:
    """Make a snapshot from facts, without reading any object again.

    A later object replaces an earlier one with its name, or adds to it (`ADDS_UP` of its kind).
    """
    tables = _Tables()
    for table, key, value in facts:
        tables[table][key] = value
    said = {table: {key: value for key, value in known.items() if value is not None} for table, known in tables.items()}
    giving = said.pop(rbac.TABLE.name, {})
    filled = {each.name: each.metadata["gather"](said.pop(each.name)) for each in _FILLED if each.name in said}
    return Facts(**filled, tables=said, rights=GrantedRight(giving.values()) if giving else UNREAD)


def joined(parts: Iterable[Facts]) -> Facts:
    """Join snapshots of different objects. They must be of watched kinds, without RBAC rights."""
    each = tuple(parts)
    filled = {of.name: of.metadata["join"](getattr(part, of.name) for part in each) for of in _FILLED}
    names = dict.fromkeys(chain.from_iterable(part.tables for part in each))
    tables = {name: _merged(part.tables.get(name, {}) for part in each) for name in names}
    having = [part for part in each if part.nodes]
    return Facts(**filled, tables=tables, only_nodes=having[0] if len(having) == 1 else None)


_FILLED: tuple["Field[Any]", ...] = tuple(each for each in fields(Facts) if "gather" in each.metadata)
"""The fields that a table fills."""

_ADD_UP = frozenset(kind.table.name for kind in kinds.walk() if kind.adds_up)
"""The tables whose values are maps that are merged."""
