"""The cost of a review: a limit on units of work, and one on time.

A unit is the work of all rules together on one entry of a list or a map, about a microsecond. The entries of an object
are counted before any rule sees it, so no rule ever works on an object that is too large. Findings are paid for as
they are made. The work must stay linear: no rule may do more for an entry because there are many others.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from webhook.model import Malformed, Object
from webhook.text.spelling import Guesses

UNITS = 150_000
"""Units that an object may cost. A pod of 100 containers with 200 variables each costs 87,000."""

PRICES = {
    "containers": 60,
    "initContainers": 60,
    "ephemeralContainers": 60,
    "volumes": 40,
    "nodeSelectorTerms": 30,
    "limits": 15,
    "requests": 15,
    "matchExpressions": 4,
    "nodeSelector": 3,
    "env": 2,
}
"""Units per entry of the lists and maps with these names, which rules read often. All others cost one unit."""

TEMPLATE = 150
"""Units per pod template, in addition to its entries: every rule runs on it as on a pod."""

CONFIGURATION = 150
"""Units per text that is read as a configuration of the device plugin."""

CLAIMED = 4
"""Units per request of a stored claim that a pod names. The pod does not have the request, but rules read it."""

LETTERS = 4
"""Characters of a framework's settings per unit; they are parsed."""

READ = 200
"""Characters per unit of a text that is read again for each pod template. Rules read some about twenty times."""

FINDING = 20
"""Units per finding: its message is written, compared with those of the old object, and sent."""

WRITTEN = 2_000
"""Characters of a message and its parts per unit."""

Late = Callable[[], bool]
"""Returns whether the time for a review is over."""


def no_deadline() -> bool:
    """Return False: the time is never over."""
    return False


class TooLate(RuntimeError):
    """The time for a review ended before the verdict."""


class TooLarge(Malformed):
    """An object has more entries than one review has time to judge. The message names the most costly part."""


class Allowance:
    """The units and the time that are left for judging an object."""

    __slots__ = ("_bound", "_guesses", "_left", "_object", "_spent", "late")

    def __init__(self, late: Late = no_deadline) -> None:
        self._guesses: Guesses | None = None
        self.late = late
        self._left = UNITS
        self._object: Callable[[], Object] = dict
        self._bound = 0
        self._spent: dict[str, tuple[int, int]] = {}

    def again(self) -> "Allowance":
        """Return a fresh allowance for the old object of an update.

        So any object that could be created can be changed. The deadline and the spelling guesses are shared, because
        different guesses would make equal findings differ.
        """
        other = Allowance(self.late)
        other._guesses = self.guesses
        return other

    @property
    def guesses(self) -> Guesses:
        """The corrections that messages suggest for misspelt words."""
        if self._guesses is None:
            self._guesses = Guesses()
        return self._guesses

    def look(self) -> None:
        """Check the clock. Raises TooLate."""
        if self.late():
            raise TooLate

    def spend(self, what: str, count: int = 1, price: int = 1) -> None:
        """Pay for some items of one kind. Raises TooLarge and TooLate."""
        before, cost = self._spent.get(what, (0, 0))
        self._spent[what] = before + count, cost + count * price
        self._left -= count * price
        if self._left < 0:
            self._replace_bound()
        if before % FEW == FEW - 1:
            self.look()

    def count(self, item: Callable[[], Object], at_most: int | None = None) -> None:
        """Pay for every entry of an object before any rule sees it. Raises TooLarge and TooLate.

        `item` returns the object. `at_most` is an upper bound of its cost in units, or None if unknown. If the bound is
        within the units that are left, it is paid, and the entries are not counted. They are counted later only if the
        units run out.
        """
        self._object = item
        if at_most is not None and at_most <= self._left:
            self._bound = at_most
            self._left -= at_most
            return
        self._left -= weight(item(), self._left)
        if self._left < 0:
            raise self._too_large()
        self.look()

    def _replace_bound(self) -> None:
        """Pay for the object's entries instead of their bound. Raises TooLarge if that is too much too."""
        if self._bound:
            self._left += self._bound - weight(self._object())
            self._bound = 0
        if self._left < 0:
            raise self._too_large()

    def _too_large(self) -> TooLarge:
        spent: dict[str, tuple[int, int]] = {}
        left = UNITS
        for what, number, units in chain(_held(self._object()), ((what, *paid) for what, paid in self._spent.items())):
            count, cost = spent.get(what, (0, 0))
            spent[what] = count + number, cost + units
            left -= units
            if left < 0:
                break
        what, (count, cost) = max(spent.items(), key=lambda each: each[1][1])
        return TooLarge(
            (),
            f"is too large to be judged: {count:,} entries in {what} come to {cost:,} units of work, and all that an "
            f"object holds may come to {UNITS:,}; give it fewer, or make several objects of it",
        )


def _held(item: Object) -> Iterator[tuple[str, int, int]]:
    """Yield the name, the number of entries and their cost for every list and map in an object.

    A map in a list has the list's name. It has been counted as an entry of the list.
    """
    pending: list[tuple[str, int, Any]] = [("object", 1, item)]
    for what, price, holder in pending:
        size = len(holder)
        yield what, size if price else 0, size * (price or 1)
        if type(holder) is dict:
            for key, value in holder.items():
                if type(value) in _HOLDERS and value:
                    pending.append((key, PRICES.get(key, 1), value))
        else:
            pending += [(what, 0, value) for value in holder if type(value) in _HOLDERS and value]


_HOLDERS = frozenset((dict, list))


def weight(item: Object | Sequence[Any], most: int = sys.maxsize) -> int:
    """Return the cost of an object, or of a part of one, in units. The walk ends once it is more than `most`."""
    total = 0
    pending: list[tuple[int, Any]] = [(1, item)]
    for price, holder in pending:
        total += price * len(holder)
        if total > most:
            break
        if type(holder) is dict:
            for key, value in holder.items():
                if type(value) in _HOLDERS and value:
                    pending.append((PRICES.get(key, 1), value))
        else:
            pending += [(1, value) for value in holder if type(value) in _HOLDERS and value]
    return total


def characters(item: Object | Sequence[Any]) -> int:
    """Return the number of characters in all keys and texts of a part of an object."""
    total = 0
    pending: list[Any] = [item]
    for holder in pending:
        if type(holder) is dict:
            total += sum(map(len, holder))
            holder = holder.values()
        for value in holder:
            if isinstance(value, str):
                total += len(value)
            elif type(value) in _HOLDERS:
                pending.append(value)
    return total


class Watched(tuple[Any, ...]):
    """Many entries of a pod. Iterating over them checks the clock."""

    allowance: Allowance

    def __iter__(self) -> Iterator[Any]:
        """Yield the entries. Raises TooLate."""
        for index, entry in enumerate(super().__iter__()):
            if index % FEW == 0:
                self.allowance.look()
            yield entry


def watched(entries: Iterable[Any], allowance: Allowance, cost: int = 0) -> tuple[Any, ...]:
    """Return the entries as a tuple.

    Iterating over it checks the clock if it has many entries, or if `cost` (units) is high.
    """
    listed = tuple(entries)
    if max(len(listed), cost) <= FEW:
        return listed
    many = Watched(listed)
    many.allowance = allowance
    return many


def alike(watching: tuple[Any, ...], entries: Iterable[Any]) -> tuple[Any, ...]:
    """Return the entries as a tuple. Iterating over it checks the clock if iterating over `watching` does."""
    return watched(entries, watching.allowance, FEW + 1) if isinstance(watching, Watched) else tuple(entries)


FEW = 16
"""Entries between two checks of the clock."""
