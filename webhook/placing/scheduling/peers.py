"""Simulates pod affinity and topology spread: which nodes are excluded by pods on other nodes, and the scores.

Source: kubernetes pkg/scheduler/framework/plugins, interpodaffinity and podtopologyspread.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import floor, log

from webhook.placing.scheduling.infos import HOSTNAME, NodeInfo, PodAffinityTerm, PodInfo, Spread

HARD = 1
"""The weight that an existing pod's required affinity has in scores (apis/config/v1/defaults.go)."""

_NO_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
_UNEVEN = "node(s) didn't match pod topology spread constraints"
_AFFINITY = "node(s) didn't match pod affinity rules"
_ANTI = "node(s) didn't match pod anti-affinity rules"
_OTHERS_ANTI = "node(s) didn't satisfy existing pods anti-affinity rules"

UNRESOLVED = frozenset((_NO_LABEL, _AFFINITY))
"""The reasons that no eviction can remove."""

Pair = tuple[str, str]
"""A label of nodes: its key and its value."""


class Peers:
    """How the pods on the nodes affect where one pod can run."""

    def __init__(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> None:
        self.pod = pod
        self._together: Counter[Pair] = Counter()
        self._apart: Counter[Pair] = Counter()
        self._unwelcome: Counter[Pair] = Counter()
        self._spreads = [each for each in pod.spreads if each.hard]
        self._counts: list[dict[str, int]] = [{} for _ in self._spreads]
        for node in nodes:
            self._count(node)

    def _count(self, node: NodeInfo) -> None:
        pod = self.pod
        for each in node.bound:
            for term in each.apart:
                if term.matches(pod):
                    self._unwelcome.update(_pairs(node, (term,)))
        if pod.together or pod.apart:
            for each in node.pods:
                if pod.together and all(term.matches(each) for term in pod.together):
                    self._together.update(_pairs(node, pod.together))
                for term in pod.apart:
                    if term.matches(each):
                        self._apart.update(_pairs(node, (term,)))
        if self._spreads and all(each.key in node.labels for each in self._spreads):
            for spread, counts in zip(self._spreads, self._counts, strict=True):
                if spread.includes(node, pod):
                    value = node.labels[spread.key]
                    counts[value] = counts.get(value, 0) + _matching(spread, node, pod)

    def refusal(self, node: NodeInfo) -> str:
        """Return the reason why other pods keep the pod off a node; empty if they do not."""
        for spread, counts in zip(self._spreads, self._counts, strict=True):
            if spread.key not in node.labels:
                return _NO_LABEL
            least = 0 if len(counts) < spread.domains else min(counts.values(), default=2**31)
            own = spread.selector.matches(self.pod.labels)
            if counts.get(node.labels[spread.key], 0) + own - least > spread.skew:
                return _UNEVEN
        if not self._beside_its_peers(node):
            return _AFFINITY
        if any(self._apart[pair] for pair in _pairs(node, self.pod.apart)):
            return _ANTI
        if self._unwelcome and any(self._unwelcome[pair] for pair in node.labels.items()):
            return _OTHERS_ANTI
        return ""

    def _beside_its_peers(self, node: NodeInfo) -> bool:
        """Whether all terms are met. The first of pods that ask for each other may go anywhere."""
        terms = self.pod.together
        if not all(term.key in node.labels for term in terms):
            return False
        if all(self._together[pair] for pair in _pairs(node, terms)):
            return True
        return not self._together and all(term.matches(self.pod) for term in terms)


def _pairs(node: NodeInfo, terms: Iterable[PodAffinityTerm]) -> Iterator[Pair]:
    for term in terms:
        if term.key in node.labels:
            yield term.key, node.labels[term.key]


def _matching(spread: Spread, node: NodeInfo, pod: PodInfo) -> int:
    """Count the pods of a node that a constraint counts. An empty selector counts none."""
    if not spread.selector.requirements:
        return 0
    return sum(each.namespace == pod.namespace and spread.selector.matches(each.labels) for each in node.pods)


# Scores


def affinities(pod: PodInfo, candidates: Sequence[NodeInfo], nodes: Iterable[NodeInfo]) -> list[int]:
    """Score nodes by the affinity between the pod and the pods on the nodes, from 0 to 100."""
    weights: Counter[Pair] = Counter()
    for node in nodes:
        for each in node.pods if pod.liked else node.bound:
            for term in pod.liked:
                if term.matches(each):
                    _weigh(weights, node, term, term.weight)
            for term in each.liked:
                if term.matches(pod):
                    _weigh(weights, node, term, term.weight)
            for term in each.together:
                if term.matches(pod):
                    _weigh(weights, node, term, HARD)
    if not weights:
        return [0] * len(candidates)
    raw = [sum(weights[pair] for pair in node.labels.items()) for node in candidates]
    least, range_ = min(raw), max(raw) - min(raw)
    return [int(100 * ((each - least) / range_)) if range_ else 0 for each in raw]


def _weigh(weights: Counter[Pair], node: NodeInfo, term: PodAffinityTerm, weight: int) -> None:
    for pair in _pairs(node, (term,)):
        weights[pair] += weight


def evennesses(pod: PodInfo, candidates: Sequence[NodeInfo], nodes: Iterable[NodeInfo]) -> list[int]:
    """Score nodes by the spread that a pod prefers, from 0 to 100. Source: podtopologyspread/scoring.go."""
    spreads = [each for each in pod.spreads if not each.hard]
    if not spreads:
        return [0] * len(candidates)
    needed = [] if pod.spreads_by_default else [each.key for each in spreads]
    scored = [node for node in candidates if all(key in node.labels for key in needed)]
    counts = [{node.labels.get(each.key, ""): 0 for node in scored} for each in spreads]
    for node in nodes:
        if all(key in node.labels for key in needed):
            for spread, by_value in zip(spreads, counts, strict=True):
                value = node.labels.get(spread.key, "")
                if spread.key != HOSTNAME and value in by_value and spread.includes(node, pod):
                    by_value[value] += _matching(spread, node, pod)
    weights = [
        log((len(scored) if each.key == HOSTNAME else len(by)) + 2) for each, by in zip(spreads, counts, strict=True)
    ]
    raw: dict[int, int] = {id(node): _unevenness(pod, node, spreads, counts, weights) for node in scored}
    most, least = max(raw.values(), default=0), min(raw.values(), default=0)
    return [
        0 if id(node) not in raw else 100 if not most else 100 * (most + least - raw[id(node)]) // most
        for node in candidates
    ]


def _unevenness(
    pod: PodInfo,
    node: NodeInfo,
    spreads: Sequence[Spread],
    counts: Sequence[Mapping[str, int]],
    weights: Sequence[float],
) -> int:
    total = 0.0
    for spread, by_value, weight in zip(spreads, counts, weights, strict=True):
        if spread.key in node.labels:
            count = _matching(spread, node, pod) if spread.key == HOSTNAME else by_value[node.labels[spread.key]]
            total += count * weight + (spread.skew - 1)
    return floor(total + 0.5)
