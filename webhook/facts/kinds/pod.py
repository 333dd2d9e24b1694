"""Reads running pods to which NVIDIA's resources are allocated.

A file in Git also has pods that could reach a GPU in another way, reduced to the parts that rules judge, because
exemptions are written from them.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import ceil
from sys import intern
from typing import Any, NamedTuple

from webhook.api import requests
from webhook.api.lenient import mapping, mappings, string
from webhook.api.pods import MIRROR
from webhook.api.resources import Resource
from webhook.catalog.gpu_requests import OTHER_RESOURCES
from webhook.catalog.names import Names
from webhook.facts import templates
from webhook.facts.kind import Fact, Part, Reach, Table
from webhook.facts.parts import VENDOR
from webhook.model import Object
from webhook.policy.model import Policy


class Holder(NamedTuple):
    """A pod on a node to which some of NVIDIA's resources are allocated; `asks` has the amounts."""

    namespace: str
    name: str
    node: str
    asks: Mapping[str, int]


RUNNING = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
"""The field selector of the pods that can be allocated anything."""

RESOURCES = (Resource("", "v1", "pods", "Pod", fields=RUNNING, namespaced=True),)
TABLE = Table[tuple[str, str], Holder]("holders")
FIELDS = (
    *("spec.nodeName", "spec.overhead", "spec.resources", "status.phase"),
    *("spec.containers[].resources", "spec.initContainers[].resources", "spec.initContainers[].restartPolicy"),
)
REACH = Reach.EVERYWHERE
ORDER = 5

MAX_NAMES = 32
"""The most resources of a pod that are kept. A node has fewer names for its GPUs."""

_OTHERS = Names(OTHER_RESOURCES)


def read(item: Object, namespace: str, name: str) -> Fact:
    """Read the resources allocated to a pod; None if there are none."""
    return TABLE.row((namespace, name), _holder(namespace, name, item))


def kept(item: Object) -> Part | None:
    """Keep the node and the amounts; nothing of a pod that is allocated nothing."""
    holder = _holder("", "", item)
    return None if holder is None else {"spec": _held(holder.node, tuple(holder.asks.items()))}


def slim(item: Object, policy: Policy) -> Part | None:
    """Keep a running pod if it has a GPU or could reach one in another way. Skip mirror pods without a GPU."""
    metadata, spec = mapping(item.get("metadata")), mapping(item.get("spec"))
    if mapping(item.get("status")).get("phase") in ("Succeeded", "Failed") or not string(spec.get("nodeName")):
        return None
    pod = templates.slim(metadata, spec, policy, plugin=False)
    if kept(item) is None and (
        MIRROR in mapping(metadata.get("annotations")) or _made_by_daemon_set(metadata) or not _opens(pod)
    ):
        return None
    pod["spec"]["nodeName"] = spec["nodeName"]
    return pod


def _made_by_daemon_set(metadata: Mapping[str, Any]) -> bool:
    """Whether a DaemonSet created a pod: then its template represents all of its pods."""
    return any(owner.get("kind") == "DaemonSet" for owner in mappings(metadata.get("ownerReferences")))


_WAYS = frozenset(("hostPID", "hostIPC", "runtimeClassName", "resourceClaims", "volumes", "securityContext"))
_OPENED = frozenset(("securityContext", "env", "volumeMounts", "command"))


def _opens(pod: Object) -> bool:
    """Whether a reduced pod has anything that a rule might refuse."""
    spec = pod["spec"]
    return (
        bool(_WAYS & spec.keys() or pod.get("metadata"))
        or any(not toleration.get("key") for toleration in spec.get("tolerations", ()))
        or any(_OPENED & container.keys() for container in _containers(spec))
    )


def _containers(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*mappings(spec.get("initContainers")), *mappings(spec.get("containers"))]


# The resources that a pod holds


def _holder(namespace: str, name: str, item: Object) -> Holder | None:
    spec = mapping(item.get("spec"))
    node = intern(string(spec.get("nodeName")))  # a hundred pods of a node have the same name
    asks = _asks(spec) if node and mapping(item.get("status")).get("phase") not in ("Succeeded", "Failed") else {}
    return Holder(namespace, name, node, _shared(tuple(asks.items()))) if asks else None


@lru_cache(maxsize=1024)  # a hundred thousand pods ask for a handful of amounts
def _shared(amounts: tuple[tuple[str, int], ...]) -> Mapping[str, int]:
    return dict(amounts)


@lru_cache(maxsize=65_536)  # pods of one node that ask for the same share it
def _held(node: str, asks: tuple[tuple[str, int], ...]) -> Object:
    return {"nodeName": node, "containers": [{"resources": {"requests": dict(asks)}}]}


def _asks(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the amounts that a pod is allocated, without those of zero. Of many names, those of GPUs are kept.

    A kubelet forgets names that its node lacks, so anybody may run a pod with thousands of them. A name that is usually
    no GPU may be one of a pool.
    """
    found = [(name, ceil(amount)) for name, amount in requests.of_spec(spec, VENDOR).items() if amount > 0]
    if len(found) > MAX_NAMES:
        found.sort(key=lambda each: each[0] in _OTHERS)
    return dict(found[:MAX_NAMES])
