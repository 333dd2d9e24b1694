"""Decides the order in which waiting requests are answered. It has no threads and no clock."""

from collections.abc import Hashable
from typing import Generic, TypeVar

ORDINARY = 16 * 1024
"""Requests up to this many bytes are one size class, as most reviews are. Each larger class is twice the one before."""

OLDEST = 8
"""One turn in this many goes to the oldest request, whatever its size."""

Waiting = TypeVar("Waiting", bound=Hashable)


class FairQueue(Generic[Waiting]):
    """A queue that serves the smallest size first, and the oldest of one size. No request waits for ever.

    The work of a review grows with its bytes, which are known in advance. So an ordinary review waits for at most one
    large review: the one under way, or the oldest one when its turn comes.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._sizes: dict[Waiting, int] = {}
        self._turns = 0

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return len(self._sizes)

    def add(self, waiting: Waiting, size: int) -> bool:
        """Add a request. Returns false if the queue is full."""
        if len(self._sizes) >= self._capacity:
            return False
        self._sizes[waiting] = (size // ORDINARY).bit_length()
        return True

    def remove(self, waiting: Waiting) -> bool:
        """Remove a request. Returns false if the request is not in the queue."""
        return self._sizes.pop(waiting, None) is not None

    def pop_oldest(self) -> Waiting:
        """Remove and return the oldest request. Raises StopIteration if the queue is empty."""
        oldest = next(iter(self._sizes))
        del self._sizes[oldest]
        return oldest

    def next(self) -> Waiting:
        """Remove and return the next request. Raises StopIteration if the queue is empty."""
        self._turns += 1
        if self._turns % OLDEST == 0:
            return self.pop_oldest()
        chosen = min(self._sizes, key=self._sizes.__getitem__)
        del self._sizes[chosen]
        return chosen
