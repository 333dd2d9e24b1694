"""Pods and nodes as kube-scheduler counts them (kubernetes pkg/scheduler/framework/types.go: PodInfo, NodeInfo)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple

from webhook.api import quantity
from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.api.selectors import Choice, Requirement
from webhook.model import Object

Amounts = Mapping[str, int]
"""Amounts of resources by name: `cpu` in millicores, `memory` in bytes, `pods` and extended resources in pieces."""

CPU, MEMORY, PODS = "cpu", "memory", "pods"

UNSAID: Amounts = {CPU: 100, MEMORY: 200 * 1024**2}
"""The request that a container without one counts with when nodes are scored (pkg/scheduler/util/pod_resources.go)."""


class Taint(NamedTuple):
    """A taint of a node."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(NamedTuple):
    """A toleration of a pod; an empty `key` or `effect` stands for every one."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Tell whether it tolerates a taint (k8s.io/component-helpers scheduling/corev1/helpers.go)."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


@dataclass(frozen=True, slots=True, eq=False)
class PodInfo:
    """The needs of a pod.

    `asks` are its requests, with overhead; `weighs` are its cpu and memory for scores, where a container without a
    request has one. A node has to fit `selector` and, unless `terms` is None, one of the terms. `preferred` are terms
    with their weights.
    """

    name: str
    asks: Amounts
    weighs: Amounts
    selector: Mapping[str, str] = field(default_factory=dict)
    terms: tuple[Choice, ...] | None = None
    preferred: tuple[tuple[int, Choice], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    priority: int = 0
    preempts: bool = True
    node: str = ""
    """The node that the pod names itself, or that it runs on."""


@dataclass(slots=True, eq=False)
class NodeInfo:
    """A node with its pods. It has enough of an unlisted resource such as cpu, and no unlisted extended resource."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Amounts
    unschedulable: bool = False
    pods: list[PodInfo] = field(default_factory=list)
    used: Counter[str] = field(default_factory=Counter)
    weight: Counter[str] = field(default_factory=Counter)

    def add(self, pod: PodInfo) -> None:
        """Put a pod on the node."""
        self.pods.append(pod)
        self.used.update(pod.asks)
        self.weight.update(pod.weighs)

    def remove(self, pod: PodInfo) -> None:
        """Take a pod off the node."""
        self.pods.remove(pod)
        self.used.subtract(pod.asks)
        self.weight.subtract(pod.weighs)

    def lacks(self, pod: PodInfo) -> Iterator[str]:
        """Yield the resources that a pod asks for and the node has too little of."""
        for name, amount in pod.asks.items():
            bound = self.allocatable.get(name)
            if bound is None:
                if "/" not in name:
                    continue
                bound = 0
            if amount and self.used[name] + amount > bound:
                yield name


# From objects


def node_info(item: Object) -> NodeInfo:
    """Read a Node. A field of a wrong type counts as missing."""
    metadata, spec, status = (mapping(item.get(part)) for part in ("metadata", "spec", "status"))
    taints = (
        Taint(string(each.get("key")), string(each.get("value")), string(each.get("effect")))
        for each in mappings(spec.get("taints"))
    )
    labels = {key: value for key, value in mapping(metadata.get("labels")).items() if isinstance(value, str)}
    offered = {**mapping(status.get("capacity")), **mapping(status.get("allocatable"))}
    return NodeInfo(
        string(metadata.get("name")), labels, tuple(taints), _amounts(offered), spec.get("unschedulable") is True
    )


def pod_info(item: Object, name: str, priorities: Mapping[str, tuple[int, bool]] | None = None) -> PodInfo:
    """Read a Pod. `priorities` has the value of each PriorityClass, and whether its pods preempt others.

    The class called "" is the default of the cluster. A priority that the pod has already counts before its class.
    """
    spec = mapping(item.get("spec"))
    affinity = mapping(mapping(spec.get("affinity")).get("nodeAffinity"))
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    value, preempts = (priorities or {}).get(string(spec.get("priorityClassName")), (0, True))
    own = spec.get("priority")
    asks = asked(spec, {})
    return PodInfo(
        name=name,
        asks={**asks, PODS: 1},
        weighs={key: amount for key, amount in asked(spec, UNSAID).items() if key in UNSAID},
        selector={key: string(value) for key, value in mapping(spec.get("nodeSelector")).items()},
        terms=None if required is None else tuple(map(_choice, mappings(mapping(required).get("nodeSelectorTerms")))),
        preferred=tuple(
            (each["weight"], _choice(mapping(each.get("preference"))))
            for each in mappings(affinity.get("preferredDuringSchedulingIgnoredDuringExecution"))
            if type(each.get("weight")) is int and each["weight"]
        ),
        tolerations=tuple(
            Toleration(
                string(each.get("key")),
                string(each.get("operator")) or "Equal",
                string(each.get("value")),
                string(each.get("effect")),
            )
            for each in mappings(spec.get("tolerations"))
        ),
        priority=own if type(own) is int else value,
        preempts=(spec.get("preemptionPolicy") != "Never") if "preemptionPolicy" in spec else preempts,
        node=string(spec.get("nodeName")),
    )


_OF_PODS = (CPU, MEMORY, "hugepages-")
"""The resources that a pod may request for all its containers together (component-helpers resource/helpers.go)."""


def asked(spec: Mapping[str, Any], unsaid: Amounts) -> dict[str, int]:
    """Return what a pod requests in all (component-helpers resource/helpers.go, PodRequests).

    Containers run at the same time as all sidecars; an init container, as the sidecars before it. `unsaid` is what a
    container counts for that requests none of a resource.
    """
    sidecars, peak = Counter[str](), Counter[str]()
    for container in mappings(spec.get("initContainers")):
        one = _requested(container, unsaid)
        if container.get("restartPolicy") == "Always":
            sidecars += one
            peak |= sidecars
        else:
            peak |= sidecars + one
    running = sidecars
    for container in mappings(spec.get("containers")):
        running = running + _requested(container, unsaid)
    total = dict(running | peak)
    whole = _requested({"resources": spec.get("resources")}, {})
    total |= {name: amount for name, amount in whole.items() if name.startswith(_OF_PODS)}
    for name, amount in _amounts(mapping(spec.get("overhead"))).items():
        total[name] = total.get(name, 0) + amount
    return total


def _requested(container: Mapping[str, Any], unsaid: Amounts) -> Counter[str]:
    resources = mapping(container.get("resources"))
    # The API server sets a request that is missing to its limit (pkg/apis/core/v1/defaults.go).
    return Counter({**unsaid, **_amounts({**mapping(resources.get("limits")), **mapping(resources.get("requests"))})})


def _amounts(resources: Mapping[str, Any]) -> dict[str, int]:
    return {name: _amount(name, value) for name, value in resources.items()}


def _amount(name: str, value: Any) -> int:
    try:
        return ceil(quantity.parse(value) * (1000 if name == CPU else 1))
    except ValueError:
        return 0


def _choice(term: Mapping[str, Any]) -> Choice:
    return Choice(
        tuple(_requirements(term.get("matchExpressions"))),
        tuple(_requirements(term.get("matchFields"))),
    )


def _requirements(expressions: Any) -> Iterable[Requirement]:
    for each in mappings(expressions):
        values = frozenset(value for value in sequence(each.get("values")) if isinstance(value, str))
        yield Requirement(string(each.get("key")), string(each.get("operator")), values)
