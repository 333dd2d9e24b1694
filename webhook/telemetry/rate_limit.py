"""Limits a rate by a token bucket, and a share of the time. Times are seconds of a monotonic clock."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic


class Bucket:
    """A token bucket of `burst` tokens that refills at `rate` tokens a second."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, burst: float, rate: float, now: float) -> None:
        self._burst, self._rate = burst, rate
        self._tokens, self._at = burst, now

    def ready(self, now: float) -> bool:
        """Return whether there is a token to take."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        return self._tokens >= 1

    def take(self) -> None:
        """Take a token."""
        self._tokens -= 1


SHARE, MOST = 0.1, 0.2
"""The part of the time that such work gets, and the seconds of it that may be saved up."""


class TimeShare:
    """Gives a part of the time to work that others may cause at any rate. What has waited longest comes first."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._spare, self._at = MOST, clock()
        self._waiting: dict[str, None] = {}
        self._asked: set[str] = set()

    def is_next(self, name: str) -> bool:
        """Whether it is the turn of a piece of work. Otherwise it waits, and its turn comes at a later call."""
        now = self._clock()
        self._spare, self._at = min(MOST, self._spare + SHARE * (now - self._at)), now
        self._waiting.setdefault(name)
        self._asked.add(name)
        return self._spare > 0 and next(iter(self._waiting)) == name

    @contextmanager
    def spent(self, name: str) -> Iterator[None]:
        """Count the time of the block, in which a piece of work is done."""
        begin = self._clock()
        try:
            yield
        finally:
            self._waiting.pop(name, None)
            self._spare = max(-MOST, self._spare - (self._clock() - begin))

    def forget(self) -> None:
        """Forget the work that nobody has asked for since the last call: it would keep its turn from the others."""
        self._waiting = {name: None for name in self._waiting if name in self._asked}
        self._asked.clear()
