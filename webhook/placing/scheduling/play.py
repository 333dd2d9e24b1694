"""Simulates scheduling a queue of pods: each gets a node, waits, or evicts pods of a lower priority."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from webhook.placing.scheduling import scores
from webhook.placing.scheduling.allocation import AllocationError
from webhook.placing.scheduling.filters import Filters
from webhook.placing.scheduling.infos import NodeInfo, PodInfo
from webhook.placing.scheduling.scores import Strategy
from webhook.placing.scheduling.stage import ClusterState


@dataclass(frozen=True, slots=True)
class SchedulingResult:
    """The result for a pod: the node that it got, or why it waits.

    `others` are equally good nodes, among which the scheduler chooses at random. `evicted` are the pods evicted for it.
    `reasons` has the number of nodes for each reason why they were refused. `evictor` is the pod that evicted this one.
    """

    pod: PodInfo
    node: str = ""
    others: tuple[str, ...] = ()
    evicted: tuple[PodInfo, ...] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)
    evictor: str = ""


def queued(pods: Iterable[PodInfo]) -> list[PodInfo]:
    """Sort pods that arrive at once: by priority, then in the given order (plugins/queuesort)."""
    return sorted(pods, key=lambda pod: -pod.priority)


def play(pods: Iterable[PodInfo], stage: ClusterState, strategy: Strategy = Strategy.SPREAD) -> list[SchedulingResult]:
    """Schedule pods in their order, and update the state. Returns the result for each, in that order.

    The first of several equally good nodes takes the pod. An evicted pod of the queue joins its end again, as a
    controller would create it again. Since evictions make room, pods that wait are tried again at the end.
    """
    pods = [*pods]
    outcomes: dict[int, SchedulingResult] = {}
    evictors: dict[int, str] = {}
    queue, played = deque(pods), frozenset(map(id, pods))
    evicted = False
    while queue:
        pod = queue.popleft()
        outcome = outcomes[id(pod)] = step(pod, stage, strategy, evictors.get(id(pod), ""))
        for victim in outcome.evicted:
            evicted = True
            if id(victim) in played:
                evictors[id(victim)] = pod.name
                queue.append(victim)
        if not queue and evicted:
            queue.extend(queued(each for each in pods if not outcomes[id(each)].node))
            evicted = False
    return [outcomes[id(pod)] for pod in pods]


def step(pod: PodInfo, stage: ClusterState, strategy: Strategy, evictor: str = "") -> SchedulingResult:
    """Schedule one pod, and update the state. A pod with an unreadable selector waits."""
    filters = Filters(pod, stage)
    try:
        refused = {node.name: [*filters.reasons(node)] for node in stage.nodes}
        fitting = [node for node in stage.nodes if not refused[node.name]]
        candidates = candidates_for(pod, stage) if pod.preempts and not fitting else []
    except AllocationError as error:
        return SchedulingResult(pod, reasons={str(error): len(stage.nodes)}, evictor=evictor)
    if fitting:
        first, *others = scores.best(filters, fitting, stage.nodes, strategy)
        stage.put(pod, first, filters.allocations.get(first.name, ()))
        return SchedulingResult(pod, first.name, tuple(node.name for node in others), evictor=evictor)
    if candidates:
        node, victims = cheapest(candidates)[0]
        for victim in victims:
            stage.remove(victim, node)
        filters = Filters(pod, stage)
        if filters.fits(node):
            stage.put(pod, node, filters.allocations.get(node.name, ()))
            return SchedulingResult(pod, node.name, evicted=tuple(victims), evictor=evictor)
    reasons = Counter(reason for found in refused.values() for reason in found)
    return SchedulingResult(pod, reasons=reasons, evictor=evictor)


def victims_on(pod: PodInfo, node: NodeInfo, stage: ClusterState) -> list[PodInfo] | None:
    """Return the pods to evict from a node for a pod, the most important first; None if evictions do not help.

    First all pods of a lower priority are removed. Then each comes back, the most important first, if the pod still
    fits (plugins/defaultpreemption, SelectVictimsOnNode). With equal priority, the earlier pod is more important.
    Disruption budgets are not known here, so they protect no pod. A removed pod keeps the devices of its claims, as in
    the scheduler, which evicts no pod to free them. Raises Unreadable.
    """
    lower = sorted((each for each in node.pods if each.priority < pod.priority), key=lambda each: -each.priority)
    if not lower:
        return None
    for each in lower:
        node.remove(each)
    away, victims = deque(lower), list[PodInfo]()
    try:
        if Filters(pod, stage).fits(node):
            for each in lower:
                node.add(away.popleft())
                if not Filters(pod, stage).fits(node):
                    node.remove(each)
                    victims.append(each)
    finally:
        for each in (*away, *victims):
            node.add(each)
    return victims or None


def cheapest(candidates: Sequence[tuple[NodeInfo, list[PodInfo]]]) -> list[tuple[NodeInfo, list[PodInfo]]]:
    """Return the nodes whose victims cost least, in the given order.

    Source: framework/preemption/preemption.go, pickOneNodeForPreemption. Among these the scheduler takes the node whose
    most important victims started last, which is not known here.
    """
    least = min(_cost(victims) for _, victims in candidates)
    return [(node, victims) for node, victims in candidates if _cost(victims) == least]


def candidates_for(pod: PodInfo, stage: ClusterState) -> list[tuple[NodeInfo, list[PodInfo]]]:
    """Return the nodes that a pod would fit after evictions, each with the pods to evict."""
    filters = Filters(pod, stage)
    found = ((node, victims_on(pod, node, stage)) for node in stage.nodes if filters.may_fit(node))
    return [(node, victims) for node, victims in found if victims]


def _cost(victims: Sequence[PodInfo]) -> tuple[int, int, int]:
    """Compare victims: the priority of the most important, the sum of all priorities, and their number."""
    return victims[0].priority, sum(each.priority + 2**31 for each in victims), len(victims)
