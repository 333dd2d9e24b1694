"""`slicewarden audit`: judge everything that runs in a live cluster."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from webhook import reports, rules
from webhook.cli import inputs, options, outputs, parser
from webhook.cli.outputs import Wanted
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.fallback import current
from webhook.fallback.status import FallbackStatus, standing
from webhook.gpu import guard
from webhook.model import Unusable
from webhook.reports import audit_report, formats
from webhook.reports import statistics as counts
from webhook.scan import occupancy, sharing
from webhook.scan.results import Report, only
from webhook.telemetry import progress
from webhook.text.terminal import Look
from webhook.text.words import several

if TYPE_CHECKING:
    from webhook.cluster.client import Api


def _html(report: Report, look: Look, count: int) -> str:
    from webhook.reports.formats import html  # Jinja, which only a page needs

    return html.audit(report, look, count)


OWN = {"table": audit_report.table, "html": _html, "json": audit_report.write}
FORMATS = formats.Purposes(table="for people, by workload", json="for programs, by workload")


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        (
            "slicewarden audit",
            "slicewarden audit --namespace vision",
            "slicewarden audit --format json --output audit.json --format markdown",
            "slicewarden audit --statistics",
            "slicewarden audit --write-reports openreports",
        ),
        environment=parser.KUBECONFIG | parser.LOOK,
    ),
    help="Judge everything that runs in a live cluster: objects that were admitted without the webhook, pods in the "
    "wrong pool, and pods that can reach a GPU without requesting one. It also reports what the fallback enforces. "
    "It needs only list rights.",
)
@options.policy()
@options.cluster
@options.namespace("judge only this namespace; facts about others are used where they can be read")
@options.EVERYTHING
@options.rules(occupancy.PAGES)
@options.STATISTICS
@click.option("--system", is_flag=True, help="also judge the namespaces that are never sent to the webhook")
@options.report(FORMATS)
@click.option(
    "--write-reports",
    type=parser.WordChoice(("openreports", "policyreport")),
    help="write a report into the cluster for each object with findings, and delete outdated ones",
)
@click.option(
    "--page-size",
    type=parser.Number(1, 10_000),
    default=500,
    metavar="N",
    help="objects in one answer of the API server, which bounds the memory of the audit; default: 500",
)
def command(
    policy: str | None,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    everything: bool,
    statistics: bool,
    system: bool,
    wanted: Sequence[Wanted],
    fail_on: str,
    write_reports: str | None,
    page_size: int,
) -> int:
    """Read the cluster, judge its objects and write the reports."""
    from webhook.cluster import listing  # 30 MiB, which only a live cluster needs
    from webhook.reports import publish
    from webhook.scan import cluster

    if statistics:
        options.counted(wanted)
    inputs.note_sample(policy)
    engine = inputs.engine(policy)
    api = listing.connect(kubeconfig, context)
    form = publish.FORMS[write_reports] if write_reports else None
    if form:
        publish.installed(api, form)
    with progress.bar() as tell:
        result, found, unread = cluster.audited(
            api, engine, namespace, everything=everything, system=system, size=page_size, tell=tell
        )
        problems = [*found]
        if form:
            problems += publish.publish(api, form, engine.policy.name, result.judged, unread, namespace, tell)
    _caution(guard.unguarded(engine.policy, result.facts), result.passed_over)
    report = _chosen(result.report(problems, datetime.now(UTC)), everything=everything)
    report = replace(report, fallback=_fallback(api, engine, result.facts))
    if any(each.format == "html" for each in wanted):
        report = replace(report, pools=sharing.overview(engine.policy, result.facts))
    outputs.say(reports.unshown((each.format for each in wanted), report))
    outputs.write(wanted, partial(_render, report=report, count=result.count, statistics=statistics))
    return options.status(
        fail_on,
        denied=report.count(allowed=False) > 0,
        warned=report.warned > 0,
        unusable=bool(report.problems),
    )


def _fallback(api: "Api", engine: Engine, facts: Facts) -> FallbackStatus | None:
    from webhook.cluster import registered

    try:
        found = registered.policies(api, current.SELECTOR)
    except Unusable as error:
        outputs.say([f"note: the fallback could not be read: {error.problems[0]}"])
        return None
    return standing(engine.policy, rules.walk(), found, facts)


def _chosen(report: Report, *, everything: bool) -> Report:
    """Leave out the findings of rules that the command line does not choose, and the objects without any left."""
    chosen = options.chosen()
    if chosen is None:
        return report
    kept = (only(judged, chosen) for judged in report.judged)
    return replace(report, judged=tuple(judged for judged in kept if everything or judged.verdict.results))


def _render(name: str, look: Look, *, report: Report, count: int, statistics: bool) -> str:
    if statistics:
        return counts.render(name, counts.of_audit(report), audit_report.summary(report, look, count), look)
    return OWN[name](report, look, count) if name in OWN else reports.render(name, report, look)


def _caution(unguarded: str | None, passed_over: int) -> None:
    if unguarded:
        outputs.say([f"warning: {unguarded}"])
    if passed_over:
        objects = f"{several(passed_over, 'object')} of namespaces that the webhook never judges"
        outputs.say([f"note: {objects}; --system judges them"])
