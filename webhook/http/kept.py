"""A text that takes long to make, and that all peers may share."""

from collections.abc import Callable
from time import monotonic

FRESH = 1.0
"""Seconds for which the text of the metrics is kept. Prometheus asks for it every 15 seconds or so."""


class Kept:
    """A text that is made at most once in so many seconds, however often it is asked for.

    The time counts from the end of its making. A text whose making fails is not kept.
    """

    def __init__(
        self, make: Callable[[], bytes], seconds: float = FRESH, clock: Callable[[], float] = monotonic
    ) -> None:
        self._make, self._seconds, self._clock = make, seconds, clock
        self._text, self._until = b"", float("-inf")

    def __call__(self) -> bytes:
        """Return the text, which is at most `seconds` old."""
        if self._clock() >= self._until:
            self._text = self._make()
            self._until = self._clock() + self._seconds
        return self._text
