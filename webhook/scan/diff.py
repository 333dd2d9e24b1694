"""Compares two policies: the objects that would newly be denied, warned, patched or placed elsewhere."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from webhook.documents.files import Item
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.fallback.status import Changes, changes
from webhook.model import Action, Path, Problem, Result, Verdict, immutable
from webhook.policy.model import Policy
from webhook.rules import walk
from webhook.scan import judge as check
from webhook.scan import trust
from webhook.scan.results import (
    GroupKind,
    Judged,
    LeftAlone,
    PassedOver,
    Unjudged,
    count_unjudged,
    kind_of,
    left_alone,
    passed_over,
)
from webhook.scan.sharing import PoolUse


class ChangeEffect(StrEnum):
    """The effect of a change of policy on an object. The worst effect comes first."""

    DENIED = "denied"
    FREED = "freed"
    REFUSED_OTHERWISE = "refused otherwise"
    STEERED = "steered elsewhere"
    WARNED = "warned"
    UNWARNED = "no longer warned"
    PATCHED = "patched otherwise"
    RECORDED = "recorded otherwise"


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A finding that only one of the two policies makes, or that both make with different actions."""

    result: Result
    file: str
    line: int
    before: Action | None
    after: Action | None


@immutable
class Changed:
    """An object that the two policies judge differently, with the `effects` in the order of Effect."""

    before: Judged
    after: Judged
    effects: tuple[ChangeEffect, ...]
    differences: tuple[FindingChange, ...]

    @property
    def pools(self) -> tuple[str, str]:
        """The pools of the object's pods before and after, as `pools` writes them."""
        return pools(self.before), pools(self.after)


class Compared(NamedTuple):
    """The change of one object, or the problems that prevent a comparison; neither if nothing changes.

    `passed_over` is its kind if neither policy judges it, `left_alone` its namespace if the webhook is never asked. An
    object that does not change is `same` if it must be listed too; then it has no effects.
    """

    changed: Changed | None = None
    problems: tuple[Problem, ...] = ()
    passed_over: GroupKind | None = None
    left_alone: LeftAlone | None = None
    same: Changed | None = None

    @property
    def brief(self) -> "Compared":
        """The same without verdicts, and with one difference: a tenant's object may have thousands of findings."""
        if self.changed is None:
            return self
        before, after = (
            replace(each, verdict=Verdict(), lines=(), files=()) for each in (self.changed.before, self.changed.after)
        )
        few = replace(self.changed, before=before, after=after, differences=self.changed.differences[:1])
        return self._replace(changed=few)


Compare = Callable[..., Compared]
"""Compares the verdicts on an item, with `facts`, under two policies."""


@immutable
class Change:
    """The effects of a change of policy on a run. Unchanged objects are only counted, except those listed in `same`.

    `pools` show who shares which GPUs under the new policy, if a report shows them. `fallback` lists the rules whose
    admission policies change.
    """

    old: Policy
    new: Policy
    changed: tuple[Changed, ...]
    unchanged: int
    problems: tuple[Problem, ...]
    unjudged: tuple[Unjudged, ...] = ()
    pools: tuple[PoolUse, ...] | None = None
    left_alone: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    unread: tuple[str, ...] = ()
    same: tuple[Changed, ...] = ()
    fallback: Changes = field(default_factory=Changes)

    @classmethod
    def of(cls, old: Engine, new: Engine, compared: Iterable[Compared], unread: Iterable[Problem] = ()) -> "Change":
        """Gather the results of all objects, and the problems, sorted by file and line."""
        changed, problems, kinds, unchanged = list[Changed](), [*unread], list[GroupKind](), 0
        alone, same = Counter[str](), list[Changed]()
        for result in compared:
            if result.changed:
                changed.append(result.changed)
            problems += result.problems
            kinds += [result.passed_over] if result.passed_over else []
            alone.update(result.left_alone or ())
            same += [result.same] if result.same else []
            unchanged += result.same is not None or not any(result)
        problems.sort(key=lambda problem: (problem.file, problem.line))
        unjudged = count_unjudged(map(PassedOver, kinds), {**old.policy.workloads, **new.policy.workloads})
        return cls(
            old.policy,
            new.policy,
            tuple(changed),
            unchanged,
            tuple(problems),
            unjudged,
            left_alone=alone,
            same=tuple(same),
            fallback=changes(old.policy, new.policy, walk()),
        )

    @property
    def notes(self) -> Iterator[str]:
        """Lines about objects that were not judged, and about grants and the fallback if they change."""
        if self.unjudged:
            yield passed_over(self.unjudged)
        yield from self.unread
        yield from left_alone(self.left_alone)
        yield from trust.changes(self.old, self.new)
        if self.fallback:
            yield self.fallback.line

    def having(self, effect: ChangeEffect) -> list[Changed]:
        """The objects that have this effect."""
        return [changed for changed in self.changed if effect in changed.effects]


