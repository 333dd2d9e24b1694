"""`slicewarden audit`: judge everything that runs in a live cluster."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import click

from webhook import reports, rules
from webhook.cli import inputs, options, outputs, parser
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.gpu import guard
from webhook.reports import audit_report
from webhook.scan import audit, live
from webhook.telemetry import progress
from webhook.text.words import several

OWN = {"table": audit_report.table, "json": audit_report.write}
FORMATS = {**reports.FORMATS, "table": "for people, by workload", "json": "for programs, by workload"}


@click.command(
    cls=parser.Command,
    page=parser.Page(
        (
            "slicewarden audit",
            "slicewarden audit --namespace vision",
            "slicewarden audit --format json --output audit.json --format markdown",
            "slicewarden audit --write-reports openreports",
        ),
        environment=parser.KUBECONFIG | parser.LOOK,
    ),
    help="Judge everything that runs in a live cluster: what was admitted before there was a webhook or while it was "
    "off, pods in the wrong pool, and who may see a card without having asked. It needs list rights only.",
)
@options.policy()
@options.cluster
@options.namespace("only this one, with what facts of the rest can be read")
@click.option("--all", "everything", is_flag=True, help="name what has no finding, too")
@click.option("--system", is_flag=True, help="judge also the namespaces for which the webhook is never asked")
@options.report(FORMATS)
@click.option(
    "--write-reports",
    type=parser.Choice(("openreports", "policyreport")),
    help="write a report into the cluster for each object with findings, and remove those of the others",
)
@click.option(
    "--page-size",
    type=parser.Number(1, 10_000),
    default=500,
    metavar="N",
    help="objects the API server is asked for at once (500)",
)
def command(
    policy: str | None,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    everything: bool,
    system: bool,
    formats: Sequence[str],
    files: Sequence[str],
    fail_on: str,
    write_reports: str | None,
    page_size: int,
) -> int:
    """Read the cluster, judge what is in it, write the reports."""
    from webhook.cluster import listing  # 30 MiB, which only a live cluster needs
    from webhook.reports import publish

    wanted = options.wanted(formats, files, FORMATS)
    inputs.note_sample(policy)
    engine = Engine(inputs.load_policy(policy), rules.walk())
    api = listing.connect(kubeconfig, context)
    form = publish.FORMS[write_reports] if write_reports else None
    if form:
        publish.installed(api, form)
    with progress.bar() as tell:
        objects, unknown = listing.facts(api, [engine.policy], namespace, holders=False, size=page_size, tell=tell)
        facts = replace(Facts.of(objects), today=datetime.now(UTC).date())
        reading = listing.Reading(api, [engine.policy], namespace, page_size, tell)
        result = audit.run(engine, facts, objects, reading, everything=everything, system=system, namespace=namespace)
        problems = [*unknown, *reading.problems, *result.problems, *live.misnamed(namespace, facts)]
        if form:
            kinds = reading.unread | ({"ClusterPolicy", "Namespace", "Node"} if unknown else set())
            problems += publish.publish(api, form, engine.policy.name, result.judged, kinds, namespace, tell)
    _caution(guard.unguarded(engine.policy, facts), result.passed_over)
    report = result.report(problems, datetime.now(UTC))
    outputs.say(reports.unshown((wanted_report.format for wanted_report in wanted), report))
    outputs.write(
        wanted,
        lambda name, look: OWN[name](report, look, result.count) if name in OWN else reports.render(name, report, look),
    )
    return options.status(
        fail_on,
        denied=report.count(allowed=False) > 0,
        warned=report.warned > 0,
        unusable=bool(report.problems),
    )


def _caution(unguarded: str | None, passed_over: int) -> None:
    if unguarded:
        outputs.say([f"warning: {unguarded}"])
    if passed_over:
        objects = f"{several(passed_over, 'object')} of namespaces that the webhook leaves alone"
        outputs.say([f"note: {objects}; --system judges them"])
