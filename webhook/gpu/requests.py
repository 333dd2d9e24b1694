"""Reads the GPUs that a pod requests."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from webhook.api import quantity
from webhook.api.pods import Container, Pod
from webhook.api.quantity import Amount
from webhook.api.requests import Entry, total
from webhook.model import Path
from webhook.policy.model import Policy


class ResourceEntry(NamedTuple):
    """One extended resource that a container names, with its quantity as written and the path of that quantity."""

    container: Container
    name: str
    quantity: object
    path: Path

    @property
    def requested(self) -> bool:
        """Whether the resource is listed under `requests`. It then has no limit, or a limit that differs."""
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
        """Whether the amount is a whole number of at least 1. Kubernetes accepts no other amount of GPUs."""
        return isinstance(self.amount, int) and self.amount >= 1

    @property
    def placeholder(self) -> bool:
        """Whether the quantity is a placeholder such as `$GPUS`, which a template or a person replaces by a number."""
        return isinstance(self.quantity, str) and _PLACEHOLDER.search(self.quantity) is not None

    @property
    def counted(self) -> Amount:
        """The amount that sums use.

        A quantity that is not a whole number counts as 1, so that the sum still includes the request.
        """
        return self.amount if self.whole and self.amount is not None else 1


def slices(requests: Iterable[GPURequest]) -> int | None:
    """Return how many slices of GPUs one container requests by one resource.

    Returns None if it requests none, if the resource is a MIG device, or if an amount is not a whole number, as in a
    template with placeholders.
    """
    counts = [int(each.counted) if each.whole and "mig-" not in each.resource else None for each in requests]
    return None if not counts or None in counts else max(filter(None, counts))


FILLED_IN = ("{{", "${trialParameters.", "${trialSpec.")
"""The first characters of placeholders that a controller (Argo, Katib) fills in when it creates pods."""

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
    """Return a pod's amount of each resource. A container counts with the larger of its request and its limit."""
    entries: dict[tuple[Path, str], Entry] = {}
    for request in requests:
        container, name, amount = request.container, request.resource, request.counted
        key = container.path, name
        if key not in entries or entries[key][2] < amount:
            entries[key] = (container.completes, name, amount)
    return total(entries.values())