def compare(
    item: Item,
    old: Engine,
    new: Engine,
    facts: Facts,
    narrow: Callable[[Judged], Judged] | None = None,
    *,
    everything: bool = False,
) -> Compared:
    """Judge an object under two policies, with the same facts.

    Findings are compared by rule and place, not by message. An object that only one of the policies judges counts as
    allowed by the other. `narrow` removes the findings that must not be compared from a result. With `everything`, the
    result has the object also if it does not change.
    """
    one, other = check.judge(item, old, facts), check.judge(item, new, facts)
    if isinstance(one, Problem) or isinstance(other, Problem):
        return Compared(
            problems=tuple(dict.fromkeys(problem for problem in (one, other) if isinstance(problem, Problem)))
        )
    judged = next((result for result in (other, one) if isinstance(result, Judged)), None)
    if judged is None:
        alone = next((result for result in (other, one) if isinstance(result, LeftAlone)), None)
        return Compared(left_alone=alone) if alone else Compared(passed_over=kind_of(item))
    one, other = (result if isinstance(result, Judged) else _unjudged(judged) for result in (one, other))
    if narrow:
        one, other = narrow(one), narrow(other)
    effects = tuple(_effects(one, other))
    changed = Changed(one, other, effects, tuple(_differences(one, other)) if effects else ())
    if effects:
        return Compared(changed)
    return Compared(same=changed if everything else None)


def _unjudged(judged: Judged) -> Judged:
    """Make the empty result of a policy that does not judge the kind."""
    return replace(judged, verdict=Verdict(), lines=(), landings=())


def _effects(one: Judged, other: Judged) -> Iterator[ChangeEffect]:
    was, now = one.verdict.allowed, other.verdict.allowed
    if was and not now:
        yield ChangeEffect.DENIED
    if now and not was:
        yield ChangeEffect.FREED
    acts = {action: (_places(one, action), _places(other, action)) for action in Action}
    refused, later = acts[Action.DENY]
    if not was and not now and refused != later:
        yield ChangeEffect.REFUSED_OTHERWISE
    if pools(one) != pools(other):
        yield ChangeEffect.STEERED
    warned, later = acts[Action.WARN]
    if later - warned:
        yield ChangeEffect.WARNED
    if warned - later:
        yield ChangeEffect.UNWARNED
    if one.verdict.patch != other.verdict.patch:
        yield ChangeEffect.PATCHED
    if acts[Action.AUDIT][0] != acts[Action.AUDIT][1]:
        yield ChangeEffect.RECORDED


Place = tuple[str, Path, int]


def _place(result: Result) -> Place:
    return result.rule, result.finding.path, result.finding.text_line


def _places(judged: Judged, action: Action) -> set[Place]:
    return {_place(result) for result in judged.verdict.having(action)}


def _differences(one: Judged, other: Judged) -> Iterator[FindingChange]:
    before, after = ({_place(found[0]): found for found in judged.located} for judged in (one, other))
    for place in dict.fromkeys((*before, *after)):
        was, now = (side[place][0].action if place in side else None for side in (before, after))
        if was != now:
            result, file, line = after.get(place) or before[place]
            yield FindingChange(result, file, line, was, now)


def pools(judged: Judged) -> str:
    """Return the pools of an object's pods, `none` for pods without one; empty if no pod requests a GPU."""
    return ", ".join(landing.pool or "none" for landing in judged.landings)
