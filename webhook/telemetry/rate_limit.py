"""How often something may be told of: times are seconds of any clock that does not go back."""


class Bucket:
    """Allows a burst, and so many a second after it."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, burst: float, rate: float, now: float) -> None:
        self._burst, self._rate = burst, rate
        self._tokens, self._at = burst, now

    def ready(self, now: float) -> bool:
        """Tell whether there is one to take."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        return self._tokens >= 1

    def take(self) -> None:
        """Take one that is ready."""
        self._tokens -= 1
