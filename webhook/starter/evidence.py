"""Selects the objects that a policy may be based on: those that no tenant can have written.

A tenant is whoever has Kubernetes' role `edit` in a namespace (kubernetes
plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go). Tenants write DaemonSets, pods, accounts and ConfigMaps
there, with any names; a DaemonSet need not start a pod. They write no object of the whole cluster: no nodes, no
ClusterPolicy, and no namespaces or their labels.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from webhook.api.metadata import namespace_of
from webhook.facts.kinds import in_namespace
from webhook.facts.snapshot import Facts
from webhook.model import Object
from webhook.starter import inventory

LEVEL = "pod-security.kubernetes.io/enforce"
"""The label with which administrators say how much pods of a namespace may do (k8s.io/pod-security-admission api)."""


class Sources(NamedTuple):
    """The objects of a cluster: those that no tenant can have written, and all others."""

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


def administered(objects: Iterable[Object]) -> Iterator[str]:
    """Yield the namespaces in which only administrators write.

    They are kube-system, the GPU Operator's, and those whose pods may do anything: such a pod can have its whole node.
    """
    objects = list(objects)
    yield "kube-system"
    yield from inventory.operators(objects)
    for name, labels in Facts.of(objects).namespaces.items():
        if labels.get(LEVEL) == "privileged":
            yield name
