"""Runs the loop of the agent: it reads the cards, finds their pods, lets each part act, and records the actions."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from webhook.agent.actions import DONE, PERIOD, WAITS, ConditionLog, NodeAction, Watcher
from webhook.agent.limits.health import CardHealth
from webhook.agent.limits.idle_watch import IdleWatch
from webhook.agent.limits.limiter import Limiter
from webhook.agent.limits.taint import NodeTaint
from webhook.agent.limits.watchdog import Watchdog
from webhook.agent.metrics import AgentMetrics, LastLook
from webhook.agent.observe.cgroups import CgroupFolders
from webhook.agent.observe.look import look
from webhook.agent.observe.nvml import Cards, Unavailable
from webhook.agent.observe.processes import Processes
from webhook.agent.observe.view import NodeContainer, Observation, rows
from webhook.agent.recorder import UsageRecorder
from webhook.agent.turns.turns import CardTurns
from webhook.cluster.client import Api
from webhook.cluster.events import EventNote, Owner
from webhook.policy.model import EVICT, KILL, Idle, Over
from webhook.telemetry.log import Log

AGAIN = 10.0
"""Seconds until NVML is started again after it failed, and between restarts while a card is lost.

Also the seconds between two checks that NVML still has the same cards and MIG devices.
"""

REPORTER = "slicewarden.dev/agent"

SUFFIXES = {KILL: "; its processes on the GPU were killed", EVICT: "; its pod is being evicted"}
"""The endings of Events' texts, by verb."""


@dataclass
class NodeAgent:
    """Observes the cards of a node, and lets the watchers act on each look, in their order.

    `containers` returns the node's containers by id, `pods` the pods of an Observation, and `rules` the policy of the
    node's pool for containers above their allowance. `write_event` queues an Event. `node` is the node's name, empty if
    unknown.
    """

    containers: Callable[[], Mapping[str, NodeContainer]]
    rules: Callable[[], Over]
    log: Log
    watchers: Sequence[Watcher] = ()
    metrics: AgentMetrics = field(default_factory=AgentMetrics)
    write_event: Callable[[EventNote], object] = lambda _: None
    pods: Callable[[], Mapping[str, NodeContainer]] = dict
    node: str = ""
    open: Callable[[], Cards] = Cards
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._processes = Processes()
        self._conditions = ConditionLog(self.log)
        self._nvml: Cards | None = None
        self._opened = 0.0

    def round(self) -> float:
        """Look once, and act. Returns the seconds until the next look."""
        begin = self.clock()
        if self._nvml is None:
            try:
                self._nvml = self.open()
            except Unavailable as error:
                self.metrics.failed("nvmlInit")
                self._conditions.set("no NVML", str(error))
                for watcher in self.watchers:
                    self._record(watcher.blind(begin))
                self.metrics.saw(LastLook(at=begin))
                return AGAIN
            self._opened = begin
            self._conditions.set("no NVML", "")
        seen = self._observe(self._nvml)
        now = self.clock()
        for watcher in self.watchers:
            self._record(watcher.look(seen, now))
        seconds = self.clock() - begin
        self.metrics.saw(LastLook(seen.cards, seen.rows, begin, seconds, seen.rules.slack, seen.events))
        lacks = (
            f"driver {self._nvml.driver} has no {', '.join(sorted(self._nvml.missing))}" if self._nvml.missing else ""
        )
        self._conditions.set("an old driver", lacks)
        if begin - self._opened >= AGAIN:
            self._opened = begin
            if any(watcher.restart_nvml for watcher in self.watchers) or self._nvml.stale:
                self._leave()
        return max(min((watcher.period for watcher in self.watchers), default=PERIOD) - seconds, 0.0)

    def close(self) -> None:
        """Let each watcher undo the changes that must end with the agent, and end the session of NVML."""
        for watcher in self.watchers:
            self._record(watcher.close())
        self._leave()

    def _observe(self, nvml: Cards) -> Observation:
        containers, rules = self.containers(), self.rules()
        cards = look(nvml, self._processes)
        return Observation(nvml, cards, containers, rows(cards, containers), nvml.events(), rules, self.pods())

    def _leave(self) -> None:
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None

    def _record(self, actions: Iterable[NodeAction]) -> None:
        """Count each action, log it, and write an Event about it if it has a reason and was done."""
        for action in actions:
            self.metrics.acted(action.verb, action.outcome if action.outcome in (DONE, WAITS) else "failed")
            self.log(_line(action, self.node))
            if action.reason and action.outcome == DONE and (owner := _owner(action, self.node)) is not None:
                self.write_event(EventNote(owner, _note(action), action.reason, action.verb, REPORTER))


def build(
    containers: Callable[[], Mapping[str, NodeContainer]],
    rules: Callable[[], Over],
    log: Log,
    *,
    node: str = "",
    api: Api | None = None,
    folders: CgroupFolders | None = None,
    node_taint: NodeTaint | None = None,
    turns: CardTurns | None = None,
    recorder: UsageRecorder | None = None,
    idle: Callable[[], Idle | None] = lambda: None,
    by_hook: Callable[[], bool] = lambda: False,
    watch_only: bool = True,
    tells: bool = False,
    **more: Any,
) -> NodeAgent:
    """Make an agent with all watchers, and their metrics. `more` is as for NodeAgent, `by_hook` as for Limiter.

    With `watch_only` it sets no limits, and evicts, kills and freezes nothing. It still taints the node. `tells` is
    whether `write_event` writes Events.
    """
    metrics, health = AgentMetrics(), CardHealth(node, api, node_taint or NodeTaint())
    limiter, watchdog = Limiter(folders, log, by_hook, watch_only=watch_only), Watchdog(api, watch_only=watch_only)
    metrics.dead, metrics.limits, metrics.reported = (
        lambda: health.dead,
        lambda: limiter.counts,
        lambda: watchdog.reported,
    )
    # limits first, because a new container may allocate memory at any moment
    watchers: list[Watcher] = [limiter, watchdog, health]
    if turns is not None and not watch_only:
        watchers.insert(1, turns)
        metrics.pauses = lambda: turns.pauses
    if recorder is not None:
        watchers.append(recorder)  # late, because only the idle ones wait for it
        metrics.usage = lambda: recorder.totals
    idles = IdleWatch(
        (lambda: recorder.quiet) if recorder else None, idle, api, log, watch_only=watch_only, tells=tells
    )
    watchers.append(idles)
    metrics.idle = lambda: idles.reported
    return NodeAgent(containers, rules, log, watchers, metrics, node=node, **more)


def _line(action: NodeAction, node: str) -> dict[str, object]:
    """Return the log line of an action."""
    line: dict[str, object] = {
        "message": action.reason or action.verb,
        "action": action.verb,
        "outcome": action.outcome,
        "why": action.why,
    }
    if action.target is not None:
        line |= action.target.name._asdict()
    line |= {"container_id": action.container} if action.container else {"node": node}
    return line | ({"gpu": action.gpu} if action.gpu else {}) | dict(action.details)


def _owner(action: NodeAction, node: str) -> Owner | None:
    """Return the object of an action's Event: its pod or the node; None if that is unknown."""
    if not action.container:
        return Owner("v1", "Node", "", node, node) if node else None
    if action.target is None or not action.target.uid:
        return None
    return Owner("v1", "Pod", action.target.name.namespace, action.target.name.pod, action.target.uid)


def _note(action: NodeAction) -> str:
    if action.target is None:
        return action.why
    return f"container {action.target.name.container} {action.why}{SUFFIXES.get(action.verb, '')}"
