"""The usage counters of an agent, for its metrics: what its containers and cards have used since it began."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from webhook.usage.account import NodeLook
from webhook.usage.document import ContainerNow, collapsed
from webhook.usage.record import Amounts, Book, CardAmounts, CardKey, HolderKey

LINGER = 300_000
"""Milliseconds for which the counters of a container stay after its end, so that Prometheus reads the last values.

A maximum stays as long, and at most twice as long.
"""

MOST_ENDED = 1_000
"""Maximum number of rows of ended containers, one for each of their cards. Those that ended first are forgotten first.

A row takes up to 12 KiB of the metrics, since Kubernetes allows long names.
"""

_Names = tuple[str, ...]


class NodeTotals(NamedTuple):
    """The usage of a node's containers and cards since its agent began, `began` seconds after 1970 in UTC.

    `now` has the containers of the last look, and `unsaved` is whether the record cannot be saved.
    """

    node: str
    began: float
    containers: Mapping[HolderKey, Amounts]
    cards: Mapping[CardKey, CardAmounts]
    now: Sequence[ContainerNow]
    unsaved: bool


class UsageTotals:
    """Adds up the counts. Each mapping is replaced and never changed, because another thread reads it."""

    def __init__(self) -> None:
        self.cards: Mapping[CardKey, CardAmounts] = {}
        """The amounts of the cards, as rows of the hour 0."""
        self._containers: Mapping[HolderKey, Amounts] = {}
        self._ended: dict[_Names, int] = {}
        self._tops: tuple[Mapping[HolderKey, Amounts], Mapping[HolderKey, Amounts]] = {}, {}
        self._turned = 0

    @property
    def containers(self) -> Mapping[HolderKey, Amounts]:
        """The amounts of the containers of the last looks, as rows of the hour 0.

        `peak` and `even` are those of the last minutes. The counts of a container go on if one with the same names
        begins within LINGER of its end.
        """
        older, newer = self._tops
        tops = {key: older.get(key, Amounts()).plus(newer.get(key, Amounts())) for key in self._containers}
        return {key: each._replace(peak=tops[key].peak, even=tops[key].even) for key, each in self._containers.items()}

    def add(self, book: Book, look: NodeLook, now: int) -> None:
        """Add the counts up to a look. `now` is in milliseconds, by the monotonic clock."""
        added = collapsed(book, 0)
        gone = self._gone(look, now)
        containers = {key: each for key, each in self._containers.items() if key[4:] not in gone}
        older, newer = self._tops
        if now - self._turned >= LINGER:
            older, newer, self._turned = newer, {}, now
        tops = {**newer}
        for key, used in added.holders.items():
            containers[key] = containers.get(key, Amounts()).plus(used)
            tops[key] = tops.get(key, Amounts()).plus(Amounts(peak=used.peak, even=used.even))
        cards = {**self.cards}
        for card, amounts in added.cards.items():
            cards[card] = cards.get(card, CardAmounts()).plus(amounts)
        self._containers, self.cards, self._tops = containers, cards, (older, tops)

    def _gone(self, look: NodeLook, now: int) -> set[_Names]:
        """Return the names of the containers to forget. A look that has seen nothing ends no container."""
        here = {(each.namespace, each.workload, each.pod, each.container) for each in look.holders}
        if look.seen:
            known = dict.fromkeys(key[4:] for key in self._containers if key[4:] not in here)
            self._ended = {names: self._ended.get(names, now) for names in (*self._ended, *known) if names in known}
        else:
            self._ended = {names: at for names, at in self._ended.items() if names not in here}
        gone = {names for names, at in self._ended.items() if now - at >= LINGER}
        rows = Counter[_Names](key[4:] for key in self._containers)
        last = [names for names in reversed(self._ended) if names not in gone]
        counts = accumulate(rows[names] for names in last)
        return gone | {names for names, count in zip(last, counts, strict=True) if count > MOST_ENDED}
