"""Reads pods and nodes as kube-scheduler counts them (kubernetes pkg/scheduler/framework/types.go)."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from webhook.api import quantity, requests
from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.api.metadata import labels_of, name_of, namespace_of
from webhook.api.quantity import Amount
from webhook.api.selectors import NOTHING, NodeSelectorTerm, Requirement, Selector
from webhook.api.taints import Taint, Toleration, taints_of, tolerations_of
from webhook.model import Object
from webhook.placing.scheduling.devices import ResourceClaim
from webhook.placing.scheduling.terms import choice, label_selector

Amounts = Mapping[str, int]
"""Amounts of resources by name: `cpu` in millicores, `memory` in bytes, `pods` and extended resources in pieces."""

CPU, MEMORY, PODS = "cpu", "memory", "pods"

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"

UNSAID = {CPU: "100m", MEMORY: "200Mi"}
"""The request that a container without one counts with when nodes are scored (pkg/scheduler/util/pod_resources.go)."""


@dataclass(frozen=True, slots=True, eq=False)
class PodAffinityTerm:
    """A term of affinity between pods: the pods that it selects, and the node label that groups nodes.

    The selected pods are in `namespaces`, or in namespaces whose labels `of` matches. `weight` is used in scores, and
    is negative for anti-affinity.
    """

    key: str
    selector: Selector
    namespaces: frozenset[str]
    of: Selector = NOTHING
    weight: int = 0

    def matches(self, pod: "PodInfo") -> bool:
        """Whether the term selects a pod."""
        there = pod.namespace in self.namespaces or self.of.matches(pod.namespace_labels)
        return there and self.selector.matches(pod.labels)


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """A constraint on the spread of pods over the values of a node's label; a `hard` one excludes nodes.

    With `everywhere`, nodes that the pod does not select count too. Without `tolerated`, nodes count even if the pod
    does not tolerate their taints.
    """

    key: str
    skew: int
    selector: Selector
    domains: int = 1
    hard: bool = True
    everywhere: bool = False
    tolerated: bool = False

    def includes(self, node: "NodeInfo", pod: "PodInfo") -> bool:
        """Whether a node counts for a pod."""
        return (self.everywhere or pod.selects(node)) and not (self.tolerated and pod.untolerated(node))


@dataclass(frozen=True, slots=True, eq=False)
class PodInfo:
    """The requirements of a pod.

    `asks` are its requests, with overhead. `weighs` are its cpu and memory for scores, with a default for containers
    without a request. A node has to fit `selector` and, unless `terms` is None, one of the terms. `preferred` are terms
    with their weights. The pod has to be `together` with certain pods and `apart` from others; `liked` are those that
    it prefers to be together with or apart from.
    """

    name: str
    asks: Amounts
    weighs: Amounts
    selector: Mapping[str, str] = field(default_factory=dict)
    terms: tuple[NodeSelectorTerm, ...] | None = None
    preferred: tuple[tuple[int, NodeSelectorTerm], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    priority: int = 0
    priority_class: str = ""
    """The class that says its priority; empty if the pod names none, or has a priority already."""
    preempts: bool = True
    node: str = ""
    """The node that the pod names itself, or that it runs on."""
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    together: tuple[PodAffinityTerm, ...] = ()
    apart: tuple[PodAffinityTerm, ...] = ()
    liked: tuple[PodAffinityTerm, ...] = ()
    spreads: tuple[Spread, ...] = ()
    spreads_by_default: bool = False
    """Whether the spread is the scheduler's default for pods of a service or a workload."""
    claims: tuple[ResourceClaim, ...] = ()
    by_class: Mapping[str, str] = field(default_factory=dict)
    """The device classes that stand for resources it asks for, by the resource: nodes without it give it a claim."""
    missing: str = ""
    """Why no node at all can take it: one of its claims does not exist."""

    @property
    def bound(self) -> bool:
        """Whether the pod's placement depends on where other pods are."""
        return bool(self.together or self.apart or self.liked)

    def selects(self, node: "NodeInfo") -> bool:
        """Whether a node has the labels that the pod requires. A term without conditions matches no node."""
        if any(node.labels.get(key) != value for key, value in self.selector.items()):
            return False
        if self.terms is None:
            return True
        terms = (term for term in self.terms if (term.labels or term.fields) and term.readable)
        return any(term.matches(node.name, node.labels) for term in terms)

    def untolerated(self, node: "NodeInfo") -> Taint | None:
        """Return the first taint that keeps the pod off a node; None if it tolerates all."""
        for taint in node.taints:
            if taint.repels and not any(one.tolerates(taint) for one in self.tolerations):
                return taint
        return None


