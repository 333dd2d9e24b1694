"""Makes usage records, by the hour, of pods whose peaks are known."""

from collections.abc import Mapping
from types import MappingProxyType

from webhook.usage.document import NodeUsage, collapsed
from webhook.usage.record import HOUR, Amounts, Book, CardAmounts, CardKey, HolderKey, SlicedCard

START = 490_000
"""The first hour of all traces."""

A100 = SlicedCard("GPU-0", 4, "shared", "NVIDIA-A100-SXM4-40GB")
CAP = 10_000


def usage(book: Book, hours: int, node: str = "node-1", trouble: str = "") -> NodeUsage:
    return NodeUsage(node, START * HOUR, (START + hours) * HOUR, collapsed(book, 0), trouble=trouble)


STEADY = [4000] * 48

NOTHING: Mapping[str, int] = MappingProxyType({})


def book(
    peaks: list[int],
    pod: str = "p",
    card: SlicedCard = A100,
    namespace: str = "team",
    workload: str = "Deployment/d",
    used: Mapping[str, int] = NOTHING,
) -> Book:
    """Return the record of a pod that works half of each hour, with these peaks, next to free slices.

    `used` replaces amounts of the pod.
    """
    cards, holders = {}, {}
    for number, peak in enumerate(peaks):
        key = CardKey(START + number, card.uuid, card.pool, card.product)
        cards[key] = CardAmounts(HOUR, card.slices * HOUR, HOUR, (card.slices - 1) * HOUR, 0)
        normal = Amounts(HOUR, HOUR // 2, HOUR // 2, 0, peak * HOUR, HOUR, peak=peak, cap=CAP)
        holders[HolderKey(*key, namespace, workload, pod, "main")] = normal._replace(**used)
    return Book(cards, holders)
