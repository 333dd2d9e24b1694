"""Says why a pod does not fit a node, in the scheduler's own words."""

from collections.abc import Iterator

from webhook.scheduling.infos import PODS, NodeInfo, PodInfo, Taint

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""The taint that a pod has to tolerate for a cordoned node (plugins/nodeunschedulable)."""


def obstacle(pod: PodInfo, node: NodeInfo) -> str:
    """Say why a node is closed to a pod, whatever runs there; empty if it is open.

    These are the filters whose refusal no eviction can lift, in their order (plugins/registry.go): the node is
    cordoned, the pod names another node, a taint, node affinity.
    """
    if node.unschedulable and not any(each.tolerates(UNSCHEDULABLE) for each in pod.tolerations):
        return "node(s) were unschedulable"
    if pod.node and pod.node != node.name:
        return "node(s) didn't match the requested node name"
    for taint in node.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(each.tolerates(taint) for each in pod.tolerations):
            return f"node(s) had untolerated taint {taint}"
    if not _selected(pod, node):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""


def reasons(pod: PodInfo, node: NodeInfo) -> Iterator[str]:
    """Yield why a pod does not fit a node: what closes it, or else what it has too little of at present.

    Source of the words for the latter: plugins/noderesources/fit.go.
    """
    if closed := obstacle(pod, node):
        yield closed
        return
    for name in node.lacks(pod):
        yield "Too many pods" if name == PODS else f"Insufficient {name}"


def _selected(pod: PodInfo, node: NodeInfo) -> bool:
    """Tell whether a node has the labels that a pod requires. A term without conditions matches no node."""
    if any(node.labels.get(key) != value for key, value in pod.selector.items()):
        return False
    if pod.terms is None:
        return True
    terms = (term for term in pod.terms if (term.labels or term.fields) and term.readable)
    return any(term.matches(node.name, node.labels) for term in terms)
