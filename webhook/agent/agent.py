"""The loop of the agent: look at the cards, join them with the pods, tell and do what the policy says, rest."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from webhook.agent import dead, deeds, limits, over, taint
from webhook.agent.cgroups import Folders
from webhook.agent.dead import Dead
from webhook.agent.limits import Limits
from webhook.agent.look import CardUse, join
from webhook.agent.metrics import Metrics, Seen
from webhook.agent.nvml import Cards, Unavailable
from webhook.agent.over import Act, Since
from webhook.agent.processes import Processes
from webhook.agent.taint import Taints
from webhook.agent.turns import Turns
from webhook.agent.view import Known, Row, rows
from webhook.cluster.client import Api
from webhook.cluster.events import EventNote, Owner
from webhook.model import Object
from webhook.policy.model import EVICT, KILL, TAINT, TELL, Contention, Over
from webhook.telemetry.log import Log

if TYPE_CHECKING:
    from webhook.cluster.events import Events

PERIOD, AGAIN = 1.0, 10.0
"""Seconds between two looks, and until NVML is started again after it failed, or while a card is lost."""

QUICK = 0.1
"""Seconds between two looks while containers take turns."""

REPORTER = "slicewarden.dev/agent"


def look(cards: Cards, processes: Processes) -> tuple[CardUse, ...]:
    """Ask the cards, and find the containers of the processes on them."""
    readings = cards.look()
    found = processes.find({each.pid for reading in readings for each in reading.taken})
    return tuple(join(reading, found) for reading in readings)


@dataclass
class Agent:
    """Watches the cards of a node, and acts where it may.

    `known` returns the node's containers by id, and `rules` what the policy says of its pool. Without an `api` no pod
    is evicted, without `folders` no limit is set, without `turns` nothing is frozen, and with `watch_only` nothing is
    done but telling. `node` is its name, and without `taints` it is never tainted.
    """

    known: Callable[[], Mapping[str, Known]]
    rules: Callable[[], Over]
    log: Log
    metrics: Metrics = field(default_factory=Metrics)
    events: "Events | None" = None
    api: Api | None = None
    folders: Folders | None = None
    watch_only: bool = True
    node: str = ""
    taints: Taints | None = None
    turns: Turns | None = None
    contention: Callable[[], Contention] = Contention
    open: Callable[[], Cards] = Cards
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._processes = Processes()
        self._cards: Cards | None = None
        self._since = Since()
        self._limits = Limits()
        self._dead = dead.NONE
        self._opened = 0.0
        self._said: dict[str, str] = {}
        self._evictions = ThreadPoolExecutor(1, "evictions")  # a look never waits for the API server
        self._evicting: set[str] = set()
        if self.taints is not None:
            self.taints.write = self._taint
        if self.turns is not None:
            self.turns.tell, self.turns.acted = self.tell, self.metrics.acted

    def round(self) -> float:
        """Look once, and do what is to be done. Returns the seconds to rest."""
        begin = self.clock()
        if self._cards is None:
            try:
                self._cards = self.open()
            except Unavailable as error:
                self.metrics.failed("nvmlInit")
                self.metrics.saw(Seen(at=begin, dead=self._dead.cards))
                self._say("no NVML", str(error))
                if self.turns is not None:
                    self.turns.release("no NVML")
                return AGAIN
            self._opened = begin
            self._say("no NVML", "")
        rules, known = self.rules(), self.known()
        self._hold(self._cards, begin, known)
        cards = look(self._cards, self._processes)
        if self.turns is not None:
            self.turns.step(cards, known, self.contention())
        every = rows(cards, known)
        self._since, acts = over.decide(self._since, begin, every, rules, known.keys())
        for act in acts:
            self._do(act, rules)
        self._mourn(self._cards, cards, every)
        seconds = self.clock() - begin
        if self.turns is not None:
            self.metrics.paused(self.turns.standstills)
        self.metrics.saw(Seen(cards, every, begin, seconds, rules.slack, self._dead.cards))
        if dead.LOST in self._dead.cards.values() and begin - self._opened >= AGAIN:
            self._leave()  # a card that comes back is seen only after a new start of NVML
        return max((QUICK if self.turns is not None and self.turns.contended else PERIOD) - seconds, 0.0)

    def close(self) -> None:
        """Let everything run, take the driver's limits away, and end the use of NVML."""
        if self.turns is not None:
            self.turns.close()
        if self._cards is not None:
            self._limits.remove(self._cards.limit)
        self._leave()
        self._evictions.shutdown(wait=False, cancel_futures=True)

    def _leave(self) -> None:
        self._limits.forget()
        if self._cards is not None:
            self._cards.close()
            self._cards = None

    def _hold(self, cards: Cards, now: float, known: Mapping[str, Known]) -> None:
        """Set the driver's limits, before the look: a container may be new, and take memory with its first process."""
        wanted = limits.wanted(known)
        if self.watch_only or (not wanted and not len(self._limits)):
            return
        folders = self.folders.find(wanted.keys()) if self.folders else {}
        done = self._limits.keep(now, wanted, folders, cards.whole, cards.limit)
        for _ in range(done):
            self.metrics.acted("Limit", deeds.DONE)
        why = "" if self.folders or not wanted else "there is no whole mount of cgroup v2"
        self._say("no limit by the driver", why or next(iter(self._limits.failed.values()), ""))
        self.metrics.held(len(self._limits), len(self._limits.failed))

    def _mourn(self, cards: Cards, seen: Sequence[CardUse], every: Sequence[Row]) -> None:
        """Tell of cards that have died since the last look: at the node, and at the pods on them."""
        troubles = cards.troubles()
        for trouble in troubles:
            self.metrics.trouble(trouble.uuid, trouble.what)
        if self.taints is not None:
            self._dead = Dead({**self.taints.restored(), **self._dead.cards})
        self._dead = dead.update(self._dead, [card.reading for card in seen], troubles)
        for card in self._dead.new:
            why = self._dead.cards[card]
            self.log({"message": dead.REASON, "gpu": card, "why": why})
            if self.events is None:
                continue
            owners = [Owner("v1", "Node", "", self.node, self.node)] if self.node else []
            for row in every:
                if row.known is not None and row.known.uid and card in (row.reading.uuid, row.reading.parent):
                    name = row.known.name
                    owners.append(Owner("v1", "Pod", name.namespace, name.pod, row.known.uid))
            for owner in dict.fromkeys(owners):
                self.events.add(EventNote(owner, dead.note(card, why), dead.REASON, TELL, REPORTER))
        if self.taints is not None:
            self.taints.keep(self.clock(), self._dead.cards)

    def _say(self, message: str, why: str) -> None:
        """Log a trouble once, and its end."""
        if why != self._said.get(message, ""):
            self._said[message] = why
            self.log({"message": message, "error": why} if why else {"message": message, "over": True})

    def _do(self, act: Act, rules: Over) -> None:
        row, known = act.row, act.row.known
        if known is None:
            return
        if act.do == KILL and not self.watch_only and row.allowance is not None:
            chosen = deeds.victims(row.use, row.allowance + rules.slack)
            self._told(act, known, deeds.kill(chosen, self._processes))
        elif act.do == EVICT and not self.watch_only and self.api is not None and known.uid:
            if known.uid not in self._evicting:
                self._evicting.add(known.uid)
                self._evictions.submit(self._evict, self.api, act, known)
        elif act.do not in (KILL, EVICT):
            self._told(act, known, deeds.DONE)

    def tell(self, known: Known, reason: str, note: str) -> None:
        """Write an Event about a pause at its pod."""
        if self.events is not None and known.uid:
            owner = Owner("v1", "Pod", known.name.namespace, known.name.pod, known.uid)
            self.events.add(EventNote(owner, note, reason, TELL, REPORTER))

    def _evict(self, api: Api, act: Act, known: Known) -> None:
        try:
            self._told(act, known, deeds.evict(api, known))
        finally:
            self._evicting.discard(known.uid)

    def _taint(self, patch: Object) -> None:
        if self.api is not None:
            self._evictions.submit(self._patch, self.api, patch)

    def _patch(self, api: Api, patch: Object) -> None:
        outcome = deeds.patch_node(api, self.node, patch)
        self.metrics.acted(TAINT, outcome if outcome in (deeds.DONE, deeds.WAITS) else "failed")
        done = "tainted" if any(map(taint.ours, taint.taints(patch))) else "no taint of ours"
        self.log({"message": "node", "act": TAINT, "outcome": outcome, "node": self.node, "why": done})

    def _told(self, act: Act, known: Known, outcome: str) -> None:
        """Log what was done, count it, and write an Event at the pod."""
        name = known.name
        self.metrics.acted(act.do, outcome if outcome in (deeds.DONE, deeds.WAITS) else "failed")
        self.log({"message": act.reason, "act": act.do, "outcome": outcome, **_place(act.row, known), "why": act.why})
        if self.events is not None and known.uid and outcome == deeds.DONE:
            owner = Owner("v1", "Pod", name.namespace, name.pod, known.uid)
            done = {KILL: "; its processes on the GPU were killed", EVICT: "; its pod is evicted"}.get(act.do, "")
            note = f"container {name.container} {act.why}{done}"
            self.events.add(EventNote(owner, note, act.reason, act.do, REPORTER))


def _place(row: Row, known: Known) -> dict[str, object]:
    name = known.name
    names = {"namespace": name.namespace, "pod": name.pod, "container": name.container}
    return {**names, "gpu": row.reading.uuid, "mib": row.use.mib, "allowance": row.allowance}
