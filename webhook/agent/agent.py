"""The loop of the agent: look at the cards, join them with the pods, tell what is wrong, rest."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from webhook.agent import over
from webhook.agent.look import CardUse, join
from webhook.agent.metrics import Metrics, Seen
from webhook.agent.nvml import Cards, Unavailable
from webhook.agent.over import Act, Rules, Since
from webhook.agent.processes import Processes
from webhook.agent.view import Known, rows
from webhook.cluster.events import Denial, Owner
from webhook.telemetry.log import Log

if TYPE_CHECKING:
    from webhook.cluster.events import Events

PERIOD, AGAIN = 1.0, 10.0
"""Seconds between two looks, and until NVML is tried again after it failed."""

REPORTER = "slicewarden.dev/agent"


def look(cards: Cards, processes: Processes) -> tuple[CardUse, ...]:
    """Ask the cards, and find the containers of the processes on them."""
    readings = cards.look()
    found = processes.find({each.pid for reading in readings for each in reading.taken})
    return tuple(join(reading, found) for reading in readings)


@dataclass
class Agent:
    """Watches the cards of a node. `known` returns the node's containers by id, and `rules` what the policy says."""

    known: Callable[[], Mapping[str, Known]]
    rules: Callable[[], Rules]
    log: Log
    metrics: Metrics = field(default_factory=Metrics)
    events: "Events | None" = None
    open: Callable[[], Cards] = Cards
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._processes = Processes()
        self._cards: Cards | None = None
        self._since = Since()
        self._said = ""

    def round(self) -> float:
        """Look once, and do what is to be done. Returns the seconds to rest."""
        begin = self.clock()
        if self._cards is None:
            try:
                self._cards = self.open()
            except Unavailable as error:
                self.metrics.failed("nvmlInit")
                self.metrics.saw(Seen(at=begin))
                self._say(str(error))
                return AGAIN
            self._say("")
        rules = self.rules()
        cards = look(self._cards, self._processes)
        every = rows(cards, self.known())
        self._since, acts = over.decide(self._since, begin, every, rules)
        for act in acts:
            self._tell(act)
        seconds = self.clock() - begin
        self.metrics.saw(Seen(cards, every, begin, seconds, rules.slack))
        if any(card.reading.lost for card in cards):
            self.close()  # a card that comes back needs a new start of NVML
            return AGAIN
        return max(PERIOD - seconds, 0.0)

    def close(self) -> None:
        """End the use of NVML."""
        if self._cards is not None:
            self._cards.close()
            self._cards = None

    def _say(self, why: str) -> None:
        if why != self._said:
            self._said = why
            self.log({"message": "no NVML", "error": why} if why else {"message": "NVML is back"})

    def _tell(self, act: Act) -> None:
        known = act.row.known
        if known is None:
            return
        name = known.name
        names = {"namespace": name.namespace, "pod": name.pod, "container": name.container}
        self.log({"message": act.reason, **names, "gpu": act.row.reading.uuid, "mib": act.row.use.mib, "why": act.why})
        self.metrics.acted(act.do, "done")
        if self.events is not None and known.uid:
            owner = Owner("v1", "Pod", name.namespace, name.pod, known.uid)
            note = f"container {name.container} {act.why}"
            self.events.add(Denial(owner, note, act.reason, act.do, REPORTER))
