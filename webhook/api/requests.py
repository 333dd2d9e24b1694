"""Computes a pod's total requests (k8s.io/component-helpers resource/helpers.go, PodRequests).

Amounts are exact. Kubernetes rounds the sum up to a whole number when it uses it (quantity.go, Value).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from webhook.api import quantity
from webhook.api.lenient import mapping, mappings
from webhook.api.quantity import Amount

_OF_PODS = ("cpu", "memory", "hugepages-")
"""The resources that a pod may request for all its containers together (IsSupportedPodLevelResource)."""

Entry = tuple[bool, str, Amount]
"""Whether a container `completes` before the next one starts, a resource, and how much of it the container requests."""


def total(entries: Iterable[Entry]) -> dict[str, Amount]:
    """Return the amounts that containers need together, by resource. The containers are in the order of their start.

    Init containers come first. An init container that is not a sidecar ends before the next one starts, and runs next
    to the sidecars before it. All other containers run at the same time. The API server refuses negative amounts; here
    they count as 0.
    """
    running: dict[str, Amount] = {}
    peak: dict[str, Amount] = {}
    for completes, name, amount in entries:
        if amount > 0:
            before = running.setdefault(name, 0)  # so that the names are in the order of the containers
            if not completes:
                running[name] = before + amount
            elif before + amount > peak.get(name, 0):
                peak[name] = before + amount
    for name, amount in peak.items():
        if amount > running[name]:
            running[name] = amount
    return running


def of_spec(spec: Mapping[str, Any], prefix: str = "", unsaid: Mapping[str, str] | None = None) -> dict[str, Amount]:
    """Return the amounts that a PodSpec requests of the resources whose names begin with `prefix`, with its overhead.

    `unsaid` has the quantities to use for a container that does not request a resource. A field of a wrong type counts
    as missing, and so does a value that is no quantity.
    """
    asked = total(_entries(spec, prefix, unsaid or {}))
    if spec.get("resources"):
        whole = _amounts(_requests(spec, {}), prefix)
        asked |= {name: amount for name, amount in whole if name.startswith(_OF_PODS)}
    if spec.get("overhead"):
        for name, amount in _amounts(mapping(spec.get("overhead")), prefix):
            asked[name] = asked.get(name, 0) + amount
    return asked


def _entries(spec: Mapping[str, Any], prefix: str, unsaid: Mapping[str, str]) -> Iterator[Entry]:
    for place in ("initContainers", "containers"):
        for container in mappings(spec.get(place)) if place in spec else ():
            completes = place == "initContainers" and container.get("restartPolicy") != "Always"
            for name, amount in _amounts(_requests(container, unsaid), prefix):
                yield completes, name, amount


def _requests(holder: Mapping[str, Any], unsaid: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the requests of a container. The API server sets a missing one to its limit (core/v1 defaults.go)."""
    resources = mapping(holder.get("resources"))
    return {**unsaid, **mapping(resources.get("limits")), **mapping(resources.get("requests"))}


def _amounts(quantities: Mapping[str, Any], prefix: str) -> list[tuple[str, Amount]]:
    return [(name, quantity.amount(value)) for name, value in quantities.items() if name.startswith(prefix)]
