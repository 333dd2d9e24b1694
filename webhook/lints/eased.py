"""Lints of exemptions, overrides, and rules that only warn or record."""

from collections.abc import Iterator
from typing import NamedTuple

from webhook.catalog.names import Names
from webhook.lints.base import Linted, LintFinding, Table, at, within
from webhook.model import Action
from webhook.policy.actions import EVERY_RULE, Override
from webhook.policy.model import Policy


def ended_exemption(of: Linted) -> Iterator[LintFinding]:
    """An exemption has ended.

    An ended exemption has no effect, and misleads readers.

    Way out: remove it.
    """
    for path, each in at("exemptions", of.policy.exemptions):
        if each.until is not None and each.until < of.today:
            yield LintFinding((*path, "until"), f"exemption {each.name} ended on {each.until}; remove it")


def ending_exemption(of: Linted) -> Iterator[LintFinding]:
    """An exemption ends soon.

    After its last day, the policy acts on its findings again.

    Way out: correct the workload, or set a later day.
    """
    for path, each in at("exemptions", of.policy.exemptions):
        if each.until is not None and of.today <= each.until < of.today + of.soon:
            yield LintFinding(
                (*path, "until"),
                f"exemption {each.name} ends on {each.until}; correct its workload, or set a later day",
            )


def every_rule_exempted(of: Linted) -> Iterator[LintFinding]:
    """An exemption names no rules, so it applies to all of them.

    Anyone who may create pods that it covers can use every GPU of a node. Only programs that need all GPUs need this.

    Way out: name the `rules` that refuse the program; `slicewarden check` shows them.
    """
    for path, each in at("exemptions", of.policy.exemptions):
        if not each.rules:
            yield LintFinding(path, f"exemption {each.name} covers every rule; name rules, unless it needs all of them")


def exempted_default(of: Linted) -> Iterator[LintFinding]:
    """An exemption names the account `default`, which pods have if they name no account.

    So the exemption covers most pods of its namespaces, whatever they run, although it seems to be for one program.

    Way out: give the program its own account, and name that account under `serviceAccounts`.
    """
    for path, each in at("exemptions", of.policy.exemptions):
        if "default" in Names(each.scope.service_accounts):
            yield LintFinding(
                (*path, "serviceAccounts"),
                f"exemption {each.name} covers the account default, which every pod has that names none; give the "
                "program its own account, and name that",
            )


def idle_override(of: Linted) -> Iterator[LintFinding]:
    """An override changes nothing: it repeats an action, or a wider override comes before it.

    The first matching override that names the rule or `"*"` decides.

    Way out: remove it, or move it up.
    """
    overrides = of.policy.overrides
    for index, (path, override) in enumerate(at("overrides", overrides)):
        for rule, action in override.actions.items():
            meant = _meant(rule, override, of.policy)
            others = [(place, one) for place, one in enumerate(overrides) if place != index and _speaks(one, meant)]
            wider = next(
                (p for p, one in others if p < index and of.policy.overriding(one, rule) and _overrides(one, override)),
                None,
            )
            if wider is not None:
                yield LintFinding((*path, "rules", rule), f"overrides[{wider}] names this rule first; move this up")
            elif not others and all(of.policy.action(name) is action for name in meant):
                yield LintFinding((*path, "rules", rule), f"is {action} without it too; remove it")


def _meant(rule: str, override: Override, policy: Policy) -> set[str]:
    """Return the rules of one key in an override.

    For `"*"` these include every rule that the rest of the policy names.
    """
    if rule != EVERY_RULE:
        return {rule}
    named = set(policy.actions).union(*(one.actions for one in policy.overrides))
    return {EVERY_RULE, *(named - set(override.actions))}


def _speaks(override: Override, rules: set[str]) -> bool:
    return any(override.action(rule) is not None for rule in rules)


def _overrides(wide: Override, narrow: Override) -> bool:
    """Return whether an override covers everything that another one covers."""
    if wide.scope is not None and (narrow.scope is None or not within(narrow.scope, wide.scope)):
        return False
    return not wide.pools or (bool(narrow.pools) and narrow.pools <= wide.pools)


def newer_rule(of: Linted) -> Iterator[LintFinding]:
    """A rule is newer than the release in `rulesAsOf`, so it only records.

    An upgrade of Slicewarden brought it. It denies nothing until the policy says so.

    Way out: see what it finds, then give it an action under `rules`. To adopt all new rules, raise `rulesAsOf`.
    """
    named = set(of.policy.actions).union(*(one.actions for one in of.policy.overrides))
    for rule, (major, minor) in sorted(of.policy.newer.items()):
        if rule not in named:
            release = f"{major}.{minor}"
            message = f"rule {rule} is new in {release} and only records; name it under rules, or say {release} here"
            yield LintFinding(("spec", "rulesAsOf"), message)


class ClosedWay(NamedTuple):
    """A way around the policy. It is closed if all rules of at least one of its sets deny."""

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

WAYS = (
    ClosedWay((frozenset(("unsteered-pod",)),), "pods go where they like, and neither pools nor their tenants count"),
    ClosedWay(
        (frozenset(("changed-trust", "relabelled-node", "self-granted-trust")),),
        "whoever may write labels can grant trust, or move a node into another pool",
    ),
    ClosedWay((_TAKING,), "a pod with one GPU can take those of its neighbours"),
    ClosedWay(
        (_PAST_THE_GUARD, _TAKING | {"unguarded-container"}),
        "a pod that asks for no GPU can come to one and take it",
    ),
    ClosedWay((frozenset(("lifted-limit", "uncapped-memory")),), "one pod can take the whole memory of a shared card"),
    ClosedWay(
        (frozenset(("claimed-gpu", "foreign-device-class", "unlisted-claim")),), "GPUs can be claimed past the pools"
    ),
)
"""The rules that close each way; docs/evidence/ways-to-a-gpu.md lists all of them."""


def open_way(of: Linted) -> Iterator[LintFinding]:
    """Rules that only warn or record leave a way around the policy open.

    Each such setting may be right while a policy is introduced. This lint reports their combined effect.

    Way out: set the rules to Deny, and use an override for those who still need the exception.
    """
    for way in WAYS:
        open_ = [sorted(rule for rule in rules if _eased(rule, of.policy)) for rules in way.sets]
        if all(open_):
            rules = sorted({rule for each in open_ for rule in each})
            entry = rules[0] if rules[0] in of.policy.actions else EVERY_RULE
            yield LintFinding(("spec", "rules", entry), f"with {_and(rules)} eased {way.open}; set them to Deny")


def _eased(rule: str, policy: Policy) -> bool:
    """Return whether the policy's rules, or an override for all namespaces and pools, ease a rule to Warn or Audit."""
    everywhere = (one for one in policy.overrides if one.scope is None and one.pools >= policy.pool_names)
    actions = (policy.action(rule), *(policy.overriding(one, rule) for one in everywhere))
    return any(action not in (None, Action.DENY) for action in actions)


def _and(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]


LINTS: Table = {
    ended_exemption: Action.WARN,
    ending_exemption: Action.AUDIT,
    every_rule_exempted: Action.AUDIT,
    exempted_default: Action.WARN,
    idle_override: Action.WARN,
    newer_rule: Action.AUDIT,
    open_way: Action.WARN,
}
