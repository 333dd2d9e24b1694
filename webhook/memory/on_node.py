"""Computes how much memory of a card a container may use on the node that runs it."""

from dataclasses import replace

from webhook.api.pods import Container, Pod
from webhook.facts.kinds.node import Node
from webhook.gpu import requests
from webhook.gpu.review import PodReview
from webhook.memory.budget import ALL, InvalidAnnotation, Wish, budget, card_of, wish
from webhook.memory.driver.variables import HARD
from webhook.memory.steps import natural


def allowance(review: PodReview, container: Container, node: Node) -> int | None:
    """Return the MiB of a container's slices, CUDA contexts included, as NVML counts them.

    A client of MPS may use what NVIDIA's plugin has the MPS daemon allow it: the card's memory divided by its replicas
    (k8s-device-plugin cmd/mps-control-daemon/mps/daemon.go), which is more than our slice. In a time-sliced pool the
    slices leave a reserve.
    The annotation `slicewarden.dev/gpu-memory` can only lower it, because a tenant may change the annotations of a
    running pod. `slicewarden.dev/memory-caps` is only a note for people.
    """
    pool, card = review.policy.pool_of(node.labels), card_of(node)
    if pool is None or card is None or not pool.shared:
        return None
    slices = requests.slices(request for request in review.requests if request.container.path == container.path)
    if slices is None:
        return None  # no label of the node gives the size of a slice of a MIG device
    share = budget(card, review.policy, _wish(review.subject), driver=pool.driver_limits)
    if share.unified:
        return None
    if pool.sharing == "mps":
        share = replace(share, slice=card.memory // card.replicas)
    return share.limit(slices)


def stated(container: Container) -> list[int]:
    """Return the hard limits (MiB) that a container's variables state for NVIDIA's hook, a tenant's own too."""
    texts = [variable.value or "" for variable in container.variables(HARD).values()]
    return [int(text) for text in texts if natural(text) and int(text)]


def _wish(pod: Pod) -> Wish:
    try:
        return wish(pod.annotations)
    except InvalidAnnotation:
        return ALL
