"""Defines the agent's actions, and the interface of the parts that carry them out."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from webhook.agent.observe.view import NodeContainer, Observation
from webhook.telemetry.log import Log

LIMIT, FREEZE, THAW = "Limit", "Freeze", "Thaw"
"""Verbs of actions. The policy has names for the others: Report, Evict, Kill and Taint."""

DONE, WAITS = "done", "waits"
"""Outcomes of an action. Any other text is the reason why it failed."""

PERIOD = 1.0
"""Seconds between two looks. At a look the agent reads the cards and finds their containers, and each part acts."""


class NodeAction(NamedTuple):
    """One action on a container, or on the node if `container` is empty, and the reason for it.

    `container` is an id. `why` has no numbers that change between looks, so that repeated Events are counted as one.
    `reason` is the reason of the Event that reports the action; if it is empty, there is no Event. `target` has the
    container's names, if known. `details` are more fields of the log line. `outcome` is empty until the action has been
    carried out.
    """

    verb: str
    container: str
    why: str
    reason: str = ""
    gpu: str = ""
    target: NodeContainer | None = None
    details: Mapping[str, object] = {}
    outcome: str = ""


class Watcher(ABC):
    """The interface of a part of the agent that carries out actions. Methods return the actions that are done."""

    @property
    def period(self) -> float:
        """The number of seconds after which this part needs the next look."""
        return PERIOD

    @property
    def restart_nvml(self) -> bool:
        """Whether NVML must be restarted because a card is lost: NVML shows the card again only after a restart."""
        return False

    @abstractmethod
    def look(self, seen: Observation, now: float) -> Iterable[NodeAction]:
        """Act on the observation of one look. `now` is in seconds of a monotonic clock."""

    def blind(self, now: float) -> Iterable[NodeAction]:  # noqa: ARG002 - of the interface
        """Act when NVML has failed, so that there are no readings of the cards."""
        return ()

    def close(self) -> Iterable[NodeAction]:
        """Undo the changes that must end with the agent."""
        return ()


class ConditionLog:
    """Logs a condition when it begins, when its cause changes and when it ends, instead of at every look."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._causes: dict[str, str] = {}

    def active(self, condition: str) -> bool:
        """Whether the condition was met when it was last set."""
        return bool(self._causes.get(condition))

    def set(self, condition: str, cause: str) -> None:
        """Set the cause of the condition. An empty text ends the condition."""
        if cause != self._causes.get(condition, ""):
            self._causes[condition] = cause
            self._log({"message": condition, "error": cause} if cause else {"message": condition, "over": True})
