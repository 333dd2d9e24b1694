"""Has the containers of contended cards take turns: from what was seen to the plan, and from the plan to the kernel.

Whatever is not known, cannot be read or cannot be written makes everything run.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from webhook.agent import plan
from webhook.agent.deeds import DONE
from webhook.agent.freezer import Freezer
from webhook.agent.ledger import SILENCE, TRIES, Ledger
from webhook.agent.look import CardUse, Use
from webhook.agent.nvml import Reading
from webhook.agent.plan import Action, Card, Container, Do, Seen, State
from webhook.agent.pods import Name
from webhook.agent.thawer import thaw
from webhook.agent.view import Known
from webhook.policy.model import OFF, Contention
from webhook.telemetry.log import Log

TOLD_AFTER = 10.0
"""Seconds: a shorter pause has no Event."""

PAUSED, PAUSE_ENDED = "GPUPaused", "GPUPauseEnded"
"""The reasons of the Events."""

ENDED, STALE = "the agent ends", "the last look was too long ago"
NO_LEDGER, NOT_POSSIBLE = "the ledger cannot be written", "freezing is not possible"


def candidates(cards: Iterable[CardUse], known: Mapping[str, Known]) -> tuple[dict[str, Container], dict[str, str]]:
    """Return the containers that may be frozen, and the paths of their cgroups, by id.

    Never one of which nothing is known, on a MIG device, of MPS, or whose cgroup cannot be reached.
    """
    uses: dict[str, list[tuple[Reading, Use]]] = {}
    for card in cards:
        for use in card.uses:
            uses.setdefault(use.place.container, []).append((card.reading, use))
    found, paths = dict[str, Container](), dict[str, str]()
    for key, own in uses.items():
        pause = known[key].standing.pause if key in known else None
        places = {use.place for _, use in own}
        (place, *others) = places
        if pause is None or others or place.version != 2 or not place.reachable:
            continue
        if any(reading.mig or held.mps for reading, use in own for held in use.held):
            continue
        found[key] = Container(
            key,
            frozenset(reading.uuid for reading, _ in own),
            min(use.held[0].process.start for _, use in own),
            max(use.sm or 0 for _, use in own),
            pause.longest,
            pause.rest,
            pause.priority,
        )
        paths[key] = place.path
    return found, paths


def readings(cards: Iterable[CardUse]) -> dict[str, Card]:
    """Return what each card says of its use; one that failed to answer any question says nothing."""
    found = {}
    for reading in (card.reading for card in cards):
        if reading.used is not None and reading.total:
            found[reading.uuid] = Card(None if reading.faults else reading.busy, reading.used, reading.total)
    return found


class Standstill(NamedTuple):
    """Whether a container is frozen now, and for how many seconds it was so far."""

    frozen: bool
    seconds: float


@dataclass
class Turns:
    """Freezes and thaws the containers of a node. `tell` writes an Event about one: its pod, a reason and a text.

    Without a freezer, `lacks` says why there is none.
    """

    freezer: Freezer | None
    ledger: Ledger
    log: Log
    acted: Callable[[str, str], None] = lambda _do, _outcome: None
    tell: Callable[[Known, str, str], None] = lambda _known, _reason, _note: None
    lacks: str = ""
    clock: Callable[[], float] = time.monotonic

    state: State = field(default_factory=State)
    contended: bool = False
    """Whether several containers that may be frozen were on one card at the last look."""

    def __post_init__(self) -> None:
        self._paths: dict[str, str] = {}
        self._known: dict[str, Known] = {}
        self._seconds: dict[str, float] = {}
        self._stuck: dict[str, str] = {}
        self._told: set[str] = set()
        self._foreign: dict[str, str] = {}
        self._leaving: set[str] = set()
        self._said: dict[str, str] = {}
        self._since: dict[str, float] = {}
        self._last = float("-inf")

    def step(self, cards: Sequence[CardUse], known: Mapping[str, Known], rules: Contention) -> None:
        """Take in a look, and do what the plan says."""
        now = self.clock()
        if now - self._last > SILENCE:
            self.release(STALE)
        self._last = now
        freezer = self._ready(rules)
        if freezer is None:
            self.release(NOT_POSSIBLE)
            return
        containers, paths = candidates(cards, known) if rules.mode != OFF else ({}, {})
        thawed = self._compare(freezer, containers, paths)
        self._paths = {**paths, **{key: self._paths[key] for key in self.state.frozen}}
        self._known = {
            **{key: known[key] for key in containers},
            **{key: self._known[key] for key in self.state.frozen},
        }
        before, looks = self.state, readings(cards)
        self.state, actions = plan.plan(before, Seen(now, looks, tuple(containers.values()), thawed), rules)
        self.contended = any(sum(card in each.cards for each in containers.values()) > 1 for card in looks)
        self._act(freezer, before, actions, now, rules)
        self._account(now)
        self.ledger.beat()

    def release(self, why: str) -> None:
        """Let everything run."""
        self.contended = False
        self.state, actions = plan.release(self.state, self.clock(), why)
        if self.freezer is not None and (actions or self._stuck):
            self._thaw(self.freezer, actions)
            self.ledger.write(self._entries())
        self._account(self.clock())

    def close(self) -> None:
        """Let everything run, and let go of the ledger."""
        self.release(ENDED)
        self.ledger.leave()

    @property
    def standstills(self) -> dict[Name, Standstill]:
        """How the containers in the queue stand, by their names."""
        now, frozen = self.clock(), self.state.frozen
        return {
            known.name: Standstill(
                key in frozen, self._seconds.get(key, 0.0) + (now - frozen[key].since if key in frozen else 0.0)
            )
            for key, known in self._known.items()
        }

    def _ready(self, rules: Contention) -> Freezer | None:
        """Return the freezer if freezing is possible and safe; else say once why it is not."""
        if rules.mode == OFF:
            why = ""
        elif self.freezer is None:
            why = self.lacks
        else:
            why = self._take(self.freezer)
        self._say("no turns", why)
        return None if why else self.freezer

    def _take(self, freezer: Freezer) -> str:
        """Take the lock of the ledger, and thaw what is in it, once also where another one has the lock.

        Returns why the lock is not ours, or an empty text.
        """
        if self.ledger.held:
            return ""
        again = bool(self._said.get("no turns"))
        why = self.ledger.take(tries=1 if again else TRIES)
        if why and again:
            return why
        left = self.ledger.read()
        failed = [path for path, trouble in thaw(self.ledger, freezer).items() if trouble]
        if self.ledger.held:
            self._stuck.update({path: path for path in failed})
        if left.until or left.strange:
            counts = {"thawed": len(left.until) - len(failed), "failed": len(failed), "strange": left.strange}
            self.log({"message": "thawed what the ledger names", **counts})
        return why

    def _compare(self, freezer: Freezer, containers: dict[str, Container], paths: Mapping[str, str]) -> set[str]:
        """Return those that we froze and somebody thawed. Leaves those out of `containers` that somebody else froze.

        One that we have just thawed may still be on its way out of the freeze.
        """
        thawed, foreign, leaving = set[str](), dict[str, str](), self._leaving
        for key in [*containers]:
            asked, ours = freezer.asked(paths[key]), key in self.state.frozen
            if ours and asked is False:
                thawed.add(key)
            elif not ours and (asked or key not in leaving) and (asked or freezer.frozen(paths[key]) is not False):
                del containers[key]
                if asked is not None:
                    foreign[key] = "it is frozen" if asked else "a cgroup above it is frozen"
        for key, why in foreign.items():
            if self._foreign.get(key) != why:
                self.log({"message": "frozen by somebody else, and left so", "container": key, "why": why})
        self._foreign, self._leaving = foreign, set()
        return thawed

    def _act(self, freezer: Freezer, before: State, actions: Sequence[Action], now: float, rules: Contention) -> None:
        thaws = [act for act in actions if act.do == Do.THAW]
        freezes = [act for act in actions if act.do == Do.FREEZE]
        if freezes:
            why = self.ledger.write(self._entries(before))
            self._say("no ledger", why)
            if why:  # nothing is frozen that is not written down
                self.state, released = plan.release(before, now, NO_LEDGER)
                thaws, freezes = [*released], []
        changed = bool(self._thaw(freezer, thaws))
        failed = freezer.freeze([self._paths[act.container] for act in freezes])
        for act in freezes:
            path = self._paths[act.container]
            if why := failed.get(path, ""):
                self.state, changed = plan.failed(self.state, act.container, now + rules.rest), True
                if freezer.thaw(path):
                    self._stuck[act.container] = path
            self._did(act, why or DONE)
        if changed:
            self.ledger.write(self._entries())

    def _thaw(self, freezer: Freezer, actions: Iterable[Action]) -> int:
        """Thaw those, and those that could not be thawed before. Returns how many were tried."""
        again = {key: path for key, path in self._stuck.items() if key not in self.state.frozen}
        count = len(again)
        self._stuck = {key: path for key, path in again.items() if freezer.thaw(path)}
        for act in actions:
            count += 1
            path = self._paths[act.container]
            self._leaving.add(act.container)
            if why := freezer.thaw(path):
                self._stuck[act.container] = path
            self._did(act, why or DONE)
        return count

    def _entries(self, *more: State) -> dict[str, float]:
        """Return what the ledger has to name: the paths of all that are frozen in these states, and until when."""
        until = dict.fromkeys(self._stuck.values(), 0.0)
        for state in (*more, self.state):
            until.update({self._paths[key]: each.until for key, each in state.frozen.items()})
        return until

    def _did(self, act: Action, outcome: str) -> None:
        self.acted(act.do.value, outcome if outcome == DONE else "failed")
        known = self._known.get(act.container)
        names = known.name._asdict() if known else {}
        self.log(
            {
                "message": "turn",
                "act": act.do.value,
                "outcome": outcome,
                **names,
                "container_id": act.container,
                "why": act.why,
            }
        )

    def _account(self, now: float) -> None:
        """Count how long each stood still, and tell of long pauses and of their end."""
        for key, begin in self._since.items():
            if key not in self.state.frozen or self.state.frozen[key].since != begin:
                self._seconds[key] = self._seconds.get(key, 0.0) + now - begin
                if key in self._told and key in self._known:
                    known = self._known[key]
                    self.tell(known, PAUSE_ENDED, f"container {known.name.container} runs again")
                self._told.discard(key)
        self._since = {key: each.since for key, each in self.state.frozen.items()}
        self._seconds = {key: value for key, value in self._seconds.items() if key in self._known}
        for key, begin in self._since.items():
            if now - begin >= TOLD_AFTER and key not in self._told:
                known = self._known[key]
                others = "others on its GPU are before it, as the policy says"
                self.tell(known, PAUSED, f"container {known.name.container} stands still until its turn: {others}")
                self._told.add(key)

    def _say(self, message: str, why: str) -> None:
        """Log a trouble once, and its end."""
        if why != self._said.get(message, ""):
            self._said[message] = why
            self.log({"message": message, "error": why} if why else {"message": message, "over": True})
