"""What a change of policy would do to objects: who would newly be denied, warned, patched or placed elsewhere."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from webhook.check import Judged, judge
from webhook.engine import Engine
from webhook.facts import Facts
from webhook.files import Item
from webhook.model import Action, Path, Problem, Result, Verdict


class Effect(StrEnum):
    """What a change does to an object, the worst first."""

    DENIED = "denied"
    FREED = "freed"
    REFUSED_OTHERWISE = "refused otherwise"
    STEERED = "steered elsewhere"
    WARNED = "warned"
    UNWARNED = "no longer warned"
    PATCHED = "patched otherwise"
    RECORDED = "recorded otherwise"


@dataclass(frozen=True, slots=True)
class Difference:
    """A finding that one of the two policies has and the other has not, or has with another action."""

    result: Result
    line: int
    before: Action | None
    after: Action | None


@dataclass(frozen=True, eq=False)
class Changed:
    """An object of which the two policies say different things. `effects` has at least one, in the order of Effect."""

    before: Judged
    after: Judged
    effects: tuple[Effect, ...]
    differences: tuple[Difference, ...]

    @property
    def pools(self) -> tuple[str, str]:
        """The pools of its pods before and after, as `pools` writes them."""
        return pools(self.before), pools(self.after)


@dataclass(frozen=True, eq=False)
class Change:
    """All that a change does; objects of which nothing changes are only counted."""

    old: str
    new: str
    changed: tuple[Changed, ...]
    unchanged: int
    problems: tuple[Problem, ...]

    def having(self, effect: Effect) -> list[Changed]:
        """The objects to which it does this."""
        return [each for each in self.changed if effect in each.effects]


def compare(items: Iterable[Item], old: Engine, new: Engine, facts: Facts) -> Change:
    """Judge the same objects by two policies, with the same facts.

    Findings are compared by rule and place, not by their words. An object of a kind that only one of the policies
    judges counts as allowed by the other.
    """
    changed: list[Changed] = []
    problems: list[Problem] = []
    unchanged = 0
    for item in items:
        one, other = judge(item, old, facts), judge(item, new, facts)
        problems += dict.fromkeys(each for each in (one, other) if isinstance(each, Problem))
        if isinstance(one, Problem) or isinstance(other, Problem) or not (told := other or one):
            continue
        one, other = one or _unjudged(told), other or _unjudged(told)
        if effects := tuple(_effects(one, other)):
            changed.append(Changed(one, other, effects, tuple(_differences(one, other))))
        else:
            unchanged += 1
    return Change(old.policy.name, new.policy.name, tuple(changed), unchanged, tuple(problems))


def _unjudged(judged: Judged) -> Judged:
    """What a policy says of a kind that it does not judge: nothing."""
    return replace(judged, verdict=Verdict(), lines=(), landings=())


def _effects(one: Judged, other: Judged) -> Iterator[Effect]:
    was, now = one.verdict.allowed, other.verdict.allowed
    if was and not now:
        yield Effect.DENIED
    if now and not was:
        yield Effect.FREED
    acts = {each: (_places(one, each), _places(other, each)) for each in Action}
    refused, later = acts[Action.DENY]
    if not was and not now and refused != later:
        yield Effect.REFUSED_OTHERWISE
    if pools(one) != pools(other):
        yield Effect.STEERED
    warned, later = acts[Action.WARN]
    if later - warned:
        yield Effect.WARNED
    if warned - later:
        yield Effect.UNWARNED
    if one.verdict.patch != other.verdict.patch:
        yield Effect.PATCHED
    if acts[Action.AUDIT][0] != acts[Action.AUDIT][1]:
        yield Effect.RECORDED


Place = tuple[str, Path, int]


def _place(result: Result) -> Place:
    return result.rule, result.finding.path, result.finding.text_line


def _places(judged: Judged, action: Action) -> set[Place]:
    return {_place(each) for each in judged.verdict.having(action)}


def _differences(one: Judged, other: Judged) -> Iterator[Difference]:
    before, after = ({_place(each): (each, line) for each, line in judged.findings} for judged in (one, other))
    for place in dict.fromkeys((*before, *after)):
        was, now = (side[place][0].action if place in side else None for side in (before, after))
        if was != now:
            result, line = after.get(place) or before[place]
            yield Difference(result, line, was, now)


def pools(judged: Judged) -> str:
    """The pools that its pods are held to, `none` for pods that no pool takes; empty where none asks for a GPU."""
    return ", ".join(landing.pool or "none" for landing in judged.landings)
