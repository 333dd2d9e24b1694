"""A pod asks for more than one slice of a shared GPU, or for a number of GPUs that is none.

A slice is a turn on a card, not a part of it: two slices may be two turns on the same card, and buy neither
more memory nor more speed. Where the device plugin is told to refuse such requests
(`failRequestsGreaterThanOne`) it does so on the node, after scheduling, and a ReplicaSet then makes failing
pods without end (kubernetes#70010). What a pod asks for is summed as Kubernetes does it: containers and
sidecars together, or the largest init container. Nought asks for none.

Way out: ask for 1. A pod that needs several GPUs belongs on a pool that hands them out whole.
"""

from collections.abc import Iterator

from webhook.facts import Facts
from webhook.gpus import asks
from webhook.model import Finding, shown
from webhook.placement import place
from webhook.pods import Pod
from webhook.policy import Policy


def check(pod: Pod, policy: Policy, facts: Facts) -> Iterator[Finding]:
    """Flag quantities that are not whole numbers from 1, and more than 1 in a shared pool."""
    for ask in asks(pod, policy):
        if not ask.whole:
            yield Finding(
                ask.path,
                f"{shown(ask.quantity)} is not a whole number of at least 1; ask for 1, or for 0 to have none",
            )
    placement = place(pod, policy, facts)
    if placement is None or placement.pool is None or not placement.pool.shared or placement.count <= 1:
        return
    each = ", ".join(f"{amount} of {resource}" for resource, amount in placement.totals.items())
    message = (
        f"{placement.count} slices in one pod ({each}); pool {placement.pool.name} shares its GPUs, and a second "
        "slice buys nothing: ask for 1 in all containers together"
    )
    large = [ask.path for ask in asks(pod, policy) if ask.counted > 1]
    for path in large or [pod.at("spec")]:
        yield Finding(path, message)
