"""The conditions that a planner must meet: scenes of a card, and random lives.

Each takes the planner, so mutants can be tried.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

from webhook.policy.model import FIRST_COME, OFF, TURNS, Contention

PAPER = Contention(FIRST_COME, longest=10**9)
"""The rules of the study: nobody is let run before its time."""
ROUND = Contention(TURNS, turn=5, longest=20)

MIB = 24576
LOOK = 0.1


class Scene:
    """A planner with its state, on a card of which a scene says what is seen. Times are in seconds."""

    def __init__(self, planner: ModuleType | Any, rules: Contention = PAPER, *, started: bool = True) -> None:
        self.planner, self.rules = planner, rules
        self.state = planner.TurnState(found=frozenset() if started else None)

    def one(self, key: str, **more: Any) -> Any:
        values = {"cards": frozenset("A"), "first": int(key[1:]), "sm": 10, "longest": 10.0**9}
        return self.planner.Candidate(key, **{**values, "longest": float(self.rules.longest), **more})

    def look(
        self,
        now: float,
        busy: int | None,
        *seen: Any,
        used: int = 1000,
        thawed: tuple[str, ...] = (),
        **cards: int | None,
    ) -> list[str]:
        """Look, and return what is done: `-c1` for a freeze and `+c1` for a thaw."""
        containers = tuple(self.one(each) if isinstance(each, str) else each for each in seen)
        readings = {"A": busy, **cards}
        looks = {card: self.planner.CardLoad(value, used, MIB) for card, value in readings.items()}
        self.state, actions = self.planner.plan(
            self.state, self.planner.PlanInput(now, looks, containers, thawed), self.rules
        )
        return [("-" if act.verb == "Freeze" else "+") + act.container for act in actions]


# Scenes


def three_that_arrive_together(planner: Any) -> None:
    """The first one runs and the others freeze within one look; each end lets the next one run within one look."""
    scene = Scene(planner)
    assert scene.look(0, 0, "c1", "c2", "c3") == ["-c2", "-c3"]
    assert scene.look(1, 100, "c1", "c2", "c3") == []
    assert scene.look(2, 100, "c2", "c3") == ["+c2"]
    assert scene.look(3, 100, "c3") == ["+c3"]
    assert scene.look(4, 0) == []
    assert scene.state.queue == ()


def a_newcomer_while_others_run(planner: Any) -> None:
    """It is frozen within one look, and let run when the card has had time for `settle` though the others used it."""
    scene = Scene(planner)
    assert scene.look(0, 50, "c1") == []
    assert scene.look(1, 50, "c1", "c2") == ["-c2"]
    assert scene.look(2, 100, "c1", "c2") == []
    assert scene.look(3, 40, "c1", "c2") == []
    assert scene.look(5.4, 40, "c1", "c2") == []
    assert scene.look(5.5, 40, "c1", "c2") == ["+c2"]
    assert scene.look(5.6, 40, "c1", "c2", "c3") == ["-c3"]
    assert scene.look(7.9, 40, "c1", "c2", "c3") == []
    assert scene.look(8.0, 40, "c1", "c2", "c3") == ["+c3"]


def a_card_that_is_nearly_busy(planner: Any) -> None:
    """From `busy` percent on, a newcomer waits as on a card that is used all the time."""
    for busy, use, lets in ((100, 99, True), (90, 90, False), (90, 89, True)):
        scene = Scene(planner, PAPER._replace(busy=busy))
        assert scene.look(0, use, "c1") == []
        assert scene.look(1, use, "c1", "c2") == ["-c2"]
        assert scene.look(3.5, use, "c1", "c2") == (["+c2"] if lets else [])
        assert scene.look(9, use, "c1", "c2") == []


def an_input_stage(planner: Any) -> None:
    """While the first one reads its input, the card is idle, and the others wait until it used it or patience ends."""
    scene = Scene(planner)

    def reading(now: float) -> list[str]:
        return scene.look(now, 0, scene.one("c1", sm=0), scene.one("c2", sm=0))

    assert reading(0) == ["-c2"]
    assert [reading(now) for now in (1, 2, 3, 4, 4.9)] == [[]] * 5
    assert scene.look(5, 30, "c1", scene.one("c2", sm=0)) == []
    assert scene.look(7.4, 30, scene.one("c1", sm=0), scene.one("c2", sm=0)) == []
    assert scene.look(7.5, 30, scene.one("c1", sm=0), scene.one("c2", sm=0)) == ["+c2"]
    scene = Scene(planner)  # what it has shown once counts, whatever the newest sample says
    assert reading(0) == ["-c2"]
    assert scene.look(1, 40, "c1", scene.one("c2", sm=0)) == []
    assert [scene.look(now, 40, scene.one("c1", sm=0), scene.one("c2", sm=0)) for now in (2, 3.4)] == [[], []]
    assert scene.look(3.5, 40, scene.one("c1", sm=0), scene.one("c2", sm=0)) == ["+c2"]
    scene = Scene(planner)
    assert reading(0) == ["-c2"]
    assert reading(5) == []
    assert reading(7.4) == []
    assert reading(7.5) == ["+c2"]


def full_memory(planner: Any) -> None:
    """It freezes the one let run last, one in each `settle`, and never the only one; and lets nobody run."""
    scene = Scene(planner)
    scene.look(0, 0, "c1", "c2", "c3")
    assert scene.look(3, 20, "c1", "c2", "c3") == []
    assert scene.look(6, 20, "c1", "c2", "c3") == ["+c2"]
    assert scene.look(9, 20, "c1", "c2", "c3") == ["+c3"]
    full = int(0.95 * MIB) + 1
    assert scene.look(10, 20, "c1", "c2", "c3", used=full) == []
    assert scene.look(11.5, 20, "c1", "c2", "c3", used=full - 1) == []
    assert scene.look(11.5, 20, "c1", "c2", "c3", used=full) == ["-c3"]
    assert scene.look(12, 20, "c1", "c2", "c3", used=full) == []
    assert scene.look(14, 20, "c1", "c2", "c3", used=full) == ["-c2"]
    assert scene.look(20, 20, "c1", "c2", "c3", used=full) == []
    assert scene.look(30, 20, "c1", "c2", "c3", used=full) == []
    assert scene.look(30.1, 20, "c1", "c2", "c3") == ["+c2"]


def an_agent_that_starts_among_running_ones(planner: Any) -> None:
    """It freezes nobody before the card was busy for `settle`, and then all but the first; newcomers wait meanwhile."""
    scene = Scene(planner, started=False)
    assert scene.look(0, 100, "c1", "c2", "c3") == []
    assert scene.look(2.4, 100, "c1", "c2", "c3", "c4") == ["-c4"]
    assert scene.look(2.45, 60, "c1", "c2", "c3", "c4") == []
    assert scene.look(2.5, 100, "c1", "c2", "c3", "c4") == []
    assert scene.look(4.9, 100, "c1", "c2", "c3", "c4") == []
    assert scene.look(5.0, 100, "c1", "c2", "c3", "c4") == ["-c2", "-c3"]
    assert scene.look(9.0, 100, "c1", "c2", "c3", "c4") == []
    assert scene.look(9.1, 100, "c2", "c3", "c4") == ["+c2"]


def turns(planner: Any) -> None:
    """The oldest turn ends when it is over and the card is busy; who had it goes to the end of the queue."""
    scene = Scene(planner, ROUND)
    scene.look(0, 0, "c1", "c2", "c3")
    assert scene.look(4.9, 100, "c1", "c2", "c3") == []
    assert scene.look(5, 100, "c1", "c2", "c3") == ["+c2", "-c1"]
    assert scene.look(9.9, 100, "c1", "c2", "c3") == []
    assert scene.look(10, 100, "c1", "c2", "c3") == ["+c3", "-c2"]
    assert scene.look(15, 100, "c1", "c2", "c3") == ["+c1", "-c3"]
    assert scene.state.queue == ("c1", "c2", "c3")
    scene = Scene(planner, ROUND)  # two run, and a third one waits: the older turn ends
    scene.look(0, 0, "c1", "c2", "c3")
    assert scene.look(1, 50, "c1", "c2", "c3") == []
    assert scene.look(3.5, 50, "c1", "c2", "c3") == ["+c2"]
    assert scene.look(8.4, 100, "c1", "c2", "c3") == ["+c3", "-c1"]


def first_come_has_no_turns(planner: Any) -> None:
    """Without turns the first one keeps the card until it ends."""
    scene = Scene(planner)
    scene.look(0, 0, "c1", "c2")
    assert scene.look(1000, 100, "c1", "c2") == []


def the_longest_pause(planner: Any) -> None:
    """Each is thawed when it was frozen for its own `longest`, rests, and waits again: the first one keeps the card."""
    scene = Scene(planner, Contention(FIRST_COME, longest=20, rest=15))
    short = scene.one("c3", longest=6.0)
    assert scene.look(0, 0, "c1", "c2", short) == ["-c2", "-c3"]
    assert scene.look(5.9, 100, "c1", "c2", short) == []
    assert scene.look(6, 100, "c1", "c2", short) == ["+c3"]
    assert scene.look(19.9, 100, "c1", "c2", short) == []
    assert scene.look(20, 100, "c1", "c2", short) == ["+c2"]
    assert scene.look(20.9, 100, "c1", "c2", short) == []
    assert scene.look(21, 100, "c1", "c2", short) == ["-c3"]
    assert scene.look(34.9, 100, "c2", "c1") == ["+c3"]
    assert scene.look(35, 100, "c2", "c1") == ["-c2"]


def a_rest_after_a_turn(planner: Any) -> None:
    """After any thaw a container is left alone for as long as its probes need, even when its turn is over."""
    scene = Scene(planner, ROUND)
    probed = scene.one("c1", rest=11.0)
    scene.look(0, 0, probed, "c2")
    assert scene.look(5, 100, probed, "c2") == ["+c2", "-c1"]
    assert scene.look(10, 100, probed, "c2") == ["+c1", "-c2"]
    assert scene.look(20.9, 100, probed, "c2") == []
    assert scene.look(21, 100, probed, "c2") == ["+c2", "-c1"]


def blindness(planner: Any) -> None:
    """While the card's use is unknown all run; then as after a start: not before the card was busy for `settle`."""
    scene = Scene(planner)
    assert scene.look(0, 0, "c1", "c2", "c3") == ["-c2", "-c3"]
    assert scene.look(1, None, "c1", "c2", "c3") == ["+c2", "+c3"]
    assert scene.look(2, 100, "c1", "c2", "c3") == []
    assert scene.look(4.4, 100, "c1", "c2", "c3") == []
    assert scene.look(4.5, 100, "c1", "c2", "c3") == ["-c2", "-c3"]


