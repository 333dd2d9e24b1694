"""The rules: one file each.

They are found by walking this folder; the file's name is the rule's id.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Any, get_args

from webhook.allowance import Allowance
from webhook.api.objects import ConfigMap, Subject
from webhook.api.pods import Pod
from webhook.cel.clauses import Clause
from webhook.deviceplugin.review import ConfigMapReview
from webhook.facts.snapshot import Facts
from webhook.gpu.review import PodReview, Trait
from webhook.model import Finding, immutable
from webhook.policy.actions import Release, release
from webhook.policy.model import Policy
from webhook.review import Review

FIRST = "0.1"
"""The release that brought the first rules."""

Check = Callable[[Any], Iterator[Finding]]
Applies = Callable[[Policy], bool]
Fallback = Callable[[Policy], Iterator[Clause]]

REVIEWS: Mapping[type[Subject], type[Review[Any]]] = {Pod: PodReview, ConfigMap: ConfigMapReview}
"""The review classes of subjects that need more than `Review`."""


def review_of(subject: Subject, policy: Policy, facts: Facts, allowance: Allowance | None = None) -> Review[Any]:
    """Make the review of a subject. All rules that judge the subject are given this review."""
    return REVIEWS.get(type(subject), Review)(subject, policy, facts, allowance or Allowance())


@immutable
class Rule:
    """A rule: its id, what it judges, the function that judges, and its page (the module's docstring).

    Only a rule that `mends` may return findings with fixes. `since` is the release that added the rule. With
    `looks_at`, the rule runs only on pods with at least one of these traits; with None it runs on every pod.
    """

    id: str
    subject: type[Subject] | UnionType
    check: Check
    page: str
    mends: bool = False
    since: Release = (0, 0)
    looks_at: frozenset[Trait] | None = None
    applies: Applies | None = None
    """Whether the rule can find anything under a policy; None if it can under every policy."""
    fallback: Fallback | None = None
    """The clauses that the API server enforces by itself; its docstring says how much less they find than `check`."""


def releases() -> dict[str, Release]:
    """Return the release that brought each rule, by the rule's id."""
    return {rule.id: rule.since for rule in walk()}


@cache
def walk() -> tuple[Rule, ...]:
    """Load every rule of this folder, sorted by id.

    The type of the parameter of a rule's `check` says which subjects the rule judges. A rule whose findings have fixes
    sets `MENDS = True`. `SINCE` is the release that adds the rule, such as `"0.1"`. `LOOKS_AT` names traits; in a pod
    with none of them the rule finds nothing. `applies` returns False for a policy under which it finds nothing.
    """
    return tuple(sorted(map(_rule, (m.name for m in pkgutil.iter_modules(__path__))), key=lambda r: r.id))


def _rule(name: str) -> Rule:
    module = importlib.import_module(f"{__name__}.{name}")
    subjects = list(_subjects(next(iter(module.check.__annotations__.values()))))
    if not subjects:
        raise TypeError(f"rule {name}: check's parameter must be a review of {Subject}")
    page = (module.__doc__ or "").strip()
    mends = getattr(module, "MENDS", False)
    since = release(getattr(module, "SINCE", FIRST))
    applies, fallback = getattr(module, "applies", None), getattr(module, "fallback", None)
    looks_at = getattr(module, "LOOKS_AT", None)
    traits = None if looks_at is None else frozenset(looks_at)
    subject = reduce(or_, subjects)
    return Rule(name.replace("_", "-"), subject, module.check, page, mends, since, traits, applies, fallback)


def asked(rules: Iterable[Rule], traits: frozenset[str] | None) -> tuple[Rule, ...]:
    """Return the rules that may find something in a subject with these traits.

    None, for unknown traits, returns all rules.
    """
    return tuple(
        rule for rule in rules if rule.looks_at is None or traits is None or not rule.looks_at.isdisjoint(traits)
    )


def _subjects(annotation: Any) -> Iterator[type[Subject]]:
    """Yield the subjects in a review type: `Review[Binding]`, a union, or a subclass of one."""
    if annotation in get_args(Subject):
        yield annotation
    for inner in get_args(annotation) or getattr(annotation, "__orig_bases__", ()):
        yield from _subjects(inner)
