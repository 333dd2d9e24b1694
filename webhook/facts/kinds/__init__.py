"""The kinds of facts: one file each, found by walking this folder. A file has all knowledge about its objects.

A file has the `RESOURCES` that it reads, the `TABLE` of its facts, and `read`, which returns the fact in an object. A
table with the name of a field of `Facts` fills that field; `Facts.table` returns any other. A file may also have
`REACH` (where its objects are read in a cluster; by default they come only from files), `needed` (under which
policies; the first line of its docstring is written into the manifests next to the rights), `FIELDS` (the fields that
`read` reads; by default the whole object), `kept` (the parts that
`read` needs, or None; by default the spec), `slim` (the parts for a file in Git, or None; by default those of `kept`
without the configuration of drivers), `ORDER` (their position in that file; by default the last) and `ADDS_UP` (a later
object adds its labels to an earlier namesake, as `kubectl apply` does, and does not replace it).
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from sys import intern
from typing import Any

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, string
from webhook.api.resources import Resource
from webhook.catalog.workloads import WORKLOADS
from webhook.facts import parts
from webhook.facts.kind import WHOLE, Fact, Fields, Kind, Part, Reach
from webhook.model import Object
from webhook.policy.model import Policy

LAST = 99
"""The order of the kinds that declare none."""


def always(_: Policy) -> bool:
    """For every policy."""
    return True


def the_spec(item: Object) -> Part:
    """Keep the spec."""
    return {"spec": mapping(item.get("spec"))}


@cache
def walk() -> tuple[Kind, ...]:
    """Load every kind of this folder, in the order of a file in Git."""
    found = map(_kind, (module.name for module in pkgutil.iter_modules(__path__)))
    return tuple(sorted(found, key=lambda kind: (kind.order, kind.name)))


def _kind(name: str) -> Kind:
    module = importlib.import_module(f"{__name__}.{name}")
    kept: Callable[[Object], Part | None] = getattr(module, "kept", the_spec)

    def slim(item: Object, _: Policy) -> Part | None:
        part = kept(item)
        return None if part is None else {key: parts.without_config(value) for key, value in part.items()}

    return Kind(
        name,
        module.RESOURCES,
        module.TABLE,
        module.read,
        getattr(module, "FIELDS", WHOLE),
        kept,
        getattr(module, "slim", slim),
        getattr(module, "REACH", Reach.FILES),
        getattr(module, "needed", always),
        getattr(module, "ORDER", LAST),
        getattr(module, "ADDS_UP", False),
    )


KINDS: Mapping[tuple[str, str], Kind] = {resource.of: kind for kind in walk() for resource in kind.resources}
"""The kinds of facts, by the group and kind of their objects."""

RESOURCES: Mapping[tuple[str, str], Resource] = {
    resource.of: resource for kind in walk() for resource in kind.resources
}
"""The resources that are read, by group and kind."""

CLUSTER_SCOPED = frozenset(
    (
        *(of for of, resource in RESOURCES.items() if not resource.namespaced),
        *(kind for kind, workload in WORKLOADS.items() if workload.cluster_scoped),
    )
)
"""The groups and kinds of objects that belong to the whole cluster; those of all others are in a namespace."""


def resources(*reaches: Reach) -> tuple[Resource, ...]:
    """Return the resources that are read in one of these ways under some policy. `Reach` names the ways."""
    return tuple(resource for kind in walk() if kind.reach in reaches for resource in kind.resources)


def usual(*reaches: Reach) -> tuple[Resource, ...]:
    """Return the resources that are read in one of these ways under every policy."""
    kinds = (kind for kind in walk() if kind.reach in reaches and kind.needed is always)
    return tuple(resource for kind in kinds for resource in kind.resources)


def needed(policy: Policy, *reaches: Reach) -> tuple[Resource, ...]:
    """Return the resources that are read in one of these ways under the given policy."""
    kinds = (kind for kind in walk() if kind.reach in reaches and kind.needed(policy))
    return tuple(resource for kind in kinds for resource in kind.resources)


def fields(resource: Resource) -> Fields:
    """Return the fields that `read` reads of a resource's objects."""
    kind = KINDS.get(resource.of)
    return kind.fields if kind else WHOLE


def read(item: Object) -> Fact | None:
    """Read the fact in one API object, without regard to others.

    None for other kinds, and for a node without a name.
    """
    kind = KINDS.get(group_kind(item))
    if kind is None:
        return None
    metadata = mapping(item.get("metadata"))
    name, namespace = string(metadata.get("name")), intern(string(metadata.get("namespace")) or "default")
    return kind.read(item, namespace, name)


def kept(item: Object) -> Object | None:
    """Return the part of an object that facts need, so that ten thousand nodes fit into memory.

    Returns None if they need nothing.
    """
    kind = KINDS.get(group_kind(item))
    part = kind.kept(item) if kind else None
    if part is None:
        return None
    metadata = mapping(item.get("metadata"))
    named = {key: _shared(metadata[key]) for key in ("namespace", "name") if key in metadata}
    named |= part.get("metadata", {})
    return {"apiVersion": item.get("apiVersion"), "kind": item.get("kind"), **part, "metadata": named}


def in_namespace(item: Object) -> bool:
    """Whether an object is in a namespace. Objects of unknown kinds count as being in one."""
    return group_kind(item) not in CLUSTER_SCOPED


def slim(item: Object, policy: Policy) -> Object | None:
    """Return the part of an object for a file in Git; None if no part of it may be in the file."""
    of = group_kind(item)
    kind, metadata = KINDS.get(of), mapping(item.get("metadata"))
    name = string(metadata.get("name"))
    small = kind.slim(item, policy) if kind and name else None
    if small is None:
        return None
    named = {"name": name}
    if in_namespace(item):
        named["namespace"] = string(metadata.get("namespace")) or "default"
    named |= {key: value for key, value in small.get("metadata", {}).items() if value}
    return {"apiVersion": item["apiVersion"], "kind": item["kind"], **small, "metadata": named}


def _shared(name: Any) -> Any:
    return intern(name) if type(name) is str else name
