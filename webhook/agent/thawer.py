"""The thawer: thaws what the ledger names when the agent is dead or silent, and what was frozen for too long.

It is a process of its own, so that it lives when the agent does not. It asks neither NVML nor an API server.
"""

import time
from collections.abc import Callable

from webhook.agent.freezer import Freezer
from webhook.agent.ledger import SILENCE, Ledger

PERIOD = 0.05
"""Seconds between two questions whether the agent lives."""

LATE = 1.0
"""Seconds that the agent may be late with a thaw before it is done for it."""

DEAD, SILENT, OVERDUE, ASKED = "the agent is dead", "the agent is silent", "frozen for too long", "by hand"


class Thawer:
    """Thaws for an agent that cannot. `silence` is in seconds."""

    def __init__(
        self, ledger: Ledger, freezer: Freezer, silence: float = SILENCE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ledger, self._freezer, self._silence, self._clock = ledger, freezer, silence, clock
        self._beaten, self._since = ledger.beaten, clock()
        self.dead = False
        """Whether the agent was dead at the last look."""

    def look(self) -> tuple[dict[str, str], str]:
        """Thaw what is to be thawed. Returns the outcome for each path, empty if it is done, and why it was done."""
        now, beaten = self._clock(), self._ledger.beaten
        if beaten != self._beaten:
            self._beaten, self._since = beaten, now
        self.dead = not self._ledger.take(tries=1)
        try:
            until = self._ledger.read().until
            why = DEAD if self.dead else SILENT if now - self._since > self._silence else OVERDUE
            due = [path for path, moment in until.items() if why != OVERDUE or now > moment + LATE]
            done = {path: self._freezer.thaw(path) for path in due if self._freezer.asked(path)}
            if self.dead and until and not any(done.values()):
                self._ledger.write({})
            return done, why
        finally:
            if self.dead:
                self._ledger.leave()


def thaw(ledger: Ledger, freezer: Freezer) -> dict[str, str]:
    """Thaw all that the ledger names. Returns why for each that could not be thawed, empty for those that are.

    The ledger is emptied only by who has its lock: an agent that lives goes on with its own.
    """
    done = {path: freezer.thaw(path) for path in ledger.read().until}
    if ledger.held:
        ledger.write({path: 0.0 for path, why in done.items() if why})
    return done
