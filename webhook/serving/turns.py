"""Who is next of those that wait. Pure: no threads, no clock."""

from collections.abc import Hashable
from typing import Generic, TypeVar

ORDINARY = 16 * 1024
"""Bytes up to which all count as of one size: most reviews. From there on sizes are told apart by doubling."""

OLDEST = 8
"""One turn in so many goes to whoever has waited longest, whatever the size."""

Waiting = TypeVar("Waiting", bound=Hashable)


class Turns(Generic[Waiting]):
    """A line that serves the smallest first, and the oldest of one size; nobody waits for ever.

    The work of a review grows with its bytes, which are known before any of it is done. So an ordinary review waits
    for one large one at most: the one in hand, or the one whose turn it is as the oldest.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._sizes: dict[Waiting, int] = {}
        self._turns = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._sizes)

    def add(self, waiting: Waiting, size: int) -> bool:
        """Put somebody in line; False when the line is full."""
        if len(self._sizes) >= self._capacity:
            return False
        self._sizes[waiting] = (size // ORDINARY).bit_length()
        return True

    def remove(self, waiting: Waiting) -> bool:
        """Take somebody out of the line; False when it is not in it."""
        return self._sizes.pop(waiting, None) is not None

    def next(self) -> Waiting:
        """Take out who is next. Raises StopIteration when nobody waits."""
        self._turns += 1
        oldest = next(iter(self._sizes))
        chosen = oldest if self._turns % OLDEST == 0 else min(self._sizes, key=self._sizes.__getitem__)
        del self._sizes[chosen]
        return chosen
