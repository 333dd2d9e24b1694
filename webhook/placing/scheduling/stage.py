"""Keeps the state of a simulation: nodes with their pods, and devices with their claims."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from webhook.api.devices import DeviceRequest
from webhook.placing.scheduling.allocation import Allocation, Stock, held_at
from webhook.placing.scheduling.devices import ResourceClaim
from webhook.placing.scheduling.infos import NodeInfo, PodInfo


@dataclass(eq=False)
class ClusterState:
    """Nodes and devices; a simulation changes both."""

    nodes: Sequence[NodeInfo]
    stock: Stock = field(default_factory=Stock)
    _made: dict[int, list[ResourceClaim]] = field(default_factory=dict)
    """The claims that the scheduler itself made for pods, by the identity of the pod."""

    def put(self, pod: PodInfo, node: NodeInfo, allocation: Allocation = ()) -> None:
        """Put a pod on a node, and allocate the devices that its claims get there."""
        node.add(pod)
        waiting = unallocated(pod, node)
        for claim, held in zip(waiting, allocation, strict=True):
            self.stock.take(claim, held, held_at(held, node))
        made = [claim for claim in waiting if claim not in pod.claims]
        if made:
            self._made[id(pod)] = made
        for claim in self.claims(pod):
            claim.users.append(pod.name)

    def remove(self, pod: PodInfo, node: NodeInfo) -> None:
        """Remove a pod from a node. A claim that no other pod uses releases its devices."""
        node.remove(pod)
        for claim in self.claims(pod):
            claim.users.remove(pod.name)
            if not claim.users:
                self.stock.release(claim)
        self._made.pop(id(pod), None)

    def claims(self, pod: PodInfo) -> list[ResourceClaim]:
        """Return the claims of a pod, including those that the scheduler made for it."""
        return [*pod.claims, *self._made.get(id(pod), ())]


def unallocated(pod: PodInfo, node: NodeInfo) -> list[ResourceClaim]:
    """Return the claims of a pod that must still be allocated, if it runs on this node.

    If the pod requests resources that device classes offer, one more claim stands for them. A resource that the node's
    device plugin offers is not among them, because the node counts it (dynamicresources/extendeddynamicresources.go).
    """
    waiting = [claim for claim in pod.claims if claim.held is None]
    requests = [
        (DeviceRequest((), name, False, False, (), place, resource, pod.asks[resource]),)
        for place, (resource, name) in enumerate(pod.by_class.items())
        if pod.asks[resource] and not node.allocatable.get(resource)
    ]
    return (
        [*waiting, ResourceClaim(f"the claim for {', '.join(one[0].name for one in requests)}", tuple(requests))]
        if requests
        else waiting
    )
