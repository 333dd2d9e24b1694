"""`slicewarden audit`: judge everything that runs in a live cluster."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import replace
from datetime import UTC, datetime

from webhook import audit, guard, inputs, living, manual, outputs, progress, reports, rules, running
from webhook import options as common
from webhook.check import Report
from webhook.engine import Engine
from webhook.facts import Facts, group_kind
from webhook.model import several
from webhook.reports import sources
from webhook.targets import CONFIG_MAP

OWN = {"table": sources.table, "json": sources.write}
FORMATS = {**reports.FORMATS, "table": "for people, by workload", "json": "for programs, by workload"}


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Judge everything that runs in a live cluster: what was admitted before there was a webhook or while it was "
        "off, pods in the wrong pool, and who may see a card without having asked. It needs list rights only."
    )
    parser.epilog = manual.epilog(
        (
            "slicewarden audit",
            "slicewarden audit --namespace vision",
            "slicewarden audit --format json --output audit.json --format markdown",
            "slicewarden audit --write-reports openreports",
        ),
        environment=manual.KUBECONFIG | manual.LOOK,
    )
    common.policy(parser)
    common.cluster(parser)
    common.namespace(parser, "only this one, with what facts of the rest can be read")
    parser.add_argument("--all", action="store_true", help="name what has no finding, too")
    parser.add_argument(
        "--system", action="store_true", help="judge also the namespaces for which the webhook is never asked"
    )
    common.report(parser, FORMATS)
    parser.add_argument(
        "--write-reports",
        choices=("openreports", "policyreport"),
        help="write a report into the cluster for each object with findings, and remove those of the others",
    )
    parser.add_argument(
        "--page-size", type=_size, default=500, metavar="N", help="objects the API server is asked for at once (500)"
    )


def run(chosen: Namespace) -> int:
    """Read the cluster, judge what is in it, write the reports."""
    from webhook import publish, snapshot  # 30 MiB, which only a live cluster needs

    wanted = common.wanted(chosen)
    inputs.tell_of_sample(chosen.policy)
    engine = Engine(inputs.load_policy(chosen.policy), rules.walk())
    api = snapshot.connect(chosen.kubeconfig, chosen.context)
    form = publish.FORMS[chosen.write_reports] if chosen.write_reports else None
    if form:
        publish.installed(api, form)
    with progress.bar() as tell:
        objects, unknown = snapshot.facts(
            api, [engine.policy], chosen.namespace, holders=False, size=chosen.page_size, tell=tell
        )
        facts = replace(Facts.of(objects), today=datetime.now(UTC).date())
        found = audit.Audit(engine, facts, everything=chosen.all, system=chosen.system, namespace=chosen.namespace)
        reading = snapshot.Reading(api, [engine.policy], chosen.namespace, chosen.page_size, tell)
        sharing = []
        for item in reading:
            if group_kind(item) == CONFIG_MAP:
                sharing.append(item)
            else:
                found.take(item)
        found.finish(objects, sharing)
        problems = [*unknown, *reading.problems, *found.problems, *living.misnamed(chosen.namespace, facts)]
        if form:
            kinds = reading.unread | ({"ClusterPolicy", "Namespace", "Node"} if unknown else set())
            problems += publish.publish(api, form, engine.policy.name, found.judged, kinds, chosen.namespace, tell)
    _caution(guard.unguarded(engine.policy, facts), found.passed_over)
    report = Report(
        tuple(found.judged),
        tuple(problems),
        pages=running.PAGES,
        policy=engine.policy.name,
        digest=engine.policy.digest,
        at=datetime.now(UTC),
    )
    outputs.say(reports.untold((each.format for each in wanted), report))
    outputs.write(
        wanted,
        lambda name, look: OWN[name](report, look, found.count) if name in OWN else reports.render(name, report, look),
    )
    return common.status(
        chosen.fail_on,
        denied=report.count(allowed=False) > 0,
        warned=report.warned > 0,
        unusable=bool(report.problems),
    )


def _caution(unguarded: str | None, passed_over: int) -> None:
    if unguarded:
        outputs.say([f"warning: {unguarded}"])
    if passed_over:
        what = f"{several(passed_over, 'object')} of namespaces that the webhook leaves alone"
        outputs.say([f"note: {what}; --system judges them"])


def _size(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 10_000):
        raise ArgumentTypeError(f"{text!r} is not a number from 1 to 10000")
    return int(text)
