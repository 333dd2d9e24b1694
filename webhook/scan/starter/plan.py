"""Decides what a policy says, from the objects of a cluster."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.api.pods import POD
from webhook.catalog import node_labels
from webhook.facts.snapshot import Facts
from webhook.model import Object
from webhook.scan import inventory
from webhook.scan.inventory import GPU, MIG, MPS, TIME_SLICING, WHOLE, GPUNode, Group, Taint
from webhook.scan.reduced import LABELLER

TRUST_LABEL, ANNOTATION = "slicewarden.dev/trust", "slicewarden.dev/trust"


@dataclass(frozen=True)
class Plan:
    """The content of the policy, before exemptions."""

    name: str
    groups: tuple[Group, ...]
    names: tuple[str, ...]
    guard: Taint | None
    default: str
    trusted: tuple[str, ...]
    labelled: bool
    homes: tuple[str, ...]
    config_maps: tuple[tuple[str, str], ...]
    labellers: tuple[str, ...]
    administrators: tuple[str, ...]


def plan_of(objects: Sequence[Object], nodes: Sequence[GPUNode], name: str, *, by_product: bool) -> Plan:
    """Plan a policy of this name from the objects of facts, with a pool for each product if `by_product`."""
    guard = _guard(nodes)
    groups = inventory.groups(nodes, guard.key if guard else "", by_product=by_product)
    homes = inventory.homes(objects)
    default, trusted = _trust(objects, groups)
    namespaces = {string(mapping(o.get("metadata")).get("name")): o for o in objects if group_kind(o)[1] == "Namespace"}
    return Plan(
        name=name,
        groups=tuple(groups),
        names=tuple(_names(groups)),
        guard=guard,
        default=default,
        trusted=tuple(trusted),
        labelled=any(_label(item, TRUST_LABEL) == "trusted" for item in namespaces.values()),
        homes=tuple(homes),
        config_maps=tuple(_config_maps(objects, homes)),
        labellers=tuple(_labellers(objects, namespaces, homes)),
        administrators=("system:masters", *(("system:cluster-admins",) if "openshift-config" in namespaces else ())),
    )


def _guard(nodes: Iterable[GPUNode]) -> Taint | None:
    """Return the taint that all nodes with GPUs have, whatever its value; Slicewarden's own or NVIDIA's first."""
    every = [{taint.key: taint for taint in sorted(each.taints, key=str)} for each in nodes]
    common = set(every[0]).intersection(*every[1:])
    key = min(common, key=lambda key: (key != "slicewarden.dev/pool", key != GPU, key), default=None)
    return every[0][key] if key else None


def _names(groups: Sequence[Group]) -> Iterator[str]:
    """Name the groups by how they share, with the product where there are several, and a number where it takes one."""
    kinds = {TIME_SLICING: "shared", MPS: "mps", MIG: "mig", WHOLE: "whole"}
    shares = Counter(group.sharing for group in groups)
    seen: Counter[str] = Counter()
    for group in groups:
        name, products = kinds[group.sharing], group.products
        if shares[group.sharing] > 1 and len(products) == 1 and (short := node_labels.short(products[0])):
            name = f"{short}-{name}"
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}-{seen[name]}"


def _trust(objects: Sequence[Object], groups: Iterable[Group]) -> tuple[str, list[str]]:
    """Return what a pod without the annotation asks for, and the namespaces whose pods share cards today."""
    shared = {each.node.name for group in groups if group.shared for each in group.nodes}
    here = [holder for holder in Facts.of(objects).holders if holder.node in shared]
    marked = [_metadata(item) for item in objects if group_kind(item) == POD]
    marked = [metadata for metadata in marked if ANNOTATION in mapping(metadata.get("annotations"))]
    asking = {(metadata.get("namespace"), metadata.get("name")) for metadata in marked}
    silent = [holder for holder in here if (holder.namespace, holder.name) not in asking]
    return "trusted" if silent else "untrusted", sorted({holder.namespace for holder in here})


def _config_maps(objects: Iterable[Object], homes: Sequence[str]) -> list[tuple[str, str]]:
    """Return the ConfigMaps that the device plugin's installations name, where they are."""
    facts = Facts.of(objects)
    named = {
        (place, each.config_map)
        for each in facts.installations
        for place in ((each.namespace,) if each.namespace else homes)
    }
    return sorted(place for place in named if place in facts.config_maps)


def _labellers(objects: Iterable[Object], namespaces: Mapping[str, Object], homes: Sequence[str]) -> list[str]:
    """Return the accounts that write labels of nodes: the GPU Operator's, NFD's, and Karpenter's."""
    found = set[str]()
    for item in objects:
        metadata, spec = mapping(item.get("metadata")), mapping(item.get("spec"))
        namespace = string(metadata.get("namespace")) or "default"
        if group_kind(item) == POD and any(
            LABELLER in str(word) for each in mappings(spec.get("containers")) for word in sequence(each.get("command"))
        ):
            found.add(_user(namespace, string(spec.get("serviceAccountName")) or "default"))
        if inventory.is_operand(item):
            found |= {_user(namespace, "gpu-operator"), _user(namespace, "node-feature-discovery")}
        if group_kind(item) == ("", "Node") and _label(item, "karpenter.sh/nodepool"):
            found.add(_user("karpenter" if "karpenter" in namespaces else "kube-system", "karpenter"))
    if not found and "node-feature-discovery" in namespaces:
        found.add(_user("node-feature-discovery", "node-feature-discovery"))
    if not found:
        found |= {_user(place, "node-feature-discovery") for place in homes}
    return sorted(found)


def _user(namespace: str, account: str) -> str:
    return f"system:serviceaccount:{namespace}:{account}"


def _label(item: Object, key: str) -> str:
    return string(mapping(_metadata(item).get("labels")).get(key))


def _metadata(item: Object) -> Mapping[str, Any]:
    return mapping(item.get("metadata"))
