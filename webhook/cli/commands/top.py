"""`slicewarden top`: what each container does on the shared cards now."""

import math
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from webhook.cli import counters, options, outputs, parser, usages
from webhook.cli.counters import UsageSource
from webhook.cli.watch import CLEAR
from webhook.model import Problem, Unusable
from webhook.reports import top_report
from webhook.reports.top_report import NodeNow
from webhook.reports.usage_report import UnseenNode, moment
from webhook.text.words import one_line, several
from webhook.usage import document, scraped
from webhook.usage.document import NodeUsage
from webhook.usage.store import DamagedRecord

PERIOD = 5.0
"""Seconds between two rounds of the live view."""

ROUND_SECONDS = 15.0
"""Seconds that the agents may take together in a round of the live view."""

RECORD_PERIOD = 10.0
"""Seconds for which the live view shows a usage record, because an agent answers only one in 5 seconds."""

_MORE = (
    "The agents are asked for their metrics through the API server, which needs the right to `list` pods and to `get` "
    "pods/proxy in the namespace slicewarden-node, and to `list` nodes. It works without --usage of the agents; with "
    "it, there are also the containers that hold slices without a process on a GPU, their slices, and how long they "
    "have held them and not worked. `over` and `not requested` are the agent's words for a container above its cap, "
    "and for one that requests no GPU. In a terminal the table is renewed 5 seconds after each round, until Ctrl-C. "
    "A round asks the agents for 15 seconds at most, and names those that have not answered by then. With "
    "--prometheus, the last values are read that Prometheus has scraped from the agents; neither the cluster nor a "
    "right there is needed."
)


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        (
            "slicewarden top",
            "slicewarden top --once --sort over --namespace team-a",
            "slicewarden top --from node-1.txt --format json",
            "slicewarden top --once --prometheus http://localhost:9090",
        ),
        usages.STATUS | {"0": "success, or the live view was ended by Ctrl-C"},
        more=_MORE,
        environment=parser.KUBECONFIG,
        files={},
    ),
    help="Show what each container does on the shared GPUs now, by card: its memory next to the cap, its work, and "
    "since when it has held its slices.",
)
@click.option(
    "--sort",
    type=parser.WordChoice(tuple(top_report.SORTS)),
    default="name",
    help="the order of cards and containers: by name, or those first that use, work, idle or exceed the cap the most",
)
@click.option(
    "--once", is_flag=True, help="show it once, as with json, with --from, and where the output is no terminal"
)
@options.table_or_json
@usages.sources("an answer of an agent's /metrics in a file named after its node, as node-1.txt, or of its /usage")
@counters.source
def command(
    sort: str,
    once: bool,
    form: str,
    namespace: str | None,
    source: UsageSource,
) -> int:
    """Show the cards once, or until Ctrl-C."""
    files = source.files
    api = None if source.prometheus else usages.connected(files, source.kubeconfig, source.context)
    records, took = Records(), dict[str, float]()
    live = form == "table" and not once and not files and sys.stdout.isatty()
    longest = ROUND_SECONDS if live else math.inf

    def seen() -> TopRound:
        if source.prometheus:
            gauges, unseen = counters.now(source, namespace or "")
            nodes = [NodeNow(*each) for each in gauges]
        elif api:
            nodes, unseen = usages.ask_all(api, records.now, longest, took)
        else:
            nodes, unseen = _of_files(files), []
        found = top_report.cards(nodes, sort, namespace or "")
        copied = [
            f"note: {each.node}: its usage record is as of {moment(each.usage.at)}"
            for each in nodes
            if files and each.usage
        ]
        return TopRound(found, [*top_report.notes(nodes), *copied], unseen)

    if live:
        return _live(seen, time.sleep)
    found = seen()
    if form == "json":
        outputs.show(top_report.write(*found))
    else:
        outputs.show(top_report.table(found.cards))
    outputs.say(found.lines)
    return int(bool(found.unseen))


class TopRound(NamedTuple):
    """One reading for `slicewarden top`: every agent is asked once, or every file read once."""

    cards: list[top_report.TopCard]
    notes: list[str]
    unseen: list[UnseenNode]

    @property
    def lines(self) -> list[str]:
        """The notes, and the nodes that could not be read, one line each."""
        return [*self.notes, *usages.unseen_lines(self.unseen)]


class Records:
    """Asks the agents, and keeps their usage records for a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._kept = clock, dict[str, tuple[float, NodeUsage]]()

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


def _of_files(files: Sequence[str]) -> list[NodeNow]:
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


def _live(seen: Callable[[], TopRound], sleep: Callable[[float], object]) -> int:
    """Show each round in place of the last one, until Ctrl-C. Raises Unusable if the first round fails."""
    try:
        begun, found = time.monotonic(), seen()
        while True:
            took = f"{time.strftime('%H:%M:%S')}, asked in {time.monotonic() - begun:.1f} s; Ctrl-C ends"
            lines = [took, *top_report.table(found.cards).splitlines(), "", *found.lines]
            outputs.show(CLEAR, commands=True)
            outputs.show("\n".join(fitted(lines, *shutil.get_terminal_size())) + "\n")
            sleep(PERIOD)
            begun = time.monotonic()
            try:
                found = seen()
            except Unusable as error:
                found = TopRound([], [f"error: {problem}" for problem in error.problems], [])
    except KeyboardInterrupt:
        return 0


def fitted(lines: Sequence[str], width: int, height: int) -> list[str]:
    """Return the lines that fit on a screen, and how many do not."""
    room = max(height - 2, 1)
    rest = len(lines) - room
    shown = [one_line(line)[:width] for line in lines[:room]]
    return (
        shown
        if rest <= 0
        else [*shown, f"{several(rest, 'more line')}; --namespace and --sort choose, --once shows all"[:width]]
    )
