"""`slicewarden idle`: list the containers that have a slice of a shared card and do no work."""

import click

from webhook.cli import counters, options, outputs, parser, usages
from webhook.cli.counters import UsageSource
from webhook.reports import usage_report

_MORE = (
    "Idle is what the agent has seen at each look without a break: NVML reported no work of the container's processes, "
    "or it had none. Its CPU and its memory do not count. A container that NVML cannot attribute work to, such as a "
    "client of MPS, is never idle, and neither is one that the agent has frozen. NVML reports the last second at each "
    "look, so shorter work may be missed between two looks. The command only reports: it ends nothing."
)


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        (
            "slicewarden idle",
            "slicewarden idle --after 2h --namespace team-a --format json",
            "slicewarden idle --prometheus http://localhost:9090 --match job=slicewarden-system/slicewarden-node",
        ),
        usages.STATUS | {"0": "success, also if containers are idle"},
        more=_MORE,
        environment=parser.KUBECONFIG,
        files={},
    ),
    help="Show the containers that have held a slice of a shared GPU without work for a while. They are only reported.",
)
@click.option(
    "--after",
    type=usages.TimeSpan(),
    default="30m",
    metavar="TIME",
    help="how long without work: 90s, 30m or 2h; default: 30m",
)
@options.table_or_json
@usages.sources()
@counters.source
def command(
    after: int,
    namespace: str | None,
    form: str,
    source: UsageSource,
) -> int:
    """Read what containers do now, and write the idle ones."""
    nodes, unseen = counters.present(source, namespace or "")
    found = usage_report.idle(nodes, after * 1000, namespace or "")
    outputs.show(usage_report.idle_json(found, unseen) if form == "json" else usage_report.idle_table(found))
    outputs.say(
        [
            *(f"note: {each.node}: {each.trouble}" for each in nodes if each.trouble),
            *(
                f"note: {each.node}: as of {usage_report.moment(each.at)}"
                + ("" if each.now else "; it names no containers, as a copy of usage.sqlite does not")
                for each in nodes
                if source.files
            ),
            *usages.unseen_lines(unseen),
        ]
    )
    return int(bool(unseen))
