"""Keeps the usage record of the node: counts at each look, saves once a minute, and answers who used what."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from webhook.agent.actions import ConditionLog, NodeAction, Watcher
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.sight import Places, sight
from webhook.agent.observe.view import Observation
from webhook.telemetry.log import Log
from webhook.usage import document
from webhook.usage.account import UNSEEN, AccountState, NodeLook, advance
from webhook.usage.document import MOST_ROWS, NodeUsage, collapsed, first_hour, present
from webhook.usage.held import NodeSlices
from webhook.usage.record import HOUR, MOST, Amounts, Book, CardAmounts, HolderKey
from webhook.usage.store import SavedAt, UsageStore

EVERY = 60.0
"""Seconds between two saves."""

MOST_HOURS = 48
"""Maximum number of hours that are counted in memory while they cannot be saved; the oldest ones are dropped."""


class UsageRecorder(Watcher):
    """Counts what each container holds and uses.

    `slices` returns which containers hold slices, and `frozen` those that the agent has frozen. Without a `store` it
    counts in memory, for as long as the agent runs. `boot` identifies the node's boot, and `wall` is the time of day in
    seconds. `usage` may be called by another thread.
    """

    def __init__(
        self,
        node: str,
        slices: Callable[[], NodeSlices],
        store: UsageStore | None,
        log: Log,
        *,
        boot: str = "",
        frozen: Callable[[], Collection[ContainerName]] = tuple,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node, self._slices, self._store, self._boot = node, slices, store, boot
        self._frozen, self._wall, self._saving = frozen, wall, threading.Lock()
        self._conditions = ConditionLog(log)
        self._places: Places = {}
        self._totals: Mapping[HolderKey, Amounts] = {}
        self._cards: Mapping[str, CardAmounts] = {}
        self.failed = ""
        """Why the last save failed; empty if it did not."""
        self._saved = clock()
        self._state = self._resumed(round(self._saved * 1000), round(wall() * 1000))

    def look(self, seen: Observation, now: float) -> Iterable[NodeAction]:
        """Count the time since the last look."""
        picture, self._places = sight(seen, self._slices(), self._places, self._frozen())
        self._advance(picture, now)
        return ()

    def blind(self, now: float) -> Iterable[NodeAction]:
        """Count the time until the next look as unseen."""
        self._advance(self._state.last._replace(seen=False, holders=()), now)
        return ()

    def close(self) -> Iterable[NodeAction]:
        """Save."""
        self._save()
        return ()

    def usage(self, hours: int) -> NodeUsage:
        """Return the usage of the last hours: what was saved, and what was not yet."""
        with self._saving:  # else what is saved meanwhile would count twice, or not at all
            state, failed = self._state, self.failed
            first = first_hour(state.wall, hours)
            book, why = self._store.read(first, MOST_ROWS) if self._store else (Book(), "")
        book = book.plus(collapsed(state.book, first), MOST_ROWS)
        return NodeUsage(self._node, first * HOUR, state.wall, book, present(state), why or failed)

    def text(self, hours: int) -> bytes:
        """Return the usage of the last hours as JSON."""
        return document.write(self.usage(hours)).encode()

    @property
    def totals(self) -> Mapping[HolderKey, Amounts]:
        """The amounts of the containers of the last look since the agent began to see them, as rows of the hour 0."""
        return self._totals

    @property
    def cards(self) -> Mapping[str, CardAmounts]:
        """The amounts of the cards since the agent began, by UUID."""
        return self._cards

    def _advance(self, look: NodeLook, now: float) -> None:
        before = self._state
        after = advance(
            AccountState(before.at, before.wall, before.last, standing=before.standing), look, *self._now(now)
        )
        self._count(after)
        book = _recent(before.book.plus(after.book, MOST))
        self._state = AccountState(after.at, after.wall, look, book, after.standing)
        if now - self._saved >= EVERY:
            self._saved = now
            self._save()

    def _now(self, now: float) -> tuple[int, int]:
        return round(now * 1000), max(round(self._wall() * 1000), 0)

    def _count(self, after: AccountState) -> None:
        """Add what was just counted to the totals. A container that is gone is forgotten."""
        here = {(each.namespace, each.workload, each.pod, each.container) for each in after.last.holders}
        added = collapsed(after.book, 0)
        totals = {key: each for key, each in self._totals.items() if key[4:] in here or not after.last.seen}
        for key, each in added.holders.items():
            if key[4:] in here:
                totals[key] = totals.get(key, Amounts()).plus(each)
        cards = dict(self._cards)
        for card, amounts in added.cards.items():
            cards[card.card] = cards.get(card.card, CardAmounts()).plus(amounts)
        self._totals, self._cards = totals, cards

    def _resumed(self, now: int, wall: int) -> AccountState:
        """Return the state with which to begin: after the last save, with its cards and nothing seen since."""
        last, why = self._store.load() if self._store else (None, "")
        self._set(why)
        if last is None:
            return AccountState(now, wall)
        same = last.boot == self._boot and bool(self._boot) and last.at <= now
        elapsed = now - last.at if same else max(wall - last.wall, 0)
        return AccountState(now - elapsed, last.wall, UNSEEN._replace(cards=last.cards))

    def _save(self) -> None:
        with self._saving:
            state = self._state
            if self._store is None or not state.book.cards:
                return
            last = SavedAt(self._node, self._boot, state.at, state.wall, state.last.cards)
            why = self._store.save(state.book, last)
            if not why:
                self._state = AccountState(state.at, state.wall, state.last, Book(), state.standing)
        self._set(why)

    def _set(self, why: str) -> None:
        self.failed = why
        self._conditions.set("usage is counted in memory", why)


def _recent(book: Book) -> Book:
    """Return a book without the hours above MOST_HOURS: those that were counted first."""
    hours = dict.fromkeys(key.hour for key in book.cards)
    if len(hours) <= MOST_HOURS:
        return book
    dropped = {*[*hours][:-MOST_HOURS]}
    return Book(
        {key: each for key, each in book.cards.items() if key.hour not in dropped},
        {key: each for key, each in book.holders.items() if key.hour not in dropped},
    )
