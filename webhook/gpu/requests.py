"""The GPUs that a pod requests."""

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

from webhook.api import quantity
from webhook.api.pods import Container, Pod
from webhook.model import Path
from webhook.policy.model import Policy

Amount = int | Fraction


class ResourceEntry(NamedTuple):
    """One extended resource that a container names, with its quantity as written and the path of that quantity."""

    container: Container
    name: str
    quantity: object
    path: Path

    @property
    def requested(self) -> bool:
        """Whether it is listed under `requests`. It then has no limit, or another one."""
        return self.path[-2] == "requests"


class GPURequest(NamedTuple):
    """One container's request for one GPU resource. `amount` is None if the quantity is not a number."""

    container: Container
    resource: str
    quantity: object
    amount: Amount | None
    path: Path

    @property
    def whole(self) -> bool:
        """Whether the amount is a whole number of at least 1. Kubernetes takes no other amount."""
        return isinstance(self.amount, int) and self.amount >= 1

    @property
    def placeholder(self) -> bool:
        """Whether the quantity is a text that a shell, a template engine or a reader replaces by a number: `$GPUS`."""
        return isinstance(self.quantity, str) and _PLACEHOLDER.search(self.quantity) is not None

    @property
    def counted(self) -> Amount:
        """The amount that sums use. A quantity that is not a whole number counts as 1, so that it hides nothing."""
        return self.amount if self.whole and self.amount is not None else 1


FILLED_IN = ("{{", "${trialParameters.", "${trialSpec.")
"""How placeholders begin that a controller fills in when it creates pods: those of Argo, and of Katib."""

_PLACEHOLDER = re.compile(r"\$[A-Za-z_{(]|\{\{|^<[^<>]+>$|^__\w+__$|^%[A-Za-z_]+%$")


def extended(pod: Pod) -> tuple[ResourceEntry, ...]:
    """Return every extended resource that the pod's containers name."""
    return tuple(
        [
            ResourceEntry(container, name, value, (*container.path, "resources", where, name))
            for container in pod.containers
            for name, value, where in container.extended_resources
        ]
    )


def of(resources: Iterable[ResourceEntry], policy: Policy) -> Iterator[GPURequest]:
    """Yield the entries that request a GPU. A quantity of 0 requests none."""
    for container, name, value, path in resources:
        if name in policy.gpu_resources:
            try:
                amount = quantity.parse(value)
            except ValueError:
                amount = None
            if amount != 0:
                yield GPURequest(container, name, value, amount, path)


def marked(pod: Pod, policy: Policy) -> Iterator[Path]:
    """Yield the paths of the annotations and labels that request a GPU from another scheduler."""
    for key in policy.forms.annotations.among(pod.annotations):
        yield pod.at("metadata", "annotations", key)
    for key in policy.forms.labels.among(pod.labels):
        if pod.labels[key] != "false":
            yield pod.at("metadata", "labels", key)


def totals(requests: Iterable[GPURequest]) -> dict[str, Amount]:
    """Return a pod's amount of each resource, summed as Kubernetes does (component-helpers resource, PodRequests).

    Containers run at the same time as all sidecars; an init container, as the sidecars before it in the list.
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
