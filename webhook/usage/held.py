"""Finds out from the pods of a node which containers have slices of its cards."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from webhook.api.lenient import mapping, mappings, string
from webhook.facts.snapshot import Facts
from webhook.gpu import requests
from webhook.gpu.review import PodReview, pods_of
from webhook.model import Malformed, Object, Request
from webhook.policy.model import Policy

ENDED = frozenset(("Succeeded", "Failed"))
"""Phases of a pod that holds nothing any more (kubernetes pkg/kubelet/cm/devicemanager, GetActivePods)."""

_OWNER = re.compile(r"[A-Za-z0-9]{1,63}/[a-z0-9.-]{1,253}")
"""An owner's kind and name, where a tenant may write any text."""

UNNAMED = "(unnamed)"
"""Stands for a workload whose kind or name cannot be one."""


class HeldSlices(NamedTuple):
    """The number of slices that a container has, with its names.

    `workload` is the owner of its pod, such as `Job/train`.

    `ended` is whether it has ended. The kubelet keeps its slices until its pod ends.
    """

    uid: str
    namespace: str
    workload: str
    pod: str
    container: str
    slices: int
    ended: bool = False


class PodSlices(NamedTuple):
    """The slices that a pod has. If `complete` is false, it may have others, for example by a claim."""

    held: tuple[HeldSlices, ...] = ()
    complete: bool = True


class NodeSlices(NamedTuple):
    """How a node's cards are shared: slices of each card, the pool, the model, and the containers that have slices.

    `complete` is whether `held` has all containers that may have a slice. Zero `slices` means that no card can be
    counted.
    """

    slices: int = 0
    pool: str = ""
    product: str = ""
    held: tuple[HeldSlices, ...] = ()
    complete: bool = False


def held_by(item: Object, policy: Policy, facts: Facts) -> PodSlices:
    """Return the slices that a pod of a node holds: from its binding until it ends, also while its containers wait.

    The slices of init containers are those of the others (kubernetes pkg/kubelet/cm/devicemanager/manager.go,
    Allocate): only what they have beyond them counts.
    """
    metadata = mapping(item.get("metadata"))
    if string(mapping(item.get("status")).get("phase")) in ENDED:
        return PodSlices()
    namespace = string(metadata.get("namespace")) or "default"
    request = Request("", "CREATE", "", "v1", "Pod", "", namespace, "", None, False, item, None)
    try:
        (review,) = pods_of(request, item, policy, facts)
        counts = [(name, count, init) for name, count, init in _counts(review)]
        complete = not mappings(review.subject.spec.get("resourceClaims")) and not any(
            requests.marked(review.subject, policy)
        )
    except (Malformed, ValueError):
        return PodSlices(complete=False)
    running = sum(count for _, count, init in counts if not init)
    first = max(((count, name) for name, count, init in counts if init), default=(0, ""))
    rows = [(name, count) for name, count, init in counts if not init]
    if first[0] > running:
        rows.append((first[1], first[0] - running))
    names = string(metadata.get("uid")), namespace, workload(metadata), string(metadata.get("name"))
    ended = _ended(mapping(item.get("status")))
    return PodSlices(tuple(HeldSlices(*names, name, count, name in ended) for name, count in rows), complete)


def _ended(status: Object) -> frozenset[str]:
    """Return the names of a pod's containers that have ended and do not wait for a restart."""
    known = (*mappings(status.get("containerStatuses")), *mappings(status.get("initContainerStatuses")))
    return frozenset(string(each.get("name")) for each in known if "terminated" in mapping(each.get("state")))


def _counts(review: PodReview) -> Iterable[tuple[str, int, bool]]:
    """Yield each container that requests slices, with their number, and whether it is an init container that ends."""
    for container in review.subject.containers:
        own = [each for each in review.requests if each.container.path == container.path]
        count = requests.slices(own)
        if count:
            yield container.name, count, container.list_name == "initContainers" and not container.sidecar


def workload(metadata: Object) -> str:
    """Return the kind and name of a pod's controller; empty without one. For a ReplicaSet it is the Deployment.

    A Deployment's ReplicaSets have its name and the hash in the pod's label (kubernetes pkg/controller/deployment).
    """
    for owner in mappings(metadata.get("ownerReferences")):
        if owner.get("controller") is True:
            kind, name = string(owner.get("kind")), string(owner.get("name"))
            if not _OWNER.fullmatch(f"{kind}/{name}"):
                return UNNAMED
            hashed = string(mapping(metadata.get("labels")).get("pod-template-hash"))
            if kind == "ReplicaSet" and hashed and name.endswith(f"-{hashed}"):
                return f"Deployment/{name.removesuffix(f'-{hashed}')}"
            return f"{kind}/{name}"
    return ""
