"""Where facts come from at the moment of a review, and how old they may be."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date

from webhook.facts.snapshot import Facts

Source = Callable[[], Facts | None]
"""Gives the newest snapshot; None while there is none yet."""


class Dated:
    """A source whose facts know the day. They stay one object for as long as neither changes."""

    def __init__(self, source: Source, today: Callable[[], date]) -> None:
        self._source = source
        self._today = today
        self._last: tuple[Facts, Facts] | None = None

    def __call__(self) -> Facts | None:
        """Return the newest snapshot."""
        facts, day = self._source(), self._today()
        if facts is None:
            return None
        if self._last is None or self._last[0] is not facts or self._last[1].today != day:
            self._last = facts, replace(facts, today=day)
        return self._last[1]


class Fresh:
    """A source that gives nothing while what it has is older than a limit, in seconds."""

    def __init__(self, source: Source, age: Callable[[], float], limit: float) -> None:
        self._source = source
        self._age = age
        self._limit = limit

    def __call__(self) -> Facts | None:
        """Return the newest snapshot that is fresh enough."""
        return self._source() if self._age() <= self._limit else None
