"""Judges the objects of a live cluster: by one policy as they are, or by two as they would be created again.

For a comparison a workload is judged by its template, which makes its next pods.
"""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple

from webhook.cluster import listing
from webhook.cluster.client import PAGE, Api
from webhook.documents import files
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Problem
from webhook.scan import audit, live
from webhook.scan.audit import Audit
from webhook.scan.diff import Change, Compare
from webhook.telemetry.progress import Tell, quietly


class ClusterAudit(NamedTuple):
    """An audit with the problems from reading the cluster. `unread` are the kinds with objects missing."""

    audit: Audit
    problems: tuple[Problem, ...]
    unread: frozenset[str]


def audited(
    api: Api,
    engine: Engine,
    namespace: str | None = None,
    *,
    everything: bool = False,
    system: bool = False,
    size: int = PAGE,
    tell: Tell = quietly,
) -> ClusterAudit:
    """List the cluster, or one namespace of it, and judge what runs. The options are those of `audit.run`.

    `size` is the number of objects in one answer. Raises Unusable if the cluster does not answer, and Broke.
    """
    objects, unknown = listing.facts(api, [engine.policy], namespace, holders=False, size=size, tell=tell)
    facts = replace(Facts.of(objects), today=datetime.now(UTC).date())
    reading = listing.ObjectReader(api, [engine.policy], namespace, size, tell)
    found = audit.run(engine, facts, objects, reading, everything=everything, system=system, namespace=namespace)
    problems = (*unknown, *reading.problems, *found.problems, *live.misnamed(namespace, facts))
    unread = reading.unread | ({"ClusterPolicy", "Namespace", "Node"} if unknown else set())
    return ClusterAudit(found, problems, frozenset(unread))


def compared(
    api: Api,
    old: Engine,
    new: Engine,
    compare: Compare,
    namespace: str | None = None,
    *,
    size: int = PAGE,
    tell: Tell = quietly,
) -> tuple[Change, Facts]:
    """List the cluster, or one namespace of it, and compare. Returns the facts too.

    `size` is the most objects in one answer. Raises Unusable if the cluster does not answer.
    """
    policies = old.policy, new.policy
    workloads = {**old.policy.workloads, **new.policy.workloads}
    objects, unknown = listing.facts(api, policies, namespace, size=size, tell=tell)
    facts = replace(Facts.of(objects), today=datetime.now(UTC).date())
    reading = listing.ObjectReader(api, policies, namespace, size, tell)
    alive = (item for item in reading if not (live.ended(item) or live.made(item, workloads)))
    items = map(files.alone, chain(alive, live.among_facts(objects, namespace)))
    results = (compare(item, facts=facts) for item in items)
    # Only judged kinds were asked for.
    found = [result for result in results if not (result.passed_over or result.left_alone)]
    return Change.of(old, new, found, (*unknown, *reading.problems, *live.misnamed(namespace, facts))), facts
