"""Plans which containers run on a contended card, and which are frozen until their turn. Values in, values out.

It follows the contention manager of a study (Algorithm 2), with its gaps closed; tests/agent/literal.py has the
algorithm to the letter. The first one in the queue runs. Another one is let run once each that runs has shown that it
uses the card, and the card still has had time for a while: NVML tells the use of a card up to a second late, and a
program that reads its input uses none. A frozen container keeps its memory, and kernels that it has queued run on.

Cards that have a container in common have one queue, so no two containers wait for each other.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from webhook.policy.model import OFF, TURNS, Contention

BUSY = 100
"""Percent of NVML's sample period: the card had a kernel at every moment."""

LONG_AGO = float("-inf")


class Do(StrEnum):
    """A deed to a container."""

    FREEZE = "Freeze"
    THAW = "Thaw"


class Action(NamedTuple):
    """One thing to do, and why: a few words that are the same each time."""

    do: Do
    container: str
    why: str


GONE, BLIND, LONGEST = "no longer in the queue", "the card's use is unknown", "paused for the longest time allowed"
FIRST, SPARE, TURN = "first in the queue", "the card has time", "its turn"
WAITS, OVER, MEMORY, FOUND = "others are before it", "its turn is over", "memory is nearly full", "the card is busy"


class Card(NamedTuple):
    """A card at one look: the percent of the last period in which it was busy, if known, and its memory in MiB."""

    busy: int | None
    used: int
    total: int


class Container(NamedTuple):
    """A container that may be frozen, and has processes on cards. `first` is when the oldest of them was started.

    `sm` is its percent of the SMs' time. It bears to be frozen for `longest` seconds, and runs for at least `rest`
    seconds before the next time.
    """

    key: str
    cards: frozenset[str]
    first: int
    sm: int | None
    longest: float
    rest: float = 0.0
    priority: int = 0


class Seen(NamedTuple):
    """A look at all cards. `now` is in seconds of a monotonic clock.

    `containers` are those that may be frozen. `thawed` are those that the plan froze and somebody else thawed.
    """

    now: float
    cards: Mapping[str, Card]
    containers: Sequence[Container]
    thawed: Collection[str] = ()


class Frozen(NamedTuple):
    """Since when a container is frozen, until when it may be, and how long it rests afterwards."""

    since: float
    until: float
    rest: float


@dataclass(frozen=True)
class State:
    """The memory between looks. Sets and times, never counts: a container that is gone is in none of them."""

    queue: tuple[str, ...] = ()
    """All that are managed, in the order of their arrival, or of the end of their last turn."""
    running: Mapping[str, float] = field(default_factory=dict)
    """Those let run, since when. One that is neither here nor frozen rests: it runs too, but the turn is another's."""
    frozen: Mapping[str, Frozen] = field(default_factory=dict)
    resting: Mapping[str, float] = field(default_factory=dict)
    """Those that were thawed, and until when they are not frozen again."""
    shown: frozenset[str] = frozenset()
    """The ones of those let run that have used the card since."""
    found: frozenset[str] | None = None
    """The ones of those let run that ran before anything was planned; None before the first look."""
    calm: Mapping[str, float] = field(default_factory=dict)
    busy: Mapping[str, float] = field(default_factory=dict)
    changed: Mapping[str, float] = field(default_factory=dict)
    """By card: since when it has time although all that run have used it, since when it has none, and the last act."""


def plan(before: State, seen: Seen, rules: Contention) -> tuple[State, tuple[Action, ...]]:
    """Return the next state and what is to be done: what is to be thawed comes first."""
    if rules.mode == OFF:
        return release(before, seen.now, GONE)
    draft = _Draft(before, seen, rules)
    for cards, members in _groups(seen.containers):
        draft.plan(cards, members)
    return draft.result()


def release(before: State, now: float, why: str) -> tuple[State, tuple[Action, ...]]:
    """Let everything run: at the end, and whenever nothing can be seen. Only who rests is remembered."""
    resting = {key: until for key, until in before.resting.items() if until > now}
    resting |= {key: now + each.rest for key, each in before.frozen.items()}
    return State(resting=resting), tuple(Action(Do.THAW, key, why) for key in before.frozen)


def failed(state: State, key: str, until: float) -> State:
    """Return the state after a container could not be frozen: it runs, and is left alone until then."""
    frozen = {each: value for each, value in state.frozen.items() if each != key}
    return replace(state, frozen=frozen, resting={**state.resting, key: until})


