"""Finds out which installations and nodes use a sharing configuration, and its effect on the nodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from webhook.api.selectors import integer
from webhook.deviceplugin.config import Plugin
from webhook.deviceplugin.sections import ReplicatedResource, Section
from webhook.facts.installations import PluginInstallation
from webhook.facts.kinds.node import CONFIG_LABEL, Node
from webhook.facts.kinds.pod import Holder
from webhook.facts.snapshot import Facts
from webhook.policy.model import Policy, Pool
from webhook.text.words import listed, several, shown

OPERATORS_DAEMON_SET = "nvidia-device-plugin-daemonset"
"""The name of the GPU Operator's DaemonSet (gpu-operator assets/state-device-plugin/0500_daemonset.yaml)."""

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-"
SHARED = ".shared"

TIME_SLICING, MPS = "time-slicing", "mps"


def homes(installation: PluginInstallation, policy: Policy) -> tuple[str, ...]:
    """Return the namespaces in which an installation's ConfigMap may be."""
    return (installation.namespace,) if installation.namespace else policy.limits.namespaces


def readers(namespace: str, name: str, policy: Policy, facts: Facts) -> tuple[PluginInstallation, ...]:
    """Return the installations that read a ConfigMap."""
    return tuple(
        installation
        for installation in facts.installations
        if installation.config_map == name and namespace in homes(installation, policy)
    )


def daemon_sets(installations: Iterable[PluginInstallation], policy: Policy) -> list[tuple[str, str]]:
    """Return the namespaces and names of the DaemonSets to restart after a change of the configuration.

    The GPU Operator's DaemonSet has a fixed name, so a ClusterPolicy is enough to know it.
    """
    installations = list(installations)
    seen = [(installation.namespace, installation.name) for installation in installations if installation.namespace]
    if not seen and installations:
        seen += [(namespace, OPERATORS_DAEMON_SET) for namespace in policy.limits.namespaces[:1]]
    return seen


# The key of a node


def reaches(installation: PluginInstallation, node: Node) -> bool:
    """Whether an installation runs on a node."""
    return all(node.labels.get(key) == value for key, value in installation.selector.items()) and node.has_gpus


def key_of(installation: PluginInstallation, label: str | None, keys: Iterable[str]) -> str:
    """Return the key that a node with this label uses; empty if it uses none (cmd/config-manager/main.go)."""
    if not installation.chosen:
        return installation.key
    if label:
        return label
    if installation.key:
        return installation.key
    keys = list(keys)
    for fallback in installation.fallbacks:
        if fallback == "named" and "default" in keys:
            return "default"
        if fallback == "single" and len(keys) == 1:
            return keys[0]
        if fallback == "empty":
            break
    return ""


def users(installations: Sequence[PluginInstallation], keys: Iterable[str], facts: Facts) -> Mapping[str, list[Node]]:
    """Return the nodes that use each key of a ConfigMap. The ConfigMap may lack such a key."""
    keys = sorted(keys)
    users: dict[str, dict[str, Node]] = {}
    for node in facts.nodes:
        for installation in installations:
            if reaches(installation, node) and (key := key_of(installation, node.labels.get(CONFIG_LABEL), keys)):
                users.setdefault(key, {})[node.name] = node
    return {key: list(nodes.values()) for key, nodes in users.items()}


def config_of(
    installation: PluginInstallation, label: str | None, policy: Policy, facts: Facts
) -> tuple[str, str, str | None]:
    """Return the ConfigMap's namespace, the key for a node with this label, and its text; None if unknown."""
    for namespace in homes(installation, policy):
        texts = facts.config_maps.get((namespace, installation.config_map))
        if texts is not None:
            key = key_of(installation, label, texts)
            return namespace, key, texts.get(key)
    return "", "", None


def some(nodes: Iterable[Node]) -> str:
    """Describe some nodes in words, as in `5 nodes (a, b, c and 2 more)`."""
    names = [shown(name, quotes=False) for name in sorted(node.name for node in nodes)]
    return f"{several(len(names), 'node')} ({listed(names, 3)})"


# The effect on a node


class SharedResource(NamedTuple):
    """A resource of a node that the configuration shares, by `timeSlicing` or `mps`.

    `memory` is the size of each GPU or MIG device in MiB; None if no label gives it.
    """

    entry: ReplicatedResource
    resource: str
    replicas: int
    memory: int | None

    @property
    def mig(self) -> bool:
        """Whether the resource is that of a MIG profile."""
        return self.resource.startswith(MIG)


