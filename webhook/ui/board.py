"""The parts of the page: each is read again and again by a thread of its own, while somebody looks at the page."""

import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from webhook.model import Unusable
from webhook.reports.formats import html

MOST_WATCHERS = 5
"""Maximum number of open pages that are renewed. A browser opens 6 connections to a host; one is left for a page."""

GRACE = 30.0
"""Seconds for which parts are read after a page was opened, until it asks for what changes."""


class LivePart(NamedTuple):
    """A part of the page. `read` returns its HTML and raises Unusable. `period` is the seconds between two readings."""

    name: str
    title: str
    period: float
    read: Callable[[], str]


class ShownPart(NamedTuple):
    """A part as it was read last. `version` is 0 before the first reading, and grows with each change."""

    name: str
    title: str
    period: float
    version: int = 0
    at: str = ""
    html: str = ""


class Board:
    """Reads parts while they are looked at, and wakes those who wait for changes.

    A reading that fails is shown as such, and the next one comes after the same time. `report` gets the trace of an
    error that nobody expected.
    """

    def __init__(self, parts: Sequence[LivePart], report: Callable[[str], None]) -> None:
        self._parts, self._report = parts, report
        self._shown = {part.name: ShownPart(*part[:3]) for part in parts}
        self._changed = threading.Condition()
        self._watchers, self._until = 0, 0.0
        self.stopped = False

    def start(self) -> None:
        """Start the threads."""
        for part in self._parts:
            threading.Thread(target=self._run, args=(part,), daemon=True, name=f"read {part.name}").start()

    def stop(self) -> None:
        """Stop the threads, and wake everybody who waits."""
        with self._changed:
            self.stopped = True
            self._changed.notify_all()

    def look(self) -> list[ShownPart]:
        """Return all parts as they are. They are read for a while from now on."""
        with self._changed:
            self._until = time.monotonic() + GRACE
            self._changed.notify_all()
            return [*self._shown.values()]

    def watch(self) -> bool:
        """Begin to watch; `leave` ends it. Returns False if there are too many watchers already."""
        with self._changed:
            if self._watchers >= MOST_WATCHERS:
                return False
            self._watchers += 1
            self._changed.notify_all()
            return True

    def leave(self) -> None:
        """End what `watch` began."""
        with self._changed:
            self._watchers -= 1

    def changes(self, seen: Mapping[str, int], patience: float) -> list[ShownPart]:
        """Wait for parts with a higher version than in `seen`. Returns none after `patience` seconds or at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopped or self._newer(seen), patience)
            return [] if self.stopped else self._newer(seen)

    def _newer(self, seen: Mapping[str, int]) -> list[ShownPart]:
        return [part for part in self._shown.values() if part.version > seen.get(part.name, 0)]

    def _looked_at(self) -> bool:
        return self._watchers > 0 or time.monotonic() < self._until

    def _run(self, part: LivePart) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.stopped or self._looked_at())
            if self.stopped:
                return
            self._put(part.name, self._read(part))
            with self._changed:
                self._changed.wait_for(lambda: self.stopped, part.period)

    def _read(self, part: LivePart) -> str:
        try:
            return part.read()
        except Unusable as error:
            return html.fragment("ui_unread.html", problems=[*map(str, error.problems)])
        except Exception as error:  # one part that fails may not end the others
            with suppress(OSError, ValueError):  # nobody reads standard error any more
                self._report(traceback.format_exc())
            return html.fragment("ui_unread.html", problems=[f"internal error: {type(error).__name__}"])

    def _put(self, name: str, text: str) -> None:
        at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        with self._changed:
            before = self._shown[name]
            self._shown[name] = before._replace(version=before.version + 1, at=at, html=text)
            self._changed.notify_all()
