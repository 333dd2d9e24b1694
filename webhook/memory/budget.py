"""Computes how much memory of a shared card one process may take."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple

from webhook.api import quantity
from webhook.api.pods import Pod
from webhook.api.selectors import NOWHERE, Choice, integer
from webhook.facts.snapshot import Facts, Node
from webhook.policy.model import Card, Policy, Pool
from webhook.text.words import shown

PRODUCT = "nvidia.com/gpu.product"
CARD_LABELS = (PRODUCT, "nvidia.com/gpu.memory", "nvidia.com/gpu.replicas")
"""The labels of nodes that describe a card."""

MIN_BUDGET = 512
"""MiB below which no framework does useful work, so that a cap would only move the failure."""

MEMORY = "slicewarden.dev/gpu-memory"
PROCESSES = "slicewarden.dev/gpu-processes"
"""Pod annotations: how much memory the pod's frameworks need, and how many processes use the slice at once."""

MAX_PROCESSES = 64


class Wish(NamedTuple):
    """The part of its slice that a pod asks for: MiB for all processes together (None: the whole slice)."""

    memory: int | None = None
    processes: int = 1


ALL = Wish()
"""One process that takes the whole slice: the default."""


class Refused(ValueError):
    """An annotation has a value that cannot be used."""

    def __init__(self, annotation: str, message: str) -> None:
        super().__init__(message)
        self.annotation = annotation
        self.message = message


def wish(annotations: Mapping[str, object]) -> Wish:
    """Read the annotations by which a pod asks for a part of its slice. Raises Refused."""
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
            raise Refused(
                MEMORY, f"{shown(memory)} is no quantity of memory; write one such as {quoted(memory, '2Gi')}"
            )
    if processes is not None:
        number = integer(processes) if isinstance(processes, str) else None
        if number is None or not 1 <= number <= MAX_PROCESSES:
            example = quoted(processes, "2")
            raise Refused(
                PROCESSES, f"{shown(processes)} is no whole number from 1 to {MAX_PROCESSES}, such as {example}"
            )
        count = number
    return Wish(asked, count)


def quoted(said: object, example: str) -> str:
    """Write an example in quotes where they are what is missing."""
    return example if isinstance(said, str) else f'"{example}" with its quotes: an annotation is a text'


@dataclass(frozen=True, slots=True, eq=False)
class Budget:
    """A cap and the sum behind it. All memory in MiB.

    All pods of a kind share one object in a snapshot, so caches use it as a key.

    `reserve` is kept back for driver and fragmentation, `context` is what a process takes beside its
    allocator, `budget` is what the allocator may take, and `permille` the same in thousandths of the card.
    `least` is that fraction of the smallest card, and `mib` is the amount that fits on every card.
    Where the GPU's memory is the host's (`unified`), a fraction of it is no cap.
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

    @property
    def enough(self) -> bool:
        """Whether a framework can do anything within it."""
        return self.least >= MIN_BUDGET and self.permille > 0

    @property
    def fraction(self) -> str:
        """The cap as every framework's parser takes it: `0.ddd`."""
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
        """The sum in words."""
        shares = f"{self.card.replicas} replicas"
        if self.wish.processes > 1:
            shares += f" / {self.wish.processes} processes"
        asked = ""
        if self.wish.memory is not None:
            asked = f"at most {self.wish.memory // self.wish.processes} MiB as {MEMORY} says, "
        least = f", or {self.least} MiB of the pool's smallest" if self.least != self.budget else ""
        return (
            f"({self.card.memory} MiB - {self.reserve} reserve) / {shares}"
            f" - {self.context} context = {self.budget} MiB, {asked}{self.fraction} of the card{least}"
            f"; {MIN_BUDGET} MiB are needed"
        )


