"""Reports what a fallback enforces, rule by rule, and how a change of policy changes it."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from webhook.facts.snapshot import Facts
from webhook.fallback import current, mutations
from webhook.fallback.answers import ValidationActions
from webhook.fallback.comparison import compare
from webhook.fallback.policies import fallback
from webhook.model import Action, Object
from webhook.policy.model import Policy
from webhook.rules import Rule
from webhook.text.words import listed

NAMED = 8
"""Maximum number of rules named in a line."""


@dataclass(frozen=True, slots=True)
class FallbackStatus:
    """The fallback of a cluster: how it differs from the one that the policy needs, and what it does for each rule.

    The API server refuses requests that break the rules of `denied`, and only logs those that break `recorded`. If a
    rule has clauses for several kinds of requests, its strictest answer counts. `alone` are the rules that only the
    webhook enforces. A fallback that `waits` is empty: the controller fills it when a policy that enforces is in force.
    """

    installed: bool
    waits: bool = field(default=False, kw_only=True)
    differences: Sequence[str] = ()
    actions: str = ""
    denied: Sequence[str] = ()
    recorded: Sequence[str] = ()
    alone: Sequence[str] = ()

    @property
    def value(self) -> Object:
        """The status as an object for JSON."""
        return {
            "installed": self.installed,
            "empty": self.waits,
            "current": self.installed and not self.waits and not self.differences,
            "differences": [*self.differences],
            "actions": self.actions,
            "denied": [*self.denied],
            "recorded": [*self.recorded],
            "byWebhookAlone": [*self.alone],
        }

    @property
    def lines(self) -> Iterator[str]:
        """The comparison in lines for people."""
        if not self.installed:
            yield f"fallback: none that the API shows; {current.LOST}"
            return
        if self.waits:
            yield "fallback: empty, so only the webhook enforces the policy; the controller fills it in mode Enforce"
            return
        state = "stale; see `slicewarden fallback --check --live`" if self.differences else "current"
        yield f"fallback: {state}, actions: {self.actions or 'none'}"
        yield from (f"fallback: {line}" for line in self.differences)
        recorded = f"; records {listed(self.recorded, NAMED)}" if self.recorded else ""
        yield f"fallback: refuses what {len(self.denied)} rules deny{recorded}"
        if self.alone:
            yield f"fallback: only the webhook enforces {listed(self.alone, NAMED)}"


def standing(
    policy: Policy, rules: Sequence[Rule], found: Sequence[Object], facts: Facts | None = None
) -> FallbackStatus:
    """Compare the fallback of a cluster with the one that a policy needs, and report which rules it enforces.

    Mutations are compared if there are any, and their caps with the cards among the facts.
    """
    compared = compare(policy, rules, found, facts=facts)
    bindings = {name: each for each, names in current.answers(found).items() for name in names}
    by_answer: dict[ValidationActions | None, set[str]] = {}
    for item in found:
        if item["kind"] == current.KINDS[0]:
            answered = bindings.get(item["metadata"]["name"])
            by_answer.setdefault(answered, set()).update(_rules(item))
    denied = by_answer.get(ValidationActions.DENY, set())
    recorded = (by_answer.get(ValidationActions.AUDIT, set()) | by_answer.get(ValidationActions.WARN, set())) - denied
    wanted = {rule.id for rule in rules if policy.action(rule.id) is Action.DENY}
    waits = current.kept(found) and current.empty(found)
    return FallbackStatus(
        bool(found),
        compared.differences if found and not waits else (),
        compared.actions,
        sorted(denied),
        sorted(recorded),
        sorted(wanted - denied - recorded),
        waits=waits,
    )


RENEW = "the controller renews it; where none runs, apply what `slicewarden fallback` writes"
"""What brings a fallback up to date with a changed policy."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The rules that two fallbacks enforce differently, and those whose fixes `--mutate` writes differently."""

    added: Sequence[str] = field(default_factory=tuple)
    removed: Sequence[str] = field(default_factory=tuple)
    changed: Sequence[str] = field(default_factory=tuple)
    written: Sequence[str] = field(default_factory=tuple)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.added or self.removed or self.changed or self.written)

    @property
    def value(self) -> Object:
        """The changes as an object for JSON."""
        return {
            "added": [*self.added],
            "removed": [*self.removed],
            "changed": [*self.changed],
            "written": [*self.written],
        }

    @property
    def line(self) -> str:
        """The changes in one line for people; empty if there are none."""
        parts = (
            ("now also enforces", self.added, ""),
            ("no longer enforces", self.removed, ""),
            ("enforces", self.changed, " in another way"),
            ("writes the fixes of", self.written, " in another way if it was made with --mutate"),
        )
        said = [f"{verb} {listed(some, NAMED)}{way}" for verb, some, way in parts if some]
        return f"a cluster's fallback, if it has one, {', and '.join(said)}; {RENEW}" if said else ""


def changes(old: Policy, new: Policy, rules: Sequence[Rule]) -> Changes:
    """Compare the fallbacks of two policies rule by rule: expressions and scopes, but not messages."""
    before, after = (_held(fallback(policy, rules)) for policy in (old, new))
    return Changes(
        sorted(after.keys() - before.keys()),
        sorted(before.keys() - after.keys()),
        sorted(rule for rule in before.keys() & after.keys() if before[rule] != after[rule]),
        sorted(rule.id for rule in rules if _fixes(old, rule) != _fixes(new, rule)),
    )


def _fixes(policy: Policy, rule: Rule) -> Sequence[Any]:
    """Return what `--mutate` writes for a rule without facts: the scope, the variables and the expressions."""
    return [item["spec"] for item in mutations.mutating(policy, [rule], Facts())]


def _held(made: Iterable[Object]) -> dict[str, set[str]]:
    held: dict[str, set[str]] = {}
    for item in made:
        spec: Mapping[str, Any] = item["spec"]
        if item["kind"] != current.KINDS[0]:
            continue
        scope = json.dumps([spec["matchConstraints"], spec["matchConditions"]], sort_keys=True)
        variables = {each["name"]: each["expression"] for each in spec["variables"]}
        for each in spec["validations"]:
            texts = _read(each["expression"], variables)
            held.setdefault(_rule(each), set()).add("\n".join((item["metadata"]["name"], scope, *texts)))
    return held


def _read(expression: str, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield an expression, then the expressions of all variables that it reads, directly or through others."""
    yield expression
    seen, texts = set[str](), [expression]
    while texts:
        for name in re.findall(r"\bvariables\.(\w+)", texts.pop()):
            if name not in seen and name in variables:
                seen.add(name)
                texts.append(variables[name])
    yield from (f"{name} = {variables[name]}" for name in sorted(seen))


def _rules(item: Object) -> set[str]:
    validations = (item.get("spec") or {}).get("validations") or ()
    return {_rule(each) for each in validations if isinstance(each, dict)}


def _rule(validation: Mapping[str, Any]) -> str:
    return str(validation.get("message")).partition(":")[0]