def a_card_that_is_gone(planner: Any) -> None:
    """A card that tells nothing at all counts as one whose use is unknown."""
    scene = Scene(planner)
    other = scene.one("c2", cards=frozenset("AB"))
    assert scene.look(0, 0, "c1", other, B=0) == ["-c2"]
    assert scene.look(1, 0, "c1", other) == ["+c2"]


def release_at_the_end(planner: Any) -> None:
    """A release thaws all, and remembers who needs a rest: a failed look must not lengthen a pause that probes bear."""
    scene = Scene(planner)
    scene.look(0, 0, "c1", scene.one("c2", rest=11.0), "c3")
    scene.state, actions = planner.release(scene.state, 1.0, "the end")
    assert [(act.verb, act.container) for act in actions] == [("Thaw", "c2"), ("Thaw", "c3")]
    assert not scene.state.frozen
    assert scene.state.found is None
    assert scene.look(2, 100, "c1", scene.one("c2", rest=11.0), "c3") == []
    assert scene.look(4.5, 100, "c1", scene.one("c2", rest=11.0), "c3") == ["-c3"]
    assert scene.look(12, 100, "c1", scene.one("c2", rest=11.0), "c3") == ["-c2"]


def off(planner: Any) -> None:
    """When the policy says Off, all run, and nothing is frozen."""
    scene = Scene(planner)
    scene.look(0, 0, "c1", "c2")
    scene.rules = Contention(OFF)
    assert scene.look(1, 100, "c1", "c2") == ["+c2"]
    assert scene.look(2, 100, "c1", "c2", "c3") == []


