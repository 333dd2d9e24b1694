"""The thawer: thaws what the ledger names when the agent is dead or silent, and what was frozen for too long.

It is a process of its own, so that it lives when the agent does not. It asks neither NVML nor an API server.

It does not rely on the ledger alone, which somebody on the node may have gained. A container that stands still runs at
the nearest moment that was ever written down for it, whoever has the lock, and at once if it is no longer named.
"""

import math
import time
from collections.abc import Callable, Mapping

from webhook.agent.freezer import Freezer
from webhook.agent.ledger import SILENCE, Ledger

PERIOD = 0.05
"""Seconds between two questions whether the agent lives."""

LATE = 1.0
"""Seconds that the agent may be late with a thaw before it is done for it."""

LONGEST = 3600.0
"""Seconds: no policy lets a container stand still for longer (longestSeconds in policy.schema.json)."""

DEAD, SILENT, OVERDUE = "the agent is dead", "the agent is silent", "frozen for too long"
UNSAFE = "the ledger's folder is not the agent's own"


class Thawer:
    """Thaws for an agent that cannot. `silence` is in seconds."""

    def __init__(
        self, ledger: Ledger, freezer: Freezer, silence: float = SILENCE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ledger, self._freezer, self._silence, self._clock = ledger, freezer, silence, clock
        self._beaten, self._since = ledger.beaten, clock()
        self._moments: dict[str, float] = {}
        self.dead = False
        """Whether the agent was dead at the last look."""

    def look(self) -> tuple[dict[str, str], str]:
        """Thaw what is to be thawed. Returns the outcome for each path, empty if it is done, and why it was done."""
        now, beaten = self._clock(), self._ledger.beaten
        if beaten != self._beaten:
            self._beaten, self._since = beaten, now
        unsafe = self._ledger.trouble
        self.dead = not self._ledger.take(tries=1)
        try:
            named = self._ledger.read().until
            why = UNSAFE if unsafe else DEAD if self.dead else SILENT if now - self._since > self._silence else OVERDUE
            due = [path for path, moment in self._nearest(named).items() if why != OVERDUE or _passed(moment, now)]
            done = {path: self._freezer.thaw(path) for path in due if self._freezer.asked(path)}
            if self.dead and named and not any(done.values()):
                self._ledger.write({})
            return done, why
        finally:
            if self.dead:
                self._ledger.leave()

    def _nearest(self, named: Mapping[str, float]) -> dict[str, float]:
        """Return the nearest moment that was ever written down for each, for as long as it is named.

        One that is no longer named and was not thawed is due at once.
        """
        gone = {path: -math.inf for path in self._moments.keys() - named.keys() if self._freezer.asked(path)}
        nearest = {path: min(moment, self._moments.get(path, moment)) for path, moment in named.items()}
        self._moments = {**nearest, **gone}
        return self._moments


def _passed(moment: float, now: float) -> bool:
    """Tell whether a container is to run by now; so is one with a moment that no policy would give."""
    return not now - LATE <= moment <= now + LONGEST + LATE


def thaw(ledger: Ledger, freezer: Freezer) -> dict[str, str]:
    """Thaw all that the ledger names. Returns why for each that could not be thawed, empty for those that are.

    The ledger is emptied only by who has its lock: an agent that lives goes on with its own.
    """
    done = {path: freezer.thaw(path) for path in ledger.read().until}
    if ledger.held:
        ledger.write({path: 0.0 for path, why in done.items() if why})
    return done
