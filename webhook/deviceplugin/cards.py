"""The cards of a node, as far as its labels and the amounts that it offers show them."""

from webhook.api.selectors import integer
from webhook.catalog import node_labels
from webhook.deviceplugin.usage import GPU, SHARED, partitioned
from webhook.facts.kinds.node import Node


def count(node: Node) -> int | None:
    """Return how many cards a node has, by the label of its cloud or of GPU Feature Discovery; None if none says it."""
    return next((n for key in node_labels.COUNTS if (n := integer(node.labels.get(key, ""))) and n > 0), None)


def product(node: Node) -> str:
    """Return the product of a node's cards, as the most exact label writes it; empty if none does."""
    return next((said for key in node_labels.PRODUCTS if (said := node.labels.get(key))), "")


def divided(node: Node) -> bool:
    """Whether a node hands out MIG devices, under any name."""
    return partitioned(node) or "-MIG-" in product(node) or any(node.labels.get(k) for k in node_labels.PARTITIONS)


def slices(node: Node) -> int:
    """Return into how many slices a card is shared, by what the node offers: more GPUs than it has cards.

    1 where it offers no more, where the number of cards is not known, and where the GPUs are MIG devices. A device
    plugin that no ConfigMap describes is seen by this only: that of Bottlerocket is a part of the system.
    """
    known = count(node)
    offered = node.resources.get(GPU, 0) + node.resources.get(GPU + SHARED, 0)
    if known is None or offered <= known or divided(node):
        return 1
    return -(-offered // known)  # fewer where some slices are unhealthy
