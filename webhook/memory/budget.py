"""Computes how much memory of a shared card one process may take."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

from webhook.api import quantity
from webhook.api.selectors import integer
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.gpu.claims import Slice
from webhook.gpu.device_classes import devices_of
from webhook.gpu.selection import ANY, Selection, known_nodes
from webhook.model import immutable
from webhook.policy.model import Card, Policy, Pool
from webhook.text.words import shown

PRODUCT = "nvidia.com/gpu.product"
CARD_LABELS = (PRODUCT, "nvidia.com/gpu.memory", "nvidia.com/gpu.replicas")
"""The labels of nodes that describe a card."""

MIN_BUDGET = 512
"""MiB that a framework needs at least. A smaller cap would only move the failure."""

RESERVE_MIB, KEPT_MIB = 256, 512
"""MiB of the least reserve of a card, without and with limits of its driver.

A driver keeps memory that no program can have (NVML's `reserved`). On cards of up to 25,000 MiB it was 368 to 460
(docs/memory-caps.md); on larger ones it is less than 2 %. Frameworks' caps leave it in what contexts do not use.
"""

MEMORY = "slicewarden.dev/gpu-memory"
PROCESSES = "slicewarden.dev/gpu-processes"
"""Pod annotations: how much memory the pod's frameworks need, and how many processes use the slice at once."""

MAX_PROCESSES = 64


class Wish(NamedTuple):
    """The part of its slice that a pod requests: `memory` in MiB for all its processes together, or None for all.

    If a claim sizes the slice, `claimed` is what the claim takes of the device, whatever the replicas of the card are.
    """

    memory: int | None = None
    processes: int = 1
    claimed: Slice | None = None


ALL = Wish()
"""One process that takes the whole slice: the default."""


class InvalidAnnotation(ValueError):
    """An annotation has a value that cannot be used."""

    def __init__(self, annotation: str, message: str) -> None:
        super().__init__(message)
        self.annotation = annotation
        self.message = message


def wish(annotations: Mapping[str, object]) -> Wish:
    """Read the annotations with which a pod requests a part of its slice. Raises Refused."""
    memory, processes = annotations.get(MEMORY), annotations.get(PROCESSES)
    if memory is None and processes is None:
        return ALL
    asked, count = None, 1
    if memory is not None:
        try:
            asked = int(quantity.parse(memory) // 2**20) if isinstance(memory, str) else 0
        except ValueError:
            asked = 0
        if asked < 1:
            raise InvalidAnnotation(
                MEMORY, f"{shown(memory)} is not a quantity of memory; write one such as {quoted(memory, '2Gi')}"
            )
    if processes is not None:
        number = integer(processes) if isinstance(processes, str) else None
        if number is None or not 1 <= number <= MAX_PROCESSES:
            example = quoted(processes, "2")
            raise InvalidAnnotation(
                PROCESSES,
                f"{shown(processes)} is not a whole number from 1 to {MAX_PROCESSES}; write one such as {example}",
            )
        count = number
    return Wish(asked, count)


def quoted(said: object, example: str) -> str:
    """Return an example value, with a note about its quotes if the annotation lacks them."""
    return example if isinstance(said, str) else f'"{example}" with its quotes: an annotation is text'


@immutable
class Budget:
    """A cap, and the calculation behind it. All memory is in MiB.

    All pods of a kind share one object in a snapshot, so caches use it as a key.

    `reserve` is kept for the driver and fragmentation. `context` is the memory that a process takes outside its
    allocator. `budget` is the allocator's share, and `permille` is the same in thousandths of the card. `least` is that
    fraction of the smallest card; `mib`, `slice` and `contexts` fit on every card. On a card that uses the host's
    memory (`unified`) a fraction is no cap.
    """

    card: Card
    reserve: int
    context: int
    budget: int
    permille: int
    least: int
    mib: int
    wish: Wish = ALL
    unified: bool = False
    slice: int = 0
    """MiB of the slice: the most that its processes may take together, with their contexts."""
    contexts: int = 0
    """MiB that the contexts of all its processes take together."""

    def limit(self, slices: int) -> int:
        """Return the MiB that all processes of a container may use on a card, CUDA contexts included.

        The container has these `slices` of the card. NVIDIA's driver counts memory in this way.
        `slicewarden.dev/gpu-memory` can only lower the result.
        """
        most, asked = self.slice * slices, self.wish.memory
        return most if asked is None else min(most, asked + self.contexts)

    @property
    def enough(self) -> bool:
        """Whether the budget is large enough for a framework to work."""
        return self.least >= MIN_BUDGET and self.permille > 0

    @property
    def fraction(self) -> str:
        """The cap in the form that every framework reads: `0.ddd`."""
        return f"0.{self.permille:03d}"

    @property
    def percent(self) -> str:
        """The cap in percent of the card: `dd.d%`."""
        return f"{self.permille // 10}.{self.permille % 10}%"

    @property
    def bytes(self) -> str:
        """The cap in bytes."""
        return str(self.mib * 2**20)

    @property
    def arithmetic(self) -> str:
        """The calculation of the cap in words."""
        whole, shares = f"({self.card.memory} MiB - {self.reserve} reserve) / ", f"{self.card.replicas} replicas"
        if self.wish.claimed is not None:
            whole, shares = "", f"{self.wish.claimed.mib} MiB by {shown(self.wish.claimed.by, quotes=False)}"
        if self.wish.processes > 1:
            shares += f" / {self.wish.processes} processes"
        asked = ""
        if self.wish.memory is not None:
            asked = f"at most {self.wish.memory // self.wish.processes} MiB as {MEMORY} says, "
        least = f", or {self.least} MiB of the pool's smallest" if self.least != self.budget else ""
        return (
            f"{whole}{shares}"
            f" - {self.context} context = {self.budget} MiB, {asked}{self.fraction} of the GPU{least}"
            f"; {MIN_BUDGET} MiB is the least"
        )


def budget(card: Card, policy: Policy, wish: Wish = ALL, *, driver: bool = False) -> Budget:
    """Compute the budget on a card. It rounds down, so that all processes of all slices fit together.

    Where the `driver` limits each slice, the limits have to add up to no more than it gives to programs. So the reserve
    covers the memory that it keeps for itself.
    """
    least = KEPT_MIB if driver else RESERVE_MIB
    reserve = _for_product(policy.reserve_mib, card, max(least, -(-card.memory // 50)))
    context = _for_product(policy.context_mib, card, 0)
    whole = card.memory - reserve
    part = whole // card.replicas if wish.claimed is None else min(whole, wish.claimed.mib)
    share = part // wish.processes - context
    usable = share if wish.memory is None else min(share, wish.memory // wish.processes)
    permille = max(0, 1000 * usable // card.memory)
    unified = card.product.startswith(policy.unified)
    contexts = context * wish.processes
    return Budget(card, reserve, context, share, permille, usable, usable, wish, unified, part, contexts)


def _for_product(setting: Mapping[str, int], card: Card, otherwise: int) -> int:
    """Return the setting for a product: the one with the longest matching prefix."""
    known = [product for product in setting if card.product.startswith(product)]
    return setting.get(max(known, key=len, default="default"), otherwise)


Cards = tuple[tuple[Node, Card | None], ...]
"""Nodes with their cards; None for a node whose labels do not describe one."""


class _Computed(NamedTuple):
    """The cards and budgets of one snapshot, computed once."""

    cards: Callable[[Pool], Cards]
    smallest: Callable[[Pool, Policy, Wish, Selection], Budget | None]


@lru_cache(maxsize=2)  # an entry keeps ten thousand nodes in memory, so a snapshot is dropped as a whole
def _computed(facts: Facts) -> _Computed:
    return _Computed(lru_cache(maxsize=16)(partial(_cards, facts)), lru_cache(maxsize=64)(partial(_smallest, facts)))


def _cards(facts: Facts, pool: Pool) -> Cards:
    return tuple((node, card_of(node)) for node in known_nodes(pool, facts))


def nodes(pool: Pool, facts: Facts, selection: Selection = ANY) -> Cards:
    """Return the nodes of a pool that decide the cap of a pod, with their cards.

    The pod need not fit on one of them now: the node that it waits for may not exist yet.
    """
    known = _computed(facts.of_nodes).cards(pool)
    return known if selection == ANY or selection.costs_too_much(len(known)) else _among(selection, known)


def _among(selection: Selection, known: Cards) -> Cards:
    """Return the known nodes of the pool on which the pod may land, now or later.

    If a term matches no known node, all nodes count: the pod may wait for a new node with any card. The same applies to
    a selection that is too costly to evaluate.
    """
    labelled = tuple(each for each in known if selection.labelled(each[0]))
    if selection.terms is None:
        return labelled or known
    chosen = set()
    for term in selection.terms:
        of_it = [place for place, (node, _) in enumerate(labelled) if term.matches(node.name, node.labels)]
        if not of_it:
            return known
        chosen.update(of_it)
    return tuple(each for place, each in enumerate(labelled) if place in chosen) or known


def smallest(pool: Pool, policy: Policy, facts: Facts, wish: Wish = ALL, selection: Selection = ANY) -> Budget | None:
    """Return the smallest budget, by fraction, of all cards that the pod may land on; None if no card is known.

    If no node has a card, the card that the policy assumes counts.
    """
    return _computed(facts.of_nodes if wish.claimed is None else facts).smallest(pool, policy, wish, selection)


def _smallest(facts: Facts, pool: Pool, policy: Policy, wish: Wish, selection: Selection) -> Budget | None:
    known = nodes(pool, facts, selection)
    cards = {card for _, card in known if card} if wish.claimed is None else _of_devices(facts, pool)
    if not cards and pool.assume:
        cards = {pool.assume}
    budgets = [budget(card, policy, wish, driver=pool.driver_limits) for card in cards]
    tightest = min(budgets, key=lambda b: (b.permille, b.card.memory, b.card.product), default=None)
    if tightest is None:
        return None
    one = tightest.permille
    return replace(
        tightest,
        least=min(b.least if b.permille == one else one * b.card.memory // 1000 for b in budgets),
        mib=min(b.mib for b in budgets),
        slice=min(b.slice for b in budgets),
        contexts=min(b.contexts for b in budgets),
        unified=any(b.unified for b in budgets)
        or any(node.labels.get(PRODUCT, "").startswith(policy.unified) for node, _ in known),
    )


def _of_devices(facts: Facts, pool: Pool) -> set[Card]:
    """Return the cards of a pool's device classes, by the ResourceSlices among the facts."""
    found = (device for name in pool.device_classes for device in devices_of(name, facts))
    return {Card(device.product, device.memory, 1) for device in found if device.memory}


def card_of(node: Node) -> Card | None:
    """Read a node's card from the labels of GPU Feature Discovery (k8s-device-plugin internal/lm/resource.go).

    `gpu.memory` is in MiB for the whole card; `gpu.replicas` is the slices per card. A shared node has at least two.
    With fewer, its labels are older than its configuration, and no cap can be based on them.
    """
    memory, replicas = (integer(node.labels.get(label, "")) for label in CARD_LABELS[1:])
    if memory is None or replicas is None or memory <= 0 or replicas < 2:
        return None
    return Card(node.labels.get(PRODUCT, ""), memory, replicas)
