"""A pod asks for more than one slice of a shared GPU, or for a number of GPUs that is none.

A slice is a turn on a card, not a part of it: two slices may be two turns on the same card, and buy neither
more memory nor more speed. Where the device plugin is told to refuse such requests
(`failRequestsGreaterThanOne`) it does so on the node, after scheduling, and a ReplicaSet then makes failing
pods without end (kubernetes#70010). What a pod asks for is summed as Kubernetes does it: containers and
sidecars together, or the largest init container. Nought asks for none.

An extended resource cannot be overcommitted: where it is requested it needs a limit, and an equal one (kubernetes
pkg/apis/core/validation/validation.go, validateResourceRequirements). The API server refuses anything else; of a
kind that an operator brings it refuses only the pods, when the template has long been taken.

Way out: ask for 1, under `limits` alone, which are also the request. A pod that needs several GPUs belongs on a pool
that hands them out whole.
"""

from collections.abc import Iterator

from webhook.api import quantity
from webhook.api.fields import section
from webhook.api.pods import Container
from webhook.gpu.review import PodReview
from webhook.model import Finding, Path
from webhook.policy.model import GPUResources
from webhook.text.words import shown


def check(review: PodReview) -> Iterator[Finding]:
    """Flag quantities that are not whole numbers from 1, requests that are not their limit, and more than one slice."""
    pod = review.subject
    for request in review.requests:
        if not request.whole:
            yield Finding(
                request.path,
                f"{shown(request.quantity)} is not a whole number of at least 1; ask for 1, or for 0 to have none",
            )
    for container in pod.containers:
        for path, message in _overcommitted(container, review.policy.gpu_resources):
            yield Finding(path, message)
    placement = review.placement
    if placement is None or placement.pool is None or not placement.pool.shared or placement.count <= 1:
        return
    message = (
        f"{placement.count} slices in one pod ({placement.asked}); pool {placement.pool.name} shares its GPUs, and a "
        "second slice buys nothing: ask for 1 in all containers together"
    )
    large = [request.path for request in review.requests if request.counted > 1]
    for path in large:
        yield Finding(path, message)
    if not large:
        yield Finding(pod.at("spec"), message, parts=(message,))


def _overcommitted(container: Container, gpus: GPUResources) -> Iterator[tuple[Path, str]]:
    """Find what is requested without a limit, or with another; of quantities that are none the rule has spoken."""
    resources = section(container.spec, "resources", container.path)
    at = (*container.path, "resources")
    limits, requests = section(resources, "limits", at), section(resources, "requests", at)
    for name, wanted in requests.items():
        if "/" not in name or name not in gpus:
            continue
        path = (*at, "requests", name)
        if name not in limits:
            yield path, "has no limit, and the API server refuses it; ask under limits, which are also the request"
        elif _differ(wanted, limits[name]):
            both = f"is {shown(wanted)} and its limit {shown(limits[name])}"
            yield path, f"{both}, and the API server wants them equal; ask under limits alone"


def _differ(one: object, other: object) -> bool:
    try:
        return quantity.parse(one) != quantity.parse(other)
    except ValueError:
        return False
