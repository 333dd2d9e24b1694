"""Keeps the usage record of the node: it counts at each look at the cards, saves once a minute, and reports the use."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor

from webhook.agent.actions import ConditionLog, NodeAction, Watcher
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.sight import Places, sight
from webhook.agent.observe.view import Observation
from webhook.telemetry.log import Log
from webhook.usage import document
from webhook.usage.account import KEPT_HOURS, UNSEEN, AccountState, NodeLook, QuietTime, advance, quiet
from webhook.usage.document import MOST_ROWS, NodeUsage, collapsed, first_hour, present
from webhook.usage.held import NodeSlices
from webhook.usage.record import HOUR, MOST, Book
from webhook.usage.store import FILE, SHARED, WAIT, SavedAt, UsageStore
from webhook.usage.totals import NodeTotals, UsageTotals

EVERY = 60.0
"""Seconds between two saves."""

MOST_HOURS = 48
"""Maximum number of hours that are counted in memory while they cannot be saved; the oldest ones are dropped."""


BUSY = f"{FILE}: it is being written, so only what is not saved yet is shown"


class UsageRecorder(Watcher):
    """Counts the slices that each container has, and how much of the cards it uses.

    `slices` returns which containers have slices, and `frozen` those that the agent has frozen. Without a `store` the
    counts are only in memory, for as long as the agent runs. `boot` identifies the node's boot, and `wall` is the time
    of day in seconds. `usage` may be called by another thread. `saver` saves in the background, so that the agent
    never waits for a disk before it looks at the cards again.
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
        saver: Executor | None = None,
    ) -> None:
        self._node, self._slices, self._store, self._boot = node, slices, store, boot
        self._frozen, self._wall = frozen, wall
        self._saver = saver or ThreadPoolExecutor(1, "usage")
        self._save: Future[str] | None = None
        self._file, self._swap = threading.Lock(), threading.Lock()
        self._given = Book()
        self._conditions = ConditionLog(log)
        self._places: Places = {}
        self._totals, self._began = UsageTotals(), wall()
        self.failed = ""
        """Why the last save failed; empty if it did not."""
        self._saved = clock()
        self._state = self._resumed(round(self._saved * 1000), round(wall() * 1000))

    def look(self, seen: Observation, now: float) -> Iterable[NodeAction]:
        """Count the time since the last look by what this look shows."""
        picture, self._places = sight(seen, self._slices(), self._places, self._frozen())
        self._advance(picture, now)
        return ()

    def blind(self, now: float) -> Iterable[NodeAction]:
        """Count the time until the next look as unseen."""
        self._advance(self._state.last._replace(seen=False, holders=()), now)
        return ()

    def close(self) -> Iterable[NodeAction]:
        """Save the counts, after any save that has already begun."""
        self._ended()
        self._begin()
        self._ended()
        self._saver.shutdown()
        return ()

    def usage(self, hours: int) -> NodeUsage:
        """Return the usage of the last hours: the saved counts, and those not saved yet."""
        free = self._file.acquire(timeout=WAIT)  # else what is saved meanwhile would count twice, or not at all
        try:
            with self._swap:
                state, given, failed = self._state, self._given, self.failed
            first = first_hour(state.wall, hours)
            book, why = self._store.read(first, MOST_ROWS) if self._store and free else (Book(), "" if free else BUSY)
        finally:
            if free:
                self._file.release()
        for each in (given, state.book):
            book = book.plus(collapsed(each, first), MOST_ROWS)
        return NodeUsage(self._node, first * HOUR, state.wall, book, present(state), why or failed)

    def text(self, hours: int) -> bytes:
        """Return the usage of the last hours as JSON."""
        return document.write(self.usage(hours)).encode()

    @property
    def totals(self) -> NodeTotals:
        """The values for the metrics: the counts since the agent began, and the containers of the last look."""
        totals = self._totals
        return NodeTotals(
            self._node, self._began, totals.containers, totals.cards, present(self._state), bool(self.failed)
        )

    @property
    def quiet(self) -> Mapping[str, QuietTime]:
        """Return for how long each container has certainly not worked, in seconds, as of the last look."""
        return quiet(self._state)

    def _advance(self, look: NodeLook, now: float) -> None:
        before = self._state
        after = advance(
            AccountState(before.at, before.wall, before.last, standing=before.standing), look, *self._now(now)
        )
        self._totals.add(after.book, after.last, after.at)
        book = _recent(before.book.plus(after.book, MOST))
        self._state = AccountState(after.at, after.wall, look, book, after.standing)
        if self._save is not None and self._save.done():
            self._ended()
        if self._save is None and now - self._saved >= EVERY:
            self._saved = now
            self._begin()

    def _now(self, now: float) -> tuple[int, int]:
        return round(now * 1000), max(round(self._wall() * 1000), 0)

    def _resumed(self, now: int, wall: int) -> AccountState:
        """Return the state with which to begin: after the last save, with its cards and nothing seen since."""
        last, why = self._store.load() if self._store else (None, "")
        self._set(why)
        if last is None:
            return AccountState(now, wall)
        same = last.boot == self._boot and bool(self._boot) and last.at <= now
        elapsed = now - last.at if same else max(wall - last.wall, 0)
        return AccountState(now - elapsed, last.wall, UNSEEN._replace(cards=last.cards))

    def _begin(self) -> None:
        """Begin to save what was counted. Until it is saved, it is kept, also so that a look adds to a small book."""
        state, book = self._state, self._given.plus(self._state.book, MOST)
        if not book.cards:
            return
        with self._swap:
            self._given = _recent(book)
            self._state = AccountState(state.at, state.wall, state.last, Book(), state.standing)
        if self._store is None:
            return
        last = SavedAt(self._node, self._boot, state.at, state.wall, state.last.cards)
        self._save = self._saver.submit(self._written, self._store, self._given, last)

    def _written(self, store: UsageStore, book: Book, last: SavedAt) -> str:
        """Save a book, in the background. What another agent has counted too is left out."""
        with self._file:
            why = store.save(book, last)
            if why in ("", SHARED):
                with self._swap:
                    self._given = Book()
        return why

    def _ended(self) -> None:
        """Report the save that has begun, if any, after its end."""
        if self._save is not None:
            self._set(self._save.result())
            self._save = None

    def _set(self, why: str) -> None:
        self.failed = why
        self._conditions.set("usage is counted in memory", why)


def _recent(book: Book) -> Book:
    """Return a book without the hours with containers above MOST_HOURS: those that were counted first.

    Hours without containers take little, and are those of a node that was off. As many are kept as in the file.
    """
    full = dict.fromkeys(key.hour for key in book.holders)
    empty = {key.hour: None for key in book.cards if key.hour not in full}
    if len(full) <= MOST_HOURS and len(empty) <= KEPT_HOURS:
        return book
    dropped = {*[*full][:-MOST_HOURS], *[*empty][:-KEPT_HOURS]}
    return Book(
        {key: each for key, each in book.cards.items() if key.hour not in dropped},
        {key: each for key, each in book.holders.items() if key.hour not in dropped},
    )
