"""Defines the types that a file of `kinds/` uses: its table of facts, and the places where its objects are read."""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Generic, NamedTuple, TypeVar

from webhook.api.resources import Resource
from webhook.model import Object, immutable
from webhook.policy.model import Policy

K = TypeVar("K")
V = TypeVar("V")


class Fact(NamedTuple):
    """The fact that one object states: its table, its key in the table, and its value.

    Returns None if the object states nothing.
    """

    table: str
    key: Any
    value: Any


@immutable
class Table(Generic[K, V]):
    """The name of a table of facts, with the types of its keys and its values."""

    name: str

    def row(self, key: K, value: V | None) -> Fact:
        """Return a fact of this table."""
        return tuple.__new__(Fact, (self.name, key, value))  # one call less than `Fact(...)`, for each object


class Reach(Enum):
    """Where the objects of a kind are read, and by which programs."""

    FILES = auto()
    """They are read only from files."""
    LISTED = auto()
    """Audits and `slicewarden facts --live` list them everywhere. The webhook never reads them."""
    WITHIN = auto()
    """The webhook watches them in the namespaces of sharing configurations."""
    EVERYWHERE = auto()
    """The webhook watches them in the whole cluster."""


BIND = (
    "bind its right in each namespace of the policy's `sharing`: kubectl create rolebinding slicewarden-sharing "
    "--clusterrole=slicewarden-sharing --group=system:serviceaccounts:slicewarden-system --namespace=NAMESPACE"
)
"""How an administrator lets the webhook read what is WITHIN."""

Fields = tuple[str, ...]
"""The fields of an object that are read, as paths: `spec.containers[].resources` is a field of each entry of a list.

All of the last field of a path is read.
"""

WHOLE: Fields = ()
"""The fields of an object that is read whole."""

Read = Callable[[Object, str, str], Fact | None]
"""Returns the fact in an object, given its namespace (`default` if it has none) and name (empty if it has none)."""

Part = Mapping[str, Any]
"""Parts of an object by key. `metadata` has what is kept in addition to the namespace and the name."""


@immutable
class Kind:
    """A kind of facts: the resources that it reads, and its functions. Each field comes from the kind's file."""

    name: str
    resources: tuple[Resource, ...]
    table: Table[Any, Any]
    read: Read
    fields: Fields
    kept: Callable[[Object], Part | None]
    slim: Callable[[Object, Policy], Part | None]
    reach: Reach
    needed: Callable[[Policy], bool]
    order: int
    adds_up: bool
