"""Reads Nodes: their labels, their taints, and the amounts of NVIDIA's resources that they report."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from webhook.api.lenient import mapping, mappings, string
from webhook.api.resources import Resource
from webhook.api.taints import taints_of
from webhook.catalog.names import Names
from webhook.catalog.node_labels import ABSENT, GPU_NODE_LABELS, MANUFACTURERS
from webhook.facts import parts
from webhook.facts.kind import Fact, Part, Reach, Table
from webhook.model import Object
from webhook.policy.model import Policy

CONFIG_LABEL = "nvidia.com/device-plugin.config"
"""The label by which a node chooses its key in a sharing ConfigMap (k8s-device-plugin cmd/config-manager)."""

NETWORK = "NetworkUnavailable"
"""The condition of a node whose reason names its network plugin (kubernetes pkg/apis/core/types.go)."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node: its name, its labels, and the amounts of NVIDIA's resources that it reports.

    GPU Feature Discovery describes the cards in the labels. `taints` has the NoSchedule and NoExecute effects by key.
    """

    name: str
    labels: Mapping[str, str]
    resources: Mapping[str, int] = field(default_factory=dict)
    taints: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def has_gpus(self) -> bool:
        """Whether the node has GPUs, by its labels or its resources.

        A node that has just joined has only the labels of its cloud, of its autoscaler or of an operator.
        """
        labelled = any(self.labels[label] not in ABSENT for label in GPU_NODE_LABELS.among(self.labels))
        return bool(self.resources) or labelled or any(self.labels.get(maker) == "nvidia" for maker in MANUFACTURERS)


RESOURCES = (Resource("", "v1", "nodes", "Node"),)
TABLE = Table[str, Node]("nodes")
FIELDS = ("metadata.labels", "spec.taints", "status.capacity", "status.allocatable")
REACH = Reach.EVERYWHERE
ORDER = 1


def read(item: Object, _: str, name: str) -> Fact | None:
    """Read a node; None for a node without a name, which a file may have."""
    if not name:
        return None
    return TABLE.row(name, Node(name, parts.labels(item), _offered(mapping(item.get("status"))), _taints(item)))


def kept(item: Object) -> Part:
    """Keep the labels, the taints and the amounts."""
    return {
        "metadata": {"labels": parts.labels(item)},
        "spec": {"taints": mapping(item.get("spec")).get("taints")},
        "status": {"allocatable": _offered(mapping(item.get("status")))},
    }


def slim(item: Object, policy: Policy) -> Part:
    """Keep the labels that a file may contain, the taints in order, and the amounts of every vendor's resources.

    The condition about the network is kept too, with its reason.
    """
    spec, status = mapping(item.get("spec")), mapping(item.get("status"))
    taints = [parts.filled(taint, "key", "value", "effect") for taint in mappings(spec.get("taints"))]
    taints.sort(key=lambda taint: (string(taint.get("key")), string(taint.get("effect"))))
    offered = {**parts.extended(status.get("capacity")), **parts.extended(status.get("allocatable"))}
    offered |= {key: str(amount) for key, amount in _offered(status).items()}
    conditions = [
        {"type": NETWORK, "reason": reason}
        for condition in mappings(status.get("conditions"))
        if condition.get("type") == NETWORK and (reason := string(condition.get("reason")))
    ]
    labels = {key: value for key, value in parts.labels(item).items() if _is_read(key, policy)}
    small = parts.filled({"allocatable": offered, "conditions": conditions}, "allocatable", "conditions")
    return {
        "metadata": {"labels": labels},
        **({"spec": {"taints": taints}} if taints else {}),
        **({"status": small} if small else {}),
    }


_UNREAD_LABELS = Names(("feature.node.kubernetes.io/cpu-cpuid.*", "nvidia.com/gfd.timestamp"))
"""Labels of nodes that are dropped unless the policy selects by them: about a hundred CPU flags, and a timestamp."""


def _is_read(label: str, policy: Policy) -> bool:
    if label not in _UNREAD_LABELS:
        return True
    return any(label == requirement.key for pool in policy.pools for requirement in pool.nodes.requirements)


def _offered(status: Mapping[str, Any]) -> dict[str, int]:
    """Read the amounts of a node's resources. `allocatable` overrides `capacity`."""
    return parts.amounts({**mapping(status.get("capacity")), **mapping(status.get("allocatable"))})


def _taints(item: Object) -> Mapping[str, frozenset[str]]:
    effects: dict[str, frozenset[str]] = {}
    for taint in taints_of(mapping(item.get("spec"))):
        if taint.repels:
            effects[taint.key] = effects.get(taint.key, frozenset()) | {taint.effect}
    return effects
