"""Lints of what a policy eases: exemptions, overrides, and rules that only warn or record."""

from collections.abc import Iterator
from typing import NamedTuple

from webhook.lints.base import Found, Linted, Table, at, within
from webhook.model import Action
from webhook.policy.model import Override


def ended_exemption(of: Linted) -> Iterator[Found]:
    """An exemption has ended.

    It does nothing any more but mislead its readers.

    Way out: remove it.
    """
    for path, each in at("exemptions", of.policy.exemptions):
        if each.until is not None and each.until < of.today:
            yield Found((*path, "until"), f"exemption {each.name} ended on {each.until}; remove it")


def ending_exemption(of: Linted) -> Iterator[Found]:
    """An exemption ends soon.

    What it let through is refused the day after.

    Way out: mend what it was for, or set another day.
    """
    for path, each in at("exemptions", of.policy.exemptions):
        if each.until is not None and of.today <= each.until < of.today + of.soon:
            yield Found((*path, "until"), f"exemption {each.name} ends on {each.until}; mend what it is for")


def idle_override(of: Linted) -> Iterator[Found]:
    """An override changes nothing: it gives a rule the action that it has anyway, or comes after a wider one.

    Of those that fit and name a rule the first counts.

    Way out: remove it, or move it up.
    """
    overrides = of.policy.overrides
    for index, (path, each) in enumerate(at("overrides", overrides)):
        for rule, action in each.actions.items():
            before = [(place, one) for place, one in enumerate(overrides[:index]) if rule in one.actions]
            wider = next((place for place, one in before if _overrides(one, each)), None)
            if wider is not None:
                yield Found((*path, "rules", rule), f"overrides[{wider}] speaks of this rule first; move this up")
            elif not before and action is of.policy.action(rule):
                yield Found((*path, "rules", rule), f"is {action} without it too; remove it")


def _overrides(wide: Override, narrow: Override) -> bool:
    """Tell whether an override covers all that another does."""
    if wide.scope is not None and (narrow.scope is None or not within(narrow.scope, wide.scope)):
        return False
    return not wide.pools or (bool(narrow.pools) and narrow.pools <= wide.pools)


class Door(NamedTuple):
    """A way around the policy: open where of each set of rules one is not Deny."""

    sets: tuple[frozenset[str], ...]
    open: str


_PAST_THE_GUARD = frozenset(("broad-toleration", "chosen-node", "foreign-binding"))
_TAKING = frozenset(
    (
        "device-annotation",
        "device-mount",
        "device-path",
        "host-namespaces",
        "privileged-container",
        "visible-devices",
    )
)

DOORS = (
    Door((frozenset(("unsteered-pod",)),), "pods go where they like, and neither pools nor circles hold"),
    Door(
        (frozenset(("changed-trust", "relabelled-node", "self-granted-trust")),),
        "whoever may write labels can grant trust, or move a node into another pool",
    ),
    Door((_TAKING,), "a pod with one GPU can take those of its neighbours"),
    Door(
        (_PAST_THE_GUARD, _TAKING | {"unguarded-container"}),
        "a pod that asks for no GPU can come to one and take it",
    ),
    Door((frozenset(("lifted-limit", "uncapped-memory")),), "one pod can take the whole memory of a shared card"),
    Door((frozenset(("claimed-gpu", "unlisted-claim")),), "GPUs can be claimed past the pools"),
)
"""Which rules shut which door; docs/doors.md has all of them."""


def open_door(of: Linted) -> Iterator[Found]:
    """Rules that only warn or record leave a way around the policy open.

    Each may be right by itself while a cluster is brought under the policy; this says what they come to together.

    Way out: set the rules to Deny, and ease them by an override for those who still need it.
    """
    eased = {rule for rule, action in of.policy.actions.items() if action is not Action.DENY}
    for override in of.policy.overrides:
        if override.scope is None and override.pools >= of.policy.pool_names:
            eased |= {rule for rule, action in override.actions.items() if action is not Action.DENY}
    for door in DOORS:
        open_ = [sorted(rules & eased) for rules in door.sets]
        if all(open_):
            rules = sorted({rule for each in open_ for rule in each})
            yield Found(("spec", "rules", rules[0]), f"with {_and(rules)} eased {door.open}; set them to Deny")


def _and(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]


LINTS: Table = {
    ended_exemption: Action.WARN,
    ending_exemption: Action.AUDIT,
    idle_override: Action.WARN,
    open_door: Action.WARN,
}
