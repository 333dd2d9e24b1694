"""Computes with which GPU request a container was admitted, and how much memory of a card it may use."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from webhook.api.lenient import mapping, sequence, string
from webhook.api.pods import Container, Pod
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.gpu import requests
from webhook.gpu.pauses import Pause, pause
from webhook.gpu.review import PodReview, pods_of
from webhook.memory import on_node
from webhook.model import Malformed, Object, Request
from webhook.policy.model import ALONE, Policy, Pool


class Admitted(NamedTuple):
    """The request and the allowance that a container was admitted with.

    `requests` is whether it requests a GPU; None if that is unknown, as for a pod with a claim. `allowance` is the
    memory of a card that it may use, in MiB; None if there is no limit. `exempt` is the name of the policy's exemption
    for system components that covers it. `ending` is whether its pod is being deleted. `init` is whether it is an init
    container that runs to its end. `driver` is whether the driver must limit it to its allowance. `stated` is the limit
    in MiB that NVIDIA's hook sets by its variables; None if they state none. `pause` is how it may be frozen; None if
    it must not be. `alone` is whether the policy leaves its namespace alone.
    """

    requests: bool | None = None
    allowance: int | None = None
    exempt: str = ""
    ending: bool = False
    init: bool = False
    driver: bool = False
    pause: Pause | None = None
    stated: int | None = None
    alone: bool = False

    @property
    def limit(self) -> int | None:
        """The MiB to which the driver must limit the container; None if it must set no limit.

        A container without an allowance gets no limit, because the request with which it was admitted is unknown.
        """
        return self.allowance if self.driver and not self.exempt else None


UNKNOWN = Admitted()
"""An unknown container: the agent takes no action on it."""


def admitted(item: Object, policy: Policy, facts: Facts, node: Node) -> Mapping[str, Admitted]:
    """Return how each container of a pod was admitted on a node, by its name. Returns nothing for a malformed pod."""
    metadata = mapping(item.get("metadata"))
    namespace = string(metadata.get("namespace")) or "default"
    request = Request("", "CREATE", "", "v1", "Pod", "", namespace, "", None, False, item, None)
    try:
        (review,) = pods_of(request, item, policy, facts)
        pool, ending = policy.pool_of(node.labels), bool(metadata.get("deletionTimestamp"))
        found = {own.name: _admitted(review, own, pool, node, ending=ending) for own in review.subject.containers}
    except (Malformed, ValueError):
        return {}
    return found if len(found) == len(review.subject.containers) else {}  # each name is that of one container


def widest(every: Iterable[Admitted]) -> Admitted:
    """Return the widest driver limit of a pod's containers, for a container of the pod whose name is unknown.

    Returns UNKNOWN if the driver must limit none of them.
    """
    limited = [each for each in every if each.limit is not None]
    stated = max((each.stated for each in limited if each.stated is not None), default=None)
    most = max((each.limit or 0 for each in limited), default=None)
    return UNKNOWN if most is None else Admitted(allowance=most, driver=True, stated=stated)


def _admitted(review: PodReview, own: Container, pool: Pool | None, node: Node, *, ending: bool) -> Admitted:
    try:
        wants, exempt = _requests(review, own), _exempt(review.subject, review.policy, review.facts)
        most, stated = on_node.allowance(review, own, node), on_node.stated(own)
    except (Malformed, ValueError):
        return UNKNOWN
    limits = pool is not None and pool.driver_limits
    if most is not None and limits:
        most = min([most, *stated])
    bears = pause(review, own, pool) if pool is not None and wants and not exempt and not ending else ""
    return Admitted(
        wants,
        most,
        exempt,
        ending,
        own.list_name == "initContainers" and not own.sidecar,
        limits,
        bears if isinstance(bears, Pause) else None,
        min(stated, default=None),
        review.subject.namespace in (*ALONE, *review.policy.leave_alone),
    )


def _requests(review: PodReview, container: Container) -> bool | None:
    if container.path in review.gpu_containers:
        return True
    claims = sequence(review.subject.spec.get("resourceClaims")) or sequence(review.subject.spec.get("resources"))
    return None if claims or any(requests.marked(review.subject, review.policy)) else False


def _exempt(pod: Pod, policy: Policy, facts: Facts) -> str:
    labels = facts.namespaces.get(pod.namespace)
    for exemption in policy.exemptions:
        if exemption.until is None and exemption.scope.covers(pod.namespace, labels, pod.service_account):
            return exemption.name
    return ""
