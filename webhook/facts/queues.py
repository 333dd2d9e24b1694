"""Reads the queues of Kueue: flavours of nodes, the cluster's queues, and those of namespaces.

Source: kubernetes-sigs/kueue apis/kueue, ResourceFlavor, ClusterQueue and LocalQueue.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, NamedTuple

from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.model import Object, immutable

GROUP = "kueue.x-k8s.io"


class Flavor(NamedTuple):
    """A ResourceFlavor: labels that Kueue writes into what it admits, taints of its nodes, and tolerations it adds."""

    labels: Mapping[str, str]
    taints: tuple[Object, ...] = ()
    tolerations: tuple[Object, ...] = ()


class Quota(NamedTuple):
    """A quota of a ClusterQueue: a flavour, and the resources that it covers."""

    flavor: str
    resources: tuple[str, ...]


@immutable
class Queues:
    """The queues of Kueue: flavours and quotas by name, and for each ClusterQueue the namespaces that may use it."""

    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    quotas: Mapping[str, tuple[Quota, ...]] = field(default_factory=dict)
    namespaces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def flavor(spec: Mapping[str, Any]) -> Flavor:
    """Read a ResourceFlavor."""
    labels = {key: value for key, value in mapping(spec.get("nodeLabels")).items() if isinstance(value, str)}
    return Flavor(labels, tuple(mappings(spec.get("nodeTaints"))), tuple(mappings(spec.get("tolerations"))))


def quotas(spec: Mapping[str, Any]) -> Iterator[Quota]:
    """Read the quotas of a ClusterQueue."""
    for group in mappings(spec.get("resourceGroups")):
        covered = tuple(name for name in sequence(group.get("coveredResources")) if isinstance(name, str))
        for each in mappings(group.get("flavors")):
            yield Quota(string(each.get("name")), covered)


def leading(local: Mapping[tuple[str, str], str]) -> Mapping[str, tuple[str, ...]]:
    """Return, for each ClusterQueue, the namespaces whose LocalQueues lead to it."""
    found: dict[str, set[str]] = {}
    for (namespace, _), cluster_queue in local.items():
        found.setdefault(cluster_queue, set()).add(namespace)
    return {name: tuple(sorted(namespaces)) for name, namespaces in found.items()}
