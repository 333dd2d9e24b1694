"""Scores nodes as kube-scheduler does with its default plugins (pkg/scheduler/apis/config/v1/default_plugins.go).

The score of images that a node already has is not simulated.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from webhook.placing.scheduling.filters import Filters
from webhook.placing.scheduling.infos import CPU, MEMORY, NodeInfo, PodInfo
from webhook.placing.scheduling.peers import affinities, evennesses

MOST = 100
"""The highest score of a plugin."""

TAINTS, AFFINITY, SPREAD, PEERS, CLAIMS = 3, 2, 2, 2, 2
"""The weights of TaintToleration, NodeAffinity, PodTopologySpread, InterPodAffinity and DynamicResources.

The others have a weight of 1.
"""


class Strategy(StrEnum):
    """How NodeResourcesFit scores a node: the scheduler's default, or `MostAllocated` for requested GPUs."""

    SPREAD = "spread"
    PACK = "pack"


def best(filters: Filters, nodes: Sequence[NodeInfo], every: Sequence[NodeInfo], strategy: Strategy) -> list[NodeInfo]:
    """Return the nodes with the highest score, in their order. The scheduler chooses one of them at random.

    `nodes` are those that the pod fits, and `every` are all.
    """
    if len(nodes) < 2:
        return [*nodes]
    totals = _totals(filters, nodes, every, strategy)
    highest = max(totals)
    return [node for node, total in zip(nodes, totals, strict=True) if total == highest]


def _totals(filters: Filters, nodes: Sequence[NodeInfo], every: Sequence[NodeInfo], strategy: Strategy) -> list[int]:
    pod = filters.pod
    untolerated = _normalized([_softly_tainted(pod, node) for node in nodes], reverse=True)
    preferred = _normalized([_preference(pod, node) for node in nodes]) if pod.preferred else [0] * len(nodes)
    spread, peers = evennesses(pod, nodes, every), affinities(pod, nodes, every)
    claims = _normalized([filters.rank(node) for node in nodes])
    room = _least if strategy is Strategy.SPREAD else _most
    weighed = zip(untolerated, preferred, spread, peers, claims, strict=True)
    weights = TAINTS, AFFINITY, SPREAD, PEERS, CLAIMS
    return [
        sum(weight * score for weight, score in zip(weights, scores, strict=True))
        + room(pod, node)
        + _balance(pod, node)
        for node, scores in zip(nodes, weighed, strict=True)
    ]


def _normalized(scores: Sequence[int], *, reverse: bool = False) -> list[int]:
    """Scale scores to 100 (plugins/helper/normalize_score.go)."""
    highest = max(scores)
    if not highest:
        return [MOST] * len(scores) if reverse else [*scores]
    scaled = [MOST * score // highest for score in scores]
    return [MOST - score for score in scaled] if reverse else scaled


def _softly_tainted(pod: PodInfo, node: NodeInfo) -> int:
    """Count the taints PreferNoSchedule that a pod does not tolerate (plugins/tainttoleration)."""
    tolerations = [each for each in pod.tolerations if each.effect in ("", "PreferNoSchedule")]
    soft = (taint for taint in node.taints if taint.effect == "PreferNoSchedule")
    return sum(not any(each.tolerates(taint) for each in tolerations) for taint in soft)


def _preference(pod: PodInfo, node: NodeInfo) -> int:
    """Sum the weights of the preferred terms that a node matches. A term without conditions matches none."""
    return sum(
        weight
        for weight, term in pod.preferred
        if (term.labels or term.fields) and term.readable and term.matches(node.name, node.labels)
    )


def _least(pod: PodInfo, node: NodeInfo) -> int:
    """Score the cpu and memory that a node has left with the pod (plugins/noderesources/least_allocated.go)."""
    return _average(
        max(bound - node.weight[name] - pod.weighs.get(name, 0), 0) * MOST // bound
        for name in (CPU, MEMORY)
        if (bound := node.allocatable.get(name))
    )


def _most(pod: PodInfo, node: NodeInfo) -> int:
    """Score the use of the requested extended resources (plugins/noderesources/most_allocated.go)."""
    return _average(
        min(node.used[name] + amount, node.allocatable[name]) * MOST // node.allocatable[name]
        for name, amount in pod.asks.items()
        if "/" in name and amount and node.allocatable.get(name)
    )


def _average(scores: Iterable[int]) -> int:
    found = [*scores]
    return sum(found) // len(found) if found else 0


def _balance(pod: PodInfo, node: NodeInfo) -> int:
    """Score how much more evenly a node uses cpu and memory with the pod than without it.

    (plugins/noderesources/balanced_allocation.go)
    """
    if not any(pod.asks.get(name) for name in (CPU, MEMORY)):
        return 0
    before = _evenness(node.used, node.allocatable)
    after = _evenness({name: node.used[name] + pod.asks.get(name, 0) for name in (CPU, MEMORY)}, node.allocatable)
    return MOST // 2 + (MOST // 2 + after - before) // 2


def _evenness(used: Mapping[str, int], allocatable: Mapping[str, int]) -> int:
    shares = [min(used[name] / allocatable[name], 1.0) for name in (CPU, MEMORY) if allocatable.get(name)]
    spread = abs((shares[0] - shares[1]) / 2) if len(shares) == 2 else 0.0
    return int((1 - spread) * MOST)
