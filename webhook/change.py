"""What a change of policy would do to objects: who would newly be denied, warned, patched or placed elsewhere."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from webhook.check import Judged, Report, check
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
        """The pool of its pods before and after; empty for none."""
        return pool_of(self.before), pool_of(self.after)


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
    items = list(items)
    before, after = (check(items, engine, facts, explained=True) for engine in (old, new))
    changed, unchanged = [], 0
    for one, other in _pairs(before, after):
        effects = tuple(_effects(one, other))
        if effects:
            changed.append(Changed(one, other, effects, tuple(_differences(one, other))))
        else:
            unchanged += 1
    problems = {(each.file, each.line, each.message): each for each in (*before.problems, *after.problems)}
    return Change(old.policy.name, new.policy.name, tuple(changed), unchanged, tuple(problems.values()))


def _pairs(before: Report, after: Report) -> Iterator[tuple[Judged, Judged]]:
    """Bring together what was said of each object; what only one policy judges stands for itself, with no verdict."""
    later = {id(each.item): each for each in after.judged}
    for one in before.judged:
        yield one, later.pop(id(one.item), None) or _unjudged(one)
    for other in later.values():
        yield _unjudged(other), other


def _unjudged(judged: Judged) -> Judged:

    return replace(judged, verdict=Verdict(), explained=None)


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
    if pool_of(one) != pool_of(other):
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
    before, after = _by_place(one), _by_place(other)
    for place in dict.fromkeys((*before, *after)):
        was, now = before.get(place), after.get(place)
        told = now or was
        if told and (was and was.action) != (now and now.action):
            yield Difference(told, was and was.action, now and now.action)


def _by_place(judged: Judged) -> Mapping[Place, Result]:
    return {_place(each): each for each in judged.verdict.results}


def pool_of(judged: Judged) -> str:
    """The pool that its pods are held to; empty for none."""
    return judged.explained.pool if judged.explained else ""