def thawed_by_another(planner: Any) -> None:
    """A container that somebody else thawed is not frozen again within `rest`."""
    scene = Scene(planner)
    scene.look(0, 0, "c1", "c2", "c3")
    assert scene.look(1, 100, "c1", "c2", "c3", thawed=("c2",)) == []
    assert scene.look(15.9, 100, "c1", "c2", "c3") == []
    assert scene.look(16, 100, "c1", "c2", "c3") == ["-c2"]


def one_that_would_not_freeze(planner: Any) -> None:
    """It runs, keeps its place, and is not tried again before its time."""
    scene = Scene(planner)
    scene.look(0, 0, "c1", "c2", "c3")
    scene.state = planner.failed(scene.state, "c2", 15.0)
    assert scene.look(14.9, 100, "c1", "c2", "c3") == []
    assert scene.look(15, 100, "c1", "c2", "c3") == ["-c2"]
    assert scene.look(16, 100, "c2", "c3") == ["+c2"]


def priority(planner: Any) -> None:
    """One of a higher priority takes the next turn, and does not interrupt the one that runs."""
    scene = Scene(planner)
    high = scene.one("c3", priority=5)
    assert scene.look(0, 0, "c1", "c2") == ["-c2"]
    assert scene.look(1, 100, "c1", "c2", high) == ["-c3"]
    assert scene.look(2, 100, "c2", high) == ["+c3"]
    scene = Scene(planner, ROUND)
    high, equal = scene.one("c3", priority=5), scene.one("c4", priority=5)
    scene.look(0, 0, "c1", "c2")
    assert scene.look(1, 100, "c1", "c2", high) == ["-c3"]
    assert scene.look(4.9, 100, "c1", "c2", high) == []
    assert scene.look(5, 100, "c1", "c2", high) == ["+c3", "-c1"]
    assert scene.look(10.1, 100, "c1", "c2", high) == []  # those that wait come after it
    assert scene.look(10.2, 100, "c1", "c2", high, equal) == ["-c3"]
    assert scene.look(15.2, 100, "c1", "c2", high, equal) == ["+c3", "-c4"]


