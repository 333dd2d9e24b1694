"""Objects of a live cluster: the choice of those to judge, and the requests that would create them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from webhook.api import admission
from webhook.api.fields import group_kind
from webhook.api.objects import CLUSTER_POLICY, CONFIG_MAP, DEVICES, LABELLED, POD, judges
from webhook.api.pods import KUBELETS, MIRROR
from webhook.catalog.doors import PLACEMENT_ANNOTATIONS, PLACEMENT_LABELS, Names
from webhook.catalog.workloads import Workloads
from webhook.documents.files import Item
from webhook.engine.engine import Engine
from webhook.engine.registration import ALONE, left_alone
from webhook.facts.snapshot import Facts
from webhook.model import Object, Problem, Request, Requester
from webhook.policy.model import Policy
from webhook.scan import judge as check
from webhook.scan.results import Judged
from webhook.text.words import shown

NAMESPACE, NODE = LABELLED


# The objects to judge


def ended(item: Object) -> bool:
    """Tell whether a pod or a job has ended."""
    kind, status = group_kind(item), item.get("status") or {}
    if kind == POD:
        return status.get("phase") in ("Succeeded", "Failed")
    conditions = (
        condition.get("type") for condition in status.get("conditions") or () if condition.get("status") == "True"
    )
    return kind == ("batch", "Job") and bool({"Complete", "Failed"} & {*conditions})


def made(item: Object, workloads: Workloads) -> bool:
    """Tell whether a workload that is judged itself creates the object."""
    owner = controller(item)
    return group_kind({"apiVersion": owner.get("apiVersion"), "kind": owner.get("kind")}) in workloads


def controller(item: Object) -> Mapping[str, Any]:
    """Return the object's reference to its controller; empty if there is none."""
    owners = item["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def passed_over(item: Object, policy: Policy) -> bool:
    """Tell whether the webhook never sees an object because its namespace is excluded."""
    metadata, kind = item["metadata"], group_kind(item)
    if kind == NAMESPACE:
        return metadata["name"] in ALONE
    namespace = metadata.get("namespace") or ""
    return namespace in (ALONE if kind in DEVICES or kind == CONFIG_MAP else left_alone(policy))


def among_facts(objects: Iterable[Object], namespace: str | None) -> Iterator[Object]:
    """Yield the objects of the facts that are judged; with a `namespace`, only that Namespace.

    Pods and sharing ConfigMaps are left out: they are judged whole, and facts keep only parts of them.
    """
    for item in objects:
        kind, name = group_kind(item), item["metadata"]["name"]
        if (kind, name) == (NAMESPACE, namespace) if namespace else kind in (*LABELLED, CLUSTER_POLICY):
            yield item


def misnamed(namespace: str | None, facts: Facts) -> Iterator[Problem]:
    """Yield a problem if the cluster has no such namespace; nothing if namespaces could not be read."""
    if namespace and facts.namespaces and namespace not in facts.namespaces:
        yield Problem("cluster", 0, f"there is no namespace {shown(namespace)}")


# Requests


def judge(item: Item, engine: Engine, facts: Facts) -> Judged | Problem | None:
    """Judge an object as if it were created again, as its next version will be.

    Returns None for an object that the webhook never sees. Raises Broke.
    """
    value, policy = item.value, engine.policy
    if not judges(*group_kind(value), policy.workloads) or passed_over(value, policy):
        return None
    try:
        recreated = request(value, policy, facts)
    except admission.NotAReview as error:
        return Problem(item.source, 0, str(error))
    return check.answer(recreated, item, engine, facts)


def request(item: Object, policy: Policy, facts: Facts) -> Request:
    """Make the request that would have created an object. Its sender is unknown by now.

    Raises NotAReview for values that JSON cannot hold.
    """
    created, old, requester = item, None, None
    if group_kind(item) == POD:
        created, old, requester = as_created(item, policy, facts)
    return replace(admission.decode(admission.wrap(bare(created))), old_object=old, requester=requester)


def bare(item: Object) -> Object:
    """Return an object without `status` and `managedFields`, which its author does not write."""
    metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    return {**{key: value for key, value in item.items() if key != "status"}, "metadata": metadata}


def as_created(item: Object, policy: Policy, facts: Facts) -> tuple[Object, Object | None, Requester | None]:
    """Return a running pod as its author created it, with the old object and the requester that rules need.

    A scheduler chose the node, and schedulers write annotations and labels of their own. `managedFields` shows which
    parts are the author's; without it all are. A pod on a node without GPUs counts as one without a node. A pod on a
    node with GPUs counts as an update, since it is there already.
    """
    metadata, spec = _map(item.get("metadata")), _map(item.get("spec"))
    annotations, name = _map(metadata.get("annotations")), spec.get("nodeName")
    if not name or not isinstance(name, str):
        return item, None, None
    if MIRROR in annotations and _owned_by_node(metadata, name):
        return item, None, Requester(f"system:node:{name}", frozenset((KUBELETS,)))
    authors = [*_authors(metadata)]
    if authors:
        item = {**item, "metadata": {**metadata, **dict(_kept(metadata, authors))}}
    if not authors or any("f:nodeName" in _map(author.get("f:spec")) for author in authors):
        return item, None, None
    node = facts.named.get(name)
    if node is None or not (node.has_gpus or policy.pool_of(node.labels)):
        return {**item, "spec": {key: value for key, value in spec.items() if key != "nodeName"}}, None, None
    trust = {key: annotations[key] for key in (policy.annotation,) if key in annotations}
    return item, {"metadata": {"annotations": trust}, "spec": {"nodeName": name}}, None


def _owned_by_node(metadata: Mapping[str, Any], name: str) -> bool:
    """Tell whether the pod names the node as its owner, as kubelets write it in mirror pods."""
    owners = metadata.get("ownerReferences") or ()
    return any((owner.get("kind"), owner.get("name")) == ("Node", name) for owner in owners)


def _authors(metadata: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the fields of the managers that wrote the pod's containers (apimachinery meta/v1 ManagedFieldsEntry)."""
    for entry in metadata.get("managedFields") or ():
        fields = _map(_map(entry).get("fieldsV1"))
        if "f:containers" in _map(fields.get("f:spec")) and not entry.get("subresource"):
            yield fields


_PLACEMENTS: Mapping[str, Names] = {"annotations": PLACEMENT_ANNOTATIONS, "labels": PLACEMENT_LABELS}


def _kept(metadata: Mapping[str, Any], authors: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Object]]:
    """Yield a pod's annotations and labels without those of schedulers, if there are any of these."""
    for part, placements in _PLACEMENTS.items():
        there = _map(metadata.get(part))
        if any(key in placements for key in there):
            yield part, {k: v for k, v in there.items() if k not in placements or _wrote(authors, part, k)}


def _wrote(authors: Iterable[Mapping[str, Any]], part: str, key: str) -> bool:
    return any(f"f:{key}" in _map(_map(author.get("f:metadata")).get(f"f:{part}")) for author in authors)


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
