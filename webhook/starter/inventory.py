"""Reads from facts which GPUs a cluster has, how nodes offer them, and which labels distinguish the nodes."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, string
from webhook.api.metadata import name_of, namespace_of
from webhook.api.objects import CLUSTER_POLICY
from webhook.api.selectors import Requirement, contradiction, integer
from webhook.api.taints import Taint, taints_of
from webhook.catalog import mig_profiles, node_labels
from webhook.catalog.node_labels import CardType
from webhook.catalog.node_taints import TRANSIENT
from webhook.catalog.platforms import NETWORK_PLUGINS, PLATFORMS, NetworkPlugin
from webhook.deviceplugin import cards, usage
from webhook.deviceplugin.configmaps import held
from webhook.facts.installations import runs_the_plugin
from webhook.facts.kinds.gpu_cluster import GPU_CLUSTER
from webhook.facts.kinds.node import CONFIG_LABEL, NETWORK, Node
from webhook.facts.parts import VENDOR
from webhook.facts.snapshot import Facts
from webhook.model import Object
from webhook.policy.model import Policy, SharingLimits

GPU = usage.GPU
TIME_SLICING, MPS, MIG, WHOLE = "time-slicing", "mps", "mig", "none"

MOST_OF_A_NODE = 8
"""The GPUs that a pod may request of a node whose number is not known."""


@dataclass(frozen=True, slots=True)
class GPUNode:
    """A node with NVIDIA GPUs: the labels about its cards, how it hands the cards out, and its permanent taints.

    `card` is None if its memory is not known. If a label names a MIG profile, `card` has the memory of such a device.
    `replicas` is 1 if cards are not shared.
    """

    node: Node
    product: str
    sharing: str
    replicas: int
    card: CardType | None
    taints: frozenset[Taint]
    maker: str = ""
    """The object by which an autoscaler may make such a node; empty for one that exists."""

    @property
    def resources(self) -> dict[str, int]:
        """The GPU resources of which the node offers at least one."""
        return cards.offered(self.node)


@dataclass(frozen=True)
class NodeGroup:
    """Nodes that offer their GPUs in the same way, and label requirements that only these nodes meet."""

    nodes: tuple[GPUNode, ...]
    requirements: tuple[Requirement, ...] = ()
    """Those of nodes that an autoscaler may make have all labels that it knows before one exists."""

    @property
    def sharing(self) -> str:
        """How the nodes hand out their GPUs."""
        return self.nodes[0].sharing

    @property
    def shared(self) -> bool:
        """Whether several pods use one card."""
        return self.sharing in (TIME_SLICING, MPS)

    @property
    def products(self) -> list[str]:
        """The products of the cards, sorted."""
        return sorted({each.product for each in self.nodes if each.product})

    @property
    def replicas(self) -> int:
        """The largest number of slices of a card."""
        return max(each.replicas for each in self.nodes)

    @property
    def resources(self) -> dict[str, int]:
        """The resources that the nodes offer, each with the largest amount of a node."""
        most: Counter[str] = Counter()
        for each in self.nodes:
            most |= Counter(each.resources)
        return dict(sorted(most.items()))

    @property
    def largest(self) -> int:
        """The largest number of GPUs of one node, over all its resources. A node that Karpenter can make counts too."""
        most = max((sum(each.resources.values()) for each in self.nodes), default=0) or 1
        return max(most, MOST_OF_A_NODE) if self.grows else most

    @property
    def grows(self) -> bool:
        """Whether Karpenter can make a node with more whole cards. It chooses a node's size by the pods that wait."""
        return self.sharing == WHOLE and any(node_labels.KARPENTER in each.node.labels for each in self.nodes)

    @property
    def maker(self) -> str:
        """The object by which an autoscaler makes the nodes, if none of them exists yet; otherwise empty."""
        return self.nodes[0].maker

    @property
    def total(self) -> int:
        """The number of GPUs of all nodes together."""
        return sum(sum(each.resources.values()) for each in self.nodes)

    @property
    def card(self) -> CardType | None:
        """The card with the least memory; None if no card is known."""
        return min((each.card for each in self.nodes if each.card), key=lambda card: card.memory, default=None)

    @property
    def uncapped(self) -> bool:
        """Whether pods get no memory cap, because the memory of their slice is unknown."""
        return self.sharing == TIME_SLICING and self.card is None

    @property
    def late(self) -> list[str]:
        """The labels that the nodes must have, but that an autoscaler does not know before it has made a node."""
        grows = not self.maker and _may_grow(_values(self))
        keys = {each.key for each in self.requirements if each.operator == "In"} if grows else set[str]()
        return sorted(key for key in keys if key.startswith(VENDOR) or key == _HOST)

    @property
    def taints(self) -> frozenset[Taint]:
        """The taints that every node of the group has."""
        return frozenset.intersection(*(each.taints for each in self.nodes))


