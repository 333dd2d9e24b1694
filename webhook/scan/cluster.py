"""Compares the verdicts of two policies on the objects of a live cluster.

A workload is judged by its template, which makes its next pods.
"""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain

from webhook.cluster import listing
from webhook.cluster.client import Api
from webhook.documents import files
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.scan import live
from webhook.scan.diff import Change, Compare
from webhook.telemetry.progress import Tell, quietly


def compared(
    api: Api, old: Engine, new: Engine, compare: Compare, namespace: str | None = None, tell: Tell = quietly
) -> tuple[Change, Facts]:
    """List the cluster, or one namespace of it, and compare. Returns the facts too.

    Raises Unusable if the cluster does not answer.
    """
    policies = old.policy, new.policy
    workloads = {**old.policy.workloads, **new.policy.workloads}
    objects, unknown = listing.facts(api, policies, namespace, tell=tell)
    facts = replace(Facts.of(objects), today=datetime.now(UTC).date())
    reading = listing.ObjectReader(api, policies, namespace, tell=tell)
    alive = (item for item in reading if not (live.ended(item) or live.made(item, workloads)))
    items = map(files.alone, chain(alive, live.among_facts(objects, namespace)))
    results = (compare(item, facts=facts) for item in items)
    # Only judged kinds were asked for.
    found = [result for result in results if not (result.passed_over or result.left_alone)]
    return Change.of(old, new, found, (*unknown, *reading.problems, *live.misnamed(namespace, facts))), facts
