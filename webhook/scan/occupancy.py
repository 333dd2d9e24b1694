"""Flags running pods: on a node of another pool, next to pods of other trust, or with more than a node has."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from webhook.facts.kinds.node import Node
from webhook.facts.kinds.pod import Holder
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import Policy
from webhook.text.words import listed

MISPLACED, MIXED, OVERHELD = "misplaced-pod", "mixed-trust", "overheld-node"

PAGES: Mapping[str, str] = {
    MISPLACED: """\
A pod that asks for GPUs runs on a node of another pool than it belongs to, or of none.

It was put there before there was a policy, while the webhook was off, or before the node or the policy changed. It
keeps its GPU until it ends.

Way out: delete the pod where the webhook is in force; its workload's next one goes where it belongs.""",
    MIXED: """\
Pods of a trust that its pool does not take hold GPUs of a node whose cards are shared.

Time-slicing and MPS put no wall between pods: each of them can take the memory of the others' card. The API does not
say which card of a node a pod was given, so all pods on it that hold one are named.

Way out: delete the pods that do not belong there.""",
    OVERHELD: """\
The pods of a node hold more GPUs than it offers.

Its replicas were lowered under pods that keep theirs, cards have failed, or pods were put there past the scheduler.

Way out: drain the node.""",
}
"""The findings that only an audit makes: their ids and pages."""


class Tenant(NamedTuple):
    """A running pod that requests GPUs, with its trust level in the pool of its node."""

    namespace: str
    name: str
    node: str
    level: str


def tenant(review: PodReview, name: str) -> Tenant | None:
    """Return a pod with its trust level on its node; None if it requests no GPU or the node is in no pool."""
    node = _node(review)
    pool = review.policy.pool_of(node.labels) if node else None
    if node is None or pool is None or not review.requests:
        return None
    return Tenant(review.subject.namespace, name, node.name, review.trust_request.in_(pool))


def misplaced(review: PodReview) -> Iterator[Finding]:
    """Flag a pod on a node outside its pool. The rule unsteered-pod flags a pod without a pool."""
    node = _node(review)
    placement = review.placement if node else None
    if node is None or placement is None or placement.pool is None:
        return
    there = review.policy.pool_of(node.labels)
    if there is not placement.pool:
        where = f"is in pool {there.name}" if there else "is in no pool"
        yield Finding(
            review.subject.at("spec", "nodeName"),
            f"the node {where}, and {placement.level} pods that ask for this belong to pool {placement.pool.name}; "
            "delete the pod where the webhook is in force",
        )


def mixed(node: Node, tenants: Iterable[Tenant], policy: Policy) -> Iterator[Finding]:
    """Flag a node with shared cards if some of the pods on it have a trust level that its pool does not accept."""
    pool = policy.pool_of(node.labels)
    if pool is None or not pool.shared:
        return
    here = sorted(tenants)
    strangers = [tenant for tenant in here if tenant.level not in pool.trust]
    others = [tenant for tenant in here if tenant.level in pool.trust]
    if strangers and others:
        level = strangers[0].level
        yield Finding(
            ("metadata", "labels"),
            f"{level} {_listed(strangers)} may be on the cards of {_listed(others)}, and pool {pool.name} takes no "
            f"{level} pods; delete what does not belong there",
        )


def overheld(node: Node, holders: Iterable[Holder]) -> Iterator[Finding]:
    """Flag a node whose pods have more of a resource than it offers."""
    held: dict[str, int] = {}
    for holder in holders:
        for resource, amount in holder.asks.items():
            held[resource] = held.get(resource, 0) + amount
    for resource, amount in sorted(held.items()):
        if amount > (offered := node.resources.get(resource, 0)):
            yield Finding(
                ("status", "allocatable", resource),
                f"is {offered}, and the node's pods hold {amount}; drain the node",
            )


def _listed(tenants: Iterable[Tenant]) -> str:
    return listed([f"{tenant.namespace}/{tenant.name}" for tenant in tenants], _NAMED)


_NAMED = 3
"""Maximum number of pods named on one line."""


def _node(review: PodReview) -> Node | None:
    name = review.subject.spec.get("nodeName")
    return review.facts.named.get(name) if isinstance(name, str) else None
