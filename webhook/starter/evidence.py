"""Selects the objects that a policy may be based on: those that no tenant can have written.

A tenant is whoever has Kubernetes' role `edit` in a namespace (kubernetes
plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go). Tenants write DaemonSets, pods, accounts and ConfigMaps
there, with any names; a DaemonSet need not start a pod. They write no object of the whole cluster: no nodes, no
ClusterPolicy, and no namespaces or their labels.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from webhook.api.metadata import namespace_of
from webhook.facts.kinds import in_namespace
from webhook.model import Object
from webhook.starter import inventory


class Sources(NamedTuple):
    """The objects of a cluster: the `firm` ones, which no tenant can have written, and the `doubtful` others."""

    firm: list[Object]
    doubtful: list[Object]


def sources(objects: Iterable[Object], no_tenants: Iterable[str] = ()) -> Sources:
    """Divide the objects. Cluster-scoped objects, and objects in namespaces without tenants, are firm."""
    objects = list(objects)
    kept = {*no_tenants, *administered(objects)}
    parts = Sources([], [])
    for item in objects:
        namespace = namespace_of(item)
        (parts.firm if not in_namespace(item) or namespace in kept else parts.doubtful).append(item)
    return parts


def administered(objects: Sequence[Object]) -> Iterator[str]:
    """Yield the namespaces in which only administrators write.

    They are kube-system, the GPU Operator's, and those of the platform and of the network plugin that nodes name. No
    label of a namespace shows that tenants cannot write there. `enforce: privileged` of Pod Security does not, because
    pods of a tenant may need privileges too.
    """
    yield "kube-system"
    yield from inventory.operators(objects)
    yield from inventory.systems(objects, inventory.networks(objects))
