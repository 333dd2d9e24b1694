"""Gathers what a proof says of the cluster: the registration's digest, and the software that nodes' labels name."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from webhook.facts.snapshot import Facts
from webhook.model import Object
from webhook.policy.model import Policy
from webhook.text.words import sha256, shown

LABELS = {
    "driver": "nvidia.com/cuda.driver-version.full",
    "cuda": "nvidia.com/cuda.runtime-version.full",
    "product": "nvidia.com/gpu.product",
    "sharing": "nvidia.com/gpu.sharing-strategy",
}
"""What GPU Feature Discovery writes of a node (k8s-device-plugin internal/lm/nvml.go and resource.go), by our names."""

MOST = 20
"""The most values of a label that are named for a pool."""


class PoolNodes(NamedTuple):
    """The nodes of a pool: how many, and for each of `LABELS` its values and how many nodes have each.

    A label that no node has is left out.
    """

    pool: str
    nodes: int
    labels: Mapping[str, Mapping[str, int]]

    @property
    def value(self) -> dict[str, Any]:
        """The nodes as JSON."""
        return {"pool": self.pool, "nodes": self.nodes, "labels": {key: {**row} for key, row in self.labels.items()}}


def nodes(policy: Policy, facts: Facts) -> tuple[PoolNodes, ...]:
    """Return what the labels of each pool's nodes say, for the pools that select nodes."""
    by_pool: dict[str, list[Mapping[str, str]]] = {pool.name: [] for pool in policy.pools if pool.has_nodes}
    for node in facts.nodes:
        if (pool := policy.pool_of(node.labels)) is not None and pool.name in by_pool:
            by_pool[pool.name].append(node.labels)
    return tuple(PoolNodes(name, len(found), _values(found)) for name, found in by_pool.items())


def _values(found: Iterable[Mapping[str, str]]) -> dict[str, dict[str, int]]:
    counted = {name: Counter[str]() for name in LABELS}
    for labels in found:
        for name, key in LABELS.items():
            if key in labels:
                counted[name][shown(labels[key], quotes=False)] += 1
    return {name: dict(each.most_common(MOST)) for name, each in counted.items() if each}


def registration(configurations: Iterable[Object]) -> str:
    """Return the SHA-256 of webhook configurations: of their kinds, names and webhooks, as JSON with sorted keys.

    Without the caBundles, which change with each new CA. Empty without configurations.
    """
    found = [
        {"kind": each.get("kind"), "name": each["metadata"].get("name"), "webhooks": [*map(_unbundled, _hooks(each))]}
        for each in configurations
    ]
    return sha256(json.dumps(found, sort_keys=True, separators=(",", ":"))) if found else ""


def _hooks(configuration: Object) -> Iterable[Object]:
    return configuration.get("webhooks") or ()


def _unbundled(hook: Object) -> Object:
    client = hook.get("clientConfig") or {}
    return {**hook, "clientConfig": {key: value for key, value in client.items() if key != "caBundle"}}