@dataclass(slots=True, eq=False)
class NodeInfo:
    """A node with its pods.

    An unlisted resource such as cpu is never short; an unlisted extended resource is absent.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Amounts
    unschedulable: bool = False
    pods: list[PodInfo] = field(default_factory=list)
    bound: list[PodInfo] = field(default_factory=list)
    """Those of its pods whose place depends on where other pods are."""
    used: Counter[str] = field(default_factory=Counter)
    weight: Counter[str] = field(default_factory=Counter)

    def add(self, pod: PodInfo) -> None:
        """Put a pod on the node."""
        self.pods.append(pod)
        if pod.bound:
            self.bound.append(pod)
        self.used.update(pod.asks)
        self.weight.update(pod.weighs)

    def remove(self, pod: PodInfo) -> None:
        """Remove a pod from the node."""
        self.pods.remove(pod)
        if pod.bound:
            self.bound.remove(pod)
        self.used.subtract(pod.asks)
        self.weight.subtract(pod.weighs)

    def lacks(self, pod: PodInfo) -> Iterator[str]:
        """Yield the resources of which the node has less than the pod requests."""
        for name, amount in pod.asks.items():
            bound = self.allocatable.get(name)
            if not bound and name in pod.by_class:
                continue
            if bound is None:
                if "/" not in name:
                    continue
                bound = 0
            if amount and self.used[name] + amount > bound:
                yield name


# From objects

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def node_info(item: Object) -> NodeInfo:
    """Read a Node. A field of a wrong type counts as missing."""
    spec, status = mapping(item.get("spec")), mapping(item.get("status"))
    offered = {**mapping(status.get("capacity")), **mapping(status.get("allocatable"))}
    allocatable = _counted({name: quantity.amount(value) for name, value in offered.items()})
    cordoned = spec.get("unschedulable") is True
    return NodeInfo(name_of(item), labels_of(item), taints_of(spec), allocatable, cordoned)


def pod_info(
    item: Object,
    name: str,
    priorities: Mapping[str, tuple[int, bool]] | None = None,
    namespaces: Mapping[str, Mapping[str, str]] | None = None,
    peers: Selector = NOTHING,
) -> PodInfo:
    """Read a Pod. `priorities` has the value of each PriorityClass, and whether its pods preempt others.

    The class called "" is the default of the cluster. A priority that the pod has already counts before its class.
    `namespaces` are the labels of namespaces. `peers` selects the pods of the same service and workload, over which the
    scheduler spreads a pod that has no constraint of its own.
    """
    spec, namespace, labels = mapping(item.get("spec")), namespace_of(item), labels_of(item)
    affinities = mapping(spec.get("affinity"))
    affinity = mapping(affinities.get("nodeAffinity"))
    together, apart = (mapping(affinities.get(key)) for key in ("podAffinity", "podAntiAffinity"))
    spreads = tuple(_spread(each, labels) for each in mappings(spec.get("topologySpreadConstraints")))
    default = () if spreads or not peers.requirements else _spread_by_default(peers)
    required = affinity.get(REQUIRED)
    value, preempts = (priorities or {}).get(string(spec.get("priorityClassName")), (0, True))
    own = spec.get("priority")
    asks = asked(spec, {})
    return PodInfo(
        name=name,
        asks={**asks, PODS: 1},
        weighs={key: amount for key, amount in asked(spec, UNSAID).items() if key in UNSAID},
        selector={key: string(value) for key, value in mapping(spec.get("nodeSelector")).items()},
        terms=None if required is None else tuple(map(choice, mappings(mapping(required).get("nodeSelectorTerms")))),
        preferred=tuple(
            (each["weight"], choice(mapping(each.get("preference"))))
            for each in mappings(affinity.get(PREFERRED))
            if type(each.get("weight")) is int and each["weight"]
        ),
        tolerations=tolerations_of(mappings(spec.get("tolerations"))),
        priority=own if type(own) is int else value,
        priority_class="" if type(own) is int else string(spec.get("priorityClassName")),
        preempts=(spec.get("preemptionPolicy") != "Never") if "preemptionPolicy" in spec else preempts,
        node=string(spec.get("nodeName")),
        namespace=namespace,
        labels=labels,
        namespace_labels=(namespaces or {}).get(namespace, {}),
        together=tuple(_term(each, namespace, labels) for each in mappings(together.get(REQUIRED))),
        apart=tuple(_term(each, namespace, labels) for each in mappings(apart.get(REQUIRED))),
        liked=(*_weighted(together, namespace, labels, 1), *_weighted(apart, namespace, labels, -1)),
        spreads=spreads or default,
        spreads_by_default=bool(default),
    )


def _term(value: Mapping[str, Any], namespace: str, labels: Mapping[str, str], weight: int = 0) -> PodAffinityTerm:
    """Read a term of a pod's affinity. Without namespaces it selects pods in the pod's own (framework/types.go)."""
    names = frozenset(each for each in sequence(value.get("namespaces")) if isinstance(each, str))
    of = label_selector(value.get("namespaceSelector"))
    own = frozenset((namespace,)) if not names and of is NOTHING else names
    selector = _narrowed(value, labels)
    return PodAffinityTerm(string(value.get("topologyKey")), selector, own, of, weight)


def _narrowed(value: Mapping[str, Any], labels: Mapping[str, str]) -> Selector:
    """Read a term's selector, with the labels that the pod's own have to equal (core/v1 matchLabelKeys)."""
    selector = label_selector(value.get("labelSelector"))
    more = [
        Requirement(key, operator, frozenset((labels[key],)))
        for field_, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in sequence(value.get(field_))
        if isinstance(key, str) and key in labels
    ]
    return selector if selector is NOTHING else Selector(selector.labels, (*selector.expressions, *more))


def _weighted(
    value: Mapping[str, Any], namespace: str, labels: Mapping[str, str], sign: int
) -> Iterator[PodAffinityTerm]:
    for each in mappings(value.get(PREFERRED)):
        if type(each.get("weight")) is int:
            yield _term(mapping(each.get("podAffinityTerm")), namespace, labels, sign * each["weight"])


def _spread(value: Mapping[str, Any], labels: Mapping[str, str]) -> Spread:
    skew, domains = value.get("maxSkew"), value.get("minDomains")
    return Spread(
        string(value.get("topologyKey")),
        skew if type(skew) is int else 1,
        _narrowed(value, labels),
        domains if type(domains) is int else 1,
        hard=value.get("whenUnsatisfiable") != "ScheduleAnyway",
        everywhere=value.get("nodeAffinityPolicy") == "Ignore",
        tolerated=value.get("nodeTaintsPolicy") == "Honor",
    )


def _spread_by_default(peers: Selector) -> tuple[Spread, ...]:
    """Return the spread that the scheduler prefers by default (podtopologyspread/plugin.go)."""
    return Spread(HOSTNAME, 3, peers, hard=False), Spread(ZONE, 5, peers, hard=False)


def asked(spec: Mapping[str, Any], unsaid: Mapping[str, str]) -> dict[str, int]:
    """Return a pod's total request. `unsaid` has the amounts for a container that does not request a resource."""
    return _counted(requests.of_spec(spec, unsaid=unsaid))


def _counted(amounts: Mapping[str, Amount]) -> dict[str, int]:
    """Round amounts up as kube-scheduler counts them (pkg/scheduler/framework/types.go, Resource.Add)."""
    return {name: ceil(amount * (1000 if name == CPU else 1)) for name, amount in amounts.items()}
