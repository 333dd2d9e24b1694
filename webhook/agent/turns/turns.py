"""Carries out the plan of turns: passes each look to the plan, and the plan's actions to the kernel.

If anything is unknown, or cannot be read or written, all containers run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from webhook.agent.actions import DONE, FREEZE, PERIOD, THAW, ConditionLog, NodeAction, Watcher
from webhook.agent.observe.look import CardUse, ContainerUse
from webhook.agent.observe.nvml import CardReading
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.view import NodeContainer, Observation
from webhook.agent.turns import plan
from webhook.agent.turns.freezer import Freezer
from webhook.agent.turns.ledger import SILENCE, TRIES, Ledger
from webhook.agent.turns.plan import Candidate, CardLoad, PlanInput, TurnState
from webhook.agent.turns.thawer import thaw
from webhook.policy.model import OFF, REPORT, Contention
from webhook.telemetry.log import Log

QUICK = 0.1
"""Seconds between two looks while containers take turns."""

REPORTED_AFTER = 10.0
"""Seconds after which a pause is reported by an Event."""

PAUSED, PAUSE_ENDED = "GPUPaused", "GPUPauseEnded"
"""The reasons of the Events."""

ENDED, STALE, NO_NVML = "the agent ends", "the last look was too long ago", "NVML is unavailable"
NO_LEDGER, NOT_POSSIBLE = "the ledger cannot be written", "freezing is not possible"


def candidates(
    cards: Iterable[CardUse], containers: Mapping[str, NodeContainer]
) -> tuple[dict[str, Candidate], dict[str, str]]:
    """Return the containers that may be frozen, and the paths of their cgroups, by id.

    Excluded are unknown containers, MIG devices, clients of MPS, and containers whose cgroup cannot be reached.
    """
    uses: dict[str, list[tuple[CardReading, ContainerUse]]] = {}
    for card in cards:
        for use in card.uses:
            uses.setdefault(use.place.container, []).append((card.reading, use))
    found, paths = dict[str, Candidate](), dict[str, str]()
    for key, own in uses.items():
        pause = containers[key].admitted.pause if key in containers else None
        places = {use.place for _, use in own}
        (place, *others) = places
        if pause is None or others or place.version != 2 or not place.reachable:
            continue
        if any(reading.mig or each.mps for reading, use in own for each in use.processes):
            continue
        found[key] = Candidate(
            key,
            frozenset(reading.uuid for reading, _ in own),
            min(use.processes[0].process.start for _, use in own),
            max(use.sm or 0 for _, use in own),
            pause.longest,
            pause.rest,
            pause.priority,
        )
        paths[key] = place.path
    return found, paths


def loads(cards: Iterable[CardUse]) -> dict[str, CardLoad]:
    """Return the load of each card. If any call failed for a card, its use counts as unknown."""
    found = {}
    for reading in (card.reading for card in cards):
        if reading.used is not None and reading.total:
            found[reading.uuid] = CardLoad(None if reading.errors else reading.busy, reading.used, reading.total)
    return found


class FrozenTime(NamedTuple):
    """Whether a container is frozen now, and how many seconds it has been frozen in total."""

    frozen: bool
    seconds: float


class CardTurns(Watcher):
    """Freezes and thaws the containers of a node. If `freezer` is None, `lacks` is the reason.

    `contention` returns the policy of the node's pool.
    """

    def __init__(
        self,
        freezer: Freezer | None,
        ledger: Ledger,
        log: Log,
        contention: Callable[[], Contention],
        lacks: str = "",
    ) -> None:
        self.freezer, self.ledger = freezer, ledger
        self.state = TurnState()
        self.contended = False
        self._log, self._contention, self._lacks = log, contention, lacks
        self._conditions = ConditionLog(log)
        self._paths: dict[str, str] = {}
        self._known: dict[str, NodeContainer] = {}
        self._seconds: dict[str, float] = {}
        self._stuck: dict[str, str] = {}
        self._reported: set[str] = set()
        self._foreign: dict[str, str] = {}
        self._leaving: set[str] = set()
        self._since: dict[str, float] = {}
        self._now = float("-inf")

    @property
    def period(self) -> float:
        """The seconds until the next look: fewer while several candidates are on one card."""
        return QUICK if self.contended else PERIOD

    def look(self, seen: Observation, now: float) -> Iterator[NodeAction]:
        """Plan the turns from a look, and freeze and thaw containers accordingly."""
        if now - self._now > SILENCE:
            yield from self._release(now, STALE)
        self._now, rules = now, self._contention()
        freezer = self._ready(rules)
        if freezer is None:
            yield from self._release(now, NOT_POSSIBLE)
            return
        containers, paths = candidates(seen.cards, seen.containers) if rules.mode != OFF else ({}, {})
        thawed = self._compare(freezer, containers, paths)
        self._paths = {**paths, **{key: self._paths[key] for key in self.state.frozen}}
        self._known = {
            **{key: seen.containers[key] for key in containers},
            **{key: self._known[key] for key in self.state.frozen},
        }
        before, cards = self.state, loads(seen.cards)
        self.state, actions = plan.plan(before, PlanInput(now, cards, tuple(containers.values()), thawed), rules)
        self.contended = any(sum(card in each.cards for each in containers.values()) > 1 for card in cards)
        yield from self._act(freezer, before, actions, now, rules)
        yield from self._account(now)
        self.ledger.beat()

    def blind(self, now: float) -> Iterator[NodeAction]:
        """Thaw all containers."""
        return self._release(now, NO_NVML)

    def close(self) -> Iterator[NodeAction]:
        """Thaw all containers, and release the ledger's lock."""
        yield from self._release(self._now, ENDED)
        self.ledger.leave()

    @property
    def pauses(self) -> dict[ContainerName, FrozenTime]:
        """How long each candidate has been frozen, by its names, as of the last look."""
        now, frozen = self._now, self.state.frozen
        return {
            known.name: FrozenTime(
                key in frozen, self._seconds.get(key, 0.0) + (now - frozen[key].since if key in frozen else 0.0)
            )
            for key, known in self._known.items()
        }

    def _release(self, now: float, why: str) -> Iterator[NodeAction]:
        self.contended = False
        self.state, actions = plan.release(self.state, now, why)
        if self.freezer is not None and (actions or self._stuck):
            _, thawed = self._thaw(self.freezer, actions)
            self.ledger.write(self._entries())
            yield from thawed
        yield from self._account(now)

    def _ready(self, rules: Contention) -> Freezer | None:
        """Return the freezer if freezing is possible and safe. Otherwise log why it is not, and return None."""
        if rules.mode == OFF:
            why = ""
        elif self.freezer is None:
            why = self._lacks
        else:
            why = self._take(self.freezer)
        self._conditions.set("no turns", why)
        return None if why else self.freezer

    def _take(self, freezer: Freezer) -> str:
        """Take the ledger's lock, and thaw the containers in it: once even if another process has the lock.

        Returns why the lock was not taken, or an empty text.
        """
        if self.ledger.locked:
            return ""
        again = self._conditions.active("no turns")
        why = self.ledger.take(tries=1 if again else TRIES)
        if why and again:
            return why
        left = self.ledger.read()
        failed = [path for path, trouble in thaw(self.ledger, freezer).items() if trouble]
        if self.ledger.locked:
            self._stuck.update({path: path for path in failed})
        if left.until or left.invalid:
            counts = {"thawed": len(left.until) - len(failed), "failed": len(failed), "invalid": left.invalid}
            self._log({"message": "thawed the containers in the ledger", **counts})
        return why

    def _compare(self, freezer: Freezer, containers: dict[str, Candidate], paths: Mapping[str, str]) -> set[str]:
        """Return the containers that the agent froze and another program thawed.

        Removes from `containers` those that another program froze. A container that the agent has just thawed may still
        be leaving the freeze.
        """
        thawed, foreign, leaving = set[str](), dict[str, str](), self._leaving
        for key in [*containers]:
            requested, ours = freezer.requested(paths[key]), key in self.state.frozen
            if ours and requested is False:
                thawed.add(key)
            elif (
                not ours
                and (requested or key not in leaving)
                and (requested or freezer.frozen(paths[key]) is not False)
            ):
                del containers[key]
                if requested is not None:
                    foreign[key] = "it is frozen" if requested else "a cgroup above it is frozen"
        for key, why in foreign.items():
            if self._foreign.get(key) != why:
                self._log({"message": "frozen by another program, and left frozen", "container_id": key, "why": why})
        self._foreign, self._leaving = foreign, set()
        return thawed

    def _act(
        self,
        freezer: Freezer,
        before: TurnState,
        actions: Sequence[NodeAction],
        now: float,
        rules: Contention,
    ) -> list[NodeAction]:
        thaws = [action for action in actions if action.verb == THAW]
        freezes = [action for action in actions if action.verb == FREEZE]
        if freezes:
            why = self.ledger.write(self._entries(before))
            self._conditions.set("no ledger", why)
            if why:  # only containers in the ledger may be frozen
                self.state, released = plan.release(before, now, NO_LEDGER)
                thaws, freezes = [*released], []
        changed, done = self._thaw(freezer, thaws)
        failed = freezer.freeze([self._paths[action.container] for action in freezes])
        for action in freezes:
            path = self._paths[action.container]
            why = failed.get(path, "")
            if why:
                self.state, changed = plan.failed(self.state, action.container, now + rules.rest), True
                if freezer.thaw(path):
                    self._stuck[action.container] = path
            done.append(self._outcome(action, why))
        if changed:
            self.ledger.write(self._entries())
        return done

    def _thaw(self, freezer: Freezer, actions: Iterable[NodeAction]) -> tuple[bool, list[NodeAction]]:
        """Thaw containers, and retry failed thaws. Returns whether there were any, and the outcomes."""
        again = {key: path for key, path in self._stuck.items() if key not in self.state.frozen}
        self._stuck = {key: path for key, path in again.items() if freezer.thaw(path)}
        done = []
        for action in actions:
            path = self._paths[action.container]
            self._leaving.add(action.container)
            why = freezer.thaw(path)
            if why:
                self._stuck[action.container] = path
            done.append(self._outcome(action, why))
        return bool(again or done), done

    def _entries(self, *more: TurnState) -> dict[str, float]:
        """Return the ledger's entries: the paths of all containers frozen in these states, with their deadlines."""
        until = dict.fromkeys(self._stuck.values(), 0.0)
        for state in (*more, self.state):
            until.update({self._paths[key]: each.until for key, each in state.frozen.items()})
        return until

    def _outcome(self, action: NodeAction, why: str) -> NodeAction:
        return action._replace(outcome=why or DONE, target=self._known.get(action.container))

    def _account(self, now: float) -> Iterator[NodeAction]:
        """Add up how long each container has been frozen, and report long pauses and their ends."""
        for key, begin in self._since.items():
            if key not in self.state.frozen or self.state.frozen[key].since != begin:
                self._seconds[key] = self._seconds.get(key, 0.0) + now - begin
                if key in self._reported and key in self._known:
                    yield self._report(key, PAUSE_ENDED, "runs again")
                self._reported.discard(key)
        self._since = {key: each.since for key, each in self.state.frozen.items()}
        self._seconds = {key: value for key, value in self._seconds.items() if key in self._known}
        for key, begin in self._since.items():
            if now - begin >= REPORTED_AFTER and key not in self._reported:
                self._reported.add(key)
                yield self._report(key, PAUSED, "is frozen until its turn on the GPU, as the policy says")

    def _report(self, key: str, reason: str, why: str) -> NodeAction:
        return NodeAction(REPORT, key, why, reason, target=self._known[key], outcome=DONE)
