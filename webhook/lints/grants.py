"""Lints about the grants of trust."""

from collections.abc import Iterator
from itertools import combinations

from webhook.facts.rights import RIGHT, GrantedRight
from webhook.lints.base import Linted, LintFinding, Table, at, within
from webhook.model import Action
from webhook.policy.model import TRUSTED
from webhook.policy.scopes import NAME_LABEL, Grant
from webhook.text.words import listed


def broad_grant(of: Linted) -> Iterator[LintFinding]:
    """A grant covers nearly everyone: every namespace, or every namespace without a certain label.

    Then a namespace that is created tomorrow is trusted, although nobody decided that.

    Way out: grant by a label that only administrators may write, or by names.
    """
    for path, grant in at("trust.grants", of.policy.grants):
        selector = grant.scope.selector
        if grant.scope.everywhere:  # it also requires an RBAC right
            continue
        if selector and all(r.operator in _OPEN or _is_any_name(r.key, r.operator) for r in selector.requirements):
            said = " and ".join(map(str, selector.requirements))
            yield LintFinding(
                (*path, "namespaceSelector"), f"{said} trusts every new namespace; ask for a label's value"
            )
        elif len(of.facts.namespaces) > 1 and of.reached(grant.scope) == set(of.facts.namespaces):
            yield LintFinding(path, f"covers all {len(of.facts.namespaces)} namespaces, the system's too; name fewer")


_OPEN = ("NotIn", "DoesNotExist")


def _is_any_name(key: str, operator: str) -> bool:
    return key == NAME_LABEL and operator == "Exists"


def shadowed_grant(of: Linted) -> Iterator[LintFinding]:
    """A grant gives nothing that another grant does not give.

    If you remove or restrict it, nothing changes.

    Way out: remove it, or the wider one.
    """
    for index, grant in enumerate(of.policy.grants):
        for other, wider in enumerate(of.policy.grants):
            same = _wider(wider, grant) and _wider(grant, wider)
            if other != index and _wider(wider, grant) and (not same or other < index):
                yield LintFinding(
                    ("spec", "trust", "grants", index), f"gives nothing that grants[{other}] does not; remove one"
                )
                break


def _wider(wide: Grant, narrow: Grant) -> bool:
    """Return whether a grant gives everything that another gives, for any labels that namespaces may have."""
    return within(narrow.scope, wide.scope) and not any(_restrictions(wide, narrow))


def _restrictions(grant: Grant, other: Grant) -> Iterator[str]:
    """Yield the restrictions of a grant that another grant does not have."""
    accounts = grant.scope.service_accounts
    if accounts and not (other.scope.service_accounts and other.scope.service_accounts <= accounts):
        yield "serviceAccounts"
    if grant.rbac and not other.rbac:
        yield "rbac"
    if grant.pools and not (other.pools and other.pools <= grant.pools):
        yield "pools"
    asked, needed = grant.requesters, other.requesters
    if asked is not None and (needed is None or not (needed.users <= asked.users and needed.groups <= asked.groups)):
        yield "users or groups"


def overlapping_grants(of: Linted) -> Iterator[LintFinding]:
    """Two grants cover the same namespace, and one lacks a restriction that the other has.

    Grants add up, so the restriction has no effect in that namespace.

    Way out: take the namespace out of the wider grant.
    """
    for (first, one), (second, other) in combinations(enumerate(of.policy.grants), 2):
        for number, narrow, by, wide in ((first, one, second, other), (second, other, first, one)):
            if narrow.scope.everywhere:  # it is meant to add to the others
                continue
            both = of.reached(narrow.scope) & of.reached(wide.scope)
            asked = list(_restrictions(narrow, wide))
            if both and asked and not any(_restrictions(wide, narrow)) and not _wider(wide, narrow):
                yield LintFinding(
                    ("spec", "trust", "grants", number),
                    f"its {' and '.join(asked)} have no effect in {', '.join(sorted(both)[:3])}, where grants[{by}] "
                    "asks for less; take them out of one",
                )


def useless_grant(of: Linted) -> Iterator[LintFinding]:
    """A grant gives trust where no pool requires it.

    Such a grant has no effect.

    Way out: remove it, or let a pool take only trusted pods.
    """
    for path, grant in at("trust.grants", of.policy.grants):
        pools = [pool for pool in of.policy.pools if not grant.pools or pool.name in grant.pools]
        if not any(TRUSTED in pool.trust for pool in pools):
            yield LintFinding(path, f"{' and '.join(pool.name for pool in pools)} take no trusted pods; remove it")


def broad_right(of: Linted) -> Iterator[LintFinding]:
    """Service accounts have the right of trust through a rule with `*`, or all accounts of the cluster have it.

    Nobody decided that their pods may share GPUs. A user who may create pods in their namespace can run them as these
    accounts. The lint needs a grant with `rbac`, and Roles and bindings among the facts. It does not report accounts of
    kube-system.

    Way out: name verbs and resources in the role, or bind the role to fewer.
    """
    if not isinstance(of.facts.rights, GrantedRight):
        return
    for path, grant in at("trust.grants", of.policy.grants):
        if not grant.rbac:
            continue
        for binding, holders in of.facts.rights.broad:
            some = [each for each in holders if not each.startswith("kube-system:")]
            if some:
                yield LintFinding(
                    (*path, "rbac"),
                    f"{binding} lets {listed(some, 3)} {RIGHT}, though nobody named that right; name verbs and "
                    "resources in its role, or bind it to fewer",
                )


LINTS: Table = {
    broad_grant: Action.DENY,
    shadowed_grant: Action.WARN,
    overlapping_grants: Action.WARN,
    useless_grant: Action.WARN,
    broad_right: Action.WARN,
}
