"""Who reads a sharing configuration, which nodes use which key of it, and what it would make of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from webhook.api.selectors import integer
from webhook.deviceplugin.config import Entry, Plugin, Section
from webhook.facts.installations import Installation
from webhook.facts.snapshot import CONFIG_LABEL, Facts, Holder, Node
from webhook.model import Path
from webhook.policy.model import Policy, Pool
from webhook.text.words import listed, several, shown

OPERATORS_DAEMON_SET = "nvidia-device-plugin-daemonset"
"""What the GPU Operator calls its DaemonSet (gpu-operator assets/state-device-plugin/0500_daemonset.yaml)."""

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-"
SHARED = ".shared"

TIME_SLICING, MPS = "time-slicing", "mps"


def homes(installation: Installation, policy: Policy) -> tuple[str, ...]:
    """The namespaces in which an installation's ConfigMap may be."""
    return (installation.namespace,) if installation.namespace else policy.limits.namespaces


def readers(namespace: str, name: str, policy: Policy, facts: Facts) -> tuple[Installation, ...]:
    """Return what reads a ConfigMap."""
    return tuple(each for each in facts.installations if each.config_map == name and namespace in homes(each, policy))


def daemon_sets(installations: Iterable[Installation], policy: Policy) -> list[tuple[str, str]]:
    """Return namespace and name of the DaemonSets to restart; the GPU Operator's is known without being seen."""
    installations = list(installations)
    seen = [(each.namespace, each.name) for each in installations if each.namespace]
    if not seen and installations:
        seen.append((policy.limits.namespaces[0], OPERATORS_DAEMON_SET))
    return seen


# Which key


def reaches(installation: Installation, node: Node) -> bool:
    """Tell whether an installation runs on a node."""
    return all(node.labels.get(key) == value for key, value in installation.selector.items()) and node.has_gpus


def key_of(installation: Installation, label: str | None, keys: Iterable[str]) -> str:
    """Return the key that a node with this label uses; empty for none (cmd/config-manager/main.go)."""
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


def users(installations: Sequence[Installation], keys: Iterable[str], facts: Facts) -> Mapping[str, list[Node]]:
    """Return the nodes that use each key of a ConfigMap that these read, whether or not it has the key."""
    keys = sorted(keys)
    users: dict[str, dict[str, Node]] = {}
    for node in facts.nodes:
        for each in installations:
            if reaches(each, node) and (key := key_of(each, node.labels.get(CONFIG_LABEL), keys)):
                users.setdefault(key, {})[node.name] = node
    return {key: list(nodes.values()) for key, nodes in users.items()}


def config_of(
    installation: Installation, label: str | None, policy: Policy, facts: Facts
) -> tuple[str, str, str | None]:
    """Return the ConfigMap's namespace, the key that a node with this label uses, and its text; None for none known."""
    for namespace in homes(installation, policy):
        texts = facts.config_maps.get((namespace, installation.config_map))
        if texts is not None:
            key = key_of(installation, label, texts)
            return namespace, key, texts.get(key)
    return "", "", None


def some(nodes: Iterable[Node]) -> str:
    """Count nodes and name the first: `5 nodes (a, b, c and 2 more)`."""
    names = [shown(name, quotes=False) for name in sorted(node.name for node in nodes)]
    return f"{several(len(names), 'node')} ({listed(names, 3)})"


# What it makes of a node


class Share(NamedTuple):
    """An entry of the section in force that matches what a node has.

    `memory` is MiB of each GPU or MIG device, None where labels do not say.
    """

    entry: Entry
    resource: str
    replicas: int
    memory: int | None

    @property
    def mig(self) -> bool:
        """Whether MIG devices are shared under a name of their own."""
        return self.resource.startswith(MIG)


def entries(section: Section | None) -> dict[str, tuple[Entry, int]]:
    """Return by resource the entry that counts: of several the largest makes the capacity (internal/rm/device_map.go).

    What has no name or number is left out: the plugin would not start on it.
    """
    found: dict[str, tuple[Entry, int]] = {}
    for entry in section.entries if section else ():
        if entry.name and entry.replicas:
            before = found.get(entry.name.value)
            if before is None or entry.replicas.value > before[1]:
                found[entry.name.value] = entry, entry.replicas.value
    return found