# Nodes


def gpu_nodes(objects: Iterable[Object], kept: Collection[str] = ()) -> list[GPUNode]:
    """Return the nodes with NVIDIA GPUs, according to their resources or labels, sorted by name.

    See `operators` for `kept`.
    """
    objects = list(objects)
    facts = Facts.of(objects)
    taints = {name: frozenset(_taints(item)) for name, item in _nodes(objects)}
    places = homes(objects, kept)
    found = [read(node, facts, places, taints.get(node.name, frozenset())) for node in facts.nodes if _has_gpus(node)]
    return sorted(found, key=lambda each: each.node.name)


def homes(objects: Iterable[Object], kept: Collection[str] = ()) -> list[str]:
    """Return the namespaces of the GPU Operator, and those of DaemonSets with a device plugin and its ConfigMap.

    See `operators` for `kept`.
    """
    objects = list(objects)
    plugins = {each.namespace for each in Facts.of(objects).installations if each.namespace}
    return sorted(plugins.union(operators(objects, kept)))


def operators(objects: Iterable[Object], kept: Collection[str] = ()) -> Iterator[str]:
    """Yield the namespaces in which the GPU Operator runs according to its own status.

    It writes its namespace into the status of its ClusterPolicy or GPUCluster, which are cluster-scoped objects
    (gpu-operator api/nvidia/v1/clusterpolicy_types.go, api/nvidia/v1alpha1). If an object has no status, the namespaces
    in NVIDIA's installation guides are used if they are among `kept`, the namespaces whose names count.
    """
    usual = [name for name in _USUAL if name in kept]
    for item in objects:
        if group_kind(item) in (CLUSTER_POLICY, GPU_CLUSTER):
            said = string(mapping(item.get("status")).get("namespace"))
            yield from (said,) if said else usual


_USUAL = ("gpu-operator", "nvidia-gpu-operator")
"""Where NVIDIA's pages have the GPU Operator installed; the second on OpenShift."""


def systems(objects: Iterable[Object], plugins: Iterable[NetworkPlugin] = NETWORK_PLUGINS) -> list[str]:
    """Return the existing namespaces of the cluster's platform and of some network plugins.

    A platform is known by labels of nodes, and a network plugin by its DaemonSet in the namespace of its name. Tenants
    may create such a DaemonSet, so either the objects or the plugins have to be firm (see `evidence`).
    """
    objects = list(objects)
    facts = Facts.of(objects)
    labels = {key for node in facts.nodes for key in node.labels}
    here = {*_daemon_sets(objects)}
    found = {
        name
        for platform in PLATFORMS
        if labels.intersection(platform.node_labels)
        for name in facts.namespaces
        if name in platform.namespaces
    }
    for plugin in plugins:
        if (plugin.namespace, plugin.daemon_set) in here:
            found |= {plugin.namespace, *plugin.needs}
    return sorted(found & facts.namespaces.keys())


def networks(objects: Iterable[Object]) -> Iterator[NetworkPlugin]:
    """Yield the network plugins that the status of nodes names, and that do not run in `kube-system`.

    The condition NetworkUnavailable of a node names its plugin. No tenant writes a node, or anything in `kube-system`.
    """
    objects = list(objects)
    reasons = {
        string(condition.get("reason"))
        for _, node in _nodes(objects)
        for condition in mappings(mapping(node.get("status")).get("conditions"))
        if condition.get("type") == NETWORK
    }
    others = " ".join(name for namespace, name in _daemon_sets(objects) if namespace == "kube-system")
    for plugin in NETWORK_PLUGINS:
        if plugin.reason and plugin.reason in reasons and not any(word in others for word in plugin.words):
            yield plugin