def _groups(containers: Iterable[Container]) -> Iterator[tuple[frozenset[str], list[Container]]]:
    """Yield the cards that have containers in common, with these."""
    groups: list[tuple[frozenset[str], list[Container]]] = []
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
    """The next state while it is made, and the actions on the way to it."""

    def __init__(self, before: State, seen: Seen, rules: Contention) -> None:
        self._before, self._seen, self._rules, self._now = before, seen, rules, seen.now
        self._here = here = {each.key: each for each in seen.containers}
        new = sorted(here.keys() - {*before.queue}, key=lambda key: (here[key].first, key))
        self._queue = [key for key in before.queue if key in here] + new
        self._running = {key: since for key, since in before.running.items() if key in here}
        self._frozen = dict(before.frozen)
        self._resting = {key: until for key, until in before.resting.items() if until > self._now}
        self._thaw: dict[str, str] = {}
        self._freeze: dict[str, str] = {}
        if before.found is None:  # what ran before us runs on, until the card is seen to be busy
            self._running = dict.fromkeys(self._queue, self._now)
        found = self._running if before.found is None else before.found
        self._found = {key for key in found if key in self._running}
        self._shown = {key for key in self._running if key in before.shown or here[key].sm}
        self._calm: dict[str, float] = {}
        self._busy: dict[str, float] = {}
        self._changed: dict[str, float] = {}
        for key in self._frozen.keys() - here.keys():
            self._release(key, GONE)
        for key in [key for key in self._frozen if key in seen.thawed]:
            self._rest(key, max(rules.rest, self._frozen.pop(key).rest))

    def result(self) -> tuple[State, tuple[Action, ...]]:
        """Return the next state, and the actions."""
        state = State(
            tuple(self._queue),
            self._running,
            self._frozen,
            self._resting,
            frozenset(self._shown & self._running.keys()),
            frozenset(self._found & self._running.keys()),
            self._calm,
            self._busy,
            self._changed,
        )
        thaw = (Action(Do.THAW, key, why) for key, why in self._thaw.items())
        freeze = (Action(Do.FREEZE, key, why) for key, why in self._freeze.items())
        return state, (*thaw, *freeze)

    def plan(self, cards: frozenset[str], members: Sequence[Container]) -> None:
        """Plan one queue: that of cards which have containers in common."""
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
        calm = all(busy < BUSY for busy, _ in known)
        room = all(100 * look.used <= self._rules.full * look.total for _, look in known)
        ready = bool(running) and all(
            key in self._shown or self._now - self._running[key] >= self._rules.patience for key in running
        )
        idle = self._since(self._before.calm, self._calm, cards, holds=calm and ready)
        busy = self._since(self._before.busy, self._busy, cards, holds=not calm)
        changed = max(self._before.changed.get(card, LONG_AGO) for card in cards)
        waiting = [key for key in queue if key not in self._running]
        acted = self._choose(running, waiting, order, _Times(idle, busy, changed), room=room)
        self._changed.update(dict.fromkeys(cards, self._now if acted else changed))
        for key in queue:
            if key not in self._running and key not in self._frozen and key not in self._resting:
                self._stop(key, WAITS)

    def _choose(
        self,
        running: list[str],
        waiting: list[str],
        order: Mapping[str, tuple[int, int]],
        times: "_Times",
        *,
        room: bool,
    ) -> bool:
        """Let one container run or stop, or leave it as it is: one step a look. Returns whether something was done."""
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
            self._let(waiting[0], SPARE)
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

    def _blind(self, members: Iterable[Container]) -> None:
        for key in (each.key for each in members):
            if key in self._frozen:
                self._release(key, BLIND)
            self._running[key] = self._now
            self._shown.discard(key)
            self._found.add(key)

    def _since(
        self, before: Mapping[str, float], after: dict[str, float], cards: Collection[str], *, holds: bool
    ) -> float | None:
        """Return since when something holds of all these cards, and remember it; None if it does not."""
        if not holds:
            return None
        since = max(before.get(card, self._now) for card in cards)
        after.update(dict.fromkeys(cards, since))
        return since

    def _let(self, key: str, why: str) -> None:
        self._running[key] = self._now
        if key in self._frozen:
            self._release(key, why)

    def _pause(self, key: str, why: str) -> bool:
        """Stop one that runs, unless it rests. Returns whether it was stopped."""
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
    """When a group of cards last began to have time, and to have none, or None; and when something was last done."""

    idle: float | None
    busy: float | None
    changed: float
