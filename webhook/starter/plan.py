"""Decides the content of a policy, from the objects of a cluster."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import NamedTuple

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.api.metadata import labels_of, name_of, namespace_of
from webhook.api.pods import POD
from webhook.api.taints import Taint
from webhook.catalog import node_labels
from webhook.facts.kinds import priority_class
from webhook.facts.snapshot import Facts
from webhook.facts.templates import LABELLER
from webhook.model import Object
from webhook.policy.model import TRUSTED, UNTRUSTED
from webhook.starter import inventory
from webhook.starter.inventory import GPU, MIG, MPS, TIME_SLICING, WHOLE, GPUNode, NodeGroup

TRUST_LABEL, ANNOTATION = "slicewarden.dev/trust", "slicewarden.dev/trust"


@dataclass(frozen=True)
class StarterPlan:
    """The content of the new policy, before exemptions. It is based only on objects that no tenant can have written."""

    name: str
    groups: tuple[NodeGroup, ...]
    names: tuple[str, ...]
    guard: Taint | None
    everywhere: bool
    """Whether every node has GPUs, so that a taint on all of them would leave no node for anything else."""
    default: str
    labelled: bool
    homes: tuple[str, ...]
    systems: tuple[str, ...]
    config_maps: tuple[tuple[str, str], ...]
    labellers: tuple[str, ...]
    administrators: tuple[str, ...]
    evicting: tuple[str, ...] | None
    """The priority classes by which pods evict others, without those of every cluster. None where none is known."""


class Doubts(NamedTuple):
    """Findings that tenants may have faked, so the policy mentions them only in comments.

    `sharing` are the namespaces whose pods share cards today and that no label trusts, `homes` those that seem to have
    a device plugin, and `labellers` the accounts that seem to write labels of nodes.
    """

    sharing: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    labellers: tuple[str, ...] = ()


def doubts_of(objects: Sequence[Object], plan: StarterPlan) -> Doubts:
    """Return the findings that are not in the plan, because only objects that a tenant may have written show them."""
    shared = {each.node.name for group in plan.groups if group.shared for each in group.nodes}
    facts = Facts.of(objects)
    here = {holder.namespace for holder in facts.holders if holder.node in shared}
    return Doubts(
        sharing=tuple(sorted(name for name in here if facts.namespaces.get(name, {}).get(TRUST_LABEL) != TRUSTED)),
        homes=tuple(sorted({*inventory.homes(objects, facts.namespaces)} - {*plan.homes})),
        labellers=tuple(sorted({*_masters(objects), *_usual(objects, facts.namespaces)} - {*plan.labellers})),
    )


def plan_of(
    objects: Sequence[Object], nodes: Sequence[GPUNode], name: str, kept: Collection[str] = (), *, by_product: bool
) -> StarterPlan:
    """Plan a policy of this name from the firm objects of facts. With `by_product` each product gets a pool.

    In the namespaces `kept` no tenant may write. The names of all others prove nothing: tenants may have made them.
    """
    guard = _guard(nodes)
    groups = inventory.groups(nodes, guard.key if guard else "", by_product=by_product)
    homes = inventory.homes(objects, kept)
    namespaces = {name_of(o): o for o in objects if group_kind(o)[1] == "Namespace"}
    return StarterPlan(
        name=name,
        groups=tuple(groups),
        names=tuple(_names(groups)),
        guard=guard,
        everywhere={*Facts.of(objects).named} == {each.node.name for each in nodes if not each.maker} != set(),
        # A pod without the annotation shares a card if it may, because pods already share in this way before there is a
        # policy.
        default=TRUSTED if any(group.shared for group in groups) else UNTRUSTED,
        labelled=any(_label(item, TRUST_LABEL) == TRUSTED for item in namespaces.values()),
        homes=tuple(homes),
        systems=tuple(inventory.systems(objects)),
        config_maps=tuple(_config_maps(objects, homes)),
        labellers=tuple(_labellers(objects, kept, homes)),
        administrators=("system:masters", *(("system:cluster-admins",) if "openshift-config" in namespaces else ())),
        evicting=_evicting(Facts.of(objects)),
    )


def _evicting(facts: Facts) -> tuple[str, ...] | None:
    classes = facts.table(priority_class.TABLE)
    found = [name for name, each in classes.items() if each.preempts and each.value > 0]
    return tuple(sorted(name for name in found if not name.startswith("system-"))) if classes else None


def _guard(nodes: Iterable[GPUNode]) -> Taint | None:
    """Return the taint that all nodes with GPUs have, whatever its value; Slicewarden's own or NVIDIA's first."""
    every = [{taint.key: taint for taint in sorted(each.taints)} for each in nodes]
    common = set(every[0]).intersection(*every[1:])
    key = min(common, key=lambda key: (key != "slicewarden.dev/pool", key != GPU, key), default=None)
    return every[0][key] if key else None


def _names(groups: Sequence[NodeGroup]) -> Iterator[str]:
    """Name the groups by how they share, with the product where there are several.

    A name that is taken gets that of the autoscaler's group, or a number.
    """
    kinds = {TIME_SLICING: "shared", MPS: "mps", MIG: "mig", WHOLE: "whole"}
    shares = Counter(group.sharing for group in groups)
    seen: Counter[str] = Counter()
    taken: set[str] = set()
    for group in groups:
        name, products = kinds[group.sharing], group.products
        if shares[group.sharing] > 1 and len(products) == 1 and (short := node_labels.short(products[0])):
            name = f"{short}-{name}"
        seen[name] += 1
        numbers = (f"{name}-{number}" for number in count(max(2, seen[name])))
        own = next(each for each in chain([name], _named_by(group, name), numbers) if each not in taken)
        taken.add(own)
        yield own


def _named_by(group: NodeGroup, name: str) -> Iterator[str]:
    """Yield the name with the autoscaler's name for the group's nodes, if they have one that a pool can have."""
    for key in node_labels.SCALING:
        values = {each.node.labels.get(key, "") for each in group.nodes}
        if len(values) == 1 and re.fullmatch("[a-z0-9-]{1,30}", value := values.pop()):
            yield f"{name}-{value}".strip("-")


def _config_maps(objects: Iterable[Object], homes: Sequence[str]) -> list[tuple[str, str]]:
    """Return the ConfigMaps that the device plugin's installations name, where they are."""
    facts = Facts.of(objects)
    named = {
        (place, each.config_map)
        for each in facts.installations
        for place in ((each.namespace,) if each.namespace else homes)
    }
    return sorted(place for place in named if place in facts.config_maps)