def _daemon_sets(objects: Iterable[Object]) -> Iterator[tuple[str, str]]:
    """Yield the namespaces and the names of DaemonSets."""
    for item in objects:
        if group_kind(item) == ("apps", "DaemonSet"):
            yield namespace_of(item), name_of(item)


def rivals(objects: Iterable[Object], nodes: Iterable[GPUNode]) -> list[str]:
    """Return the DaemonSets of NVIDIA's device plugin that seem to run on one node, where they disturb each other.

    One undoes what the other shares. A DaemonSet with an affinity counts as running elsewhere.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for item in objects:
        pod = mapping(mapping(mapping(item.get("spec")).get("template")).get("spec"))
        if group_kind(item) == ("apps", "DaemonSet") and not pod.get("affinity") and runs_the_plugin(pod):
            found[f"{namespace_of(item)}/{name_of(item)}"] = mapping(pod.get("nodeSelector"))
    for each in nodes:
        labels = each.node.labels
        here = [name for name, wanted in found.items() if all(labels.get(key) == wanted[key] for key in wanted)]
        if len(here) > 1:
            return sorted(here)
    return []


def others(objects: Iterable[Object]) -> list[str]:
    """Return the extended resources of the nodes, sorted, without NVIDIA's."""
    names = set[str]()
    for _, item in _nodes(objects):
        names |= mapping(mapping(item.get("status")).get("allocatable")).keys()
    return sorted(name for name in names if "/" in name and not name.startswith(VENDOR))


def _nodes(objects: Iterable[Object]) -> Iterator[tuple[str, Object]]:
    for item in objects:
        if group_kind(item) == ("", "Node"):
            yield name_of(item), item


def _has_gpus(node: Node) -> bool:
    offered = any(name not in cards.NO_GPUS for name in node.resources)  # it offers 0 if its plugin has failed
    product = next((key for key in node_labels.PRODUCTS if key in node.labels), "")
    if product == "nvidia.com/gpu.product" or node.labels.get(node_labels.PRESENT) == "true":
        return True
    # Karpenter names the accelerators of other vendors as well; GKE names TPUs by another label.
    return offered or (product.startswith("cloud.google.com/") and "nvidia" in node.labels[product])


def _taints(item: Object) -> Iterator[Taint]:
    for taint in taints_of(mapping(item.get("spec"))):
        if lasts(taint):
            yield taint


def lasts(taint: Taint) -> bool:
    """Whether a taint is permanent: it does not come and go with a node's health."""
    return bool(taint.key) and taint.key not in TRANSIENT and taint.repels


def reading(places: Iterable[str]) -> Policy:
    """Return a policy whose sharing namespaces are these, so that sharing configurations are read in them."""
    return Policy("", (), limits=SharingLimits(namespaces=tuple(places)))


def read(node: Node, facts: Facts, places: Iterable[str], taints: frozenset[Taint]) -> GPUNode:
    """Return what is known about a node with GPUs. `places` are the namespaces of device plugins."""
    readers = reading(places)
    said = cards.product(node)
    machine = next((node.labels[key] for key in node_labels.INSTANCE_TYPES if node.labels.get(key)), "")
    product = said.removesuffix("-SHARED").partition("-MIG-")[0]
    known = node_labels.card_type(product) or node_labels.card_type(machine)
    exact, *sold = (integer(node.labels.get(key, "")) for key in node_labels.MEMORIES)
    part = next((mig_profiles.memory(node.labels.get(key, "")) for key in node_labels.PARTITIONS), None)
    memory = next((n for n in (exact, part, known and known.memory, *sold) if n and n > 0), None)
    card = CardType(_product(product, known), memory) if memory else None
    sharing, replicas = _sharing(node, facts, readers)
    return GPUNode(node, product or machine, sharing, replicas, card, taints)


def _product(said: str, known: CardType | None) -> str:
    """Return the product as GPU Feature Discovery writes it, even if a label uses another vendor's name for it."""
    return known.product if known and not said.startswith(("NVIDIA-", "Tesla-")) else said