def entries(section: Section | None) -> dict[str, tuple[ReplicatedResource, int]]:
    """Return the effective entry for each resource, the one with the most replicas (internal/rm/device_map.go).

    Entries without a name or a number are left out: the plugin would not start with them.
    """
    largest: dict[str, tuple[ReplicatedResource, int]] = {}
    for entry in section.entries if section else ():
        if entry.name and entry.replicas:
            known = largest.get(entry.name.value)
            if known is None or entry.replicas.value > known[1]:
                largest[entry.name.value] = entry, entry.replicas.value
    return largest


def shares(plugin: Plugin, node: Node) -> Iterator[SharedResource]:
    """Yield the resources of a node that a configuration shares."""
    for resource, (entry, replicas) in entries(plugin.section).items():
        if has_resource(node, resource):
            yield SharedResource(entry, resource, replicas, integer(node.labels.get(f"{resource}.memory", "")))


def has_resource(node: Node, resource: str) -> bool:
    """Whether a node has devices that the plugin would advertise under this name if it renamed none."""
    if node.resources:
        return resource in node.resources or resource + SHARED in node.resources
    return f"{resource}.count" in node.labels or f"{resource}.product" in node.labels


def renamed(section: Section | None) -> bool:
    """Whether shared resources are renamed to `<name>.shared`."""
    return bool(section and section.rename_by_default and section.rename_by_default.value)


def after(node: Node, plugin: Plugin) -> Mapping[str, str]:
    """Return a node's labels as GPU Feature Discovery would write them under a configuration (internal/lm)."""
    labels = dict(node.labels)
    product = labels.get(f"{GPU}.product", "").removesuffix("-SHARED")
    labels[f"{GPU}.sharing-strategy"], replicas = "none", "1"
    for share in shares(plugin, node):
        if share.mig:
            labels[f"{share.resource}.sharing-strategy"] = plugin.strategy
            labels[f"{share.resource}.replicas"] = str(share.replicas)
        else:
            labels[f"{GPU}.sharing-strategy"], replicas = plugin.strategy, str(share.replicas)
            product += "" if renamed(plugin.section) else "-SHARED"
    if partitioned(node) and replicas == "1":
        replicas = "0"
    labels[f"{GPU}.replicas"] = replicas
    if product:
        labels[f"{GPU}.product"] = product
    return labels


def partitioned(node: Node) -> bool:
    """Whether a node's GPUs are in MIG mode: it has 0 replicas, or labels or resources of MIG profiles.

    An amount of 0 shows nothing, because a kubelet keeps reporting 0 of a resource that no longer exists.
    """
    offered = (name for name, count in node.resources.items() if count > 0)
    return node.labels.get(f"{GPU}.replicas") == "0" or any(name.startswith(MIG) for name in (*node.labels, *offered))


def alike(nodes: Iterable[Node], policy: Policy) -> Iterator[list[Node]]:
    """Group the nodes on which a configuration has the same effect, so each group is judged only once."""
    keys = {requirement.key for pool in policy.pools for requirement in pool.nodes.requirements} | _GFD_LABELS
    groups: dict[object, list[Node]] = {}
    for node in nodes:
        labels = tuple(map(node.labels.get, keys))
        mig = tuple([item for item in node.labels.items() if item[0].startswith(MIG)])
        groups.setdefault((labels, mig, *node.resources), []).append(node)
    yield from groups.values()


_GFD_LABELS = {f"{GPU}.{key}" for key in ("product", "count", "memory", "replicas", "compute.major", "compute.minor")}


def pool_after(node: Node, plugin: Plugin, policy: Policy) -> Pool | None:
    """Return the pool in which a node would be under a given configuration; None if in none."""
    labels = after(node, plugin)
    return next((pool for pool in policy.pools if pool.nodes.matches(labels)), None)


@lru_cache(maxsize=1)
def holders(facts: Facts) -> Mapping[str, list[Holder]]:
    """Return the pods that use slices or GPUs, by node."""
    by_node: dict[str, list[Holder]] = {}
    for holder in facts.holders:
        by_node.setdefault(holder.node, []).append(holder)
    return by_node


def mig_strategies(plugin: Plugin, installations: Iterable[PluginInstallation]) -> set[str | None]:
    """Return the MIG strategies in force; None stands for an unknown one.

    The environment overrides the configuration.
    """
    strategy = plugin.mig_strategy.value
    return {installation.env.get("MIG_STRATEGY", strategy) for installation in installations} or {strategy}
