"""Reads the cards of a node from its labels and from the resources that it offers."""

from webhook.api.selectors import integer
from webhook.catalog import node_labels
from webhook.catalog.gpu_requests import OTHER_RESOURCES
from webhook.catalog.names import Names
from webhook.deviceplugin.usage import GPU, SHARED, partitioned
from webhook.facts.kinds.node import Node


def count(node: Node) -> int | None:
    """Return the number of a node's cards, by a label of its cloud or of GPU Feature Discovery; None without a label.

    A label with more cards than a machine can have is ignored.
    """
    read = (integer(node.labels.get(key, "")) for key in node_labels.COUNTS)
    return next((n for n in read if n and 0 < n <= MOST), None)


MOST = 32
"""The most cards of a machine (open-gpu-kernel-modules src/common/sdk/nvidia/inc/nvlimits.h, NV_MAX_DEVICES)."""


def offered(node: Node) -> dict[str, int]:
    """Return the GPUs of which a node offers at least one, by resource."""
    return {name: count for name, count in node.resources.items() if count > 0 and name not in NO_GPUS}


NO_GPUS = Names(OTHER_RESOURCES)
"""NVIDIA's resources that are no GPUs."""


def product(node: Node) -> str:
    """Return the product name of a node's cards, from the most exact label; empty if no label has it."""
    return next((said for key in node_labels.PRODUCTS if (said := node.labels.get(key))), "")


def divided(node: Node) -> bool:
    """Whether a node offers MIG devices, under any name."""
    return partitioned(node) or "-MIG-" in product(node) or any(node.labels.get(k) for k in node_labels.PARTITIONS)


def slices(node: Node) -> int:
    """Return the number of slices of one card, computed from how many more GPUs a node offers than it has cards.

    Returns 1 if it offers no more, if the number of cards is unknown, and if the GPUs are MIG devices. The device
    plugin of Bottlerocket is a part of the system and has no ConfigMap: only this number shows that it shares cards.
    """
    known = count(node)
    offered = node.resources.get(GPU, 0) + node.resources.get(GPU + SHARED, 0)
    if known is None or offered <= known or divided(node):
        return 1
    return -(-offered // known)  # fewer where some slices are unhealthy