def budget(card: Card, policy: Policy, wish: Wish = ALL) -> Budget:
    """Divide a card. Always rounds down, so that all processes of all slices together fit."""
    reserve = _for_product(policy.reserve_mib, card, max(256, -(-card.memory // 50)))
    context = _for_product(policy.context_mib, card, 0)
    share = (card.memory - reserve) // (card.replicas * wish.processes) - context
    usable = share if wish.memory is None else min(share, wish.memory // wish.processes)
    permille = max(0, 1000 * usable // card.memory)
    return Budget(
        card, reserve, context, share, permille, usable, usable, wish, card.product.startswith(policy.unified)
    )


def _for_product(setting: Mapping[str, int], card: Card, otherwise: int) -> int:
    """Return the setting for a product: the one with the longest matching prefix."""
    known = [product for product in setting if card.product.startswith(product)]
    return setting.get(max(known, key=len, default="default"), otherwise)


Cards = tuple[tuple[Node, Card | None], ...]
"""Nodes with their cards; None for a node whose labels do not describe one."""


class Selection(NamedTuple):
    """A pod's own choice among the nodes of a pool: labels, and node selector terms of which one must hold."""

    labels: frozenset[tuple[str, str]] = frozenset()
    terms: frozenset[Choice] | None = None

    @classmethod
    def of(cls, pod: Pod, pool: Pool) -> "Selection":
        """Read a pod's node selector and required affinity, without what all nodes of the pool satisfy.

        So a pod says the same before and after it is steered, and most pods say nothing.
        """
        labels = frozenset(pod.node_selector.items() - pool.nodes.labels.items())
        if pod.node_terms is None:
            return cls(labels) if labels else ANY
        terms = [Choice(term.expressions, term.fields) for term in pod.node_terms if term.expressions is not None]
        own = [_own(term, pool) if term.readable else NOWHERE for term in terms]
        return cls(labels, frozenset(own) if all(map(any, own)) else None)

    def allows(self, node: Node) -> bool:
        """Tell whether the pod may run on a node, as far as its labels and its name say."""
        return self._labelled(node) and (
            self.terms is None or any(t.matches(node.name, node.labels) for t in self.terms)
        )

    def _labelled(self, node: Node) -> bool:
        return all(node.labels.get(key) == value for key, value in self.labels)

    def among(self, known: Cards) -> Cards:
        """Return the nodes on which the pod may land one day, of those known to be in the pool.

        For a term, or a node selector, that none of them satisfies yet all of them stand: a node that it waits for may
        have any card. So it is for a choice of more than MAX_CHOICES conditions, which is not gone through.
        """
        labelled = tuple(each for each in known if self._labelled(each[0]))
        if self.terms is None:
            return labelled or known
        if sum(len(part) for term in self.terms for part in term) > MAX_CHOICES:
            return known
        chosen = set()
        for term in self.terms:
            of_it = [place for place, (node, _) in enumerate(labelled) if term.matches(node.name, node.labels)]
            if not of_it:
                return known
            chosen.update(of_it)
        return tuple(each for place, each in enumerate(labelled) if place in chosen) or known


def _own(term: Choice, pool: Pool) -> Choice:
    return term._replace(labels=tuple(r for r in term.labels if r not in pool.nodes.requirements))


MAX_CHOICES = 100
"""How many conditions of a pod's node selector terms are held against every node of a pool: far more than any needs."""

ANY = Selection()


class _Computed(NamedTuple):
    """The cards and budgets of one snapshot, computed once."""

    cards: Callable[[Pool], Cards]
    smallest: Callable[[Pool, Policy, Wish, Selection], Budget | None]


@lru_cache(maxsize=2)  # an entry keeps its snapshot of ten thousand nodes alive, so all of it goes together
def _computed(facts: Facts) -> _Computed:
    return _Computed(lru_cache(maxsize=16)(partial(_cards, facts)), lru_cache(maxsize=64)(partial(_smallest, facts)))


def _cards(facts: Facts, pool: Pool) -> Cards:
    return tuple((node, card_of(node)) for node in facts.nodes if pool.nodes.matches(node.labels))


def nodes(pool: Pool, facts: Facts, selection: Selection = ANY) -> Cards:
    """The nodes of a pool by which a pod is capped, with their cards.

    Do not ask it where a pod lands: the node that it waits for may not exist yet.
    """
    known = _computed(facts).cards(pool)
    return known if selection == ANY else selection.among(known)


def smallest(pool: Pool, policy: Policy, facts: Facts, wish: Wish = ALL, selection: Selection = ANY) -> Budget | None:
    """The smallest budget, by fraction, of all cards that the pod may land on; None when no card is known.

    Falls back to the card that the policy assumes if no node has one.
    """
    return _computed(facts).smallest(pool, policy, wish, selection)


def _smallest(facts: Facts, pool: Pool, policy: Policy, wish: Wish, selection: Selection) -> Budget | None:
    known = nodes(pool, facts, selection)
    cards = {card for _, card in known if card}
    if not cards and pool.assume:
        cards = {pool.assume}
    budgets = [budget(card, policy, wish) for card in cards]
    tightest = min(budgets, key=lambda b: (b.permille, b.card.memory, b.card.product), default=None)
    if tightest is None:
        return None
    one = tightest.permille
    return replace(
        tightest,
        least=min(b.least if b.permille == one else one * b.card.memory // 1000 for b in budgets),
        mib=min(b.mib for b in budgets),
        unified=any(b.unified for b in budgets)
        or any(node.labels.get(PRODUCT, "").startswith(policy.unified) for node, _ in known),
    )


def card_of(node: Node) -> Card | None:
    """Read a node's card off the labels of GPU Feature Discovery (k8s-device-plugin internal/lm/resource.go).

    `gpu.memory` is MiB of the whole card, `gpu.replicas` slices per card. A shared node has at least two: with
    fewer, its labels lag behind its configuration, and no cap can be based on them.
    """
    memory, replicas = (integer(node.labels.get(label, "")) for label in CARD_LABELS[1:])
    if memory is None or replicas is None or memory <= 0 or replicas < 2:
        return None
    return Card(node.labels.get(PRODUCT, ""), memory, replicas)
