"""Lints that compare Kueue's queues with the pools."""

from collections.abc import Iterator

from webhook.api.selectors import contradiction, equals
from webhook.facts.kinds import priority_class
from webhook.facts.queues import Flavor
from webhook.lints.base import Linted, LintFinding, Table, at
from webhook.model import Action, Path
from webhook.policy.model import TRUSTED, UNTRUSTED, Policy, Pool
from webhook.policy.scopes import Grant
from webhook.text.words import listed, shown


def flavor_against_pool(of: Linted) -> Iterator[LintFinding]:
    """A flavour of Kueue and the pools do not agree on the nodes of its quota.

    Kueue writes a flavour's labels into the jobs that it admits. If they exclude the pool that the job's pods belong
    to, Kueue admits the job, holds the quota, and Slicewarden refuses every pod. The pods of a namespace with a grant
    are assumed to be trusted. A flavour that fits shared and whole GPUs alike counts a slice as a card. A taint of a
    flavour that its own tolerations do not cover keeps jobs out of it: Slicewarden writes tolerations into pods, not
    into jobs. The lint needs ResourceFlavors, ClusterQueues and LocalQueues among the facts.

    Way out: give the flavour the labels of one pool, and each trust level its own queue. Add the pool's
    tolerations to the flavour.
    """
    queues = of.facts.queues
    pools = [*at("pools", of.policy.pools)]
    for queue, quotas in sorted(queues.quotas.items()):
        for quota in quotas:
            flavor = queues.flavors.get(quota.flavor)
            for resource in quota.resources if flavor else ():
                offering = [(path, pool) for path, pool in pools if resource in pool.resources and pool.has_nodes]
                if flavor and offering:
                    where = f"flavour {shown(quota.flavor)} of ClusterQueue {shown(queue)}"
                    yield from _excluded(of, offering, flavor, resource, where, queues.namespaces.get(queue, ()))
                    yield from _mixed(offering, flavor, resource, where)
                    yield from _tainted(offering, flavor, where)


Offering = list[tuple[Path, Pool]]


def _excluded(
    of: Linted, offering: Offering, flavor: Flavor, resource: str, where: str, namespaces: tuple[str, ...]
) -> Iterator[LintFinding]:
    """Describe the namespaces whose pods belong to a pool that the flavour excludes, or to no pool."""
    found: dict[tuple[Path, str, str, str], list[str]] = {}
    for namespace in namespaces:
        level = _level(namespace, of)
        willing = [(path, pool) for path, pool in offering if _takes(pool, namespace, level, of)]
        right = [each for each in willing if each[1].shared == (level == TRUSTED)] or willing
        if not right:
            found.setdefault((("spec", "pools"), level, "", ""), []).append(namespace)
        elif all(_clash(pool, flavor) for _, pool in right):
            path, pool = right[0]
            found.setdefault(((*path, "nodes"), level, pool.name, _clash(pool, flavor) or ""), []).append(namespace)
    for (path, level, name, key), whom in found.items():
        who = f"{level} pods of namespace {listed(whom, 3)} that ask for 1 {resource}"
        if name:
            yield LintFinding(
                path,
                f"{where} has {key}={flavor.labels.get(key, '')}, which excludes pool {name}: {who} belong there, so "
                "their jobs are admitted but get no pods; give the flavour the pool's labels",
            )
        else:
            yield LintFinding(
                path, f"{where} admits jobs, but no pool takes {who}; grant them trust, or name another queue"
            )


def _level(namespace: str, of: Linted) -> str:
    return TRUSTED if any(_granted(grant, namespace, of) for grant in of.policy.grants) else UNTRUSTED


def _granted(grant: Grant, namespace: str, of: Linted) -> bool:
    """Return whether a grant covers a namespace; with `rbac`, whether some account there is known to have the right."""
    if grant.rbac and not of.facts.rights.holders(namespace):
        return False
    return grant.scope.reaches(namespace, of.facts.namespaces.get(namespace))


def _takes(pool: Pool, namespace: str, level: str, of: Linted) -> bool:
    policy: Policy = of.policy
    labels = of.facts.namespaces.get(namespace)
    granted = level == UNTRUSTED or any(
        _granted(grant, namespace, of) and (not grant.pools or pool.name in grant.pools) for grant in policy.grants
    )
    return level in pool.trust and granted and (pool.tenants is None or pool.tenants.reaches(namespace, labels))


def _clash(pool: Pool, flavor: Flavor) -> str | None:
    """Return the label with which a flavour excludes every node of a pool."""
    return contradiction((*equals(flavor.labels), *pool.nodes.requirements))


def _mixed(offering: Offering, flavor: Flavor, resource: str, where: str) -> Iterator[LintFinding]:
    fitting = [(path, pool) for path, pool in offering if not _clash(pool, flavor)]
    shared, whole = ([pool.name for _, pool in fitting if pool.shared is sort] for sort in (True, False))
    if shared and whole:
        yield LintFinding(
            (*fitting[0][0], "nodes"),
            f"{where} fits nodes of pool {listed(shared, 3)}, which shares its GPUs, and of pool {listed(whole, 3)}: "
            f"its quota of {resource} counts a slice as a card; make a flavour for each pool",
        )


def _tainted(offering: Offering, flavor: Flavor, where: str) -> Iterator[LintFinding]:
    given = {toleration.get("key") for toleration in flavor.tolerations}
    for path, pool in offering:
        keys = {toleration["key"] for toleration in pool.tolerations}
        lacking = [key for taint in flavor.taints if (key := taint.get("key")) in keys and key not in given]
        if lacking and None not in given and not _clash(pool, flavor):
            yield LintFinding(
                (*path, "tolerations"),
                f"{where} has the taint {lacking[0]} without a toleration of its own, and jobs are not given the one "
                f"of pool {pool.name}, so none is admitted; add the toleration to the flavour",
            )


def evicting_default(of: Linted) -> Iterator[LintFinding]:
    """The cluster's default priority class evicts other pods, but pods without trust may not.

    So with `untrusted: {preempt: Never}`, every pod without trust that requests a GPU and names no class is refused.
    The lint needs PriorityClasses among the facts.

    Way out: give the default class `preemptionPolicy: Never`, or a value of 0. Or document which class users should
    name.
    """
    if of.policy.untrusted_preempt or not any(UNTRUSTED in pool.trust for pool in of.policy.pools):
        return
    for name, known in sorted(of.facts.table(priority_class.TABLE).items()):
        if known.default and known.preempts and known.value > 0:
            yield LintFinding(
                ("spec", "untrusted", "preempt"),
                f"PriorityClass {shown(name)} is the cluster's default, with value {known.value}, and evicts: "
                "untrusted pods that name no class are refused; give it preemptionPolicy: Never",
            )


LINTS: Table = {flavor_against_pool: Action.WARN, evicting_default: Action.WARN}