def two_cards(planner: Any) -> None:
    """Cards with a container in common have one queue; others have their own."""
    scene = Scene(planner)
    both, other = scene.one("c2", cards=frozenset("AB")), scene.one("c3", cards=frozenset("B"))
    far = scene.one("c4", cards=frozenset("C"))
    assert scene.look(0, 0, "c1", both, other, far, B=0, C=0) == ["-c2", "-c3"]
    assert scene.look(1, 0, "c1", both, other, far, B=100, C=0) == []
    assert scene.look(9, 0, "c1", both, other, far, B=100, C=0) == []
    assert scene.look(10, 100, "c1", other, far, B=0, C=0) == ["+c2", "+c3"]


def the_order_of_arrival(planner: Any) -> None:
    """The oldest process comes first among those that are first seen together."""
    scene = Scene(planner)
    assert scene.look(0, 0, "c3", "c1", "c2") == ["-c2", "-c3"]
    assert scene.look(1, 100, "c0", "c3", "c2") == ["+c2", "-c0"]
    scene = Scene(planner)
    assert scene.look(0, 0, scene.one("c1", first=9), "c2") == ["-c1"]


def starvation(planner: Any) -> None:
    """All want the whole card for ever: with turns each waits at most a turn for each of the others, and two looks."""
    for many in (2, 3, 5, 8):
        scene = Scene(planner, Contention(TURNS, turn=2, longest=10**9))
        frozen, last, worst = set[str](), dict[str, float](), 0.0
        keys = [f"c{number}" for number in range(many)]
        for step in range(600):
            now = step * LOOK
            for act in scene.look(now, 100, *keys):
                (frozen.add if act[0] == "-" else frozen.discard)(act[1:])
            for key in {*keys} - frozen:
                worst, last[key] = max(worst, now - last.get(key, 0.0)), now
        assert len(last) == many
        assert worst <= (many - 1) * (max(2, 2.5) + 2 * LOOK) + 1e-6, (many, worst)


