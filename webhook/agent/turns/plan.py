"""Plans which containers run on a contended card, and which are frozen until their turn. Has no side effects.

The plan is based on a study's contention manager (Algorithm 2) and closes its gaps; tests/agent/literal.py implements
the algorithm as published. The first container in the queue runs. The next one may run as well when every running
container has been seen to use the card, and the card has still been idle for a while. The wait is needed because NVML
reports the use of a card up to a second late, and because a program that reads its input does not use the card. A
frozen container keeps its memory, and kernels that it has launched run to their end.

Cards that share a container share one queue, so two containers never wait for each other.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from webhook.agent.actions import FREEZE, THAW, NodeAction
from webhook.policy.model import OFF, TURNS, Contention

LONG_AGO = float("-inf")


GONE, BLIND, LONGEST = "no longer in the queue", "the card's use is unknown", "frozen for the longest time allowed"
FIRST, IDLE, TURN = "first in the queue", "the card is idle", "its turn"
QUEUED, OVER, MEMORY, FOUND = "others are ahead of it", "its turn is over", "memory is nearly full", "the card is busy"
"""The reasons of the actions."""


class CardLoad(NamedTuple):
    """A card at one look: the percent of the last period in which it was busy, if known, and its memory in MiB."""

    busy: int | None
    used: int
    total: int


class Candidate(NamedTuple):
    """A container that has processes on cards and may be frozen. `first` is the start time of its oldest process.

    `sm` is its percent of the SMs' time. The container may be frozen for at most `longest` seconds, and must then run
    for at least `rest` seconds before it is frozen again.
    """

    key: str
    cards: frozenset[str]
    first: int
    sm: int | None
    longest: float
    rest: float = 0.0
    priority: int = 0


class PlanInput(NamedTuple):
    """The input of the plan: a look at all cards. `now` is in seconds of a monotonic clock.

    `containers` are those that may be frozen. `thawed` are those that the plan had frozen and another program thawed.
    """

    now: float
    cards: Mapping[str, CardLoad]
    containers: Sequence[Candidate]
    thawed: Collection[str] = ()


class Frozen(NamedTuple):
    """A frozen container: since when, until when it may stay frozen, and how long it must run afterwards."""

    since: float
    until: float
    rest: float


@dataclass(frozen=True)
class TurnState:
    """The state between looks. It has sets and times, but no counts, so a container that ends leaves no trace."""

    queue: tuple[str, ...] = ()
    """All candidates, in the order of their arrival or of the end of their last turn."""
    running: Mapping[str, float] = field(default_factory=dict)
    """Containers allowed to run, with their start times.

    A container that is neither here nor in `frozen` is resting: it still runs, but it is not its turn.
    """
    frozen: Mapping[str, Frozen] = field(default_factory=dict)
    resting: Mapping[str, float] = field(default_factory=dict)
    """Containers that were thawed, and until when they must not be frozen again."""
    shown: frozenset[str] = frozenset()
    """The running containers that have been seen to use the card."""
    found: frozenset[str] | None = None
    """The running containers that ran before the plan began; None before the first look."""
    idle: Mapping[str, float] = field(default_factory=dict)
    busy: Mapping[str, float] = field(default_factory=dict)
    changed: Mapping[str, float] = field(default_factory=dict)
    """By card: since when it is idle (though all running ones have used it) or busy, and its last action."""


def plan(before: TurnState, seen: PlanInput, rules: Contention) -> tuple[TurnState, tuple[NodeAction, ...]]:
    """Return the next state and the actions. The actions that thaw containers come first."""
    if rules.mode == OFF:
        return release(before, seen.now, GONE)
    draft = _Draft(before, seen, rules)
    for cards, members in _groups(seen.containers):
        draft.plan(cards, members)
    return draft.result()


def release(before: TurnState, now: float, why: str) -> tuple[TurnState, tuple[NodeAction, ...]]:
    """Thaw all containers, as the agent ends or cannot see the cards. Only the resting containers are remembered."""
    resting = {key: until for key, until in before.resting.items() if until > now}
    resting |= {key: now + each.rest for key, each in before.frozen.items()}
    return TurnState(resting=resting), tuple(NodeAction(THAW, key, why) for key in before.frozen)


def failed(state: TurnState, key: str, until: float) -> TurnState:
    """Return the state after a container could not be frozen: it runs on, and is not frozen again before `until`."""
    frozen = {each: value for each, value in state.frozen.items() if each != key}
    return replace(state, frozen=frozen, resting={**state.resting, key: until})


def _groups(containers: Iterable[Candidate]) -> Iterator[tuple[frozenset[str], list[Candidate]]]:
    """Yield each group of cards that share containers, with these containers."""
    groups: list[tuple[frozenset[str], list[Candidate]]] = []
    for one in containers:
        cards, members, apart = one.cards, [one], []
        for group in groups:
            if group[0] & cards:
                cards, members = cards | group[0], group[1] + members
            else:
                apart.append(group)
        groups = [*apart, (cards, members)]
    yield from groups


class _Draft:
    """Builds the next state and its actions."""

    def __init__(self, before: TurnState, seen: PlanInput, rules: Contention) -> None:
        self._before, self._seen, self._rules, self._now = before, seen, rules, seen.now
        self._here = here = {each.key: each for each in seen.containers}
        new = sorted(here.keys() - {*before.queue}, key=lambda key: (here[key].first, key))
        self._queue = [key for key in before.queue if key in here] + new
        self._running = {key: since for key, since in before.running.items() if key in here}
        self._frozen = dict(before.frozen)
        self._resting = {key: until for key, until in before.resting.items() if until > self._now}
        self._thaw: dict[str, str] = {}
        self._freeze: dict[str, str] = {}
        if before.found is None:  # containers found at the start keep running until the card is seen to be busy
            self._running = dict.fromkeys(self._queue, self._now)
        found = self._running if before.found is None else before.found
        self._found = {key for key in found if key in self._running}
        self._shown = {key for key in self._running if key in before.shown or here[key].sm}
        self._idle: dict[str, float] = {}
        self._busy: dict[str, float] = {}
        self._changed: dict[str, float] = {}
        for key in self._frozen.keys() - here.keys():
            self._release(key, GONE)
        for key in [key for key in self._frozen if key in seen.thawed]:
            self._rest(key, max(rules.rest, self._frozen.pop(key).rest))

    def result(self) -> tuple[TurnState, tuple[NodeAction, ...]]:
        """Return the next state, and the actions."""
        state = TurnState(
            tuple(self._queue),
            self._running,
            self._frozen,
            self._resting,
            frozenset(self._shown & self._running.keys()),
            frozenset(self._found & self._running.keys()),
            self._idle,
            self._busy,
            self._changed,
        )
        thaw = (NodeAction(THAW, key, why) for key, why in self._thaw.items())
        freeze = (NodeAction(FREEZE, key, why) for key, why in self._freeze.items())
        return state, (*thaw, *freeze)

    def plan(self, cards: frozenset[str], members: Sequence[Candidate]) -> None:
        """Plan one queue, for cards that share containers."""
        looks = [self._seen.cards.get(card) for card in cards]
        known = [(look.busy, look) for look in looks if look is not None and look.busy is not None]
        if len(known) < len(looks):
            self._blind(members)
            return
        place = {key: number for number, key in enumerate(self._queue)}
        order = {each.key: (-each.priority, place[each.key]) for each in members}
        queue = sorted(order, key=order.__getitem__)
        running = [key for key in queue if key in self._running]
        for key in queue:
            if key in self._frozen and self._now >= self._frozen[key].until:
                rest = max(self._rules.rest, self._frozen[key].rest)
                self._release(key, LONGEST)
                self._rest(key, rest)
        calm = all(busy < self._rules.busy for busy, _ in known)
        room = all(100 * look.used <= self._rules.full * look.total for _, look in known)
        ready = bool(running) and all(
            key in self._shown or self._now - self._running[key] >= self._rules.patience for key in running
        )
        idle = self._since(self._before.idle, self._idle, cards, met=calm and ready)
        busy = self._since(self._before.busy, self._busy, cards, met=not calm)
        changed = max(self._before.changed.get(card, LONG_AGO) for card in cards)
        waiting = [key for key in queue if key not in self._running]
        acted = self._choose(running, waiting, order, _Times(idle, busy, changed), room=room)
        self._changed.update(dict.fromkeys(cards, self._now if acted else changed))
        for key in queue:
            if key not in self._running and key not in self._frozen and key not in self._resting:
                self._stop(key, QUEUED)

    def _choose(
        self,
        running: list[str],
        waiting: list[str],
        order: Mapping[str, tuple[int, int]],
        times: "_Times",
        *,
        room: bool,
    ) -> bool:
        """Start or stop at most one container, so each step can be observed. Returns whether anything changed."""
        now, rules = self._now, self._rules
        settled = now - times.changed >= rules.settle
        if not running:
            if not waiting:
                return False
            self._let(waiting[0], FIRST)
            return True
        if not room:
            last = max(running, key=lambda key: (self._running[key], order[key]))
            return settled and len(running) > 1 and self._pause(last, MEMORY)
        if waiting and times.idle is not None and now - max(times.idle, times.changed) >= rules.settle:
            self._let(waiting[0], IDLE)
            return True
        if times.busy is None or not settled:
            return False
        oldest = min(running, key=lambda key: (self._running[key], order[key]))
        due = rules.mode == TURNS and waiting and now - self._running[oldest] >= rules.turn
        if due and order[waiting[0]][0] <= order[oldest][0] and self._pause(oldest, OVER):
            self._queue.remove(oldest)
            self._queue.append(oldest)
            self._let(waiting[0], TURN)
            return True
        if now - times.busy < rules.settle or not self._found:
            return False
        stopped = [self._pause(key, FOUND) for key in running[1:] if key in self._found]
        self._found.discard(running[0])
        return any(stopped)

    def _blind(self, members: Iterable[Candidate]) -> None:
        for key in (each.key for each in members):
            if key in self._frozen:
                self._release(key, BLIND)
            self._running[key] = self._now
            self._shown.discard(key)
            self._found.add(key)

    def _since(
        self, before: Mapping[str, float], after: dict[str, float], cards: Collection[str], *, met: bool
    ) -> float | None:
        """Return since when a condition is met on all these cards, and remember it; None if it is not met."""
        if not met:
            return None
        since = max(before.get(card, self._now) for card in cards)
        after.update(dict.fromkeys(cards, since))
        return since

    def _let(self, key: str, why: str) -> None:
        self._running[key] = self._now
        if key in self._frozen:
            self._release(key, why)

    def _pause(self, key: str, why: str) -> bool:
        """Stop a running container, unless it must not be frozen yet. Returns whether it was stopped."""
        if key in self._resting:
            return False
        del self._running[key]
        self._stop(key, why)
        return True

    def _stop(self, key: str, why: str) -> None:
        one = self._here[key]
        self._freeze[key] = why
        self._frozen[key] = Frozen(self._now, self._now + one.longest, one.rest)

    def _release(self, key: str, why: str) -> None:
        self._thaw[key] = why
        self._rest(key, self._frozen.pop(key).rest)

    def _rest(self, key: str, seconds: float) -> None:
        if seconds > 0:
            self._resting[key] = max(self._resting.get(key, LONG_AGO), self._now + seconds)


class _Times(NamedTuple):
    """Since when a group of cards is idle, or busy, each None if it is not; and the time of the last action."""

    idle: float | None
    busy: float | None
    changed: float
