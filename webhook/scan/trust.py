"""Compares which pods two policies trust."""

from collections.abc import Iterator
from typing import NamedTuple

from webhook.policy.model import Policy
from webhook.policy.scopes import Grant
from webhook.text.words import listed

NAMED = 8
"""Maximum number of names of one kind in a line."""


class Trusted(NamedTuple):
    """The pods that a grant trusts: their namespaces, the condition, and the pools. No pools stand for all pools."""

    namespaces: str
    condition: str
    pools: tuple[str, ...]


def changes(old: Policy, new: Policy) -> Iterator[str]:
    """Yield a line about what each change of grants permits, whether or not such pods or namespaces exist."""
    before, after = (dict.fromkeys(_trusted(policy)) for policy in (old, new))
    for may, some, others in (("may now be", after, before), ("may no longer be", before, after)):
        changed: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for each in some:
            if each not in others:
                changed.setdefault((each.condition, each.pools), []).append(each.namespaces)
        for (condition, pools), places in changed.items():
            where = f" in {'pool' if len(pools) == 1 else 'pools'} {listed(pools, NAMED)}" if pools else ""
            yield f"grants: pods of {listed(places, NAMED)} {may} trusted{where}{condition}"


def _trusted(policy: Policy) -> Iterator[Trusted]:
    for grant in policy.grants:
        condition, pools = _condition(grant), tuple(sorted(grant.pools))
        scope = grant.scope
        if scope.everywhere:
            yield Trusted("every namespace", condition, pools)
        for name in sorted(scope.namespaces):
            yield Trusted(f"namespace {name}", condition, pools)
        if scope.selector is not None:
            wanted = " and ".join(sorted(map(str, scope.selector.requirements)))
            yield Trusted(f"namespaces with {wanted}", condition, pools)


def _condition(grant: Grant) -> str:
    """Say what else a grant requires: the pod's account, its right, and who sends it; empty if nothing."""
    accounts, sent = sorted(grant.scope.service_accounts), grant.requesters
    parts = [f"its service account is {listed(accounts, NAMED)}"] if accounts else []
    if grant.rbac:
        parts.append("its service account has the right of trust")
    if sent is not None:
        parts.append(f"it is sent by {listed([*sorted(sent.users), *sorted(sent.groups)], NAMED)}")
    return f", if {' and '.join(parts)}" if parts else ""
