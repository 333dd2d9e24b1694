"""Keeps a text that takes long to make, such as the metrics, and that all peers may share."""

from collections.abc import Callable
from time import monotonic

FRESH = 1.0
"""Seconds for which the text of the metrics is kept. Prometheus asks for it every 15 seconds or so."""

TIMES, LONGEST = 9, 10.0
"""A text is kept for so many times as long as its making took, but not for more seconds than this because of it.

So a busy machine spends a tenth of its time on it.
"""


class Kept:
    """A text that is made at most once in so many seconds, however often it is asked for.

    The seconds count from the end of its making. A text that takes long to make is kept for longer. If the making of a
    text fails, nothing is kept.
    """

    def __init__(
        self, make: Callable[[], bytes], seconds: float = FRESH, clock: Callable[[], float] = monotonic
    ) -> None:
        self._make, self._seconds, self._clock = make, seconds, clock
        self._text, self._until = b"", float("-inf")

    def __call__(self) -> bytes:
        """Return the text."""
        began = self._clock()
        if began >= self._until:
            self._text = self._make()
            end = self._clock()
            self._until = end + max(self._seconds, min(TIMES * (end - began), LONGEST))
        return self._text
