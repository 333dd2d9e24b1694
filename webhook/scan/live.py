"""Objects of a live cluster: the choice of those to judge, and the requests that would create them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from webhook.api import admission
from webhook.api.devices import DEVICES
from webhook.api.fields import MAX_NAME, group_kind
from webhook.api.lenient import mapping, mappings, string
from webhook.api.objects import CLUSTER_POLICY, CONFIG_MAP, LABELLED
from webhook.api.pods import KUBELETS, MIRROR, POD
from webhook.catalog.device_annotations import PLACEMENT_ANNOTATIONS, PLACEMENT_LABELS
from webhook.catalog.names import Names
from webhook.catalog.places import Workloads
from webhook.engine.registration import left_alone
from webhook.facts.snapshot import Facts
from webhook.model import Object, Problem, Request, Requester
from webhook.policy.model import ALONE, Policy
from webhook.text.words import shown

NAMESPACE, NODE = LABELLED


# The objects to judge


def ended(item: Object) -> bool:
    """Whether a pod or a job has ended."""
    kind, status = group_kind(item), item.get("status") or {}
    if kind == POD:
        return status.get("phase") in ("Succeeded", "Failed")
    conditions = (
        condition.get("type") for condition in status.get("conditions") or () if condition.get("status") == "True"
    )
    return kind == ("batch", "Job") and bool({"Complete", "Failed"} & {*conditions})


def made(item: Object, workloads: Workloads) -> bool:
    """Whether a workload that is judged itself has created the object.

    False for a claim: no workload shows the contents of a claim, and the claim's author may name any owner.
    """
    owner = controller(item) if group_kind(item) not in DEVICES else {}
    return group_kind({"apiVersion": owner.get("apiVersion"), "kind": owner.get("kind")}) in workloads


def controller(item: Object) -> Mapping[str, Any]:
    """Return the object's reference to its controller, or an empty map.

    An API server checks none of its texts. One that is longer than a name refers to no object, and an audit would keep
    it.
    """
    owners = mappings(mapping(item.get("metadata")).get("ownerReferences"))
    found = next((owner for owner in owners if owner.get("controller")), {})
    return {} if any(len(text) > MAX_NAME for text in found.values() if isinstance(text, str)) else found


def owner(pod: Object) -> tuple[str, str]:
    """Return the kind and the name of the workload that created a pod; empty strings if none did.

    For the pod of a ReplicaSet it is the Deployment, if the pod's label shows that there is one (kubernetes
    pkg/controller/deployment/sync.go).
    """
    made_by = controller(pod)
    kind, name = string(made_by.get("kind")), string(made_by.get("name"))
    template = string(mapping(mapping(pod.get("metadata")).get("labels")).get("pod-template-hash"))
    if kind == "ReplicaSet" and template and name.endswith(f"-{template}"):
        return "Deployment", name.removesuffix(f"-{template}")
    return kind, name


def passed_over(item: Object, policy: Policy) -> bool:
    """Whether the webhook never sees an object because its namespace is excluded."""
    if (
        group_kind(item) == CONFIG_MAP
        and (namespace_of(item), mapping(item.get("metadata")).get("name")) in policy.config_maps
    ):
        return False
    always = group_kind(item) in (NAMESPACE, CONFIG_MAP, *DEVICES)
    return namespace_of(item) in (ALONE if always else left_alone(policy))


def namespace_of(item: Object) -> str:
    """Return the namespace of an object, or its own name if it is one; empty if it names none."""
    metadata = mapping(item.get("metadata"))
    return string(metadata.get("name" if group_kind(item) == NAMESPACE else "namespace"))


def is_live(item: Object) -> bool:
    """Whether an object comes from an API server: it has a uid, or a status that says it was scheduled.

    Dumps that were cleaned have no uid. People do not write such a status into a manifest.
    """
    phase = mapping(item.get("status")).get("phase")
    return bool(mapping(item.get("metadata")).get("uid") or (phase and _scheduled(item)))


def among_facts(objects: Iterable[Object], namespace: str | None) -> Iterator[Object]:
    """Yield the objects of the facts that are judged; with a `namespace`, only that Namespace.

    Pods and sharing ConfigMaps are left out, because facts keep only parts of them and they are judged whole.
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


