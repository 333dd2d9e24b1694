"""The cards as bars: the memory that is promised, used, and taken by strangers; and who shares a card with whom."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from webhook.reports import top_report
from webhook.reports.formats.html import Segment
from webhook.reports.top_report import NOT_REQUESTED, NodeNow, TopCard
from webhook.text.words import several
from webhook.usage.document import ContainerNow


class CardMemory(NamedTuple):
    """MiB of one card, or of several: in all, promised to containers, used by them, and taken by others.

    `strangers` is used by processes outside any container, and by containers that requested no GPU. `other` is the
    rest of what is in use: by the driver, and by containers that are not shown.
    """

    total: int = 0
    promised: int = 0
    used: int = 0
    strangers: int = 0
    other: int = 0

    def plus(self, other: "CardMemory") -> "CardMemory":
        """Add the memory of another card."""
        return CardMemory(*(mine + its for mine, its in zip(self, other, strict=True)))

    @property
    def words(self) -> str:
        """The memory as a sentence."""
        if not self.total:
            return f"memory unknown, {self.promised:,} MiB promised"
        words = f"{self.total:,} MiB: {self.promised:,} promised, {self.used:,} used, {self.strangers:,} by strangers"
        return f"{words}, {self.other:,} other" if self.other else words

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The parts in use as parts of a bar, in thousandths, which end with the bar."""
        found, start = [], 0.0
        for style, amount in (("cap", self.used), ("stranger", self.strangers), ("reserve", self.other)):
            width = min(1000 * amount / self.total, 1000 - start) if self.total else 0.0
            found.append(Segment(style, start, width))
            start += width
        return tuple(found)

    @property
    def mark(self) -> float:
        """The promised part in thousandths. It is 1000 if more is promised than the card has."""
        return min(1000 * self.promised / self.total, 1000.0) if self.total else 0.0


class CardView(NamedTuple):
    """A card with its containers, as cells."""

    title: str
    facts: str
    memory: CardMemory
    rows: tuple[tuple[str, ...], ...]
    namespaces: tuple[str, ...]


class PoolView(NamedTuple):
    """The cards of a pool, and their memory together. `name` is empty for cards whose pool is not known."""

    name: str
    memory: CardMemory
    cards: tuple[CardView, ...]
    tenants: int
    """The number of namespaces with a container on one of its cards."""


class Neighbours(NamedTuple):
    """A namespace, its number of cards, and the namespaces on the same cards with the number of these."""

    namespace: str
    cards: int
    others: tuple[tuple[str, int], ...]


def memory(card: TopCard) -> CardMemory:
    """Add up the memory of a card."""
    total, outside = card.card.total or 0, card.card.outside or 0
    used = sum(row.use.mib or 0 for row in card.rows if row.use.state != NOT_REQUESTED)
    strangers = outside + sum(row.use.mib or 0 for row in card.rows if row.use.state == NOT_REQUESTED)
    promised = sum(row.use.cap or 0 for row in card.rows)
    return CardMemory(total, promised, used, strangers, max((card.card.used or 0) - used - strangers, 0))


def pools(cards: Iterable[TopCard], pool_of: Callable[[TopCard], str]) -> tuple[PoolView, ...]:
    """Group cards by their pools, in the order of the names; cards without a known pool come last."""
    by_pool: dict[str, list[TopCard]] = {}
    for card in cards:
        by_pool.setdefault(pool_of(card), []).append(card)
    return tuple(_pool(name, by_pool[name]) for name in sorted(by_pool, key=lambda name: (not name, name)))


def _pool(name: str, cards: Sequence[TopCard]) -> PoolView:
    whole = CardMemory()
    for card in cards:
        whole = whole.plus(memory(card))
    tenants = {row.use.namespace for card in cards for row in card.rows}
    return PoolView(name, whole, tuple(map(_card, cards)), len(tenants))


def cut(pools: Iterable[PoolView], most: int) -> tuple[tuple[PoolView, ...], int]:
    """Leave out the containers after the first `most`, and return how many these are. Bars keep the use of all."""
    left, missing, found = most, 0, []
    for pool in pools:
        kept = []
        for card in pool.cards:
            kept.append(card._replace(rows=card.rows[:left]))
            missing += len(card.rows) - len(kept[-1].rows)
            left -= len(kept[-1].rows)
        found.append(pool._replace(cards=tuple(kept)))
    return tuple(found), missing


def _card(each: TopCard) -> CardView:
    card = each.card
    if not card.uuid:
        title, facts = f"{each.node}: GPU not known yet", several(len(each.rows), "container")
    else:
        title = " ".join(filter(None, (each.node, "GPU", card.number, card.model)))
        parts = (
            card.uuid,
            several(len(each.rows), "container"),
            "" if card.busy is None else f"busy {card.busy} %",
            "memory unknown" if card.used is None else f"{card.used:,} MiB in use",
            "dead" if card.dead else "",
        )
        facts = ", ".join(filter(None, parts))
    rows = tuple(tuple(top_report.row_cells(row)) for row in each.rows)
    return CardView(title, facts, memory(each), rows, tuple(sorted({row.use.namespace for row in each.rows})))


def neighbours(cards: Iterable[TopCard]) -> tuple[Neighbours, ...]:
    """Return for each namespace those on the same cards, the namespaces with the most neighbours first."""
    counts, shared = Counter[str](), dict[str, Counter[str]]()
    for card in cards:
        here = {row.use.namespace for row in card.rows if card.card.uuid}
        counts.update(here)
        for namespace in here:
            shared.setdefault(namespace, Counter()).update(here - {namespace})
    found = (
        Neighbours(namespace, counts[namespace], tuple(sorted(others.items(), key=lambda each: (-each[1], each[0]))))
        for namespace, others in shared.items()
    )
    return tuple(sorted(found, key=lambda each: (-len(each.others), each.namespace)))


def by_record(nodes: Iterable[NodeNow], labelled: Mapping[str, str]) -> Callable[[TopCard], str]:
    """Return a function that finds the pool of a card: by the usage record of its node, else by the node's labels.

    `labelled` has the pools by node, as far as they are known.
    """
    recorded = {(node.node, each.card): each.pool for node in nodes for each in _now(node) if each.card and each.pool}
    return lambda card: recorded.get((card.node, card.card.uuid)) or labelled.get(card.node, "")


def _now(node: NodeNow) -> Iterator[ContainerNow]:
    yield from node.usage.now if node.usage else ()
