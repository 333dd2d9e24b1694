"""Which GPUs a pod asks for."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

from webhook.api import quantity
from webhook.api.pods import Container, Pod
from webhook.model import Path
from webhook.policy.model import Policy

Amount = int | Fraction


class GPURequest(NamedTuple):
    """One container's request for one GPU resource; `amount` is None where the quantity makes no sense."""

    container: Container
    resource: str
    quantity: object
    amount: Amount | None
    path: Path

    @property
    def whole(self) -> bool:
        """True for a whole number of at least 1, all that an extended resource can be asked for in."""
        return isinstance(self.amount, int) and self.amount >= 1

    @property
    def counted(self) -> Amount:
        """The amount to reckon with: 1 where the quantity makes no sense, so that it hides nothing."""
        return self.amount if self.whole and self.amount is not None else 1


def of(pod: Pod, policy: Policy) -> Iterator[GPURequest]:
    """Yield every request for a GPU in any of the pod's containers; a request for 0 is none."""
    gpus = policy.gpu_resources
    for container in pod.containers:
        for name, value, where in container.extended_resources:
            if name in gpus:
                try:
                    amount = quantity.parse(value)
                except ValueError:
                    amount = None
                if amount != 0:
                    yield GPURequest(container, name, value, amount, (*container.path, "resources", where, name))


def marked(pod: Pod, policy: Policy) -> Iterator[Path]:
    """The places of the annotations and labels by which a pod asks another scheduler for a GPU."""
    for key in pod.annotations:
        if key in policy.forms.annotations:
            yield pod.at("metadata", "annotations", key)
    for key, value in pod.labels.items():
        if key in policy.forms.labels and value != "false":
            yield pod.at("metadata", "labels", key)


def totals(requests: Iterable[GPURequest]) -> dict[str, Amount]:
    """What a pod asks for of each resource, summed as Kubernetes does (component-helpers resource, PodRequests).

    Containers and sidecars run together; each init container runs beside the sidecars started before it.
    """
    by_resource: dict[str, dict[Path, tuple[Container, Amount]]] = {}
    for request in requests:
        containers = by_resource.setdefault(request.resource, {})
        _, before = containers.get(request.container.path, (None, 0))
        containers[request.container.path] = (request.container, max(before, request.counted))
    return {resource: _peak(containers.values()) for resource, containers in by_resource.items()}


def _peak(containers: Iterable[tuple[Container, Amount]]) -> Amount:
    sidecars: Amount = 0
    running: Amount = 0
    peak: Amount = 0
    for container, amount in containers:  # init containers come first, in the order they start
        if container.list_name != "initContainers":
            running += amount
        elif container.sidecar:
            sidecars += amount
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + amount)
    return max(peak, sidecars + running)
