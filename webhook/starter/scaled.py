"""Describes the GPU nodes that an autoscaler can make and that no pool has yet, as if they existed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from webhook.api.selectors import is_label_key, is_label_value
from webhook.catalog import node_labels
from webhook.catalog.node_labels import CardType
from webhook.deviceplugin import usage
from webhook.deviceplugin.usage import GPU, SHARED
from webhook.facts.kinds import ec2_node_class
from webhook.facts.kinds.node import CONFIG_LABEL, Node
from webhook.facts.scaling import UNKNOWN_SHARING, WHOLE_CARDS, NodeClassSharing, ScaledNodes, of_accelerator
from webhook.facts.snapshot import Facts
from webhook.starter import inventory
from webhook.starter.inventory import MOST_OF_A_NODE, GPUNode
from webhook.text.words import listed, shown

MIG_CONFIG = "nvidia.com/mig.config"
"""The label by which a node chooses its MIG devices (NVIDIA/mig-parted deployments/gpu-operator)."""


class NodesToCome(NamedTuple):
    """The nodes that can be made, and notes on makers whose nodes get no pool."""

    nodes: tuple[GPUNode, ...]
    notes: tuple[str, ...]


class _Remainder(NamedTuple):
    """Nodes that do not exist, as one `node`. `made` are those of the same maker that do, with other cards."""

    scaled: ScaledNodes
    node: GPUNode
    made: tuple[GPUNode, ...]

    @property
    def name(self) -> str:
        """The name of the object in a note."""
        return f"other cards of {self.scaled.maker}" if self.made else self.scaled.maker

    @property
    def seen(self) -> bool:
        """Whether existing nodes of the same maker use the same device plugin configuration, so its effect is known."""
        key = self.scaled.labels.get(CONFIG_LABEL)
        return bool(self.made) and all(each.node.labels.get(CONFIG_LABEL) == key for each in self.made)

    @property
    def alike(self) -> bool:
        """Whether the new nodes would share their cards as the existing nodes of the same maker do.

        If not, something that is not read here decides how nodes share their cards.
        """
        return all((each.sharing, each.replicas) == (self.node.sharing, self.node.replicas) for each in self.made)


def to_come(
    facts: Facts, accelerators: Iterable[str], existing: Sequence[GPUNode], places: Sequence[str], *, by_product: bool
) -> NodesToCome:
    """Return the nodes that can be made and whose labels no existing node has. MIG devices are not known in advance.

    With `by_product`, a NodePool that has a node also counts, for the cards that none of its nodes has. `places` are
    the namespaces of device plugins.
    """
    named = [of_accelerator(each) for each in accelerators]
    left = (each for maker in (*facts.scaled, *named) for each in _left(maker, existing, by_product=by_product))
    absent = [_Remainder(scaled, _distinct(scaled, facts, places), made) for scaled, made in left]
    unknown = [each.name for each in absent if _is_divided(each.scaled, facts)]
    unread = {
        each.name: each.scaled.labels[CONFIG_LABEL]
        for each in absent
        if each.name not in unknown and not each.seen and _has_unread_config(each.scaled, facts, places)
    }
    classless = {each.name: each.scaled.node_class for each in absent if _class_of(each.scaled, facts) is None}
    invalid = [each.name for each in absent if not _has_valid_labels(each.scaled)]
    told = {*unknown, *unread, *classless}
    unknown += [each.name for each in absent if not each.alike and each.name not in told]
    left_out = {*unknown, *unread, *classless, *invalid}
    present = [each.maker for each in named if not [*_left(each, existing, by_product=by_product)]]
    notes = tuple(_notes(unknown, unread, classless, invalid, present))
    return NodesToCome(tuple(each.node for each in absent if each.name not in left_out), notes)


def _left(
    scaled: ScaledNodes, existing: Iterable[GPUNode], *, by_product: bool
) -> Iterator[tuple[ScaledNodes, tuple[GPUNode, ...]]]:
    """Yield the nodes without those that exist, and the latter. Those of a machine set are all alike."""
    selected = [*_selected(scaled)]
    made = tuple(each for each in existing if all(each.node.labels.get(key) == value for key, value in selected))
    had = {node_labels.model(each.product) for each in made}
    products = tuple(each for each in scaled.products if node_labels.model(each) not in had)
    if not made:
        yield scaled, made
    elif by_product and node_labels.KARPENTER in scaled.labels and (products or scaled.others):
        yield scaled._replace(products=products), made


def _notes(
    unknown: Sequence[str],
    unread: Mapping[str, str],
    classless: Mapping[str, str],
    invalid: Sequence[str],
    present: Sequence[str],
) -> Iterator[str]:
    if unknown:
        yield (
            f"no pool is written for {listed(unknown, 3)}: only a node says how its cards are divided; "
            "take the facts while there is one"
        )
    if unread:
        configurations = listed(sorted({shown(each, quotes=False) for each in unread.values()}), 3)
        yield (
            f"no pool is written for {listed([*unread], 3)}: the device plugin's configuration {configurations} is not "
            "read; add its ConfigMap to the facts, and its namespace to --no-tenants"
        )
    if classless:
        classes = listed(sorted({*classless.values()}), 3)
        yield (
            f"no pool is written for {listed([*classless], 3)}: its EC2NodeClass, which may share cards, is not among "
            f"the facts; add {classes}"
        )
    if invalid:
        names = listed([shown(maker, quotes=False) for maker in invalid], 3)
        yield f"no pool is written for {names}: no node can have its labels; correct its name and its labels"
    if present:
        yield (
            f"no pool is written for {listed(present, 3)}: there is a node with that label, and its pool is written "
            "from it; add a pool by hand for nodes that share the same cards in another way"
        )


def _has_valid_labels(scaled: ScaledNodes) -> bool:
    """Whether a node can have the labels by which such nodes are selected."""
    return all(is_label_key(key) and is_label_value(value) for key, value in _selected(scaled))


def _is_divided(scaled: ScaledNodes, facts: Facts) -> bool:
    """Whether cards are shared or divided in a way that only a node says."""
    mig = scaled.labels.get(MIG_CONFIG, "all-disabled") != "all-disabled"
    return scaled.divided or mig or _class_of(scaled, facts) == UNKNOWN_SHARING


def _has_unread_config(scaled: ScaledNodes, facts: Facts, places: Sequence[str]) -> bool:
    """Whether nodes choose a configuration of the device plugin that the facts do not have: it may share cards."""
    key, readers = scaled.labels.get(CONFIG_LABEL), inventory.reading(places)
    texts = (usage.config_of(each, key, readers, facts)[2] for each in facts.installations)
    return key is not None and all(text is None for text in texts)


def _class_of(scaled: ScaledNodes, facts: Facts) -> NodeClassSharing | None:
    """Return how the class of such nodes shares cards; None if the facts do not have the class."""
    return facts.table(ec2_node_class.TABLE).get(scaled.node_class) if scaled.node_class else WHOLE_CARDS


def _selected(scaled: ScaledNodes) -> Iterator[tuple[str, str]]:
    """Yield the labels by which such nodes are selected: of Karpenter's NodePool its name, and else all."""
    name = scaled.labels.get(node_labels.KARPENTER)
    yield from scaled.labels.items() if name is None else [(node_labels.KARPENTER, name)]


def _distinct(scaled: ScaledNodes, facts: Facts, places: Sequence[str]) -> GPUNode:
    """Read a node as it would be, by the labels and the sharing that are known, and keep those that select it."""
    gpus = scaled.gpus or MOST_OF_A_NODE
    node = Node(scaled.maker, scaled.labels, {GPU: gpus})
    read = inventory.read(node, facts, places, frozenset(taint for taint in scaled.taints if inventory.lasts(taint)))
    cards = [card for each in scaled.products if (card := node_labels.card_type(each))]
    smallest = min(cards, key=lambda card: card.memory, default=read.card)
    sharing, replicas, name = read.sharing, read.replicas, GPU
    own = _class_of(scaled, facts)
    if own and own != WHOLE_CARDS:
        sharing, replicas, name = inventory.TIME_SLICING, own.replicas, GPU + SHARED if own.renamed else GPU
    shown = Node(scaled.maker, dict(_selected(scaled)), {name: gpus})
    if smallest and (len({*cards}) > 1 or (cards and scaled.others)):
        smallest = CardType("", smallest.memory)
    product = smallest.product if smallest else ""
    return GPUNode(shown, product, sharing, replicas, smallest, read.taints, scaled.maker)
