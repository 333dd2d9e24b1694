"""The thawer: thaws the containers in the ledger if the agent is dead or silent, or if they are frozen for too long.

It is a separate process, so it survives the agent. It uses neither NVML nor the API server.

It does not fully trust the ledger, because another program on the node may have written to it. A frozen container is
thawed at the earliest deadline that the ledger ever had for it, and at once if the ledger no longer names it.
"""

import math
import time
from collections.abc import Callable, Mapping

from webhook.agent.turns.freezer import Freezer
from webhook.agent.turns.ledger import SILENCE, Ledger

PERIOD = 0.05
"""Seconds between two checks of the agent."""

LATE = 1.0
"""Seconds that the agent may be late with a thaw before the thawer does it."""

LONGEST = 3600.0
"""Maximum seconds that any policy lets a container stay frozen (longestSeconds in policy.schema.json)."""

DEAD, SILENT, OVERDUE = "the agent is dead", "the agent is silent", "frozen for too long"
UNSAFE = "the ledger's folder is not the agent's own"


class Thawer:
    """Thaws containers if the agent is dead or silent. The agent is silent after `silence` seconds without a look."""

    def __init__(
        self, ledger: Ledger, freezer: Freezer, silence: float = SILENCE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ledger, self._freezer, self._silence, self._clock = ledger, freezer, silence, clock
        self._beaten, self._since = ledger.beaten, clock()
        self._deadlines: dict[str, float] = {}
        self.dead = False
        """Whether the agent was dead at the last look."""

    def look(self) -> tuple[dict[str, str], str]:
        """Thaw the containers that are due. Returns each thaw's failure, or an empty text, by path; and the cause."""
        now, beaten = self._clock(), self._ledger.beaten
        if beaten != self._beaten:
            self._beaten, self._since = beaten, now
        unsafe = self._ledger.trouble
        self.dead = not self._ledger.take(tries=1)
        try:
            named = self._ledger.read().until
            why = UNSAFE if unsafe else DEAD if self.dead else SILENT if now - self._since > self._silence else OVERDUE
            due = [path for path, deadline in self._earliest(named).items() if why != OVERDUE or _passed(deadline, now)]
            done = {path: self._freezer.thaw(path) for path in due if self._freezer.requested(path)}
            if self.dead and named and not any(done.values()):
                self._ledger.write({})
            return done, why
        finally:
            if self.dead:
                self._ledger.leave()

    def _earliest(self, named: Mapping[str, float]) -> dict[str, float]:
        """Return the earliest deadline that the ledger ever had for each container, as long as it names it.

        A container that is still frozen and no longer named is due at once.
        """
        gone = {path: -math.inf for path in self._deadlines.keys() - named.keys() if self._freezer.requested(path)}
        earliest = {path: min(deadline, self._deadlines.get(path, deadline)) for path, deadline in named.items()}
        self._deadlines = {**earliest, **gone}
        return self._deadlines


def _passed(deadline: float, now: float) -> bool:
    """Whether a deadline has passed. A deadline that no policy allows counts as passed."""
    return not now - LATE <= deadline <= now + LONGEST + LATE


def thaw(ledger: Ledger, freezer: Freezer) -> dict[str, str]:
    """Thaw all containers in the ledger. Returns the failure of each thaw, or an empty text, by path.

    Only the process with the lock empties the ledger, because a running agent keeps its own entries.
    """
    done = {path: freezer.thaw(path) for path in ledger.read().until}
    if ledger.locked:
        ledger.write({path: 0.0 for path, why in done.items() if why})
    return done