def _sharing(node: Node, facts: Facts, readers: Policy) -> tuple[str, int]:
    """Return how a node hands out its GPUs, and into how many slices a card is shared."""
    replicas = next((n for key in node_labels.REPLICAS if (n := integer(node.labels.get(key, ""))) and n > 1), 0)
    for key, meanings in node_labels.STRATEGIES.items():
        meant = meanings.get(node.labels.get(key, ""), WHOLE)
        if meant != WHOLE:
            return meant, replicas or 2
    if cards.divided(node):
        return MIG, 1
    slices = cards.slices(node)
    if "nvidia.com/gpu.sharing-strategy" not in node.labels:
        for share, strategy in _configured(node, facts, readers):
            return strategy, max(slices, share.replicas)
    if slices > 1:
        return TIME_SLICING, max(replicas, slices)
    if offered := sum(count for name, count in node.resources.items() if name.endswith(usage.SHARED)):
        return TIME_SLICING, max(replicas or offered // (cards.count(node) or 1), 2)
    return WHOLE, 1


def _configured(node: Node, facts: Facts, readers: Policy) -> Iterator[tuple[usage.SharedResource, str]]:
    """Yield what the configurations of a node's device plugins share of its cards, each with its strategy."""
    for installation in facts.installations:
        if usage.reaches(installation, node):
            _, _, text = usage.config_of(installation, node.labels.get(CONFIG_LABEL), readers, facts)
            if plugin := held(text) if text else None:
                yield from ((share, plugin.strategy) for share in usage.shares(plugin, node) if not share.mig)


# Groups


def groups(nodes: Iterable[GPUNode], guard: str, *, by_product: bool = True) -> list[NodeGroup]:
    """Group nodes by product, sharing, slices and taints, and find labels that distinguish the groups.

    Without `by_product`, cards of all products are one group. `guard` is the key of a taint whose value matters. The
    groups are in the order in which pools are tried: shared cards, whole ones, MIG devices. Within each kind, nodes
    without taints of their own come first, then those with the most GPUs.
    """
    parts: dict[tuple[Any, ...], list[GPUNode]] = {}
    nodes = list(nodes)
    for each in (node for node in nodes if not node.maker):
        taints = tuple(sorted((taint.key, taint.value) for taint in each.taints))
        product = each.product if by_product else ""
        parts.setdefault((each.sharing, product, each.replicas, taints), []).append(each)
    found = [NodeGroup(tuple(each)) for each in parts.values()]
    order = (TIME_SLICING, MPS, WHOLE, MIG)
    found.sort(
        key=lambda group: (
            order.index(group.sharing),
            any(taint.key != guard for taint in group.taints),
            -group.total,
            group.nodes[0].node.name,
        )
    )
    return _joined(_told_apart(found, by_product=by_product), [node for node in nodes if node.maker])


def _joined(found: Sequence[NodeGroup], scaled: Iterable[GPUNode]) -> list[NodeGroup]:
    """Add a group for each kind of node that an autoscaler may make, and keep it out of all groups before it."""
    made = list(found)
    for node in scaled:
        own = tuple(Requirement(key, "In", frozenset({value})) for key, value in sorted(node.node.labels.items()))
        if there := [each for each in found if any(_has_all(one, node.node.labels) for one in each.nodes)]:
            if (other := _other_cards(there)) is None:
                continue  # the pool of those that exist selects no card, so it takes all that may come
            own = (*own, other)
        made = [replace(each, requirements=_without(each.requirements, own)) for each in made]
        made.append(NodeGroup((node,), own))
    return made


def _has_all(one: GPUNode, labels: Mapping[str, str]) -> bool:
    return all(one.node.labels.get(key) == value for key, value in labels.items())


def _other_cards(groups: Sequence[NodeGroup]) -> Requirement | None:
    """Return the requirement that no card of some groups meets; None if one of them is selected by no card.

    The label is one that the autoscaler knows before a node exists.
    """
    keys = [key for key in node_labels.PRODUCTS if not key.startswith(VENDOR)]
    cards = [{each.key: each.values for each in group.requirements if each.operator == "In"} for group in groups]
    key = next((key for key in keys if all(key in each for each in cards)), "")
    return Requirement(key, "NotIn", frozenset().union(*(each[key] for each in cards))) if key else None


def _without(others: tuple[Requirement, ...], own: Sequence[Requirement]) -> tuple[Requirement, ...]:
    """Return the requirements of a group, and one more where nodes with all of another group's labels would meet them.

    No node of the group has all these labels, so the label that it adds is the one that most groups of a kind have.
    """
    if contradiction((*others, *own)) is not None:
        return others
    key = next((each for each in own if each.key in _KEYS), own[0])
    return (*others, Requirement(key.key, "NotIn", key.values))


_FIRST = (*node_labels.PRODUCTS, *node_labels.STRATEGIES)
"""Labels that a pool always selects if all nodes of its group have them. They describe the pool to a reader."""

_HOST = "kubernetes.io/hostname"

_KEYS = (*_FIRST, *node_labels.PARTITIONS, *node_labels.REPLICAS, node_labels.PRESENT, *node_labels.GROUPS)
"""All labels that may distinguish groups. The labels that say most about a GPU come first."""

Values = Mapping[str, frozenset[str | None]]
"""The values that each label has on some nodes, None where a node lacks it."""


def _told_apart(found: Sequence[NodeGroup], *, by_product: bool) -> list[NodeGroup]:
    """Give each group requirements that exclude the nodes of every other group.

    A group that an autoscaler may make larger does not select labels that appear only on running nodes: no node is made
    for a pod that waits for such a label (karpenter.sh/docs/concepts/scheduling). Every autoscaler knows the machine.
    """
    values = [_values(group) for group in found]
    known = [_known_keys(value) for value in values]
    needed = [_first(keys, values, by_product=by_product) for keys in known]
    for value, keys in zip(values, needed, strict=True):
        if None not in value[node_labels.KARPENTER]:  # for any machine that it creates next
            keys.add(node_labels.KARPENTER)
        elif _may_grow(value) and all(None in value[key] for key in keys):
            keys |= {key for key in node_labels.INSTANCE_TYPES if None not in value[key]}
    for group, value, keys, there in zip(found, values, needed, known, strict=True):
        if group.sharing == MIG:  # its cards may be whole again tomorrow
            keys |= {key for key in (*node_labels.PARTITIONS, node_labels.REPLICAS[0]) if None not in value[key]} & {
                *there
            }
    for index, one in enumerate(values):
        for other, another in enumerate(values[:index]):
            if not any(one[key].isdisjoint(another[key]) for key in needed[index] & needed[other]):
                both = [key for key in known[index] if key in known[other] and key != _HOST]  # one node is no group
                key = next(key for key in (*both, *_KEYS) if one[key].isdisjoint(another[key]))
                needed[index].add(key)
                needed[other].add(key)
    return [
        replace(group, requirements=tuple(_requirements(value, keys, values)))
        for group, value, keys in zip(found, values, needed, strict=True)
    ]


def _known_keys(own: Values) -> Sequence[str]:
    """Return the labels by which a group may be selected: those that its autoscaler knows before a node exists."""
    return [key for key in _KEYS if not key.startswith(VENDOR)] if _may_grow(own) else _KEYS


def _may_grow(own: Values) -> bool:
    return any(None not in own[key] for key in node_labels.SCALING)


def _first(keys: Sequence[str], values: Iterable[Values], *, by_product: bool) -> set[str]:
    """Return the labels that a group requires in any case, among those that some nodes have."""
    there = [key for key in keys if any(each[key] != {None} for each in values)]
    product = next((key for key in node_labels.PRODUCTS if key in there), "")
    return {key for key in there if key in node_labels.STRATEGIES or (by_product and key == product)}


def _values(group: NodeGroup) -> Values:
    """Return the values of the labels of a group's nodes. A kubelet labels its node with the host name."""
    values = {key: frozenset(each.node.labels.get(key) for each in group.nodes) for key in _KEYS}
    return {**values, _HOST: frozenset(each.node.labels.get(_HOST, each.node.name) for each in group.nodes)}


def _requirements(own: Values, keys: Iterable[str], all_: Iterable[Values]) -> Iterator[Requirement]:
    """Require the values of some labels, or forbid those of other groups. At least one label has to be there."""
    positive = [key for key in _KEYS if key in keys and None not in own[key]]
    for key in positive or [next(key for key in _KEYS if None not in own[key])]:
        yield Requirement(key, "In", _there(own[key]))
    for key in _KEYS:
        if key in keys and None in own[key]:
            foreign = frozenset[str]().union(*(_there(each[key]) for each in all_)) - own[key]
            if own[key] == {None}:
                yield Requirement(key, "DoesNotExist")
            elif foreign:
                yield Requirement(key, "NotIn", foreign)


def _there(values: Iterable[str | None]) -> frozenset[str]:
    return frozenset(value for value in values if value is not None)
