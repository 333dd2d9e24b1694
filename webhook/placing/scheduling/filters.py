"""Finds the reasons why a pod does not fit a node, in the scheduler's own words."""

from collections.abc import Iterator

from webhook.api.taints import Taint
from webhook.placing.scheduling.allocation import Allocation, score
from webhook.placing.scheduling.infos import PODS, NodeInfo, PodInfo
from webhook.placing.scheduling.peers import UNRESOLVED, Peers
from webhook.placing.scheduling.stage import ClusterState, unallocated

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""The taint that a pod has to tolerate for a cordoned node (plugins/nodeunschedulable)."""

_NOT_THERE, _NOT_MET = "resourceclaim not available on the node", "cannot allocate all claims"


def obstacle(pod: PodInfo, node: NodeInfo) -> str:
    """Return the reason why a node can never run a pod, whichever pods are evicted; empty if it can.

    These are the filters whose refusal no eviction can remove, in their order (plugins/registry.go): the node is
    cordoned, the pod names another node, a taint, node affinity.
    """
    if node.unschedulable and not any(each.tolerates(UNSCHEDULABLE) for each in pod.tolerations):
        return "node(s) were unschedulable"
    if pod.node and pod.node != node.name:
        return "node(s) didn't match the requested node name"
    if taint := pod.untolerated(node):
        return f"node(s) had untolerated taint {taint}"
    if not pod.selects(node):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""


class Filters:
    """Checks whether one pod fits each node now, and records which devices its claims would get there."""

    def __init__(self, pod: PodInfo, stage: ClusterState) -> None:
        self.pod, self._stage = pod, stage
        bound = pod.bound or pod.spreads or any(node.bound for node in stage.nodes)
        self._peers = Peers(pod, stage.nodes) if bound else None
        self.allocations: dict[str, Allocation] = {}

    def fits(self, node: NodeInfo) -> bool:
        """Whether the pod fits a node."""
        return not any(self.reasons(node))

    def may_fit(self, node: NodeInfo) -> bool:
        """Whether the pod would fit a node after evictions: every obstacle is one that an eviction can remove."""
        if self.pod.missing or obstacle(self.pod, node):
            return False
        return any(node.lacks(self.pod)) or not UNRESOLVED.union((_NOT_THERE, _NOT_MET)).intersection(
            self._by_others(node)
        )

    def reasons(self, node: NodeInfo) -> Iterator[str]:
        """Yield the reasons why the pod does not fit a node, from the first filter that refuses it.

        Source of the words for resources: plugins/noderesources/fit.go. Raises Unreadable if a selector fails.
        """
        if self.pod.missing:
            yield self.pod.missing
        elif closed := obstacle(self.pod, node):
            yield closed
        elif lacks := [*node.lacks(self.pod)]:
            yield from ("Too many pods" if name == PODS else f"Insufficient {name}" for name in lacks)
        else:
            yield from self._by_others(node)

    def _by_others(self, node: NodeInfo) -> Iterator[str]:
        if self._peers and (refused := self._peers.refusal(node)):
            yield refused
        elif any(not claim.where.matches(node.name, node.labels) for claim in self.pod.claims):
            yield _NOT_THERE
        elif waiting := unallocated(self.pod, node):
            allocation = self._stage.stock.allocate(node, waiting)
            if allocation is None:
                yield _NOT_MET
            else:
                self.allocations[node.name] = allocation

    def rank(self, node: NodeInfo) -> int:
        """Return the score of the devices that the claims would get on a node that the pod fits."""
        return score(self.allocations.get(node.name, ()))
