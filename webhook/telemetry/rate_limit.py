"""Limits a rate by a token bucket. Times are seconds of a monotonic clock."""


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
