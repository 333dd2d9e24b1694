"""Writes NodeOverlays, which tell Karpenter how many GPUs a node offers if it offers more or fewer than its cards.

Karpenter knows the cards of a machine, and neither slices nor MIG devices: for four pods with a slice each it makes
four nodes, and for a MIG device none (kubernetes-sigs/karpenter pkg/apis/v1alpha1/nodeoverlay.go; issues 729, 2140).
An overlay changes what Karpenter expects, and not the node. If it exceeds what a node offers, a pod that asks for the
rest makes nodes without end. So each amount is the smallest that a node of the kind offers. Karpenter reads overlays
only with the feature gate NodeOverlay (pkg/operator/options/options.go).
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from webhook.catalog import node_labels
from webhook.deviceplugin import cards
from webhook.deviceplugin.usage import GPU
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.model import Object
from webhook.policy.model import Policy
from webhook.text.words import listed


class MachineKind(NamedTuple):
    """The nodes that a NodePool makes from one type of machine. All of them should offer the same GPUs."""

    node_pool: str
    machine: str


class NodeOverlays(NamedTuple):
    """The overlays of a policy's pools, and lines on the pools and machines that have none."""

    objects: tuple[Object, ...]
    notes: tuple[str, ...]


def overlays(policy: Policy, facts: Facts) -> NodeOverlays:
    """Return an overlay for each kind of machine whose nodes in a pool offer other GPUs than their cards."""
    kinds: dict[MachineKind, list[Node]] = {}
    for node in facts.nodes:
        if (kind := _kind(node)) and cards.offered(node):
            kinds.setdefault(kind, []).append(node)
    pools = {kind: _pools(nodes, policy) for kind, nodes in kinds.items()}
    known = {kind: nodes for kind, nodes in sorted(kinds.items()) if pools[kind]}
    mixed = [kind for kind, nodes in known.items() if len({frozenset(cards.offered(node)) for node in nodes}) > 1]
    amounts = {kind: _amounts(nodes) for kind, nodes in known.items() if kind not in mixed}
    return NodeOverlays(
        tuple(_overlay(kind, some) for kind, some in amounts.items() if some),
        (*_notes(policy, set().union(*pools.values())), *_differing(mixed)),
    )


def _pools(nodes: Iterable[Node], policy: Policy) -> set[str]:
    """Return the names of the pools that nodes are in."""
    return {pool.name for node in nodes if (pool := policy.pool_of(node.labels))}


def _kind(node: Node) -> MachineKind | None:
    """Return the kind of a node; None if Karpenter did not make it, or its machine is not known."""
    node_pool = node.labels.get(node_labels.KARPENTER)
    machine = next((node.labels[key] for key in node_labels.INSTANCE_TYPES if node.labels.get(key)), "")
    return MachineKind(node_pool, machine) if node_pool and machine else None


def _amounts(nodes: Sequence[Node]) -> dict[str, int]:
    """Return the smallest amount of each resource that nodes offer, all of them the same resources.

    Empty if they offer whole cards, which Karpenter counts itself: a node offers fewer while one is unhealthy. A
    machine with cards and no whole one to offer has 0 of them, which Karpenter would count otherwise.
    """
    offers = [cards.offered(node) for node in nodes]
    least = {name: min(offer[name] for offer in offers) for name in sorted(offers[0])}
    if [*least] == [GPU] and least[GPU] <= max(cards.count(node) or 0 for node in nodes):
        return {}
    return {GPU: 0} | least


def _overlay(kind: MachineKind, amounts: Mapping[str, int]) -> Object:
    requirements = {node_labels.KARPENTER: kind.node_pool, node_labels.INSTANCE_TYPES[0]: kind.machine}
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": _NO_NAME.sub("-", f"slicewarden-{kind.node_pool}-{kind.machine}".lower())},
        "spec": {
            "weight": 1,  # before an overlay without a weight
            "requirements": [{"key": key, "operator": "In", "values": [value]} for key, value in requirements.items()],
            "capacity": {name: str(count) for name, count in amounts.items()},
        },
    }


_NO_NAME = re.compile("[^a-z0-9.-]")
"""Azure's names of machines have underscores, which the name of an object may not have."""


def _notes(policy: Policy, seen: Collection[str]) -> Iterator[str]:
    """Name the pools of parts of cards of which Karpenter has no node in the facts."""
    unseen = [pool.name for pool in policy.pools if pool.has_nodes and pool.sharing != "none" and pool.name not in seen]
    if unseen:
        yield (
            f"no node of Karpenter in pool {listed(unseen, 3)} offers GPUs in the facts, so no overlay is written for "
            "it: take the facts while it has one"
        )


def _differing(kinds: Sequence[MachineKind]) -> Iterator[str]:
    """Name the kinds of machines whose nodes offer different resources: an overlay would leave one of them out."""
    if kinds:
        named = listed([f"{kind.machine} of NodePool {kind.node_pool}" for kind in kinds], 3)
        yield (
            f"nodes of one machine offer different GPUs, so no overlay is written for {named}: give each kind a "
            "NodePool of its own"
        )
