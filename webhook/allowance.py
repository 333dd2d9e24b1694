"""What one review may cost: units of work, and time.

A unit is what one entry of a list or a map costs all rules together, about a microsecond. All that an object holds is
counted before anything else looks at it, so that a rule is asked of nothing that is too large; findings are paid for as
they are made. How much an object has of any one thing bounds the work that it can cause: no rule is to do more with an
entry because there are many of them.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from webhook.model import Malformed, Object
from webhook.text.spelling import Guesses

UNITS = 150_000
"""What an object may cost; a pod of 100 containers with 200 variables each costs 87,000."""

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
"""Units of an entry in the lists and maps by these names, where it is more than one: much is asked about each."""

TEMPLATE = 150
"""Units of a pod template, beside what it holds: each rule is asked of it as of a pod."""

CONFIGURATION = 150
"""Units of a text that is read as a configuration of the device plugin."""

LETTERS = 4
"""Characters of a framework's settings that cost a unit: they are taken apart."""

FINDING = 20
"""Units of a finding: it is put into words, compared with those of the old object, and told."""

Late = Callable[[], bool]
"""Says whether the time for a review is over."""


def never() -> bool:
    """Be in no hurry."""
    return False


class TooLate(RuntimeError):
    """The time for a review was over before it was judged."""


class TooLarge(Malformed):
    """An object holds more than can be judged in the time that a review has; it says of what there is too much."""


class Allowance:
    """What is left of the units and the time in which an object is judged."""

    __slots__ = ("_guesses", "_left", "_spent", "late")

    def __init__(self, late: Late = never) -> None:
        self._guesses: Guesses | None = None
        self.late = late
        self._left = UNITS
        self._spent: dict[str, tuple[int, int]] = {}

    def again(self) -> "Allowance":
        """As many units for the object that an update replaces, so that what was created can be changed as well.

        The time is the same, and so is what words are taken to mean, or the same finding would differ.
        """
        other = Allowance(self.late)
        other._guesses = self.guesses
        return other

    @property
    def guesses(self) -> Guesses:
        """What words are taken to mean."""
        if self._guesses is None:
            self._guesses = Guesses()
        return self._guesses

    def look(self) -> None:
        """Look at the clock. Raises TooLate."""
        if self.late():
            raise TooLate

    def spend(self, what: str, count: int = 1, price: int = 1) -> None:
        """Pay for so many of something. Raises TooLarge, and TooLate."""
        before, cost = self._spent.get(what, (0, 0))
        self._spent[what] = before + count, cost + count * price
        self._left -= count * price
        if self._left < 0:
            raise self._too_large()
        if before % FEW == FEW - 1:
            self.look()

    def count(self, item: Object) -> None:
        """Pay for all that an object holds, before anything else looks at it. Raises TooLarge, and TooLate."""
        for what, count, cost in _held(item):
            before, paid = self._spent.get(what, (0, 0))
            self._spent[what] = before + count, paid + cost
            self._left -= cost
            if self._left < 0:
                raise self._too_large()
        self.look()

    def _too_large(self) -> TooLarge:
        what, (count, cost) = max(self._spent.items(), key=lambda each: each[1][1])
        return TooLarge(
            (),
            f"is too large to be judged: {count:,} entries in {what} come to {cost:,} units of work, and all that an "
            f"object holds may come to {UNITS:,}; give it fewer, or make several objects of it",
        )


def _held(item: Object) -> Iterator[tuple[str, int, int]]:
    """Yield for each list and map in an object its name, its entries and their cost.

    A map in a list goes by the list's name, and is an entry that has been counted.
    """
    todo: list[tuple[str, int, Any]] = [("object", 1, item)]
    for what, price, there in todo:
        size = len(there)
        yield what, size if price else 0, size * (price or 1)
        if type(there) is dict:
            for key, each in there.items():
                if type(each) in _HOLDERS and each:
                    todo.append((key, PRICES.get(key, 1), each))
        else:
            todo += [(what, 0, each) for each in there if type(each) in _HOLDERS and each]


_HOLDERS = frozenset((dict, list))


def weight(item: Object) -> int:
    """What an object or a part of it costs by what it holds, in units."""
    return sum(cost for _, _, cost in _held(item))


class Watched(tuple[Any, ...]):
    """What a pod has many of; who goes through many looks at the clock."""

    allowance: Allowance

    def __iter__(self) -> Iterator[Any]:
        """Go through them. Raises TooLate."""
        for index, each in enumerate(super().__iter__()):
            if index % FEW == 0:
                self.allowance.look()
            yield each


def watched(entries: Iterable[Any], allowance: Allowance) -> tuple[Any, ...]:
    """Have whoever goes through many entries look at the clock."""
    found = tuple(entries)
    if len(found) <= FEW:
        return found
    many = Watched(found)
    many.allowance = allowance
    return many


FEW = 16
"""Entries that are gone through without a look at the clock."""
