"""Wraps sources of facts: adds the current day, and limits their age."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date

from webhook.facts.snapshot import Facts

Source = Callable[[], Facts | None]
"""Returns the newest snapshot; None until there is one."""


class Dated:
    """A source that adds the day to its facts. It returns the same object until the facts or the day change."""

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
    """A source that returns None while its facts are older than a limit, in seconds."""

    def __init__(self, source: Source, age: Callable[[], float], limit: float) -> None:
        self._source = source
        self._age = age
        self._limit = limit

    def __call__(self) -> Facts | None:
        """Return the newest snapshot, or None if it is too old."""
        return self._source() if self._age() <= self._limit else None