def request(item: Object, policy: Policy, facts: Facts, *, assume: bool = False) -> Request:
    """Make the request that would have created an object. Its sender is unknown by now.

    `assume` is passed to `as_created`. Raises NotAReview for values that JSON cannot represent.
    """
    created, old, requester = item, None, None
    if group_kind(item) == POD:
        created, old, requester = as_created(item, policy, facts, assume=assume)
    return replace(admission.decode(admission.wrap(bare(created))), old_object=old, requester=requester)


def bare(item: Object) -> Object:
    """Return an object without `status` and `managedFields`, which its author does not write."""
    metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    return {**{key: value for key, value in item.items() if key != "status"}, "metadata": metadata}


def assumed(item: Object) -> bool:
    """Whether it is unproven that a scheduler chose a pod's node, because `kubectl get` hides `managedFields`.

    The condition PodScheduled is no proof: a kubelet also sets it on a pod whose author chose the node.
    """
    return _scheduled(item) and not any(_authors(mapping(item.get("metadata"))))


def _scheduled(item: Object) -> bool:
    """Whether the status of a pod says that it has a node."""
    conditions = mappings(mapping(item.get("status")).get("conditions"))
    return group_kind(item) == POD and any(
        (each.get("type"), each.get("status")) == ("PodScheduled", "True") for each in conditions
    )


def as_created(
    item: Object, policy: Policy, facts: Facts, *, assume: bool = False
) -> tuple[Object, Object | None, Requester | None]:
    """Return a running pod as its author created it, with the old object and the requester that rules need.

    A scheduler chose the node, and schedulers write their own annotations and labels. `managedFields` shows which parts
    are the author's. Without it every part counts as the author's, unless the scheduler's part is `assumed` and
    `assume` is set. A pod on a node without GPUs counts as one without a node. A pod on a node with GPUs counts as an
    update, since it is there already.
    """
    metadata, spec = mapping(item.get("metadata")), mapping(item.get("spec"))
    annotations, name = mapping(metadata.get("annotations")), spec.get("nodeName")
    if not name or not isinstance(name, str):
        return item, None, None
    if MIRROR in annotations and _owned_by_node(metadata, name):
        return item, None, Requester(f"system:node:{name}", frozenset((KUBELETS,)))
    authors = [*_authors(metadata)]
    known = bool(authors) or (assume and assumed(item))
    if known:
        item = {**item, "metadata": {**metadata, **dict(_kept(metadata, authors))}}
    if not known or any("f:nodeName" in mapping(author.get("f:spec")) for author in authors):
        return item, None, None
    node = facts.named.get(name)
    if node is None or not (node.has_gpus or policy.pool_of(node.labels)):
        return {**item, "spec": {key: value for key, value in spec.items() if key != "nodeName"}}, None, None
    trust = {key: annotations[key] for key in (policy.annotation,) if key in annotations}
    return item, {"metadata": {"annotations": trust}, "spec": {"nodeName": name}}, None


def _owned_by_node(metadata: Mapping[str, Any], name: str) -> bool:
    """Whether the pod names the node as its owner, as kubelets write it in mirror pods."""
    owners = mappings(metadata.get("ownerReferences"))
    return any((owner.get("kind"), owner.get("name")) == ("Node", name) for owner in owners)


def _authors(metadata: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the fields of the managers that wrote the pod's containers (apimachinery meta/v1 ManagedFieldsEntry)."""
    for entry in mappings(metadata.get("managedFields")):
        fields = mapping(entry.get("fieldsV1"))
        if "f:containers" in mapping(fields.get("f:spec")) and not entry.get("subresource"):
            yield fields


_PLACEMENTS: Mapping[str, Names] = {"annotations": PLACEMENT_ANNOTATIONS, "labels": PLACEMENT_LABELS}


def _kept(metadata: Mapping[str, Any], authors: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Object]]:
    """Yield a pod's annotations and labels without those of schedulers, if there are any of these."""
    for part, placements in _PLACEMENTS.items():
        there = mapping(metadata.get(part))
        if any(key in placements for key in there):
            yield part, {k: v for k, v in there.items() if k not in placements or _wrote(authors, part, k)}


def _wrote(authors: Iterable[Mapping[str, Any]], part: str, key: str) -> bool:
    return any(f"f:{key}" in mapping(mapping(author.get("f:metadata")).get(f"f:{part}")) for author in authors)
