"""A pod asks for more than one slice of a shared GPU, or for an invalid number of GPUs.

A slice is a turn on a card, not a part of it: two slices may be two turns on the same card, and buy neither
more memory nor more speed. Where the device plugin is told to refuse such requests
(`failRequestsGreaterThanOne`) it does so on the node, after scheduling, and a ReplicaSet then makes failing
pods without end (kubernetes#70010). Requests are summed as Kubernetes does it: containers and
sidecars together, or the largest init container. 0 asks for none.

An extended resource cannot be overcommitted: where it is requested it needs a limit, and an equal one (kubernetes
pkg/apis/core/validation/validation.go, validateResourceRequirements). The API server refuses anything else. For an
operator's own kinds it refuses only the pods, long after it has accepted the template.

A claim may also be for two slices, by two requests for a class that a shared pool offers, or by a count. The
scheduler may take both from one card. With one constraint for all of them, by `distinctAttribute` on the cards' uuid,
it takes them from several cards. If a pool that shares nothing offers the class too, the claims of a pod count with
each of their devices, whatever the constraint: the scheduler may take whole cards.

A placeholder such as `$GPUS` or `{{ gpus }}` is text that nothing has filled in yet.

Way out: substitute placeholders first. Request 1, only under `limits`, which also set the request. A pod that needs
several GPUs belongs on a pool that hands them out whole.
"""

from collections.abc import Iterator

from webhook.api import quantity
from webhook.api.devices import DeviceClaim
from webhook.api.fields import section
from webhook.cel.clauses import ASKING, Clause
from webhook.gpu import claims
from webhook.gpu.requests import FILLED_IN, ResourceEntry
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import Policy
from webhook.review import Review
from webhook.text.words import shown

SINCE = "0.1"

LOOKS_AT = ("extended resource", "gpu")


def check(review: PodReview | Review[DeviceClaim]) -> Iterator[Finding]:
    """Flag quantities that are no whole number from 1, requests that differ from their limit, and second slices."""
    yield from _of_pod(review) if isinstance(review, PodReview) else _of_claim(review)


def _of_claim(review: Review[DeviceClaim]) -> Iterator[Finding]:
    claim, policy = review.subject, review.policy
    if claims.of_scheduler(claim, policy):
        return
    named = set()
    for pool, number, classes in claims.counted_by_pool(claim.requests, policy):
        if not pool.shared or number <= 1 or classes in named:
            continue
        named.add(classes)  # pools of several tenants may have one class
        message = (
            f"{number} slices of {classes} in one claim may be of one GPU; pool {pool.name} shares its GPUs, "
            "and a second slice buys nothing: ask for 1, or add a constraint with distinctAttribute on the GPUs' uuid"
        )
        yield Finding((*claim.base, "requests"), message, parts=(message,))


def _of_pod(review: PodReview) -> Iterator[Finding]:
    pod = review.subject
    for request in review.requests:
        if request.placeholder:
            # An operator may fill in its own placeholders later, and its pods are judged then.
            advice = pod.template and any(start in str(request.quantity) for start in FILLED_IN)
            if advice:
                message = "is a parameter, known when a pod is created; the pod is judged then"
            else:
                message = "is a placeholder; substitute it before checking (envsubst < file | slicewarden check -)"
            yield Finding(request.path, f"{shown(request.quantity)} {message}", advice=advice)
        elif not request.whole:
            yield Finding(
                request.path,
                f"{shown(request.quantity)} is not a whole number of GPUs; request 1 or more, or 0 for none",
            )
    for resource in review.extended_resources:
        if resource.requested and resource.name in review.policy.gpu_resources:
            yield from _overcommitted(resource)
    placement = review.placement
    if placement is None or placement.pool is None or not placement.pool.shared or placement.count <= 1:
        return
    message = (
        f"{placement.count} slices in one pod ({placement.asked}); pool {placement.pool.name} shares its GPUs, and a "
        "second slice buys nothing: ask for 1 in all containers together"
    )
    large = [request.path for request in review.requests if request.counted > 1]
    large += [use.path for use in review.claims if sum(use.contents.numbers.values()) > 1]
    for path in large:
        yield Finding(path, message)
    if not large:
        yield Finding(pod.at("spec"), message, parts=(message,))


def _overcommitted(resource: ResourceEntry) -> Iterator[Finding]:
    """Flag a request without a limit, or with a different one. A quantity that is not a number is flagged elsewhere."""
    resources = section(resource.container.spec, "resources", resource.container.path)
    limits = section(resources, "limits", resource.path[:-2])
    if resource.name not in limits:
        name = shown(resource.name, quotes=False)
        message = f"{name} is only in requests, and the API server rejects that; put it in limits"
        yield Finding(resource.path, message)
    elif _differ(resource.quantity, limits[resource.name]):
        both = f"the request {shown(resource.quantity)} differs from the limit {shown(limits[resource.name])}"
        yield Finding(resource.path, f"{both}, and the API server rejects that; keep only the limit")


def _differ(one: object, other: object) -> bool:
    try:
        return quantity.parse(one) != quantity.parse(other)
    except ValueError:
        return False


def fallback(_: Policy) -> Iterator[Clause]:
    """Exact for pods, if the policy also denies unsteered-pod. Claims pass."""
    yield Clause(
        "variables.count <= 1 || size(variables.willing) == 0 || (!variables.willing.all(p, p in variables.shared)"
        " && (variables.pools.exists(p, !(p in variables.shared))"
        " || !variables.held.exists(p, p in variables.willing && p in variables.shared)))",
        "several slices in one pod, and its pool shares its GPUs: ask for 1 in all containers together",
        only=ASKING,
    )
