"""Computes how much of a card a container may take, by the policy, the card and the webhook's own sums."""

from typing import NamedTuple

from webhook.agent.pauses import Pause, pause
from webhook.api.lenient import mapping, sequence, string
from webhook.api.pods import Container, Pod
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.gpu import requests
from webhook.gpu.review import PodReview, pods_of
from webhook.memory.budget import ALL, InvalidAnnotation, Wish, budget, card_of, wish
from webhook.model import Malformed, Object, Request
from webhook.policy.model import Policy


class Standing(NamedTuple):
    """The request and the allowance that a container was admitted with.

    `asks` tells whether it asked for a GPU; None if that cannot be known, as for a pod with a claim. `allowance` is the
    MiB that it may take of a card; None where no allowance holds. `exempt` is the name of an exemption of the system,
    and `ending` tells whether its pod is being deleted. `init` tells whether the pod's start waits for its end, and
    `driver` whether the driver is to hold it to its allowance. `pause` says how it may be frozen, None that it may not.
    """

    asks: bool | None = None
    allowance: int | None = None
    exempt: str = ""
    ending: bool = False
    init: bool = False
    driver: bool = False
    pause: Pause | None = None


UNKNOWN = Standing()
"""A container of which nothing is known: nobody acts on it."""


def standing(item: Object, container: str, policy: Policy, facts: Facts, node: Node) -> Standing:
    """Return what a container of a pod was admitted with on a node. A pod of a wrong shape counts as unknown."""
    metadata = mapping(item.get("metadata"))
    namespace = string(metadata.get("namespace")) or "default"
    request = Request("", "CREATE", "", "v1", "Pod", "", namespace, "", None, False, item, None)
    try:
        (review,) = pods_of(request, item, policy, facts)
        pod, pool = review.subject, policy.pool_of(node.labels)
        (own,) = [each for each in pod.containers if each.name == container]
        asks, exempt, ending = _asks(review, own), _exempt(pod, policy, facts), bool(metadata.get("deletionTimestamp"))
        bears = pause(review, own, pool) if pool is not None and asks and not exempt and not ending else ""
        return Standing(
            asks,
            _allowance(review, own, node),
            exempt,
            ending,
            own.list_name == "initContainers" and not own.sidecar,
            pool is not None and pool.driver_limits,
            bears if isinstance(bears, Pause) else None,
        )
    except (Malformed, ValueError):  # not one pod, or not one container of that name
        return UNKNOWN


def _asks(review: PodReview, container: Container) -> bool | None:
    if container.path in review.gpu_containers:
        return True
    claims = sequence(review.subject.spec.get("resourceClaims")) or sequence(review.subject.spec.get("resources"))
    return None if claims or any(requests.marked(review.subject, review.policy)) else False


def _allowance(review: PodReview, container: Container, node: Node) -> int | None:
    """Return the MiB of a container's slices: all that NVML counts for its processes, their contexts included.

    The annotation `slicewarden.dev/gpu-memory` lowers it, and can never raise it: a tenant may change the annotations
    of a running pod. `slicewarden.dev/memory-caps` is a note for people, and counts for nothing.
    """
    pool, card = review.policy.pool_of(node.labels), card_of(node)
    if pool is None or card is None or not pool.shared:
        return None
    own = [request for request in review.requests if request.container.path == container.path]
    if not own or any("mig-" in request.resource or not request.whole for request in own):
        return None  # a slice of a MIG device has another size, which no label of the node tells
    share = budget(card, review.policy)
    if share.unified:
        return None
    most = share.slice * max(int(request.counted) for request in own)
    asked = _wish(review.subject)
    if asked.memory is None:
        return most
    return min(most, asked.memory + share.context * asked.processes)


def _wish(pod: Pod) -> Wish:
    try:
        return wish(pod.annotations)
    except InvalidAnnotation:
        return ALL


def _exempt(pod: Pod, policy: Policy, facts: Facts) -> str:
    labels = facts.namespaces.get(pod.namespace)
    for exemption in policy.exemptions:
        if exemption.until is None and exemption.scope.covers(pod.namespace, labels, pod.service_account):
            return exemption.name
    return ""
