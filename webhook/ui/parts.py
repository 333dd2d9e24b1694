"""The parts of the page, as HTML: values in, texts out."""

from collections.abc import Iterable, Mapping, Sequence

from webhook.cluster.event_list import ListedEvent
from webhook.cluster.events import REASON
from webhook.facts.snapshot import Facts
from webhook.model import Problem
from webhook.policy.model import Policy
from webhook.reports import top_report, usage_report
from webhook.reports.formats import html
from webhook.reports.top_report import NodeNow, TopCard
from webhook.reports.usage_report import duration
from webhook.scan import sharing
from webhook.ui import memory_view

IDLE_AFTER = 30 * 60_000
"""Milliseconds without work from which on a container is shown as idle, as in `slicewarden idle`."""

MOST_ROWS = 2_000
"""Maximum containers that are shown in all: a browser writes them again every 5 seconds."""

MOST_NAMESPACES = 200
"""Maximum namespaces whose Events are shown: those with the latest ones."""


def cards(
    nodes: Sequence[NodeNow],
    found: Sequence[TopCard],
    problems: Sequence[str],
    labelled: Mapping[str, str],
    namespace: str,
) -> str:
    """Write what the cards and containers do now. `labelled` has the pools of nodes by their labels."""
    pools, more = memory_view.cut(memory_view.pools(found, memory_view.by_record(nodes, labelled)), MOST_ROWS)
    return html.fragment(
        "ui_cards.html",
        pools=pools,
        more=more,
        neighbours=memory_view.neighbours(found),
        idle=usage_report.idle([node.usage for node in nodes if node.usage], IDLE_AFTER, namespace),
        head=top_report.HEAD,
        duration=duration,
        problems=problems,
    )


def pools(policy: Policy, facts: Facts, problems: Sequence[Problem]) -> str:
    """Write the pools of a policy, with the nodes and pods that may be read."""
    unknown = sorted(each for each in facts.holders if each.node not in facts.named)
    return html.pools_fragment(sharing.overview(policy, facts), unknown, problems)


def pools_of_nodes(policy: Policy, facts: Facts) -> dict[str, str]:
    """Return the pools of nodes by their labels."""
    found = ((node.name, policy.pool_of(node.labels)) for node in facts.nodes)
    return {name: pool.name for name, pool in found if pool}


def events(by_namespace: Mapping[str, Sequence[ListedEvent]], problems: Iterable[Problem]) -> str:
    """Write Events by namespace, the one with the latest first."""
    ordered = sorted(by_namespace.items(), key=lambda each: (each[1][0].at, each[0]), reverse=True)
    return html.fragment(
        "ui_events.html",
        namespaces=ordered[:MOST_NAMESPACES],
        more=max(len(ordered) - MOST_NAMESPACES, 0),
        denied=REASON,
        problems=[*map(str, problems)],
    )
