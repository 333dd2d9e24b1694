"""`slicewarden top`: show the work of each container on the shared cards now."""

import math
import shutil
import sys
import time
from collections.abc import Callable, Sequence

import click

from webhook.cli import counters, options, outputs, parser, usages
from webhook.cli.counters import UsageSource
from webhook.cli.live import PERIOD, ROUND_SECONDS, Rounds, TopRound
from webhook.cli.watch import CLEAR
from webhook.model import Unusable
from webhook.reports import top_report
from webhook.text.words import one_line, several

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
    api = None if source.prometheus else usages.connected(source.files, source.kubeconfig, source.context)
    live = form == "table" and not once and not source.files and sys.stdout.isatty()
    seen = Rounds(api, source, sort, namespace or "", ROUND_SECONDS if live else math.inf)
    if live:
        return _live(seen, time.sleep)
    found = seen()
    if form == "json":
        outputs.show(top_report.write(found.cards, found.notes, found.unseen))
    else:
        outputs.show(top_report.table(found.cards))
    outputs.say(found.lines)
    return int(bool(found.unseen))


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
                found = TopRound([], [], [f"error: {problem}" for problem in error.problems], [])
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