def shares(plugin: Plugin, node: Node) -> Iterator[Share]:
    """Yield what a configuration shares of a node."""
    for resource, (entry, replicas) in entries(plugin.section).items():
        if has_resource(node, resource):
            yield Share(entry, resource, replicas, integer(node.labels.get(f"{resource}.memory", "")))


def has_resource(node: Node, resource: str) -> bool:
    """Tell whether a node has devices that the plugin offers under this name, when nothing is renamed."""
    if node.resources:
        return resource in node.resources or resource + SHARED in node.resources
    return f"{resource}.count" in node.labels or f"{resource}.product" in node.labels


def renamed(section: Section | None) -> bool:
    """Tell whether what is shared gets the name `<name>.shared`."""
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
    """Tell whether a node's GPUs are in MIG mode: 0 replicas, or devices by profile."""
    return node.labels.get(f"{GPU}.replicas") == "0" or any(
        name.startswith(MIG) for name in (*node.labels, *node.resources)
    )


def alike(nodes: Iterable[Node], policy: Policy) -> Iterator[list[Node]]:
    """Group nodes that a configuration makes the same of, for there may be ten thousand of one sort."""
    keys = {requirement.key for pool in policy.pools for requirement in pool.nodes.requirements} | _TOLD
    groups: dict[object, list[Node]] = {}
    for node in nodes:
        said = tuple(map(node.labels.get, keys))
        mig = tuple([item for item in node.labels.items() if item[0].startswith(MIG)])
        groups.setdefault((said, mig, *node.resources), []).append(node)
    yield from groups.values()


_TOLD = {f"{GPU}.{key}" for key in ("product", "count", "memory", "replicas", "compute.major", "compute.minor")}


def pool_after(node: Node, plugin: Plugin, policy: Policy) -> Pool | None:
    """Return the pool a node would be in under a configuration; None for none."""
    labels = after(node, plugin)
    return next((pool for pool in policy.pools if pool.nodes.matches(labels)), None)


VARIABLES: Mapping[Path, tuple[str, ...]] = {
    ("flags", "migStrategy"): ("MIG_STRATEGY",),
    ("flags", "failOnInitError"): ("FAIL_ON_INIT_ERROR",),
    ("flags", "mpsRoot"): ("MPS_ROOT",),
    ("flags", "nvidiaDriverRoot"): ("NVIDIA_DRIVER_ROOT",),
    ("flags", "nvidiaDevRoot"): ("NVIDIA_DEV_ROOT",),
    ("flags", "gdrcopyEnabled"): ("GDRCOPY_ENABLED",),
    ("flags", "gdsEnabled"): ("GDS_ENABLED",),
    ("flags", "mofedEnabled"): ("MOFED_ENABLED",),
    ("flags", "deviceDiscoveryStrategy"): ("DEVICE_DISCOVERY_STRATEGY",),
    ("flags", "plugin", "passDeviceSpecs"): ("PASS_DEVICE_SPECS",),
    ("flags", "plugin", "deviceListStrategy"): ("DEVICE_LIST_STRATEGY",),
    ("flags", "plugin", "deviceIDStrategy"): ("DEVICE_ID_STRATEGY",),
    ("flags", "plugin", "cdiAnnotationPrefix"): ("CDI_ANNOTATION_PREFIX",),
    ("flags", "plugin", "nvidiaCTKPath"): ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
    ("flags", "plugin", "containerDriverRoot"): ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
    ("flags", "plugin", "sharedDevicesAllocationPolicy"): ("SHARED_DEVICES_ALLOCATION_POLICY",),
}
"""The variables that go before a flag of the text, even when they are empty (cmd/nvidia-device-plugin/main.go)."""


@lru_cache(maxsize=1)
def holders(facts: Facts) -> Mapping[str, list[Holder]]:
    """Return the pods that hold slices or GPUs, by node."""
    found: dict[str, list[Holder]] = {}
    for each in facts.holders:
        found.setdefault(each.node, []).append(each)
    return found


def mig_strategies(plugin: Plugin, installations: Iterable[Installation]) -> set[str | None]:
    """Return the MIG strategies in force: the environment goes before the text; None for one that is not known."""
    said = plugin.mig_strategy.value
    return {each.env.get("MIG_STRATEGY", said) for each in installations} or {said}