SCENES: tuple[Callable[[Any], None], ...] = (
    three_that_arrive_together,
    a_newcomer_while_others_run,
    a_card_that_is_nearly_busy,
    an_input_stage,
    full_memory,
    an_agent_that_starts_among_running_ones,
    turns,
    first_come_has_no_turns,
    the_longest_pause,
    a_rest_after_a_turn,
    blindness,
    a_card_that_is_gone,
    release_at_the_end,
    off,
    thawed_by_another,
    one_that_would_not_freeze,
    priority,
    two_cards,
    the_order_of_arrival,
    starvation,
)

# Random lives


@dataclass
class Alive:
    """A container in a life: what it holds, wants of the card and has left to do."""

    cards: frozenset[str]
    first: int
    mib: int
    wants: int
    left: float
    freezable: bool
    longest: float
    rest: float
    priority: int
    ending: bool = False


class Moment(NamedTuple):
    """One look of a life: the state before and after, what was seen, what was done, and who stands still by then."""

    before: Any
    seen: Any
    state: Any
    actions: tuple[Any, ...]
    frozen: frozenset[str]
    here: Mapping[str, Alive]


RULES = {
    "paper": PAPER,
    "turns": ROUND,
    "short": Contention(TURNS, turn=1, longest=3, rest=2, settle=0.1),
    "bounded": Contention(FIRST_COME, longest=6, rest=4),
    "off": Contention(OFF),
}


def life(planner: Any, rng: random.Random, rules: Contention, looks: int = 60) -> Iterator[Moment]:
    """Yield the looks of a life on one to three cards. The kernel obeys, but for a few freezes that another thaws."""
    state, now, number = planner.TurnState(), 0.0, 0
    cards, blind = "ABC"[: rng.choice((1, 1, 2, 3))], rng.choice((0, 0, 0.1))
    alive: dict[str, Alive] = {}
    frozen: set[str] = set()
    for _ in range(looks):
        now += 0.5 * rng.choice((0.2, 1, 1, 1, 3))
        for _ in range(rng.choice((0, 0, 0, 1, 1, 3)) if len(alive) < 8 else 0):
            number += 1
            own = frozenset(rng.sample(cards, rng.choice((1, 1, 1, len(cards)))))
            wants, left = rng.choice((0, 5, 30, 60, 100, 100)), rng.uniform(0.5, 20)
            longest = rng.choice((rules.longest, rules.longest, 5))
            rest = rng.choice((0, 0, 11))
            alive[f"c{number:03d}"] = Alive(
                own,
                number,
                rng.randrange(300, 6000),
                wants,
                left,
                rng.random() < 0.85,
                longest,
                rest,
                rng.choice((0, 0, 1)),
            )
        for key, one in [*alive.items()]:
            one.left -= 0 if key in frozen else 0.5
            one.wants = rng.choice((0, 30, 100)) if rng.random() < 0.05 else one.wants
            one.mib += rng.randrange(3000) if rng.random() < 0.03 else 0
            one.ending = one.ending or rng.random() < 0.02
            one.freezable = one.freezable and rng.random() > 0.005
            if one.left <= 0 or rng.random() < 0.01:
                del alive[key]  # one that is killed is gone, though it was frozen
                frozen.discard(key)
        looks_: dict[str, Any] = {}
        for card in cards:
            own_ = [(key, one) for key, one in alive.items() if card in one.cards]
            busy = min(100, sum(one.wants for key, one in own_ if key not in frozen))
            used = min(MIB, sum(one.mib for _, one in own_))
            looks_[card] = planner.CardLoad(None if rng.random() < blind else busy, used, MIB)
        thawed = {key for key in frozen if rng.random() < 0.01}
        frozen -= thawed
        seen = planner.PlanInput(
            now,
            looks_,
            tuple(
                planner.Candidate(
                    key, one.cards, one.first, 0 if key in frozen else one.wants, one.longest, one.rest, one.priority
                )
                for key, one in alive.items()
                if one.freezable and not one.ending
            ),
            thawed,
        )
        before, (state, actions) = state, planner.plan(state, seen, rules)
        for act in actions:
            (frozen.add if act.verb == planner.FREEZE else frozen.discard)(act.container)
        yield Moment(before, seen, state, actions, frozenset(frozen), alive)


