"""Reads Roles, ClusterRoles and their bindings, which decide the accounts that may be trusted."""

from webhook.api.resources import Resource
from webhook.facts import rights
from webhook.facts.kind import Fact, Part, Reach, Table
from webhook.model import Object
from webhook.policy.model import Policy

RESOURCES = tuple(
    Resource(rights.RBAC, "v1", f"{kind.lower()}s", kind, namespaced=not kind.startswith("Cluster"))
    for kind in (*rights.ROLES, *rights.BINDINGS)
)
TABLE = Table[tuple[str, str, str], Object]("rights")
REACH = Reach.LISTED
"""The webhook asks the API server instead."""


def needed(policy: Policy) -> bool:
    """For grants with `rbac`; without such a grant, no Roles or bindings are read."""
    return policy.asks_rbac


def read(item: Object, namespace: str, name: str) -> Fact:
    """Read a role or a binding unchanged, because roles and bindings mean something only together."""
    return TABLE.row((item["kind"], namespace, name), item)


def kept(item: Object) -> Part | None:
    """Keep every binding, and the rules of a role that give the right of trust (`rights.py`). Drop other roles.

    The ClusterRole `slicewarden-trusted` is kept even without such rules.
    """
    return rights.kept(item)


def slim(item: Object, policy: Policy) -> Part | None:
    """Keep the same parts as `kept`, if the policy asks for rights."""
    return rights.kept(item) if policy.asks_rbac else None
