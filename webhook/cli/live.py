"""Reads what the cards and containers do now, for `top` and `ui`: from agents, copies or Prometheus."""

import math
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from webhook.cli import counters, usages
from webhook.cli.counters import UsageSource
from webhook.model import Problem, Unusable
from webhook.reports import top_report
from webhook.reports.top_report import NodeNow
from webhook.reports.usage_report import UnseenNode, moment
from webhook.usage import document, scraped
from webhook.usage.document import NodeUsage
from webhook.usage.store import DamagedRecord

if TYPE_CHECKING:
    from webhook.cluster.client import Api

PERIOD = 5.0
"""Seconds between two rounds of a live view."""

ROUND_SECONDS = 15.0
"""Seconds that the agents may take together in a round of a live view."""

RECORD_PERIOD = 10.0
"""Seconds for which a live view shows a usage record, because an agent answers only one in 5 seconds."""


class TopRound(NamedTuple):
    """One reading: every agent is asked once, or every file read once."""

    nodes: list[NodeNow]
    cards: list[top_report.TopCard]
    notes: list[str]
    unseen: list[UnseenNode]

    @property
    def lines(self) -> list[str]:
        """The notes, and the nodes that could not be read, one line each."""
        return [*self.notes, *usages.unseen_lines(self.unseen)]


class Rounds:
    """Reads rounds: from the source's Prometheus, if it names one, else from agents, else from its files.

    `longest` is how many seconds the agents may take together in a round.
    """

    def __init__(
        self,
        api: "Api | None",
        source: UsageSource,
        sort: str = "name",
        namespace: str = "",
        longest: float = math.inf,
    ) -> None:
        self._api, self._source, self._longest = api, source, longest
        self._sort, self._namespace = sort, namespace
        self._records, self._took = Records(), dict[str, float]()

    def __call__(self) -> TopRound:
        """Read a round. Raises Unusable."""
        copied = list[str]()
        if self._source.prometheus:
            gauges, unseen = counters.now(self._source, self._namespace)
            nodes = [NodeNow(*each) for each in gauges]
        elif self._api:
            nodes, unseen = usages.ask_all(self._api, self._records.now, self._longest, self._took)
            self._forget({each.node for each in nodes} | {each.node for each in unseen})
        else:
            nodes, unseen = of_files(self._source.files), []
            copied = [
                f"note: {each.node}: its usage record is as of {moment(each.usage.at)}" for each in nodes if each.usage
            ]
        cards = top_report.cards(nodes, self._sort, self._namespace)
        return TopRound(nodes, cards, [*top_report.notes(nodes), *copied], unseen)

    def _forget(self, but: Collection[str]) -> None:
        """Forget nodes that have left the cluster: a page may be open for days."""
        self._records.forget(but)
        for node in self._took.keys() - but:
            del self._took[node]


class Records:
    """Asks the agents, and keeps their usage records for a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._kept = clock, dict[str, tuple[float, NodeUsage]]()

    def forget(self, but: Collection[str]) -> None:
        """Forget all nodes but these."""
        self._kept = {node: each for node, each in self._kept.items() if node in but}

    def now(self, agent: usages.AskedAgent) -> NodeNow:
        """Ask an agent for its metrics, and for its usage record if it keeps one. Raises Silent without metrics."""
        scrape = agent.scrape()
        if not scrape.counts:
            return NodeNow(agent.node, scrape)
        at, kept = self._kept.get(agent.node, (0.0, None))
        if kept is None or self._clock() - at >= RECORD_PERIOD:
            try:
                kept = agent.usage(1)
            except usages.Silent as error:
                return NodeNow(agent.node, scrape, silent=str(error))
            self._kept[agent.node] = self._clock(), kept
        return NodeNow(agent.node, scrape, kept)


def of_files(files: Sequence[str]) -> list[NodeNow]:
    """Read answers of agents. A node has its metrics in the file named after it. Raises Unusable."""
    found: dict[str, NodeNow] = {}
    for file in files:
        data = usages.beginning(file)
        try:
            if data.lstrip()[:1] == b"{":
                usage = document.read(data)
                found[usage.node] = found.get(usage.node, NodeNow(usage.node))._replace(usage=usage)
            else:
                node = Path(file).stem
                found[node] = found.get(node, NodeNow(node))._replace(scrape=scraped.read(data))
        except DamagedRecord as error:
            raise Unusable((Problem(file, 0, str(error)),)) from error
    return [found[node] for node in sorted(found)]