def _labellers(objects: Sequence[Object], kept: Collection[str], homes: Sequence[str]) -> list[str]:
    """Return the accounts that write labels of nodes: the GPU Operator's, NFD's, Karpenter's, and OpenShift's.

    OpenShift's controllers copy the labels of a machine to its node (openshift/machine-api-operator pkg/controller/
    nodelink; the account is in install/0000_30_machine-api-operator_09_rbac.yaml). Their account counts where a
    MachineSet is in their own namespace. Karpenter's guide installs it in `kube-system`.
    """
    found = {*_masters(objects), *_usual(objects, kept)}
    if not found:
        found |= {_user(place, _NFD) for place in homes}
    if _KARPENTER not in kept and _has_karpenter(objects):
        found.add(_user("kube-system", _KARPENTER))
    if any(group_kind(item) == _MACHINE_SET and namespace_of(item) == _MACHINE_API for item in objects):
        found.add(_user(_MACHINE_API, "machine-api-controllers"))
    return sorted(found)


def _usual(objects: Sequence[Object], kept: Collection[str]) -> Iterator[str]:
    """Yield the accounts that label nodes if the namespaces `kept` have in them what their names say."""
    for place in inventory.operators(objects, kept):
        yield from (_user(place, "gpu-operator"), _user(place, _NFD))
    if _NFD in kept:
        yield _user(_NFD, _NFD)
    if _KARPENTER in kept and _has_karpenter(objects):
        yield _user(_KARPENTER, _KARPENTER)


_NFD, _KARPENTER = "node-feature-discovery", "karpenter"


def _has_karpenter(objects: Iterable[Object]) -> bool:
    return any(group_kind(item) == _NODE_POOL or _is_karpenters(item) for item in objects)


_NODE_POOL, _MACHINE_SET = ("karpenter.sh", "NodePool"), ("machine.openshift.io", "MachineSet")
_MACHINE_API = "openshift-machine-api"


def _is_karpenters(item: Object) -> bool:
    return group_kind(item) == ("", "Node") and bool(_label(item, node_labels.KARPENTER))


def _masters(objects: Iterable[Object]) -> Iterator[str]:
    """Yield the accounts of the pods that run NFD's program for labelling nodes."""
    for item in objects:
        spec = mapping(item.get("spec"))
        if group_kind(item) == POD and any(
            LABELLER in str(word) for each in mappings(spec.get("containers")) for word in sequence(each.get("command"))
        ):
            namespace = namespace_of(item)
            yield _user(namespace, string(spec.get("serviceAccountName")) or "default")


def _user(namespace: str, account: str) -> str:
    return f"system:serviceaccount:{namespace}:{account}"


def _label(item: Object, key: str) -> str:
    return labels_of(item).get(key, "")
