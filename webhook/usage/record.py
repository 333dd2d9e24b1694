"""The usage record: how many slices of each card each container had in each hour, and how much of the card it used.

All times are whole milliseconds, so that sums are exact. A slice-millisecond is one slice of a card for a millisecond.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import add
from typing import NamedTuple

HOUR = 3_600_000
"""Milliseconds of an hour."""

MOST = 500
"""Maximum number of rows of containers in one hour; the usage of others is added to the row of their namespace.

A tenant may start any number of pods. Above twice this number, namespaces have one row together.
"""

REST = "(others)"
"""Stands for pods, containers and workloads that have no row of their own. It is not a valid name in Kubernetes."""


class SlicedCard(NamedTuple):
    """A card that is counted: its UUID, its number of slices, its pool, and its model by the node's labels."""

    uuid: str
    slices: int
    pool: str = ""
    product: str = ""


class CardKey(NamedTuple):
    """The key of a card's row: the card, as it was offered in an hour. `hour` counts from 1970 in UTC."""

    hour: int
    card: str
    pool: str
    product: str


class HolderKey(NamedTuple):
    """The key of a container's row: the container, on a card in an hour.

    `card` is empty while it is not known which card of the node the container holds.
    """

    hour: int
    card: str
    pool: str
    product: str
    namespace: str
    workload: str
    pod: str
    container: str

    def folded(self, *, namespace: bool) -> "HolderKey":
        """Return the key of the row that sums up containers without a row, of its namespace or of all namespaces."""
        return self._replace(namespace=self.namespace if namespace else REST, workload=REST, pod=REST, container=REST)


class CardAmounts(NamedTuple):
    """How long a card was counted (ms), and its slice-milliseconds. In use + free + unseen is always the capacity.

    `unseen` is time that the agent cannot know: there was no look, or some container has slices of an unknown card.
    """

    counted: int = 0
    capacity: int = 0
    held: int = 0
    free: int = 0
    unseen: int = 0

    def plus(self, other: "CardAmounts") -> "CardAmounts":
        """Add two amounts."""
        return type(self)(*map(add, self, other))


class Amounts(NamedTuple):
    """The slices that a container held, and its use of a card. `held` is in slice-milliseconds; memory is in MiB.

    `working`, `idle` and `unmeasured` are milliseconds, and together those for which the container was seen.
    `unmeasured` is when NVML could not tell whether it worked. `memory` is MiB times milliseconds over the
    `measured` milliseconds, `peak` its maximum, and `cap` the largest allowance. `over` are milliseconds above it, and
    `contended` those in which it and another one worked on the same card. `even` is the maximum of what it would use if
    each of its processes used as much as the largest one, while it had several: above `peak` if they are unequal.
    """

    held: int = 0
    working: int = 0
    idle: int = 0
    unmeasured: int = 0
    memory: int = 0
    measured: int = 0
    over: int = 0
    contended: int = 0
    peak: int = 0
    cap: int = 0
    even: int = 0

    @property
    def seen(self) -> int:
        """Milliseconds for which the container was seen."""
        return self.working + self.idle + self.unmeasured

    def plus(self, other: "Amounts") -> "Amounts":
        """Add two amounts. Those of MAXIMA are the larger ones."""
        sums, tops = map(add, self[:-MAXIMA], other[:-MAXIMA]), map(max, self[-MAXIMA:], other[-MAXIMA:])
        return Amounts._make((*sums, *tops))


MAXIMA = 3
"""The last fields of Amounts that are not added up: of several, the largest counts."""


class SeenHours(NamedTuple):
    """The hours (from 1970 in UTC) in which a container was seen first and last, and first had its peak (MiB)."""

    first: int
    last: int
    peak: int
    reached: int

    def plus(self, other: "SeenHours") -> "SeenHours":
        """Add the hours of the same container, or of another one of its workload."""
        peak = max(self.peak, other.peak)
        reached = min(each.reached for each in (self, other) if each.peak == peak)
        return SeenHours(min(self.first, other.first), max(self.last, other.last), peak, reached)


class PoolHour(NamedTuple):
    """An hour, counted from 1970 in UTC, and a pool."""

    hour: int
    pool: str


class HourAmounts(NamedTuple):
    """For how long a pool's cards were counted in an hour (ms, of the longest one), and its slice-milliseconds.

    `free` are those that nobody held, and `unseen` those that the agent cannot know of.
    """

    counted: int = 0
    working: int = 0
    idle: int = 0
    unmeasured: int = 0
    free: int = 0
    unseen: int = 0

    def plus(self, other: "HourAmounts") -> "HourAmounts":
        """Add the amounts of another time."""
        return type(self)(*map(add, self, other))


@dataclass(frozen=True)
class Book:
    """Rows by their keys. Functions return a new book and leave the old one unchanged.

    `hours` are those of containers whose hours were added up to the hour 0, and `hourly` all slices of these hours.
    """

    cards: Mapping[CardKey, CardAmounts] = field(default_factory=dict)
    holders: Mapping[HolderKey, Amounts] = field(default_factory=dict)
    hours: Mapping[HolderKey, SeenHours] = field(default_factory=dict)
    hourly: Mapping[PoolHour, HourAmounts] = field(default_factory=dict)

    def plus(self, other: "Book", most: int = MOST) -> "Book":
        """Add the rows of another book."""
        book = gathered(other.cards.items(), other.holders.items(), most, self)
        if not other.hours and not other.hourly:
            return book
        hourly = {key: self.hourly.get(key, HourAmounts()).plus(each) for key, each in other.hourly.items()}
        return replace(book, hours=added_hours(self.hours, other.hours.items()), hourly={**self.hourly, **hourly})


def gathered(
    cards: Iterable[tuple[CardKey, CardAmounts]],
    holders: Iterable[tuple[HolderKey, Amounts]],
    most: int = MOST,
    start: Book | None = None,
) -> Book:
    """Add rows to a book, with at most about twice `most` rows of containers in an hour.

    The first containers of an hour get rows of their own; the others are added up by namespace.

    Rows of cards are not limited, since a node has few cards.
    """
    start = start or Book()
    new_cards, new_holders = {**start.cards}, {**start.holders}
    counts = Counter(key.hour for key in new_holders)
    for card, amounts in cards:
        new_cards[card] = new_cards.get(card, CardAmounts()).plus(amounts)
    for key, used in holders:
        row = _row(new_holders, key, counts[key.hour], most)
        counts[key.hour] += row not in new_holders
        new_holders[row] = new_holders[row].plus(used) if row in new_holders else used
    return Book(new_cards, new_holders, start.hours, start.hourly)


def added_hours(
    before: Mapping[HolderKey, SeenHours], rows: Iterable[tuple[HolderKey, SeenHours]]
) -> dict[HolderKey, SeenHours]:
    """Add the hours of containers, by their keys in the hour 0."""
    found = {**before}
    for key, each in rows:
        found[key] = found[key].plus(each) if key in found else each
    return found


def _row(holders: Mapping[HolderKey, Amounts], key: HolderKey, count: int, most: int) -> HolderKey:
    """Return the row that takes a container's usage: its own, that of its namespace, or that of all others."""
    if key in holders or count < most:
        return key
    folded = key.folded(namespace=True)
    return folded if folded in holders or count < 2 * most else key.folded(namespace=False)
