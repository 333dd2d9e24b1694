"""Implements `slicewarden advise`: reports how large the slices of workloads should be, by the peaks that were seen."""

import click

from webhook.cli import counters, options, outputs, parser, usages
from webhook.cli.counters import UsageSource
from webhook.reports import size_report, usage_report
from webhook.usage import advice

_MORE = (
    f"The need is the highest peak of the window and a reserve: {advice.RESERVE_PART} percent, at least "
    f"{advice.RESERVE_MIB} MiB. Each change is one of several, and `saves` is the part of the held slice-hours that it "
    "would have left to others. A need is not known if the container may reserve its cap, if its memory still grew in "
    "the last quarter of the hours in which it was seen, if it was seen for less than "
    f"{advice.FEWEST} hours or worked for less than {advice.WORKED}, or if more than {advice.GAP:.0%} of the time, its "
    "memory or the nodes could not be seen. The command only reports: it changes nothing. With --prometheus, the "
    "counters are read that Prometheus has scraped from the agents. A node that it has not read in this time is not "
    "known there."
)


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        (
            "slicewarden advise --since 7d",
            "slicewarden advise --namespace team-a --format json",
            "slicewarden advise --since 7d --prometheus https://prometheus.example.com --prometheus-config client.yaml",
        ),
        usages.STATUS,
        more=_MORE,
        environment=parser.KUBECONFIG,
        files={},
    ),
    help="Advise the right size of what holds slices of the shared GPUs, by the peaks that were seen: the memory to "
    "ask for, a pool with smaller slices, a MIG profile, or more slices a card.",
)
@click.option(
    "--since",
    type=usages.TimeSpan(),
    default="7d",
    metavar="TIME",
    help="how far to go back, in whole hours: 48h or 7d; default: 7d; at most 35d",
)
@options.table_or_json
@usages.sources()
@counters.source
def command(since: int, namespace: str | None, form: str, source: UsageSource) -> int:
    """Read the usage, and write what it allows to change."""
    nodes, unseen = counters.with_peaks(source, -(-since // 3600))
    silent = None if any(each.node == usage_report.UNLISTED for each in unseen) else len(unseen)
    report = advice.advise(nodes, silent, namespace or "")
    notes = usage_report.sums(nodes, unseen, "pool", {}).notes  # of what the record lacks
    outputs.show(size_report.write(report, notes, unseen) if form == "json" else size_report.table(report))
    outputs.say([*notes, *usages.unseen_lines(unseen)])
    return int(bool(unseen))