def lives(planner: Any, seeds: range, rules: Contention) -> None:
    """The conditions at each look of a life, whoever arrives, works, grows, ends or is killed."""
    for seed in seeds:
        rested: dict[str, float] = {}
        moment = None
        for moment in life(planner, random.Random(seed), rules):  # noqa: S311
            _holds(planner, rules, moment, rested, seed)
        assert moment is not None
        final, actions = planner.release(moment.state, moment.seen.now, "the end")
        assert {act.container for act in actions} == {*moment.frozen}
        assert not final.frozen


def _holds(planner: Any, rules: Contention, moment: Moment, rested: dict[str, float], seed: int) -> None:
    before, seen, state, actions, frozen, here = moment
    managed = {each.key: each for each in seen.containers}
    assert frozen == {*state.frozen}, seed  # the state and the kernel agree
    assert frozen <= managed.keys(), seed  # nobody else is frozen: it may not be, or it ends
    assert not state.running.keys() & frozen, seed
    assert {*state.queue} <= managed.keys(), seed
    assert len({*state.queue}) == len(state.queue), seed
    assert rules.mode != OFF or not frozen, seed
    for key in frozen:
        assert seen.now - state.frozen[key].since < managed[key].longest + 1e-6, seed
    for cards, members in _joined(managed.values()):
        keys = {each.key for each in members}
        assert rules.mode == OFF or keys - frozen, seed  # never all: some one goes on, so none wait for each other
        assert rules.mode == OFF or keys & state.running.keys(), seed
        assert len(keys) > 1 or not keys & frozen, seed  # alone: never frozen
        if any(seen.cards[card].busy is None for card in cards):
            assert not keys & frozen, seed
        for key in keys & state.running.keys() - before.running.keys() - (before.found or set()):
            _first(rules, moment, keys, key, seed)
    for act in actions:
        assert act.verb == planner.THAW or act.container in here, seed
        if act.verb == planner.FREEZE:
            assert seen.now >= rested.get(act.container, 0), seed
        elif act.container in here:
            one = here[act.container]
            rested[act.container] = seen.now + max(one.rest, rules.rest if act.why == planner.LONGEST else 0)
    for key in seen.thawed:
        if key in managed:
            rested[key] = seen.now + max(rules.rest, managed[key].rest)
    assert len({act.container for act in actions}) == len(actions), seed  # at most one thing of each
    kinds = [act.verb == planner.FREEZE for act in actions]
    assert kinds == sorted(kinds), seed  # thaws come first
    again, more = planner.plan(state, seen._replace(thawed=()), rules)
    assert not more, (seed, more)  # the same moment again: nothing
    assert again.frozen == state.frozen, seed


def _first(rules: Contention, moment: Moment, keys: set[str], key: str, seed: int) -> None:
    """The first of those that waited is let run, by priority and then by the queue."""
    if rules.mode == OFF or moment.before.found is None or any(c.busy is None for c in moment.seen.cards.values()):
        return
    priorities = {each.key: -each.priority for each in moment.seen.containers}
    place = {each: number for number, each in enumerate(moment.state.queue)}
    waited = [each for each in keys if each not in moment.state.running and each in moment.before.queue]
    ended = {each for each in waited if each in moment.before.running}
    for other in {*waited} - ended:
        assert (priorities[key], place[key]) < (priorities[other], place[other]), (seed, key, other)


def _joined(containers: Any) -> list[tuple[frozenset[str], list[Any]]]:
    groups: list[tuple[frozenset[str], list[Any]]] = []
    for one in containers:
        touching = [group for group in groups if group[0] & one.cards]
        cards = one.cards.union(*(group[0] for group in touching))
        groups = [group for group in groups if group not in touching]
        groups.append((cards, [one, *(each for group in touching for each in group[1])]))
    return groups
