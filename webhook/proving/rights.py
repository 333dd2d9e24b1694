"""The rights that `slicewarden prove --run` needs, as Roles."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from webhook.cluster import listing, registered, watch
from webhook.engine.registration import NAME
from webhook.facts.kinds.pod import RESOURCES
from webhook.model import Object
from webhook.policy.model import Policy
from webhook.proving.runner import CONFIG_MAPS, PODS
from webhook.proving.ways import ChangeCall

ROLE = "slicewarden-prove"
"""The name of the roles."""


class ProbeRight(NamedTuple):
    """The verbs that a run needs on a resource, in a namespace. An empty namespace is the whole cluster."""

    resource: str
    verbs: tuple[str, ...]
    namespace: str = ""
    group: str = ""
    names: tuple[str, ...] = ()


_OF_A_RUN = {
    CONFIG_MAPS: ("create", "delete", "list", "patch"),
    PODS: ("create", "delete", "get", "list", "patch"),
    ChangeCall.BIND: ("create",),
    ChangeCall.DEBUG: ("patch",),
}
"""The verbs that a run needs in the namespace of its pods, by resource."""


def rights(policy: Policy, namespace: str) -> Iterator[ProbeRight]:
    """Yield the rights that a run in a namespace needs, with those to read the facts that the policy needs."""
    for resource, verbs in _OF_A_RUN.items():
        yield ProbeRight(str(resource), verbs, namespace)
    for group, plural in sorted({(of.group, of.plural) for of in (*listing.resources(policy), *RESOURCES)}):
        yield ProbeRight(plural, ("list",), "", group)
    group = registered.ROOT.split("/")[2]
    for plural in registered.PLURALS:
        yield ProbeRight(plural, ("get",), "", group, (NAME,))
    for each in watch.inside(watch.namespaces(policy)):
        yield ProbeRight(each.plural, ("list",), each.namespace, each.group)


def _place(right: ProbeRight) -> str:
    return right.namespace


def roles(needed: Iterable[ProbeRight]) -> Iterator[Object]:
    """Yield the Role of each namespace, and a ClusterRole."""
    for namespace, found in groupby(sorted(needed, key=_place), _place):
        where = {"namespace": namespace} if namespace else {}
        yield {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role" if namespace else "ClusterRole",
            "metadata": {"name": ROLE, **where},
            "rules": [
                {
                    "apiGroups": [each.group],
                    "resources": [each.resource],
                    **({"resourceNames": [*each.names]} if each.names else {}),
                    "verbs": [*each.verbs],
                }
                for each in found
            ],
        }
